"""Arrow's types of the values of a topic, from the shape of its codec. They are those that Spark's columns have."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

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
from cues_kafka.errors import ConfigError, GraphError

VALUE: Final = "value"
"""The column of a value that is no record."""

SCALARS: Final[dict[type[Any], Any]] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime: pa.timestamp("us", tz="UTC"),
    date: pa.date32(),
    UUID: pa.string(),
}


def schema_of(shape: Shape | None) -> Any:
    """
    The columns of a topic's values as a `pyarrow.Schema`: the fields of a record by their names in messages; else one.

    Args:
        shape: of the values; None: they are bytes.

    Raises:
        ConfigError: no column can hold a field.
    """
    if shape is None:
        return pa.schema([pa.field(VALUE, pa.binary())])
    if isinstance(shape, Structure):
        return pa.schema(_fields(shape.fields, shape_name(shape)))
    return pa.schema([pa.field(VALUE, kind_of(shape, VALUE), nullable=_takes_null(shape))])


def kind_of(shape: Shape, where: str) -> Any:
    """
    Arrow's type of a shape.

    Raises:
        ConfigError: Arrow has no type for it; the error names the field.
    """
    match shape:
        case Scalar(_, digits) if digits is not None:
            return pa.decimal128(digits.precision, digits.scale)
        case Scalar(cls) if cls in SCALARS:
            return SCALARS[cls]
        case Choice(values) if all(isinstance(value, str) for value in values):
            return pa.string()
        case Items(item):
            return pa.list_(kind_of(item, f"{where}[]"))
        case Mapped(value):
            return pa.map_(pa.string(), kind_of(value, f"{where}{{}}"))
        case OneOf(options) if len(rest := [one for one in options if not isinstance(one, Null)]) == 1:
            return kind_of(rest[0], where)
        case Structure(_, fields):
            return pa.struct(_fields(fields, where))
        case Scalar(cls) if cls is Decimal:
            raise ConfigError(
                f"{where}: a column needs the digits of a Decimal. Write Annotated[Decimal, Digits(12, 2)]."
            )
        case Anything() | Choice() | Fixed() | OneOf() | Null() | Ref() | Scalar():
            raise ConfigError(
                f"{where}: no column holds this type ({shape_name(shape)}). Declare another class for the topic, which "
                "leaves the field out, or Raw(), and parse the bytes in the function."
            )
    raise GraphError(f"{where}: {shape!r}")


def _fields(fields: tuple[Field, ...], where: str) -> list[Any]:
    return [
        pa.field(each.wire_name, kind_of(each.shape, f"{where}.{each.name}"), nullable=_takes_null(each.shape))
        for each in fields
    ]


def _takes_null(shape: Shape) -> bool:
    return isinstance(shape, OneOf) and any(isinstance(one, Null) for one in shape.options)
