"""
The check that every reader of a topic of ours makes: other programs may have written there, too.

A program with the right to write to a topic can put anything into it. So a value is read with its types and bounds, and
what does not fit is *unreadable*: a `CodecError` that says why. `readable` has a reader go on behind such a record: it
names the record in the log once, counts it, and gives None. docs/security.md has the topics, who may write to each, and
what a forged record can do there.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn, TypeVar

from cues_kafka.errors import CodecError
from cues_kafka.observe.refused import REFUSED
from cues_kafka.ports.log import WireMessage

LIMIT: Final = 1 << 20
"""The most bytes of a value. Records of ours are far smaller; a topic's `max.message.bytes` is as much by default."""

TEXT: Final = 2_000
"""The most characters of a text in a record, where a field says nothing else."""

ITEMS: Final = 100_000
"""The most items of a list."""

MOST: Final = (1 << 63) - 1
"""The largest offset, and the largest time in milliseconds."""

PARTITIONS: Final = (1 << 31) - 1
"""The largest number of a partition."""

LATEST_S: Final = 253_402_300_799.0
"""The end of the year 9999 in seconds since the epoch: later times have no date."""

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
"""The name of a processor, a binding, a store or a cut."""

TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")

_Read = TypeVar("_Read")
_Item = TypeVar("_Item")


def readable(message: WireMessage, read: Callable[[WireMessage], _Read], what: str) -> _Read | None:
    """
    Read a record, or refuse it by name: one line in the log, and a count; the reader goes on behind it.

    Args:
        message: the record.
        read: reads it, and raises a `CodecError` where it is none of ours.
        what: it should be, with an article: ``a status record``.

    Returns:
        None: it is refused.
    """
    try:
        return read(message)
    except CodecError as error:
        REFUSED.note(message, what, str(error))
        return None


def read_plain(data: bytes | None, what: str, version: int) -> Fields:
    """
    Read a JSON object of a version.

    Args:
        data: the value of a record.
        what: it should be, for texts, without an article.
        version: the one that this release reads.

    Raises:
        CodecError: it is no such object, is too large or too deep, or has another version.
    """
    plain, was = read_versioned(data, what)
    if was != version:
        raise CodecError(
            f"the {what} has version {was}; this release reads version {version}. Use the release that wrote it, or a "
            "newer one"
        )
    return plain


def read_versioned(data: bytes | None, what: str) -> tuple[Fields, int]:
    """
    Read a JSON object of any version, and its version.

    Raises:
        CodecError: it is no such object, or is too large or too deep.
    """
    if data is None or len(data) > LIMIT:
        size = "nothing" if data is None else f"{len(data):,} bytes, above {LIMIT:,}"
        raise CodecError(f"not a {what}: it has {size}")
    try:
        found = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not a {what}: {shown(data)} ({error})") from None
    if not isinstance(found, dict):
        raise CodecError(f"not a {what}: {shown(data)} is not a JSON object")
    plain = Fields(found, what)
    return plain, plain.whole("version", 0, PARTITIONS)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def shown(data: bytes, most: int = 80) -> str:
    """Bytes of a stranger for an error message: cut, and with escapes for all that is no visible ASCII."""
    return repr(data[:most]) + ("..." if len(data) > most else "")


