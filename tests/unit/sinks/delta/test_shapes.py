"""E6: which tables a declaration fits, what a start changes, and what is refused with which remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import time
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pytest

from cues_kafka import ConfigError, Delta, Graph, GraphError, Json, Processor, RetriableError, Sink, Source, Topic
from cues_kafka.graph.targets import TargetMoved
from cues_kafka.sinks.delta.checks import probe
from cues_kafka.sinks.delta.declare import DeltaTarget
from cues_kafka.sinks.delta.table import OpenedTable
from cues_kafka.testing.tester import Tester


@dataclass(frozen=True)
class Order:
    """The first version of a class."""

    id: int
    state: str | None


@dataclass(frozen=True)
class Later:
    """The second version: one more field."""

    id: int
    state: str | None
    note: str = ""


def shop(into: Any, value: type[Any] = Order) -> Graph:
    """A sink, and the class of its topic."""
    return Graph("shop", Source("orders"), Sink("lake", inputs="orders", into=into), defaults=Topic(value=Json(value)))


def schema(target: DeltaTarget) -> dict[str, str]:
    """The columns of a table."""
    return {one.name: one.type.type for one in deltalake.DeltaTable(target.url()).schema().fields}


def test_columns_come_from_the_class_and_grow_with_it(tmp_path: Path) -> None:
    """The next start adds a field; older rows have null there."""
    table = Delta(f"file://{tmp_path}").table("orders")
    tester = Tester(shop(table))
    tester.send("orders", Order(1, None))
    tester.run()
    tester.stop()
    assert schema(table) == {"id": "long", "state": "string"}

    tester = Tester(shop(table, Later))
    assert schema(table) == {"id": "long", "state": "string", "note": "string"}
    rows = pl.read_delta(table.url())
    assert rows.to_dicts() == [{"id": 1, "state": None, "note": None}]
    tester.stop()


ID = {"id": "long", "state": "string"}


@pytest.mark.parametrize(
    ("columns", "given", "says"),
    [
        (ID | {"id": "string"}, {}, "column 'id' is 'long' in the table and 'string' in the declaration"),
        ({"id": "long"}, {}, "not declared: 'state'. Declare them. If they were removed or renamed"),
        (ID, {"partition_by": ["state"]}, "divided by no column, and partition_by= names 'state'"),
        (ID | {"ID2": "long", "STATE2": "long"}, {}, ""),
        ({"ID": "long", "state": "string"}, {"leave": ["x"]}, "differs from 'id' of the table by case only"),
        ({"id": "long"}, {"leave": ["state"]}, ""),
    ],
)
def test_start_refuses_all_but_new_columns(
    tmp_path: Path, columns: Mapping[str, str], given: Mapping[str, Sequence[str]], says: str
) -> None:
    """The plan says the same, and nothing is changed."""
    lake = Delta(f"file://{tmp_path}")
    first = lake.table("orders", columns=ID)
    first.make(first=True)
    changed = lake.table("orders", columns=columns, **given)
    if not says:
        assert [*changed.inspect()] == []
        changed.make(first=False)
        return
    assert any(says in one for one in changed.inspect())
    with pytest.raises(ConfigError, match="declar"):
        changed.make(first=False)
    assert schema(first) == ID


def test_table_of_another_program_is_checked(tmp_path: Path) -> None:
    """A column that may not be null must be declared, and Delta must not forget how far tasks are."""
    fields = [deltalake.Field(name, deltalake.schema.PrimitiveType("long"), nullable=False) for name in ("id", "at")]
    deltalake.DeltaTable.create(f"file://{tmp_path}/orders", deltalake.Schema(fields))
    lake = Delta(f"file://{tmp_path}")
    [why] = lake.table("orders", columns={"id": "long"}, leave=["at"]).inspect()
    assert "may not be null, and are not declared: 'at'" in why
    declared = lake.table("orders", columns={"id": "long", "at": "long"})
    assert [*declared.inspect()] == []
    found = deltalake.DeltaTable(declared.url())
    found.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 7 days"})
    [why] = declared.inspect()
    assert "forgets how far a task is" in why
    assert "Unset the property" in why


def test_plan_says_what_a_start_changes(tmp_path: Path) -> None:
    """A table to make, then a column to add."""
    lake = Delta(f"file://{tmp_path}")
    first = lake.table("orders", columns=ID)
    [said] = first.changes(first=True)
    assert "no table at its address yet" in said
    first.make(first=True)
    [said] = lake.table("orders", columns=ID | {"note": "string"}).changes(first=False)
    assert "lacks columns 'note'" in said
    assert [*first.changes(first=False)] == []
    with pytest.raises(RetriableError, match="no table"):
        [*lake.table("lost", columns=ID).changes(first=False)]


def test_processes_that_start_together_make_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process makes it, and adds the column, between the look and the change."""
    lake = Delta(f"file://{tmp_path}")
    first, more = lake.table("orders", columns=ID), lake.table("orders", columns=ID | {"note": "string"})
    create, add = OpenedTable.create, OpenedTable.add_columns

    def beaten(self: OpenedTable, *given: Any) -> None:
        monkeypatch.setattr(OpenedTable, "create", create)
        first.make(first=True)
        create(self, *given)

    def added(self: OpenedTable, columns: Mapping[str, str]) -> None:
        monkeypatch.setattr(OpenedTable, "add_columns", add)
        more.make(first=False)
        add(self, columns)

    monkeypatch.setattr("cues_kafka.sinks.delta.checks.probe", lambda _: "")
    monkeypatch.setattr(OpenedTable, "create", beaten)
    first.make(first=True)
    monkeypatch.setattr(OpenedTable, "add_columns", added)
    more.make(first=False)
    assert schema(first) == ID | {"note": "string"}


