"""What drivers are given: savepoints only where a step has failed, and `COPY` for many rows of PostgreSQL."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import CommitPolicy, Graph, Processor, Source, Sql, Topic
from cues_kafka.sinks.dialect import SAVEPOINT
from cues_kafka.sinks.postgres import Postgres
from cues_kafka.sinks.sqlite import Sqlite
from cues_kafka.task.filling import Filling
from cues_kafka.testing.tester import Tester

BATCH = 10


def book(order: int, db: Any) -> None:
    """A row for each order; one of them is refused behind its row."""
    db.execute("INSERT INTO rows VALUES (?)", (order,))
    if order == 17:
        raise ValueError(order)


def book_many(orders: list[int], db: Any) -> None:
    """The same for a list."""
    for order in orders:
        book(order, db)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that SQLite gets, where each batch is called for in one go."""
    statements: list[str] = []
    connect = Sqlite.connect

    def traced(self: Sqlite) -> Any:
        opened = connect(self)
        opened.set_trace_callback(statements.append)
        return opened

    monkeypatch.setattr(Sqlite, "connect", traced)
    monkeypatch.setattr(Filling, "chunk_size", lambda filling, left: left)
    return statements


def savepoints(statements: list[str]) -> dict[int, int]:
    """How often a batch of orders has set its savepoint, by its first order."""
    found: dict[int, int] = {}
    for transaction in "\n".join(statements).split("BEGIN IMMEDIATE"):
        if first := re.search(r"^INSERT INTO rows VALUES \((\d+)\)", transaction, re.MULTILINE):
            found[int(first[1])] = transaction.splitlines().count(SAVEPOINT)
    return found


@pytest.mark.parametrize(("fn", "batch"), [(book, False), (book_many, True)])
def test_a_batch_sets_one_savepoint_until_a_step_fails(fn: Any, batch: bool, given: list[str], tmp_path: Path) -> None:
    """A failure takes the whole batch back. Its steps are then called one by one, each behind its own savepoint."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE rows (id INTEGER)")
    processor = Processor(fn, inputs="orders", batch=batch, effects={"db": Sql(f"sqlite:///{path}")})
    graph = Graph("g", Source("orders"), processor, errors="errors", defaults=Topic(partitions=1))
    tester = Tester(graph, policy=CommitPolicy(max_messages=BATCH))
    for order in range(3 * BATCH):
        tester.send("orders", order)
    tester.run()

    assert savepoints(given) == {0: 1, 10: 1 + BATCH, 20: 1}
    with sqlite3.connect(path) as opened:
        assert [row[0] for row in opened.execute("SELECT id FROM rows")] == [i for i in range(3 * BATCH) if i != 17]


class Recorded:
    """A connection of psycopg that keeps what it is given."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.rows: list[Any] = []

    @contextmanager
    def cursor(self) -> Iterator[Recorded]:
        """Itself."""
        yield self

    @contextmanager
    def copy(self, statement: Any) -> Iterator[Recorded]:
        """What `COPY` gives."""
        self.statements.append(statement.as_string(None))
        yield self

    def write_row(self, row: Any) -> None:
        """One row of it."""
        self.rows.append(row)


def test_many_rows_of_postgresql_are_copied() -> None:
    """Names are quoted; there is no other statement."""
    connection = Recorded()

    Postgres("postgresql://shop@db/shop").insert(connection, "shop.late", ["id", "delay"], [(1, 2), (3, None)])

    assert connection.statements == ['COPY "shop"."late" ("id", "delay") FROM STDIN']
    assert connection.rows == [(1, 2), (3, None)]
