"""Avro schemas and shapes: the schema of a class, and the shape of a schema.

So a class and a schema that was written by others look alike to what follows: the codec, Spark's columns, `plan`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import UUID

import fastavro.schema

from cues_kafka.codecs.avro_parsing import NAME, parsed
from cues_kafka.codecs.schema import (
    Anything,
    Choice,
    Field,
    Fixed,
    Items,
    Mapped,
    Null,
    OneOf,
    Ref,
    Scalar,
    Shape,
    Structure,
    shape_name,
)
from cues_kafka.errors import GraphError
from cues_kafka.graph.declare import COLUMN_DIGITS, Digits

Schema: TypeAlias = Any
"""A schema as fastavro parses it: a dict, a list (a union) or a name."""

_SCALARS: Final[dict[type[Any], Schema]] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    datetime: {"type": "long", "logicalType": "timestamp-micros"},
    date: {"type": "int", "logicalType": "date"},
    time: {"type": "long", "logicalType": "time-micros"},
    UUID: {"type": "string", "logicalType": "uuid"},
}

_PRIMITIVES: Final[dict[str, type[Any]]] = {
    "boolean": bool, "int": int, "long": int, "float": float, "double": float, "string": str, "bytes": bytes,
    "fixed": bytes,
}  # fmt: skip

_PLAIN_NAMES: Final = {"null", *_PRIMITIVES}

_LOGICAL: Final[dict[tuple[str, str], type[Any]]] = {
    ("int", "date"): date,
    ("int", "time-millis"): time,
    ("long", "time-micros"): time,
    ("long", "timestamp-millis"): datetime,
    ("long", "timestamp-micros"): datetime,
    ("long", "local-timestamp-millis"): datetime,
    ("long", "local-timestamp-micros"): datetime,
    ("string", "uuid"): UUID,
}
"""The logical types that the codec converts. A schema may name others; their values stay what they are."""


def parse(text: str, references: Sequence[str] = ()) -> Schema:
    """
    Parse a schema, names and all.

    Args:
        text: its JSON.
        references: the JSON of the schemas that it names, those that others need first.

    Raises:
        ValueError: it is no schema, or one beyond the limits; names the place.
    """
    made = parsed(text, references)
    _check_unions(made)
    return made


def inside(schema: Schema) -> Iterator[Schema]:
    """A parsed schema, and all that are defined in it."""
    yield schema
    if isinstance(schema, list):
        inner = schema
    elif isinstance(schema, dict):
        inner = [each["type"] for each in schema.get("fields", ())]
        inner += [schema[key] for key in ("items", "values") if key in schema]
        inner += [schema["type"]] if isinstance(schema["type"], dict | list) else []
    else:
        inner = []
    for one in inner:
        yield from inside(one)


def _check_unions(schema: Schema) -> None:
    """Refuse what the specification forbids: which of two times a value of one type is, no message can tell."""
    for union in inside(schema):
        if isinstance(union, list):
            names = [full_name(option) for option in union]
            if twice := next((name for name in names if names.count(name) > 1), ""):
                raise ValueError(f"a union has the type {twice} twice, so that its values could not be told apart")


def canonical(schema: Schema) -> str:
    """The Parsing Canonical Form, by which schemas are compared."""
    return str(fastavro.schema.to_parsing_canonical_form(schema))


def fingerprint(schema: Schema) -> bytes:
    """CRC-64-AVRO, little-endian, as single-object encoding has it."""
    return bytes.fromhex(fastavro.schema.fingerprint(canonical(schema), "CRC-64-AVRO"))


def same_bytes(one: Schema, other: Schema) -> bool:
    """Whether two schemas of one fingerprint give the same bytes the same meaning: fingerprints lack logical types."""
    return [*map(_meaning, inside(one))] == [*map(_meaning, inside(other))]


def _meaning(schema: Schema) -> Any:
    return [schema.get(key) for key in ("logicalType", "precision", "scale")] if isinstance(schema, dict) else None


def full_name(schema: Schema) -> str:
    """What people call it: a record's full name, else its type."""
    if isinstance(schema, dict):
        return str(schema.get("name") or schema["type"])
    return schema if isinstance(schema, str) else " | ".join(map(full_name, schema))