def test_store_that_lets_a_second_writer_win_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of writers that race for one version several win there; tests/servers/test_delta.py has such a server."""
    table = Delta(f"file://{tmp_path}").table("orders", columns=ID)
    assert probe(table) == ""
    append = OpenedTable.append

    def overwriting(self: OpenedTable, rows: Sequence[Any], apps: Mapping[str, int]) -> None:
        try:
            append(self, rows, apps)
        except TargetMoved:
            return

    monkeypatch.setattr(OpenedTable, "append", overwriting)
    assert "If-None-Match" in probe(table)
    with pytest.raises(ConfigError, match="Use a store that has it"):
        table.make(first=True)
    assert [*(tmp_path / "orders" / "_cues").iterdir()] == []


def test_store_that_answers_no_writer_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that won has not heard of it: that is no reason to refuse the store."""
    table = Delta(f"file://{tmp_path}").table("orders", columns=ID)
    append = OpenedTable.append

    def unheard(self: OpenedTable, rows: Sequence[Any], apps: Mapping[str, int]) -> None:
        append(self, rows, apps)
        raise RetriableError("the answer is lost", code="TARGET")

    monkeypatch.setattr(OpenedTable, "append", unheard)
    with pytest.raises(RetriableError, match="no commit came through: the answer is lost"):
        probe(table)


def test_table_that_has_begun_is_not_made_again(tmp_path: Path) -> None:
    """Its processors have a place: the mount is gone."""
    table = Delta(f"file://{tmp_path}/mount").table("orders", columns=ID)
    with pytest.raises(RetriableError, match="no table") as raised:
        table.make(first=False)
    assert "mount the directory" in raised.value.remedy
    assert not (tmp_path / "mount").exists()


@dataclass(frozen=True)
class Timed:
    """A field that Delta has no type for."""

    id: int
    at: time


def test_class_with_a_field_that_delta_lacks_is_refused(tmp_path: Path) -> None:
    """And a topic without a class."""
    table = Delta(f"file://{tmp_path}").table("orders")
    with pytest.raises(ConfigError, match=r"'at' is neither text.*columns="):
        Tester(shop(table, Timed))
    graph = Graph("shop", Source("orders"), Sink("lake", inputs="orders", into=table))
    with pytest.raises(ConfigError, match=r"no class with fields\. Name them: columns="):
        Tester(graph)


# Declarations


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (Delta, "takes an address"),
        (lambda: Delta("file:///d", env="LAKE"), "takes an address"),
        (lambda: Delta("ftp://d"), "the address begins with 'ftp'"),
        (lambda: Delta("file://d"), "the absolute path of a directory"),
        (lambda: Delta("file:///a%20b"), "with '%' in its path"),
        (lambda: Delta("s3://u:secret@b"), "passwords and settings"),
        (lambda: Delta("s3://b", options={"timeout": 3}), "'timeout': the value is no text"),  # type: ignore[dict-item]
        (lambda: Delta("s3://b").table("a/b"), "cannot be the name of a Delta table"),
        (lambda: Delta("s3://b").table("a", columns={"id": "int64"}), "no type 'int64'. It knows"),
        (lambda: Delta("s3://b").table("a", columns={"id": "decimal(39,2)"}), "no type 'decimal"),
        (lambda: Delta("s3://b").table("a", columns={"a b": "long"}), "cannot be the name of a column"),
        (lambda: Delta("s3://b").table("a", columns={"id": "long", "Id": "long"}), "differ by case only"),
        (lambda: Delta("s3://b").table("a", columns={"id": "long"}, leave="id"), "or are named twice"),
        (lambda: Delta("s3://b").table("a", columns={"id": "long"}, partition_by="x"), "there is no column 'x'"),
        (lambda: Delta("s3://b").table("a", columns={"id": "long"}, partition_by="id"), "needs a column"),
    ],
)
def test_declarations_that_cannot_work_are_refused(declare: Any, says: str) -> None:
    """With what to write; no text shows a password."""
    with pytest.raises(GraphError) as raised:
        declare()
    assert says in str(raised.value)
    assert "secret" not in str(raised.value)


def test_address_and_options_show_in_no_text() -> None:
    """And a graph with them cannot be written down; with the name of a variable it can."""
    table = Delta("s3://bucket", options={"AWS_SECRET_ACCESS_KEY": "secret"}).table("orders", columns=ID)
    assert "secret" not in repr(table)
    assert "bucket" not in repr(table)
    with pytest.raises(GraphError, match="cannot be written down"):
        shop(table).to_dict()
    graph = shop(Delta(env="LAKE").table("orders", columns=ID, partition_by="state", leave=["x"]))
    assert Graph.from_dict(graph.to_dict()) == graph


def test_variable_that_is_not_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that holds no address."""
    table = Delta(env="LAKE").table("orders", columns=ID)
    monkeypatch.delenv("LAKE", raising=False)
    with pytest.raises(ConfigError, match="LAKE is not set"):
        table.url()
    monkeypatch.setenv("LAKE", "here")
    with pytest.raises(ConfigError, match="the address begins with 'no scheme'"):
        table.url()


def test_two_tables_are_not_one_target() -> None:
    """No commit spans them."""
    lake = Delta("s3://bucket")
    one, two = lake.table("one", columns=ID), lake.table("two", columns=ID)

    def both(order: Order, a: Any, b: Any) -> None: ...

    with pytest.raises(GraphError, match="no transaction spans two of them"):
        Processor(both, inputs="orders", effects={"a": one, "b": two})
