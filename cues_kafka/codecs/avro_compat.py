"""Whether messages of one Avro schema can be read into another one, by the rules of Avro's schema resolution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cues_kafka.codecs.avro_schema import Schema, full_name
from cues_kafka.graph.names import hint

_WIDER: Final[dict[str, set[str]]] = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""A writer's type to the types that it can be read into."""


def problems(writer: Schema, reader: Schema) -> list[str]:
    """What a reader of messages with the writer's schema could not read; empty: it reads them all."""
    return list(_Comparing().compare(writer, reader, full_name(reader).rpartition(".")[2]))


class _Comparing:
    def __init__(self) -> None:
        self._writers: dict[str, Any] = {}
        self._readers: dict[str, Any] = {}
        self._under_way: set[tuple[str, str]] = set()

    def compare(self, writer: Schema, reader: Schema, where: str) -> Iterator[str]:
        writer, reader = _named(writer, self._writers), _named(reader, self._readers)
        if isinstance(writer, list):
            for option in writer:
                yield from self.compare(option, reader, where)
        elif isinstance(reader, list):
            if not any(self._fits(writer, option, where) for option in reader):
                yield f"{where}: written as {full_name(writer)}, which the union {full_name(reader)} lacks"
        else:
            yield from self._one(writer, reader, where)

    def _fits(self, writer: Schema, option: Schema, where: str) -> bool:
        return not any(True for _ in self.compare(writer, option, where))

    def _one(self, writer: Schema, reader: Schema, where: str) -> Iterator[str]:
        kind, wanted = _kind(writer), _kind(reader)
        if kind != wanted:
            if wanted not in _WIDER.get(kind, ()):
                yield f"{where}: written as {kind}, read as {wanted}"
        elif kind in ("record", "error"):
            yield from self._records(writer, reader, where)
        elif kind == "array":
            yield from self.compare(writer["items"], reader["items"], f"{where}[]")
        elif kind == "map":
            yield from self.compare(writer["values"], reader["values"], f"{where}{{}}")
        elif kind == "enum":
            unknown = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if unknown and "default" not in reader:
                yield f"{where}: the reader does not know {', '.join(unknown):.200}"
        elif kind == "fixed" and writer["size"] != reader["size"]:
            yield f"{where}: written with {writer['size']} bytes, read with {reader['size']}"
        elif (was := _decimal(writer)) != (now := _decimal(reader)):
            yield f"{where}: written as {was}, read as {now}"

    def _records(self, writer: Any, reader: Any, where: str) -> Iterator[str]:
        names = {_last(reader["name"]), *map(_last, reader.get("aliases", ()))}
        if _last(writer["name"]) not in names:
            yield f"{where}: the record is {writer['name']}, read as {reader['name']}"
            return
        if (pair := (writer["name"], reader["name"])) in self._under_way:
            return
        self._under_way.add(pair)
        written = {each["name"]: each for each in writer["fields"]}
        for each in reader["fields"]:
            found = next((written[name] for name in (each["name"], *each.get("aliases", ())) if name in written), None)
            if found is not None:
                yield from self.compare(found["type"], each["type"], f"{where}.{each['name']}")
            elif "default" not in each:
                near = hint(each["name"], written)
                yield f"{where}.{each['name']}: the writer does not have this field{near}, and it has no default"


def _named(schema: Schema, known: dict[str, Any]) -> Schema:
    """The definition of a name; definitions are kept on the way."""
    if isinstance(schema, dict):
        if isinstance(schema["type"], dict | list):
            return _named(schema["type"], known)
        if "name" in schema:
            known[schema["name"]] = schema
    return known.get(schema, schema) if isinstance(schema, str) else schema


def _kind(schema: Schema) -> str:
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _decimal(schema: Schema) -> str:
    """A decimal's digits: the bytes of one scale mean another number under another scale."""
    if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
        return f"decimal({schema['precision']}, {schema.get('scale', 0)})"
    return _kind(schema)
