"""The encoding of AMQP 1.0 messages, as far as they are read: what comes from another broker can be anything.

Proton's own reader knows no more than 65,535 values in a message, and no text that is not UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import UUID

DEEPEST: Final = 64
"""Levels of lists, maps and descriptions that are read."""

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""Milliseconds since 1970 of the first and the last moment of the years 1 to 9999."""


class EncodingError(ValueError):
    """These bytes are no AMQP 1.0 message."""


class Symbol(str):
    """A symbol: a text of ASCII that is a name."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970, UTC."""


class DescribedValue(NamedTuple):
    """
    A value with a descriptor, which says what type of someone's own it is.

    Attributes:
        descriptor: such as a number or a symbol.
        value: the value.
    """

    descriptor: Any
    value: Any


class Pairs(NamedTuple):
    """
    A map. Its keys may be anything, also lists and maps.

    Attributes:
        items: keys with values, in their order.
    """

    items: list[tuple[Any, Any]]

    def texts(self) -> dict[str, Any]:
        """The values whose keys are texts or symbols."""
        return {str(key): value for key, value in self.items if isinstance(key, str)}


class AmqpContents(NamedTuple):
    """
    What a message holds.

    Attributes:
        header: durable, priority, ttl, first-acquirer, delivery-count, as far as they are there.
        annotations: of the broker and of other stations, by name.
        properties: message-id, user-id and so on, in the order of the standard; those at the end may be missing.
        application: application properties, by name.
        kind: `data`, `value` or `sequence`; empty: there is no body.
        body: bytes of `data`; the value; or the list of all elements.
        raw: what names the contents: the bytes of the body's sections.
    """

    header: list[Any]
    annotations: dict[str, Any]
    properties: list[Any]
    application: dict[str, Any]
    kind: str
    body: Any
    raw: bytes


