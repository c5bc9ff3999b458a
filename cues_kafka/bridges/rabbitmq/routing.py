"""Routing keys with places for the key and for fields of a value, such as `orders.{country}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from cues_kafka.errors import OutputError

_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(:path)?\}")

KEY: Final = "key"
LONGEST: Final = 255
"""Bytes of a routing key."""


class Routing:
    """
    A routing key whose places are filled in for each message.

    What goes into a place is one word of the key, so that a value cannot lead to another queue; with `:path` it may be
    several words with dots between them.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._fixed = _PLACE.search(text) is None

    @staticmethod
    def wrong(text: str) -> str:
        """Why a text cannot be one; empty: it can."""
        filled = _PLACE.sub("x", text)
        if "{" in filled or "}" in filled:
            return "has a '{' or '}' that is not a place such as {key}, {country} or {key:path}"
        return wrong_key(filled)

    def fill(self, value: Any, key: Any) -> str:
        """
        The routing key of one message.

        Raises:
            OutputError: the key or a field is missing, or does not fit.
        """
        if self._fixed:
            return self._text
        filled = _PLACE.sub(lambda place: self._part(place, value, key), self._text)
        if why := wrong_key(filled):
            raise OutputError(f"the routing key {filled!r:.80} {why}. Correct the message, or what exchange() is given")
        return filled

    def _part(self, place: re.Match[str], value: Any, key: Any) -> str:
        name, path = place[1], place[2]
        found = key if name == KEY else _field(value, name)
        if found is None:
            what = "the message has no key" if name == KEY else f"the value has no field {name!r}"
            raise OutputError(f"{what}, which the routing key {self._text!r} needs")
        if isinstance(found, bytes):
            found = found.decode(errors="backslashreplace")
        if isinstance(found, bool) or not isinstance(found, str | int):
            raise OutputError(f"{name!r} is a {type(found).__name__}. A place in a routing key takes text or a number")
        text = str(found)
        if not text or ("." in text and not path):
            what = "has a '.', which would be another word" if text else "is empty"
            raise OutputError(
                f"{name!r} {what}: {text!r:.80}. Where it may have several words, write {{{name}:path}} in the key"
            )
        return text


def wrong_key(key: str) -> str:
    """Why a text cannot be a routing key; empty: it can."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "has half of a surrogate pair, which UTF-8 cannot carry"
    return f"is longer than {LONGEST} bytes" if size > LONGEST else ""


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)
