"""Reads Avro's bytes: closures that are compiled once from the writer's schema, and the one that it is read into.

Nothing is trusted: a number, a length, the index of an option or of a symbol, and the value of a logical type must be
what the specification allows, and an error names the path. Libraries take an index of -1 for the last option, round
decimals, and skip over the end of a message.

Schemas are resolved as the specification says, in the way of Avro's Java library where it leaves room: an option of
the reader's union that is of the writer's type comes before one that the type can be promoted to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final

from cues_kafka.codecs.avro_records import Unfit
from cues_kafka.codecs.avro_scalars import PLAIN, Read, TooShort, read_long, read_string, scalar
from cues_kafka.codecs.avro_schema import Schema, full_name, logical, named_in

_PROMOTED: Final[Mapping[tuple[str, str], Callable[[Any], Any] | None]] = {
    ("int", "long"): None, ("int", "float"): float, ("int", "double"): float, ("long", "float"): float,
    ("long", "double"): float, ("float", "double"): None, ("string", "bytes"): str.encode,
    ("bytes", "string"): bytes.decode,
}  # fmt: skip
"""A writer's type and a reader's, to what makes the one of the other; None: it is that in Python."""

_RECORDS: Final = ("record", "error")


def decoder(writer: Schema, reader: Schema | None = None) -> Callable[[bytes, int], Any]:
    """
    Compile what reads a message's value from a position to the end.

    Records and maps of unions with several of these are pairs of their name and their fields; a map's name is "map".

    Args:
        writer: the schema that messages were written with.
        reader: the schema that they are read into, with defaults as values; None: the writer's.

    The decoder raises:
        Unfit: the bytes do not fit the schema; `TooShort`: they end too early.
    """
    read = _Compiling(writer, reader).read(writer, reader)

    def decode(data: bytes, start: int) -> Any:
        try:
            value, at = read(data, start)
        except Unfit:
            raise
        except Exception as error:  # noqa: BLE001  hostile bytes may raise anything
            raise _unfit(error) from None
        if at != len(data):
            raise Unfit("the end of the message", f"{len(data) - at} bytes more")
        return value

    return decode


def _unfit(error: Exception) -> Unfit:
    if isinstance(error, Unfit):
        return error
    if isinstance(error, IndexError):
        return TooShort()
    if isinstance(error, RecursionError):
        return Unfit("flatter values", "values inside each other that are too deep to be read")
    return Unfit("a value of the schema", f"{type(error).__name__}: {error}"[:200])


def names_options(union: list[Schema], named: Mapping[str, Schema]) -> bool:
    """Whether the records and maps of a union must say what they are: a dict alone would not tell."""
    return sum(kind_of(option, named) in (*_RECORDS, "map") for option in union) > 1


def kind_of(schema: Schema, named: Mapping[str, Schema]) -> str:
    """The type of a schema, also of one that is given by its name."""
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        return "union"
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


class _Compiling:
    """Closures by the names of writer's and reader's types, so that a type may be inside itself."""

    def __init__(self, writer: Schema, reader: Schema | None) -> None:
        self._writers = named_in(writer)
        self._readers = {} if reader is None else named_in(reader)
        self._made: dict[tuple[str, str | None], Read] = {}
        self._open: set[tuple[str, str | None]] = set()

    def read(self, writer: Schema, reader: Schema | None) -> Read:
        """The closure for values of the writer's schema."""
        writer = self._resolved(writer, self._writers)
        reader = None if reader is None else self._resolved(reader, self._readers)
        if isinstance(writer, list):
            return self._union(writer, reader)
        if isinstance(reader, list):
            return self._into_union(writer, reader)
        if isinstance(writer, str):
            writer = {"type": writer}
        if isinstance(reader, str):
            reader = {"type": reader}
        if (problem := self._mismatch(writer, reader)) is not None:
            return _failing(*problem)
        kind = writer["type"]
        if kind in _RECORDS:
            return self._once(writer, reader)
        if kind == "array":
            return _array(self.read(writer["items"], reader and reader["items"]))
        if kind == "map":
            return _map(self.read(writer["values"], reader and reader["values"]))
        return _scalar(writer, reader)

    def _resolved(self, schema: Schema, named: Mapping[str, Schema]) -> Schema:
        while isinstance(schema, dict) and isinstance(schema["type"], dict | list):
            schema = schema["type"]
        return named.get(schema, schema) if isinstance(schema, str) else schema

    def _mismatch(self, writer: Schema, reader: Schema | None) -> tuple[str, str] | None:
        """What was expected and what came, where no value of the one can be read into the other."""
        if reader is None:
            return None
        was, wanted = writer["type"], reader["type"]
        if was in _RECORDS and wanted in _RECORDS:
            fits = _named_alike(writer, reader)
        elif was != wanted:
            fits = (was, wanted) in _PROMOTED
        elif was == "fixed":
            fits = _named_alike(writer, reader) and writer["size"] == reader["size"]
        else:
            fits = was != "enum" or _named_alike(writer, reader)
        return None if fits else (full_name(reader), full_name(writer))

    def _union(self, options: list[Schema], reader: Schema | None) -> Read:
        reads = [self.read(option, reader) for option in options]
        if reader is None and names_options(options, self._writers):
            reads = [self._says(option, read, self._writers) for option, read in zip(options, reads, strict=True)]
        by_byte = {n << 1: read for n, read in enumerate(reads[:64])}

        def read(data: bytes, at: int) -> tuple[Any, int]:
            one = by_byte.get(data[at])
            if one is not None:
                return one(data, at + 1)
            index, at = read_long(data, at)
            if not 0 <= index < len(reads):
                raise Unfit(f"one of {len(reads)} options, from 0 on", f"the option {index}")
            return reads[index](data, at)

        return read

    def _into_union(self, writer: Schema, options: list[Schema]) -> Read:
        """The option that is of the writer's type, else the first that it can be promoted to."""
        plain = {"type": writer} if isinstance(writer, str) else writer
        fitting = []
        for option in options:
            reader = self._resolved(option, self._readers)
            reader = {"type": reader} if isinstance(reader, str) else reader
            if self._mismatch(plain, reader) is None:
                fitting.append((plain["type"] != reader["type"], plain.get("name") != reader.get("name"), option))
        if not fitting:
            return _failing(full_name(options), full_name(writer))
        option = min(fitting, key=lambda one: one[:2])[2]
        read = self.read(writer, option)
        return self._says(option, read, self._readers) if names_options(options, self._readers) else read

    def _says(self, option: Schema, read: Read, named: Mapping[str, Schema]) -> Read:
        """Give a record or a map with its name."""
        if kind_of(option, named) not in (*_RECORDS, "map"):
            return read
        name = full_name(option)

        def convert(data: bytes, at: int) -> tuple[Any, int]:
            value, at = read(data, at)
            return (name, value), at

        return convert

    def _once(self, writer: Any, reader: Any) -> Read:
        key = writer["name"], reader and reader["name"]
        if key in self._open:  # inside itself: its closure is there when a message comes
            return lambda data, at: self._made[key](data, at)  # noqa: PLW0108
        if key not in self._made:
            self._open.add(key)
            self._made[key] = self._record(writer, reader)
            self._open.discard(key)
        return self._made[key]

    def _record(self, writer: Any, reader: Any) -> Read:
        if reader is None:
            return _record([(each["name"], self.read(each["type"], None)) for each in writer["fields"]])
        wanted = {name: each for each in reader["fields"] for name in (*each.get("aliases", ()), each["name"])}
        wanted |= {each["name"]: each for each in reader["fields"]}  # a name counts before an alias
        fields: list[tuple[str, Read]] = []
        left_out: set[str] = set()
        missing = {each["name"]: each for each in reader["fields"]}
        for each in writer["fields"]:
            found = wanted.get(each["name"])
            if found is None or found["name"] not in missing:
                left_out.add(each["name"])
                fields.append((each["name"], self.read(each["type"], None)))
            else:
                del missing[found["name"]]
                fields.append((found["name"], self.read(each["type"], found["type"])))
        if needed := next((name for name, each in missing.items() if "default" not in each), None):
            return _failing(f"a field {needed!r}", f"{writer['name']}, which has none, and the field has no default")
        return _filled(_record(fields), left_out - {each["name"] for each in reader["fields"]}, missing)