def named_in(schema: Schema) -> dict[str, Any]:
    """The records, enums and fixed types that are defined in a schema, by their full names."""
    return {one["name"]: one for one in inside(schema) if isinstance(one, dict) and "name" in one}


# ------------------------------------------------------------------------------------------------ from shapes


def schema_of(shape: Shape, namespace: str | None = None) -> Schema:
    """
    The schema of a class or of another annotation.

    Raises:
        GraphError: a type that Avro cannot carry; names the field and the remedy.
    """
    return _Deriving(namespace).schema(shape, shape_name(shape))


class _Deriving:
    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace
        self._named: dict[str, Any] = {}

    def schema(self, shape: Shape, where: str) -> Schema:
        match shape:
            case Null():
                return "null"
            case Scalar(cls, digits) if cls is Decimal:
                return _decimal(digits, where)
            case Scalar(cls):
                return _SCALARS[cls]
            case Choice(values, enum):
                return self._choice(values, enum, where)
            case Items(item):
                return {"type": "array", "items": self.schema(item, f"{where}[]")}
            case Mapped(value):
                return {"type": "map", "values": self.schema(value, f"{where}{{}}")}
            case OneOf(options):
                return self._union(options, where)
            case Structure(cls, fields):
                return self._record(cls, fields)
            case Ref(cls):
                return cls.__name__
            case Anything() | Fixed():
                raise GraphError(
                    f"{where}: Avro has no type for {shape_name(shape)}. Write a class, list[...] or dict[str, ...]."
                )

    def _union(self, options: tuple[Shape, ...], where: str) -> Schema:
        taken: dict[str, Shape] = {}
        made = []
        for option in options:
            made.append(self.schema(option, where))
            if (other := taken.setdefault(full_name(made[-1]), option)) is not option:
                raise GraphError(
                    f"{where}: {shape_name(other)} and {shape_name(option)} are both {full_name(made[-1])} in Avro, so "
                    "they could not be told apart when read. Use one of them."
                )
        return made

    def _choice(self, values: tuple[Any, ...], enum: type[Enum] | None, where: str) -> Schema:
        kinds = {type(value) for value in values}
        if enum and kinds == {str} and all(map(NAME.match, values)):
            name: str = enum.__name__
            if self._named.get(name) is enum:
                return name
            return self._once(enum, {"type": "enum", "name": enum.__name__, "symbols": list(values)})
        if len(kinds) > 1:
            raise GraphError(f"{where}: the choices have several types, Avro takes one. Write a union of classes.")
        return _SCALARS[kinds.pop()]

    def _once(self, cls: type[Any], made: Schema) -> Schema:
        """The definition where the class comes first, else its name."""
        if self._named.setdefault(cls.__name__, cls) is not cls:
            raise GraphError(f"Two classes are named {cls.__name__}. Avro tells them apart by name: rename one.")
        return made

    def _record(self, cls: type[Any], fields: tuple[Field, ...]) -> Schema:
        if self._named.get(cls.__name__) is cls:
            return cls.__name__
        made: dict[str, Any] = {"type": "record", "name": cls.__name__, "fields": []}
        if self._namespace and not self._named:
            made["namespace"] = self._namespace
        self._once(cls, made)
        made["fields"] = [self._field(each, f"{cls.__name__}.{each.name}") for each in fields]
        return made

    def _field(self, each: Field, where: str) -> dict[str, Any]:
        if not NAME.match(each.wire_name):
            raise GraphError(f"{where}: {each.wire_name!r} is not a name in Avro, which takes letters, digits and _.")
        field: dict[str, Any] = {"name": each.wire_name, "type": self.schema(each.shape, where)}
        if each.default is None:
            return field
        default = each.default()
        if _differs(default, each.default()):  # another one each time: a schema has one for all messages
            return field
        if isinstance(field["type"], list):  # a default is one of the first option
            first = next((n for n, option in enumerate(_options(each.shape)) if _is_of(option, default)), 0)
            field["type"].insert(0, field["type"].pop(first))
        with contextlib.suppress(TypeError):  # without a form in a schema, readers that lack the field refuse messages
            field["default"] = _plain(default)
        return field


