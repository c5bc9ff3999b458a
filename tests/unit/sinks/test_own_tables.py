"""Our two tables in a database: made where they are missing, and refused where they have other columns (E1)."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import ConfigError, Graph, Memory, Processor, Source, Sql, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.plan.inspectors import Terms
from cues_kafka.sinks.dialect import KEYS, OUTBOX, TASKS
from cues_kafka.sinks.lookup import dialect
from cues_kafka.sinks.tables import inspect_databases, make_tables
from cues_kafka.testing.tester import Tester

CHANGES = {
    f"ALTER TABLE {TASKS} DROP COLUMN backend": f"{TASKS} has other columns than this release makes (no backend)",
    f"ALTER TABLE {TASKS} ADD COLUMN version INTEGER": f"{TASKS} has other columns than this release makes "
    "(version is not known)",
    f"ALTER TABLE {OUTBOX} RENAME COLUMN records TO record": f"{OUTBOX} has other columns than this release makes "
    "(no records; record is not known)",
    f"DROP TABLE {OUTBOX}; CREATE TABLE {OUTBOX} (graph TEXT NOT NULL, processor TEXT NOT NULL, part TEXT NOT NULL, "
    "place INTEGER NOT NULL, records BLOB NOT NULL)": f"{OUTBOX} has other columns than this release makes "
    "(part is text, not integer)",
}


def book(order: dict[str, Any], db: Any) -> None:
    """A row for each order."""
    db.execute("INSERT INTO rows (id) VALUES (?)", (order["id"],))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with a table of the user's, and ours as this release makes them."""
    found = tmp_path / "shop.db"
    make_tables(Sql(f"sqlite:///{found}"), "the test", create=True)
    with sqlite3.connect(found) as made:
        made.execute("CREATE TABLE rows (id INTEGER)")
    return found


def graph_of(path: Path) -> Graph:
    """One processor with the database."""
    effects = {"db": Sql(f"sqlite:///{path}")}
    return Graph("g", Source("orders"), Processor(book, inputs="orders", effects=effects), errors="errors")


def schema(path: Path) -> list[Any]:
    """All statements that have made what is there."""
    with sqlite3.connect(path) as opened:
        return opened.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()


@pytest.mark.parametrize("change", CHANGES, ids=list(CHANGES.values()))
def test_tables_of_another_shape_are_refused_by_plan_and_start_and_never_touched(change: str, path: Path) -> None:
    """A column that is missing, one more, another name, another type; each with the remedy."""
    with sqlite3.connect(path) as made:
        made.executescript(change)
    graph, before = graph_of(path), schema(path)

    found = inspect_databases(graph, open_broker(Memory()), Terms())
    with pytest.raises(ConfigError) as refused:
        start(graph, Memory())

    [planned] = found.refusals
    assert f"book, effects['db']: the table {CHANGES[change]}" in planned
    assert "Run the release that made it, or correct its columns; do not drop it" in planned
    assert planned in str(refused.value)
    assert schema(path) == before


@pytest.mark.parametrize("change", CHANGES, ids=list(CHANGES.values()))
def test_a_start_refuses_another_shape_also_if_no_plan_has_looked(change: str, path: Path) -> None:
    """The database may have been away then."""
    with sqlite3.connect(path) as made:
        made.executescript(change)

    with pytest.raises(ConfigError) as refused:
        make_tables(Sql(f"sqlite:///{path}"), "book, effects['db']", create=True)
    assert f"book, effects['db']: the table {CHANGES[change]}" in str(refused.value)


def test_tables_of_this_release_are_taken_as_they_are(path: Path) -> None:
    """Made once, looked at again by each start; nothing is made twice, and rows go in."""
    before = schema(path)
    tester = Tester(graph_of(path))
    tester.send("orders", {"id": 1})
    tester.run()

    assert schema(path) == before
    assert not tester.errors()
    with sqlite3.connect(path) as opened:
        assert opened.execute("SELECT id FROM rows").fetchall() == [(1,)]


def test_missing_tables_that_must_not_be_made_are_refused(tmp_path: Path) -> None:
    """With the command that makes them."""
    path = tmp_path / "empty.db"

    with pytest.raises(
        ConfigError, match=rf"the test: the tables {TASKS} and {OUTBOX} do not exist.*plan MODULE:GRAPH --a"
    ):
        make_tables(Sql(f"sqlite:///{path}"), "the test", create=False)
    assert schema(path) == []


@pytest.mark.parametrize("url", ["sqlite:////x.db", "postgresql://nowhere/shop", "mysql://nowhere/shop"])
def test_each_column_of_a_key_is_one_of_its_table(url: str) -> None:
    """In all databases, and the tables are the same two."""
    shape = dialect(Sql(url)).shape

    assert list(shape) == [TASKS, OUTBOX]
    assert all(set(KEYS[table]) < set(columns) for table, columns in shape.items())