def _named_alike(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> bool:
    last = writer["name"].rpartition(".")[2]
    aliases = reader.get("aliases", ())
    return last == reader["name"].rpartition(".")[2] or last in aliases or writer["name"] in aliases


def _failing(expected: str, found: str) -> Read:
    def read(_: bytes, __: int) -> tuple[Any, int]:
        raise Unfit(expected, f"what was written as {found}")

    return read


def _record(fields: list[tuple[str, Read]]) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        made = {}
        name = ""
        try:
            for name, one in fields:
                made[name], at = one(data, at)
        except Exception as error:  # noqa: BLE001  hostile bytes may raise anything
            unfit = _unfit(error)
            unfit.path.append(f".{name}")
            raise unfit from None
        return made, at

    return read


def _filled(read: Read, left_out: set[str], missing: Mapping[str, Any]) -> Read:
    """A record without the fields that the reader lacks, and with the defaults of those that the writer lacked."""
    fixed = {name: each["default"] for name, each in missing.items() if not isinstance(each["default"], dict | list)}
    own = {name: each["default"] for name, each in missing.items() if name not in fixed}
    if not left_out and not missing:
        return read

    def convert(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        made, at = read(data, at)
        for name in left_out:
            del made[name]
        made.update(fixed)
        for name, default in own.items():
            made[name] = deepcopy(default)  # each message has its own
        return made, at

    return convert


def _block(data: bytes, at: int) -> tuple[int, int, int]:
    """The number of items of a block, where it begins, and where it ends; -1: it does not say."""
    count, at = read_long(data, at)
    if count >= 0:
        return count, at, -1
    size, at = read_long(data, at)
    if not 0 <= size <= len(data) - at:
        raise Unfit("the size of a block", f"{size}")
    return -count, at, at + size


def _check_end(at: int, end: int) -> None:
    if at != end >= 0:
        raise Unfit("a block of the size that it says", f"one of {at - end} bytes more")


def _array(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        made: list[Any] = []
        try:
            while True:
                count, at, end = _block(data, at)
                if count == 0:
                    return made, at
                for _ in range(count):
                    value, at = item(data, at)
                    made.append(value)
                _check_end(at, end)
        except Exception as error:  # noqa: BLE001  hostile bytes may raise anything
            unfit = _unfit(error)
            unfit.path.append(f"[{len(made)}]")
            raise unfit from None

    return read


def _map(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        made: dict[str, Any] = {}
        key: str | None = None
        try:
            while True:
                count, at, end = _block(data, at)
                if count == 0:
                    return made, at
                for _ in range(count):
                    key = None
                    key, at = read_string(data, at)
                    made[key], at = item(data, at)
                _check_end(at, end)
        except Exception as error:  # noqa: BLE001  hostile bytes may raise anything
            unfit = _unfit(error)
            unfit.path.append(f"[key {len(made)}]" if key is None else f"[{key!r:.60}]")
            raise unfit from None

    return read


def _scalar(writer: Mapping[str, Any], reader: Mapping[str, Any] | None) -> Read:
    read = PLAIN[writer["type"]] if len(writer) == 1 else scalar(writer, converted=logical(writer) is not None)
    if reader is None:
        return read
    if writer["type"] == "enum":
        return _symbols(read, reader)
    promote = _PROMOTED.get((writer["type"], reader["type"]))
    if promote is None:
        return read

    def promoted(data: bytes, at: int) -> tuple[Any, int]:
        value, at = read(data, at)
        try:
            return promote(value), at
        except (TypeError, ValueError):
            raise Unfit(reader["type"], f"what was written as {full_name(writer)}") from None

    return promoted


def _symbols(read: Read, reader: Mapping[str, Any]) -> Read:
    known, default = frozenset(reader["symbols"]), reader.get("default")

    def convert(data: bytes, at: int) -> tuple[str, int]:
        symbol, at = read(data, at)
        if symbol in known:
            return symbol, at
        if default is not None:
            return default, at
        raise Unfit(f"one of {', '.join(reader['symbols'])!s:.200}", f"{symbol!r:.40}")

    return convert
