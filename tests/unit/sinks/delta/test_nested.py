"""E6: columns that are lists and structures, from their names to what other programs read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest

from cues_kafka import Delta, Graph, GraphError, Json, Processor, Sink, Source, Topic
from cues_kafka.sinks.delta.column_types import ListOf, StructOf, column_type
from cues_kafka.sinks.delta.columns import delta_type, schema_of
from cues_kafka.testing.tester import Tester

COLUMNS = {
    "id": "long",
    "tags": "array<string>",
    "ship": "struct<to:string,due:date>",
    "lines": "array<struct<item:string,price:decimal(8,2),sizes:array<integer>>>",
}


@dataclass(frozen=True)
class Shipping:
    """A structure within an order."""

    to: str
    due: date | None = None


@dataclass(frozen=True)
class Line:
    """One of a list of structures."""

    item: str
    price: Decimal
    sizes: list[int | None]


@dataclass(frozen=True)
class Order:
    """A class with both."""

    id: int
    tags: list[str] | None
    ship: Shipping | None
    lines: list[Line]


def graph(into: Any, value: Any) -> Graph:
    """A sink."""
    return Graph(
        "shop", Source("orders"), Sink("lake", inputs="orders", into=into), errors="bad", defaults=Topic(value=value)
    )


def test_lists_and_structures_are_read_as_they_were_written(tmp_path: Path) -> None:
    """From a class, with null in each place; polars reads them."""
    table = Delta(f"file://{tmp_path}").table("orders", columns=COLUMNS)
    tester = Tester(graph(table, Json(Order)))
    line = Line("cup", Decimal("2.50"), [1, None, 3])
    tester.send_many(
        "orders",
        [
            Order(1, ["new", "big"], Shipping("Oslo", date(2026, 1, 2)), [line, Line("pot", Decimal(7), [])]),
            Order(2, None, None, []),
            Order(3, [], Shipping("Bern"), [line]),
        ],
    )
    tester.run()
    assert tester.errors() == []
    cup = {"item": "cup", "price": Decimal("2.50"), "sizes": [1, None, 3]}
    assert pl.read_delta(table.url()).sort("id").to_dicts() == [
        {
            "id": 1,
            "tags": ["new", "big"],
            "ship": {"to": "Oslo", "due": date(2026, 1, 2)},
            "lines": [cup, {"item": "pot", "price": Decimal("7.00"), "sizes": []}],
        },
        {"id": 2, "tags": None, "ship": None, "lines": []},
        {"id": 3, "tags": [], "ship": {"to": "Bern", "due": None}, "lines": [cup]},
    ]
    assert [*table.inspect()] == []


GOOD = {"id": 1, "tags": ["a"], "ship": {"to": "Oslo", "due": None}}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"tags": "a"}, "field 'tags' is no list"),
        ({"tags": {"a": 1}}, "field 'tags' is no list"),
        ({"tags": ["a", 1]}, "Expected bytes, got a 'int'"),
        ({"ship": {"to": "Oslo"}}, "lacks the field 'ship.due'"),
        ({"ship": "Oslo"}, "lacks the field 'ship.to'"),
        ({"sizes": [1, 2.5]}, "a part of field 'sizes[]' would be lost as int32"),
        ({"sizes": [2**40]}, "too large to fit"),
        ({"sizes": [True]}, "would be lost|got bool"),
    ],
)
def test_value_that_does_not_fit_within_is_an_error_and_the_others_are_rows(
    tmp_path: Path, wrong: Mapping[str, Any], says: str
) -> None:
    """As at the top: nothing is cut, and no field is left out."""
    columns = {**COLUMNS, "sizes": "array<integer>"}
    del columns["lines"]
    table = Delta(f"file://{tmp_path}").table("orders", columns={**columns, "ship": "struct<to:string,due:string>"})
    good = {**GOOD, "sizes": [2.0, None]}
    tester = Tester(graph(table, Json()))
    tester.send_many("orders", [good, {**good, **wrong}, {**good, "id": 3, "more": 1}])
    tester.run()
    [error] = tester.errors()
    assert any(one in error.text for one in says.split("|")), error.text
    rows = pl.read_delta(table.url()).sort("id").to_dicts()
    assert [(one["id"], one["sizes"]) for one in rows] == [(1, [2, None]), (3, [2, None])]


def test_function_writes_a_structure_from_a_mapping_or_an_object(tmp_path: Path) -> None:
    """Both in one batch."""
    table = Delta(f"file://{tmp_path}").table("ways", columns={"ship": "struct<to:string>"})

    def work(to: str, table: Any) -> None:
        table.write({"ship": {"to": to}})
        table.write({"ship": Shipping(to)})

    made = Graph("shop", Source("in"), Processor(work, inputs="in", effects={"table": table}))
    tester = Tester(made)
    tester.send("in", "Oslo")
    tester.run()
    assert pl.read_delta(table.url()).to_dicts() == [{"ship": {"to": "Oslo"}}] * 2


@pytest.mark.parametrize("text", [*COLUMNS.values(), "array<array<double>>", "struct<array:long,x.y:struct<z:byte>>"])
def test_type_has_one_text(tmp_path: Path, text: str) -> None:
    """From the declaration to the table and back."""
    [kind] = schema_of({"a": text}).types
    assert delta_type(kind) == text
    table = Delta(f"file://{tmp_path}").table("one", columns={"a": text, "id": "long"})
    table.make(first=True)
    assert [*table.inspect()] == []


def test_text_is_taken_apart() -> None:
    """Into what stands in it."""
    assert column_type("array<struct<a:long>>") == ListOf(StructOf((("a", "long"),)))


@pytest.mark.parametrize(
    "text",
    [
        "array",
        "array<",
        "array<>",
        "array<long",
        "array<long>>",
        "array<lon>",
        "array< long>",
        "struct<>",
        "struct<a>",
        "struct<a:long,>",
        "struct<a:long,A:long>",
        "struct<<:long>",
        "struct<decimal(2,1):long>",
        "decimal(39,2)",
        "decimal(5,6)",
        "decimal",
        "map<string,long>",
        "long not null",
        "",
        7,
    ],
)
def test_text_that_names_no_type_is_refused(text: Any) -> None:
    """With those that are known."""
    with pytest.raises(GraphError, match=r"Delta knows no type .* It knows 'string', .* 'array<string>'"):
        Delta("file:///lake").table("orders", columns={"id": "long", "a": text})


def test_table_is_not_divided_by_a_list() -> None:
    """Nor by a structure."""
    with pytest.raises(GraphError, match=r"partition_by=: 'tags' is 'array<string>'. Name columns of plain types"):
        Delta("file:///lake").table("orders", columns=COLUMNS, partition_by="tags")


def test_types_that_no_table_has_here_have_no_text() -> None:
    """Maps and times of day, also within others."""
    for kind in (pa.map_(pa.string(), pa.int64()), pa.time64("us"), pa.list_(pa.time64("us"))):
        assert delta_type(kind) == ""
        assert delta_type(pa.struct([("a", pa.int64()), ("b", kind)])) == ""


def test_change_within_a_structure_is_refused(tmp_path: Path) -> None:
    """As another type of the column; and so is an item that may not be null in the table of another program."""
    lake = Delta(f"file://{tmp_path}")
    lake.table("orders", columns={"id": "long", "ship": "struct<to:string>"}).make(first=True)
    [why] = lake.table("orders", columns={"id": "long", "ship": "struct<to:string,due:date>"}).inspect()
    assert "column 'ship' is 'struct<to:string>' in the table and 'struct<to:string,due:date>' in the decl" in why
    item = deltalake.schema.ArrayType(deltalake.schema.PrimitiveType("long"), contains_null=False)
    deltalake.DeltaTable.create(f"{tmp_path}/full", deltalake.Schema([deltalake.Field("a", item)]))
    [why] = lake.table("full", columns={"a": "array<long>"}).inspect()
    assert "'array<long not null>' in the table" in why
