"""What is read of a server's answer, and written of a request: texts of others, each with its bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import unquote

from cues_kafka.ports.clock import Clock

MOST_WAIT_S: Final = 86_400.0
"""The longest time that `Retry-After` is taken for, in seconds. Each request is bounded by its patience anyway."""

_UNPACKED: Final = 5
"""How often a path may be packed in percent signs: a server, and what is before it, may each unpack it once."""


def retry_after_s(text: str | None, clock: Clock) -> float | None:
    """How long, in seconds, `Retry-After` asks to wait, a day at most; None: it does not say, or says nonsense."""
    if text is None:
        return None
    if (text := text.strip()).isdecimal():
        # Python reads no number of more than 4,300 digits.
        return min(float(text[:400]), MOST_WAIT_S)
    try:
        at = parsedate_to_datetime(text)
        wait_s = at.replace(tzinfo=at.tzinfo or UTC).timestamp() - clock.time()
    except (ValueError, OverflowError, TypeError):
        return None
    return min(max(0.0, wait_s), MOST_WAIT_S)


def leaves_base(path: str) -> bool:
    """Whether a path goes above the address that it is put behind: a part of it is `..`, plain or packed."""
    path = without_query(path)
    for _ in range(_UNPACKED):
        if any(part in {"..", "."} for part in re.split(r"[/\\]", path)):
            return True
        path, before = unquote(path), path
        if path == before:
            return False
    return True


def without_query(path: str) -> str:
    """A path as texts show it: what is behind `?` may be a login."""
    return re.split(r"[?#]", path, maxsplit=1)[0]


_TOKEN: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")
_FIELD: Final = re.compile(rb"(?:[^\x00\s]+(?:[ \t]+[^\x00\s]+)*)?")


def unsendable(method: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """
    Why HTTP has no form for a method or a header (RFC 9110, 5.5 and 5.6.2); empty: it has.

    A client notices it when it writes the request, and says so by an error that looks like one of the connection.
    """
    if not method.isascii() or not _TOKEN.fullmatch(method.encode()):
        return "the method is not a word of letters"
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            return f"{name!r:.80} cannot be the name of a header. If it comes from a message, check it"
        if not _FIELD.fullmatch(value):
            return (
                f"the header {name.decode()} has a line end, NUL or spaces around its value, which HTTP does not take. "
                "If it comes from a message, check it, or pack it: urllib.parse.quote(value)"
            )
    return ""
