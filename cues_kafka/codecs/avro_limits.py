"""Limits of Avro messages, checked before the decoder sees them.

Most schemas need no look at the bytes: each item of an array takes at least one byte, so that the message's size bounds
them all. Two kinds of schemas do. An item that takes no bytes (a null, an empty record) may be claimed 2^62 times in
ten bytes, and a record inside itself may nest until the decoder's C stack ends, with the process. Messages of such
schemas are walked first, without making values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from cues_kafka.codecs.avro_schema import Schema
from cues_kafka.errors import CodecError
from cues_kafka.graph.declare import Limits

_Skip: TypeAlias = Callable[[bytes, int, int], int]
"""(bytes, position, depth) to the position behind the value."""

_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_LONGEST: Final = 10
"""Bytes of a whole number of 64 bits."""


def check_of(schema: Schema, limits: Limits) -> Callable[[bytes, int], None] | None:
    """
    The check of messages that were written with this schema, from a position on; None: their size bounds them.

    The check raises:
        CodecError: the message is beyond a limit, or ends before its values do.
    """
    walk = _Walk(limits)
    skip = walk.skip(schema)
    if not walk.recursive and not walk.empty:
        return None

    def check(data: bytes, start: int) -> None:
        walk.left = limits.empty_items
        skip(data, start, 0)

    return check


class _Walk:
    """
    The functions that skip the values of one schema.

    Attributes:
        recursive: a named type is inside itself.
        empty: an array has items that take no bytes.
        left: how many more of them the message may have.
    """

    def __init__(self, limits: Limits) -> None:
        self.recursive = False
        self.empty = False
        self.left = 0
        self._limits = limits
        self._named: dict[str, _Skip] = {}
        self._open: set[str] = set()
        self._empty_names: set[str] = set()

    def skip(self, schema: Schema) -> _Skip:
        """The function that skips a value of this schema."""
        if isinstance(schema, list):
            return _union([self.skip(option) for option in schema])
        if isinstance(schema, str):
            return self._by_name(schema)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.skip(kind)
        if kind in ("record", "error"):
            return self._record(schema)
        if kind in ("array", "map"):
            return self._blocks(schema)
        return self._scalar(schema)

    def _by_name(self, name: str) -> _Skip:
        if name in _SIZES:
            return _fixed(_SIZES[name])
        if name in ("int", "long"):
            return lambda data, at, _: _number(data, at)[1]
        if name in ("bytes", "string"):
            return _sized
        if name in self._open:
            self.recursive = True
            return lambda data, at, depth: self._named[name](data, at, depth)  # noqa: PLW0108  made later
        return self._named[name]

    def _scalar(self, schema: dict[str, Any]) -> _Skip:
        match schema["type"]:
            case "enum":
                made: _Skip = lambda data, at, _: _number(data, at)[1]  # noqa: E731
            case "fixed":
                made = _fixed(schema["size"])
                if schema["size"] == 0:
                    self._empty_names.add(schema["name"])
            case kind:
                return self._by_name(kind)
        self._named[schema["name"]] = made
        return made

    def _record(self, schema: dict[str, Any]) -> _Skip:
        name = schema["name"]
        self._open.add(name)
        fields = [self.skip(each["type"]) for each in schema["fields"]]
        self._open.discard(name)
        if all(self._is_empty(each["type"]) for each in schema["fields"]):
            self._empty_names.add(name)

        def skip(data: bytes, at: int, depth: int) -> int:
            self._check_depth(depth)
            for field in fields:
                at = field(data, at, depth + 1)
            return at

        self._named[name] = skip
        return skip

    def _is_empty(self, schema: Schema) -> bool:
        """Whether values of this schema take no bytes."""
        if isinstance(schema, list):
            return False
        name = schema if isinstance(schema, str) else schema.get("name", schema["type"])
        return name == "null" or name in self._empty_names

    def _blocks(self, schema: dict[str, Any]) -> _Skip:
        """Arrays and maps: blocks of items, each behind their number, the last block being empty."""
        inner = schema["items"] if schema["type"] == "array" else schema["values"]
        item = self.skip(inner)
        keyed = schema["type"] == "map"
        empty = not keyed and self._is_empty(inner)
        self.empty = self.empty or empty

        def skip(data: bytes, at: int, depth: int) -> int:
            self._check_depth(depth)
            while True:
                count, at = _number(data, at)
                if count == 0:
                    return at
                if count < 0:  # the block's size in bytes follows
                    count, at = -count, _number(data, at)[1]
                if empty:
                    self._take(count)
                    continue
                for _ in range(count):
                    at = item(data, _sized(data, at, depth) if keyed else at, depth + 1)

        return skip

    def _check_depth(self, depth: int) -> None:
        if depth > self._limits.nesting:
            raise CodecError(f"The message nests values more than {self._limits.nesting} deep: {_RAISE}")

    def _take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise CodecError(
                f"The message claims more than {self._limits.empty_items} items that take no bytes: {_RAISE}"
            )


_RAISE: Final = "a fault, or an attack. If it is meant, raise the limit: Avro(..., limits=Limits(...))."
_SHORT: Final = "The message ends before its values do."


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A whole number in zigzag form, and the position behind it."""
    value = 0
    for place, byte in enumerate(data[at : at + _LONGEST]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + place + 1
    raise CodecError(_SHORT if len(data) - at < _LONGEST else "The message has a number of more than 64 bits.")


def _fixed(size: int) -> _Skip:
    def skip(data: bytes, at: int, _: int) -> int:
        if at + size > len(data):
            raise CodecError(_SHORT)
        return at + size

    return skip


def _sized(data: bytes, at: int, _: int) -> int:
    size, at = _number(data, at)
    if not 0 <= size <= len(data) - at:
        raise CodecError(_SHORT)
    return at + size


def _union(options: list[_Skip]) -> _Skip:
    def skip(data: bytes, at: int, depth: int) -> int:
        index, at = _number(data, at)
        if not 0 <= index < len(options):
            raise CodecError(f"The message names option {index} of a union of {len(options)}.")
        return options[index](data, at, depth)

    return skip
