"""Results of statements that a function keeps beyond its call: the batch, and its database, go on without them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, Processor, Source, Sql, Topic
from cues_kafka.testing.tester import Tester


@pytest.mark.parametrize("statement", ["INSERT INTO u VALUES (1), (2) RETURNING x", "SELECT x FROM t"])
def test_result_that_is_kept_holds_nothing_up(statement: str, tmp_path: Path) -> None:
    """Its rows were not read, so SQLite would end neither a savepoint nor the transaction."""
    path, kept = tmp_path / "t.db", list[Any]()
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE t (x INTEGER)")
        made.execute("CREATE TABLE u (x INTEGER)")
        made.execute("INSERT INTO t VALUES (77), (78)")

    def write(number: int, db: Any) -> int:
        db.execute("INSERT INTO t VALUES (?)", (number,))
        if number == 1:
            kept.append(db.execute(statement))
        return number

    effects = {"db": Sql(f"sqlite:///{path}")}
    processor = Processor(write, inputs="numbers", outputs="written", effects=effects)
    tester = Tester(Graph("g", Source("numbers"), processor, errors="errors", defaults=Topic(partitions=1)))
    for first in (0, 3):
        tester.send_many("numbers", [first, first + 1, first + 2])
        tester.run()

    assert (tester.values("written"), tester.errors()) == ([*range(6)], [])
    with sqlite3.connect(path, isolation_level=None, timeout=1) as other:
        assert other.execute("SELECT x FROM t WHERE x < 77").fetchall() == [(n,) for n in range(6)]
        other.execute("BEGIN EXCLUSIVE")  # no lock is left


def test_rows_of_a_statement_that_writes_are_read_as_others(tmp_path: Path) -> None:
    """One by one, several at once, and the rest."""
    path, found = tmp_path / "t.db", list[Any]()
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE t (x INTEGER)")

    def write(number: int, db: Any) -> None:
        result = db.execute("INSERT INTO t VALUES (1), (2), (3), (4), (5) RETURNING x")
        found.extend([result.fetchone(), result.fetchmany(2), next(result), result.fetchall(), result.fetchone()])

    processor = Processor(write, inputs="numbers", effects={"db": Sql(f"sqlite:///{path}")})
    tester = Tester(Graph("g", Source("numbers"), processor, defaults=Topic(partitions=1)))
    tester.send("numbers", 1)
    tester.run()

    assert found == [(1,), [(2,), (3,)], (4,), [(5,)], None]
