"""English for texts that are put together: plurals, articles, lists of names, and what a docstring says first."""

from __future__ import annotations

import base64
import functools
import inspect
import re
from collections.abc import Iterable
from typing import Final

BOOTSTRAP: Final = "BOOTSTRAP"
"""Stands for the address of the cluster where it is not known."""

SERVER: Final = f"--bootstrap-server {BOOTSTRAP}"
"""The option that each command of Kafka needs, in texts that do not know the address of the cluster."""


def at_address(text: str, address: str) -> str:
    """A text whose commands of Kafka name the cluster, so that they can be pasted."""
    return text.replace(SERVER, f"--bootstrap-server {address}")


def visible(text: str, *, lines: bool = False) -> str:
    """
    A text with escapes for what a terminal would obey, or what would hide how the text reads.

    That is each control character, also those of ISO 6429, each line or paragraph end, each mark that turns the
    direction of writing or has no width, and each half of a surrogate pair. All other characters stay.

    Args:
        text: from anywhere.
        lines: keep line feeds: the text has several lines of ours.
    """
    return _UNSAFE.sub(lambda found: found[0] if lines and found[0] == "\n" else _escaped(found[0]), text)


def _escaped(char: str) -> str:
    """The escape of a character, as Python and JSON write it."""
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return short.get(char) or (f"\\u{ord(char):04x}" if ord(char) < 1 << 16 else f"\\U{ord(char):08x}")


_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def count(number: int, noun: str, plural: str | None = None) -> str:
    """
    A number with its noun: ``1 task``, ``2 tasks``, ``10,000 tasks``.

    Args:
        number: how many.
        noun: the singular.
        plural: None: the singular with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def article(noun: str) -> str:
    """A noun with its article, decided by the first letter: ``a Graph``, ``an int``."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def quoted(names: Iterable[str]) -> str:
    """Names as a list for an error message."""
    return ", ".join(repr(name) for name in names) or "none"


def hint(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'orders'?)``, or nothing if no known name is near."""
    from difflib import get_close_matches  # noqa: PLC0415  # a millisecond of each start, for the text of an error

    near = get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def summary(thing: object) -> str:
    """The first paragraph of the docstring of a function or class; empty: it has none of its own."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    text = inspect.cleandoc(getattr(thing, "__doc__", None) or "") if thing is not None else ""
    made = text.startswith(f"{getattr(thing, '__name__', '')}(")  # by `dataclass`
    return "" if made else " ".join(text.split("\n\n")[0].split())


def as_data(name: str, value: bytes) -> dict[str, str]:
    """
    Bytes as a field of JSON: text, or Base64 and a second field that says so.

    Args:
        name: of the field.
        value: the bytes.
    """
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(value).decode(), f"{name}_encoding": "base64"}