class Fields:
    """
    The fields of a JSON object, each asked for with its type and its bounds.

    Args:
        fields: the object.
        what: it should be, for texts.
        path: of the object within the record, with a dot at its end; empty: the record itself.
    """

    __slots__ = ("_fields", "_path", "_what")

    def __init__(self, fields: Mapping[str, Any], what: str, path: str = "") -> None:
        self._fields, self._what, self._path = fields, what, path

    def has(self, name: str) -> bool:
        """Whether the field is there, and is not null."""
        return self._fields.get(name) is not None

    def text(self, name: str, most: int = TEXT, *, like: re.Pattern[str] | None = None) -> str:
        """A text of at most `most` characters, which matches the pattern as a whole."""
        value = self._field(name)
        if not isinstance(value, str) or len(value) > most or not (like is None or like.fullmatch(value)):
            self.refuse(name, value)
        if _HALF.search(value):
            self.refuse(name, "half of a surrogate pair")
        return value

    def whole(self, name: str, least: int = 0, most: int = MOST) -> int:
        """A whole number within bounds, which are included."""
        value = self._field(name)
        if not _is_whole(value, least, most):
            self.refuse(name, value)
        return int(value)

    def number(self, name: str, least: float = 0.0, most: float = LATEST_S) -> float:
        """A finite number within bounds, which are included."""
        value = self._field(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            self.refuse(name, value)
        return float(value)

    def flag(self, name: str) -> bool:
        """Yes or no."""
        value = self._field(name)
        if not isinstance(value, bool):
            self.refuse(name, value)
        return value

    def id(self, name: str) -> bytes:
        """The 16 bytes of a topic's id, from their hexadecimal digits."""
        return bytes.fromhex(self.text(name, 32, like=_HEX))

    def wholes(self, name: str, least: int = 0, most: int = MOST) -> tuple[int, ...]:
        """A list of whole numbers within bounds."""
        values = self._items(name)
        if not all(_is_whole(value, least, most) for value in values):
            self.refuse(name, values)
        return tuple(values)

    def maybe_wholes(self, name: str, least: int = 0, most: int = MOST) -> tuple[int | None, ...]:
        """A list of whole numbers within bounds, or null in the place of one."""
        values = self._items(name)
        if not all(value is None or _is_whole(value, least, most) for value in values):
            self.refuse(name, values)
        return tuple(values)

    def texts(self, name: str, most: int = TEXT, *, like: re.Pattern[str] | None = None) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(self._each(name, lambda one, at: one.text(at, most, like=like)))

    def rows(self, name: str, length: int) -> Iterator[Fields]:
        """A list of lists of this length: the fields of each are named `0`, `1`, ..."""
        for number, value in enumerate(self._items(name)):
            if not isinstance(value, list) or len(value) != length:
                self.refuse(f"{name}[{number}]", value)
            fields = {str(index): one for index, one in enumerate(value)}
            yield Fields(fields, self._what, f"{self._path}{name}[{number}].")

    def objects(self, name: str) -> Iterator[Fields]:
        """A list of objects."""
        for number, value in enumerate(self._items(name)):
            if not isinstance(value, dict):
                self.refuse(f"{name}[{number}]", value)
            yield Fields(value, self._what, f"{self._path}{name}[{number}].")

    def below(self, name: str) -> Fields:
        """The fields of an object that is in this field."""
        value = self._field(name)
        if not isinstance(value, dict):
            self.refuse(name, value)
        return Fields(value, self._what, f"{self._path}{name}.")

    def named(self, name: str, like: re.Pattern[str] = NAME) -> Iterator[tuple[str, Fields]]:
        """The fields of an object that has an object below each name."""
        own = self.below(name)
        for key in own._fields:
            if not like.fullmatch(key):
                self.refuse(name, key)
            yield key, own.below(key)

    def counts(self, name: str, least: int = 0) -> dict[str, int]:
        """An object of whole numbers."""
        own = self.below(name)
        return {key: own.whole(key, least) for key in own._fields}

    def refuse(self, name: str, value: object) -> NoReturn:
        """
        Refuse the record because of a field.

        Raises:
            CodecError: always.
        """
        raise CodecError(f"not a {self._what}: {self._path}{name} is {_brief(value)}")

    def _each(self, name: str, read: Callable[[Fields, str], _Item]) -> Iterator[_Item]:
        values = self._items(name)
        own = Fields({f"{name}[{number}]": value for number, value in enumerate(values)}, self._what, self._path)
        return (read(own, f"{name}[{number}]") for number in range(len(values)))

    def _items(self, name: str) -> list[Any]:
        value = self._field(name)
        if not isinstance(value, list) or len(value) > ITEMS:
            self.refuse(name, value)
        return value

    def _field(self, name: str) -> Any:
        if name not in self._fields:
            raise CodecError(f"not a {self._what}: {self._path}{name} is missing")
        return self._fields[name]


_HEX: Final = re.compile(r"[0-9a-f]{32}")

_HALF: Final = re.compile("[\ud800-\udfff]")
"""What JSON can say with an escape, and no encoding can write."""


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _brief(value: object) -> str:
    """A value for an error message; what is deep or long is named by its kind alone."""
    if isinstance(value, str):
        return ascii(value[:40]) + ("..." if len(value) > 40 else "")
    if isinstance(value, float) or value is None or isinstance(value, bool):
        return "not finite" if isinstance(value, float) and not math.isfinite(value) else json.dumps(value)
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 128 else "a number that is too large"
    return "a list" if isinstance(value, list) else "an object"
