"""What a function leaves behind, or does in between, may not reach the transaction of its batch."""

from __future__ import annotations

import contextvars
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, Processor, Source, Sql, Topic
from cues_kafka.sinks.sql import SqlTarget
from cues_kafka.testing.tester import Tester


def made_with(path: Path, write: Callable[..., Any]) -> Tester:
    """A processor with a table `t`."""
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE t (x INTEGER)")
    processor = Processor(write, inputs="numbers", outputs="written", effects={"db": Sql(f"sqlite:///{path}")})
    return Tester(Graph("g", Source("numbers"), processor, errors="errors", defaults=Topic(partitions=1)))


def rows(path: Path) -> list[int]:
    """What stands in it."""
    with sqlite3.connect(path) as made:
        return [row[0] for row in made.execute("SELECT x FROM t ORDER BY x")]


def test_thread_of_the_last_call_may_not_write_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the context of the call, and no call has come since."""
    path, raised = tmp_path / "t.db", list[BaseException]()
    begin, ended = threading.Event(), threading.Event()

    def write(number: int, db: Any) -> int:
        db.execute("INSERT INTO t VALUES (?)", (number,))
        context = contextvars.copy_context()

        def later() -> None:
            begin.wait(20.0)
            try:
                context.run(db.execute, "INSERT INTO t VALUES (999)")
            except RuntimeError as error:
                raised.append(error)
            ended.set()

        threading.Thread(target=later, daemon=True).start()
        return number

    commit = SqlTarget.commit

    def late(self: SqlTarget, *given: Any) -> None:
        begin.set()
        ended.wait(20.0)
        commit(self, *given)

    monkeypatch.setattr(SqlTarget, "commit", late)
    tester = made_with(path, write)
    tester.send("numbers", 1)
    tester.run()

    assert (rows(path), len(raised)) == ([1], 1)
    assert "only during the call" in str(raised[0])


def test_rows_that_run_statements_are_refused(tmp_path: Path) -> None:
    """PostgreSQL would wait for rows and the function for the statement; the next message goes on."""
    path = tmp_path / "t.db"

    def write(number: int, db: Any) -> int:
        def found() -> Iterator[tuple[int]]:
            yield (number,)
            if number == 2:
                db.execute("SELECT 1")
            yield (number + 100,)

        db.insert("t", ["x"], found())
        return number

    tester = made_with(path, write)
    tester.send_many("numbers", [1, 2, 3])
    tester.run()

    assert (rows(path), tester.values("written")) == ([1, 3, 101, 103], [1, 3])
    assert "Give it a list of the rows" in tester.errors()[0].text