class ValueReader:
    """Reads values of AMQP, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    @property
    def more(self) -> bool:
        """Whether bytes are left."""
        return self.at < len(self._data)

    def value(self, deep: int = DEEPEST) -> Any:
        """
        The next value.

        Raises:
            EncodingError: there is none.
        """
        if not deep:
            raise EncodingError(f"more than {DEEPEST} values in each other")
        data, at = self._data, self.at
        if at >= len(data):
            raise EncodingError("it ends in the middle of a value")
        code, self.at = data[at], at + 1
        if code == 0:
            descriptor = self.value(deep - 1)
            return DescribedValue(descriptor, self.value(deep - 1))
        return _CONSTANTS[code] if code in _CONSTANTS else self._of(code, deep)

    def section(self) -> tuple[int, Any]:
        """
        The next section of a message: its code and its value.

        Raises:
            EncodingError: the bytes there are not a section.
        """
        if self._data.startswith(_DESCRIBED, self.at) and self._data[self.at + 2 : self.at + 3] in _CODES:
            code, self.at = self._data[self.at + 2], self.at + 3  # as almost all senders write it
            return code, self.value(DEEPEST - 1)
        found = self.value()
        known = _SECTIONS.get(found.descriptor) if isinstance(found, DescribedValue) else None
        if known is None:
            raise EncodingError("a part of it is not a section of a message")
        return known, found.value

    def bytes(self, size: int) -> bytes:
        """The next bytes."""
        end = self.at + size
        if end > len(self._data):
            raise EncodingError("it ends in the middle of a value")
        found, self.at = self._data[self.at : end], end
        return found

    def _of(self, code: int, deep: int) -> Any:
        """A value of this constructor."""
        if (fixed := _FIXED.get(code)) is not None:
            size, read = fixed
            return read(self.bytes(size))
        if (sized := _SIZED.get(code)) is not None:
            width, read = sized
            return read(self.bytes(int.from_bytes(self.bytes(width), "big")))
        if code in (0xC0, 0xD0, 0xC1, 0xD1):
            width = 1 if code < 0xD0 else 4
            end, count = self._begin(width)
            found = [self.value(deep - 1) for _ in range(self._least(count, end))]
            self._end(end)
            return found if code in (0xC0, 0xD0) else self._pairs(found)
        if code in (0xE0, 0xF0):
            return self._array(1 if code == 0xE0 else 4, deep)
        raise EncodingError(f"there is no type 0x{code:02x}")

    def _array(self, width: int, deep: int) -> list[Any]:
        end, count = self._begin(width)
        code, descriptors = self.bytes(1)[0], list[Any]()
        while code == 0:
            if len(descriptors) >= deep:
                raise EncodingError(f"more than {DEEPEST} values in each other")
            descriptors.append(self.value(deep - 1))
            code = self.bytes(1)[0]
        if code in _EMPTY and count > len(self._data):  # such elements have no bytes, so any number of them may be told
            raise EncodingError(f"an array of {count:,} elements without bytes")
        found = [self._of(code, deep - 1) for _ in range(count if code in _EMPTY else self._least(count, end))]
        self._end(end)
        for descriptor in reversed(descriptors):
            found = [DescribedValue(descriptor, one) for one in found]
        return found

    def _begin(self, width: int) -> tuple[int, int]:
        """Where a list, a map or an array ends, and how many values it has."""
        size = int.from_bytes(self.bytes(width), "big")
        end = self.at + size
        if end > len(self._data):
            raise EncodingError("it ends in the middle of a value")
        return end, int.from_bytes(self.bytes(width), "big")

    def _least(self, count: int, end: int) -> int:
        """The count, if these bytes can hold as many values: each has one byte at least."""
        if count > end - self.at:
            raise EncodingError(f"{count:,} values in {end - self.at:,} bytes")
        return count

    def _end(self, end: int) -> None:
        if self.at != end:
            raise EncodingError("a list, a map or an array has another size than it says")

    def _pairs(self, found: list[Any]) -> Pairs:
        if len(found) % 2:
            raise EncodingError("a map has a key without a value")
        return Pairs(list(zip(found[::2], found[1::2], strict=True)))


def contents(data: bytes) -> AmqpContents:
    """
    Read a message.

    Raises:
        EncodingError: these bytes are none.
    """
    reader = ValueReader(data)
    sections: dict[int, Any] = {}
    bodies: list[tuple[int, Any]] = []
    raw = bytearray()
    while reader.more:
        begin = reader.at
        code, value = reader.section()
        if code in _BODIES:
            bodies.append((code, value))
            raw += data[begin : reader.at]
        else:
            sections[code] = value
    kind, body = _body(bodies)
    return AmqpContents(
        _list(sections.get(0x70)),
        _texts(sections.get(0x72)),
        _list(sections.get(0x73)),
        _texts(sections.get(0x74)),
        kind,
        body,
        bytes(raw),
    )


def _body(bodies: list[tuple[int, Any]]) -> tuple[str, Any]:
    if not bodies:
        return "", None
    kind = _BODIES[bodies[0][0]]
    values = [value for _, value in bodies]
    if {code for code, _ in bodies} != {bodies[0][0]} or (kind == "value" and len(values) > 1):
        raise EncodingError("it has several bodies")
    if kind == "data":
        if not all(isinstance(one, bytes) for one in values):
            raise EncodingError("its data are no bytes")
        return kind, b"".join(values)
    if kind == "sequence":
        if not all(isinstance(one, list) for one in values):
            raise EncodingError("its sequence is not a list")
        return kind, [one for several in values for one in several]
    return kind, values[0]


def _list(found: Any) -> list[Any]:
    if not isinstance(found, list | None):
        raise EncodingError("a section is not a list")
    return found or []


def _texts(found: Any) -> dict[str, Any]:
    if not isinstance(found, Pairs | None):
        raise EncodingError("a section is not a map")
    return {} if found is None else found.texts()


def _text(data: bytes) -> str:
    """A text; what is not UTF-8, which the standard forbids, is written as numbers."""
    return data.decode(errors="backslashreplace")


def _number(form: str) -> Callable[[bytes], Any]:
    return lambda data: struct.unpack(form, data)[0]


def _char(data: bytes) -> str:
    code = int.from_bytes(data, "big")
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise EncodingError(f"there is no character 0x{code:x}")
    return chr(code)


_CONSTANTS: Final = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}
"""Constructors of values without bytes that may be shared, by their codes."""

_DESCRIBED: Final = b"\0\x53"
"""What a value begins with whose descriptor is a number of one byte."""

_FIXED: Final[dict[int, tuple[int, Callable[[bytes], Any]]]] = {
    0x40: (0, lambda _: None),
    0x41: (0, lambda _: True),
    0x42: (0, lambda _: False),
    0x56: (1, lambda data: data != b"\0"),
    0x50: (1, _number(">B")),
    0x60: (2, _number(">H")),
    0x70: (4, _number(">I")),
    0x52: (1, _number(">B")),
    0x43: (0, lambda _: 0),
    0x80: (8, _number(">Q")),
    0x53: (1, _number(">B")),
    0x44: (0, lambda _: 0),
    0x51: (1, _number(">b")),
    0x61: (2, _number(">h")),
    0x71: (4, _number(">i")),
    0x54: (1, _number(">b")),
    0x81: (8, _number(">q")),
    0x55: (1, _number(">b")),
    0x72: (4, _number(">f")),
    0x82: (8, _number(">d")),
    0x74: (4, lambda data: f"decimal32:{data.hex()}"),
    0x84: (8, lambda data: f"decimal64:{data.hex()}"),
    0x94: (16, lambda data: f"decimal128:{data.hex()}"),
    0x73: (4, _char),
    0x83: (8, lambda data: Timestamp(struct.unpack(">q", data)[0])),
    0x98: (16, lambda data: UUID(bytes=data)),
    0x45: (0, lambda _: []),
}
"""By the code of a constructor: how many bytes follow, and what they mean."""

_SIZED: Final[dict[int, tuple[int, Callable[[bytes], Any]]]] = {
    0xA0: (1, bytes),
    0xB0: (4, bytes),
    0xA1: (1, _text),
    0xB1: (4, _text),
    0xA3: (1, lambda data: Symbol(_text(data))),
    0xB3: (4, lambda data: Symbol(_text(data))),
}
"""The same for those that begin with their size: how many bytes that has."""

_EMPTY: Final = frozenset(code for code, (size, _) in _FIXED.items() if not size)

_SECTIONS: Final[dict[Any, int]] = {
    **{code: code for code in range(0x70, 0x79)},
    Symbol("amqp:header:list"): 0x70,
    Symbol("amqp:delivery-annotations:map"): 0x71,
    Symbol("amqp:message-annotations:map"): 0x72,
    Symbol("amqp:properties:list"): 0x73,
    Symbol("amqp:application-properties:map"): 0x74,
    Symbol("amqp:data:binary"): 0x75,
    Symbol("amqp:amqp-sequence:list"): 0x76,
    Symbol("amqp:amqp-value:*"): 0x77,
    Symbol("amqp:footer:map"): 0x78,
}

_CODES: Final = frozenset(bytes([code]) for code in range(0x70, 0x79))

_BODIES: Final = {0x75: "data", 0x76: "sequence", 0x77: "value"}