def _differs(one: Any, other: Any) -> bool:
    return bool(one != other and one == one and other == other)  # noqa: PLR0124  NaN is no other one


def _options(shape: Shape) -> tuple[Shape, ...]:
    return shape.options if isinstance(shape, OneOf) else (shape,)


def _is_of(option: Shape, value: Any) -> bool:
    match option:
        case Null():
            return value is None
        case Scalar(cls) | Structure(cls):
            return type(value) is cls
        case Choice(values, enum):
            return isinstance(value, enum) if enum else value in values
        case Items():
            return isinstance(value, list | tuple)
        case _:
            return isinstance(value, dict)


def _plain(value: Any) -> Any:
    """A default in the JSON of a schema."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    raise TypeError


def _decimal(digits: Digits | None, where: str) -> Schema:
    if digits is None:
        raise GraphError(f"{where}: Avro needs the digits of a Decimal. Write Annotated[Decimal, Digits(12, 2)].")
    return {"type": "bytes", "logicalType": "decimal", "precision": digits.precision, "scale": digits.scale}


# ------------------------------------------------------------------------------------------------ from schemas


def shape_of(schema: Schema) -> Shape:
    """The shape of a parsed schema; its records are dicts."""
    return _Shaping().shape(schema)


class _Shaping:
    def __init__(self) -> None:
        self._named: dict[str, Shape] = {}
        self._open: set[str] = set()

    def shape(self, schema: Schema) -> Shape:
        if isinstance(schema, list):
            return OneOf(tuple(self.shape(option) for option in schema))
        if isinstance(schema, str):
            return self._by_name(schema)
        if isinstance(schema["type"], dict | list):
            return self.shape(schema["type"])
        return self._complex(schema, schema["type"])

    def _by_name(self, name: str) -> Shape:
        if name in self._open:
            return Ref(dict)
        if name == "null":
            return Null()
        return self._named[name] if name in self._named else Scalar(_PRIMITIVES[name])

    def _complex(self, schema: Mapping[str, Any], kind: str) -> Shape:
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            return Items(self.shape(schema["items"]), list)
        if kind == "map":
            return Mapped(self.shape(schema["values"]))
        if kind == "enum":
            made: Shape = Choice(tuple(schema["symbols"]))
        elif schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
            made = Scalar(Decimal, _digits(schema["precision"], schema.get("scale", 0)))
        else:
            made = self._by_name(kind) if kind == "null" else Scalar(logical(schema) or _PRIMITIVES[kind])
        if "name" in schema:
            self._named[schema["name"]] = made
        return made

    def _record(self, schema: Mapping[str, Any]) -> Shape:
        name = schema["name"]
        self._open.add(name)
        fields = tuple(
            Field(
                name=each["name"],
                shape=self.shape(each["type"]),
                default=partial(each.__getitem__, "default") if "default" in each else None,
                keyword_only=False,
            )
            for each in schema["fields"]
        )
        self._open.discard(name)
        made = self._named[name] = Structure(dict, fields, name)
        return made


def _digits(precision: int, scale: int) -> Digits | None:
    """The digits of a decimal, as far as columns can hold them: Avro itself has no limit."""
    return Digits(precision, scale) if precision <= COLUMN_DIGITS else None


def logical(schema: Mapping[str, Any]) -> type[Any] | None:
    """The class of a logical type that the codec converts; None: of another one, or of none."""
    return _LOGICAL.get((schema["type"], schema.get("logicalType", "")))
