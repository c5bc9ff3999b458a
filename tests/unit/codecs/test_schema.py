"""Avro schemas of dataclasses."""

from __future__ import annotations

import enum
import io
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from cues_kafka import GraphError
from cues_kafka.codecs.schema import avro_schema


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal


@dataclass(frozen=True)
class Order:
    id: str
    first: Line
    lines: list[Line]
    placed: datetime
    due: date | None = None
    colour: Colour = Colour.RED
    other: Colour = Colour.BLUE
    total: int = 0
    tags: dict[str, float] = field(default_factory=dict)
    pair: tuple[int, int] = (0, 0)
    parent: Order | None = None


@dataclass(frozen=True)
class Loose:
    anything: Any


def test_a_dataclass_has_an_avro_schema_in_which_each_type_is_defined_once() -> None:
    """Named types, defaults, null first where the default is None, and the class inside itself."""
    line = {
        "type": "record",
        "name": "Line",
        "fields": [{"name": "sku", "type": "string"}, {"name": "price", "type": "string"}],
    }

    assert avro_schema(Order, namespace="shop") == {
        "type": "record",
        "namespace": "shop",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "first", "type": line},
            {"name": "lines", "type": {"type": "array", "items": "Line"}},
            {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "due", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
            {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["red", "blue"]}},
            {"name": "other", "type": "Colour"},
            {"name": "total", "type": "long", "default": 0},
            {"name": "tags", "type": {"type": "map", "values": "double"}, "default": {}},
            {"name": "pair", "type": {"type": "array", "items": "long"}},
            {"name": "parent", "type": ["null", "Order"], "default": None},
        ],
    }


def test_an_avro_library_takes_the_schema_and_a_value() -> None:
    """It is parsed, and writes and reads a record."""
    schema = fastavro.parse_schema(avro_schema(Order))
    value = {
        "id": "a",
        "first": {"sku": "x", "price": "1"},
        "lines": [],
        "placed": datetime(2026, 1, 2, tzinfo=UTC),
        "due": date(2026, 1, 2),
        "colour": "red",
        "other": "blue",
        "total": 1,
        "tags": {"a": 1.0},
        "pair": [1, 2],
        "parent": None,
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    out.seek(0)

    assert fastavro.schemaless_reader(out, schema, None) == value


def test_a_field_that_avro_cannot_type_is_refused() -> None:
    """With the remedy."""
    with pytest.raises(GraphError, match="Use Json"):
        avro_schema(Loose)
