"""E1: what a database's row keeps out, and in which order a batch's statements go to it; no server is needed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from cues_kafka import ConfigError, RetriableError, Sql
from cues_kafka.graph.targets import TaskName
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.dialect import OUTBOX, RELEASE, SAVEPOINT, TASKS, Dialect
from cues_kafka.sinks.lookup import open_target
from cues_kafka.sinks.mysql import MySql
from cues_kafka.sinks.postgres import Postgres
from cues_kafka.sinks.sql import SqlTarget
from cues_kafka.sinks.sqlite import Sqlite
from cues_kafka.sinks.tables import make_tables

RECORD = ("booked", 0, None, b"1", None, 5)


@pytest.fixture
def declared(tmp_path: Path) -> Sql:
    """A database with our tables."""
    found = Sql(f"sqlite:///{tmp_path / 'shop.db'}")
    make_tables(found, "the test", create=True)
    return found


@pytest.fixture
def opened(declared: Sql) -> Iterator[Callable[[], SqlTarget]]:
    """Makes targets of one task, each in what could be another process."""
    made: list[SqlTarget] = []

    def opens() -> SqlTarget:
        target = open_target({"db": declared}, "g", "book", 0)
        assert isinstance(target, SqlTarget)
        made.append(target)
        return target

    yield opens
    for target in made:
        target.close()


def row(declared: Sql) -> tuple[Any, ...]:
    """Where the task's row stands: base, step, owner."""
    with sqlite3.connect(declared.url.removeprefix("sqlite:///")) as looked:
        [found] = looked.execute(f"SELECT base, step, owner FROM {TASKS}")
    return tuple(found)


def commit(target: SqlTarget, owner: int, step: int) -> None:
    """One batch of one step, with one message."""
    target.begin_batch(owner, step)
    target.commit(HeldAttempt(step, step + 1, owner, ""), [RECORD])


def test_a_former_owner_writes_nothing_once_another_has_recovered(opened: Any, declared: Sql) -> None:
    """Whether or not it was in a batch before; its batch ends at the row, which keeps the later owner."""
    zombie, heir = opened(), opened()
    zombie.ask(1, 0)
    commit(zombie, 1, 0)
    heir.ask(3, 1)

    assert row(declared) == (0, 1, 3)
    for late in (zombie, opened()):
        with pytest.raises(RetriableError, match=r"is at step 1, owner 3; the task is at step 1, owner 1"):
            late.begin_batch(1, 1)
    assert row(declared) == (0, 1, 3)
    commit(heir, 3, 1)
    assert row(declared) == (1, 2, 3)


@pytest.mark.parametrize("step", [0, 2])
def test_a_batch_at_another_step_than_the_row_is_refused(step: int, opened: Any, declared: Sql) -> None:
    """The row was moved by an attempt that this process does not know of, or was restored from a backup."""
    target = opened()
    target.ask(1, 0)
    commit(target, 1, 0)

    with pytest.raises(RetriableError, match=f"is at step 1, owner 1; the task is at step {step}, owner 1"):
        target.begin_batch(1, step)
    assert row(declared) == (0, 1, 1)


def test_a_former_owner_adds_no_part_to_what_a_recovery_has_found(opened: Any, declared: Sql) -> None:
    """The row is an attempt ahead. From the answer on it is that of the one who publishes it, with its outbox."""
    former, heir = opened(), opened()
    former.ask(1, 0)
    commit(former, 1, 0)

    assert heir.ask(3, 0) == HeldAttempt(0, 1, 1, "")
    assert row(declared) == (0, 1, 3)
    with pytest.raises(RetriableError, match=r"is at step 1, owner 3; the task is at step 1, owner 1"):
        former.begin_batch(1, 1)
    assert list(heir.outbox()) == [RECORD]


def test_a_row_that_is_elsewhere_is_not_claimed(opened: Any, declared: Sql) -> None:
    """It is behind the record, or over another one: the task will refuse, and changes nothing."""
    former, heir = opened(), opened()
    former.ask(1, 0)
    commit(former, 1, 0)
    commit(former, 1, 1)

    for step in (0, 3):
        assert heir.ask(5, step) == HeldAttempt(1, 2, 1, "")
    assert row(declared) == (1, 2, 1)


def test_parts_of_a_batch_begin_where_the_part_before_ended(opened: Any, declared: Sql) -> None:
    """Each row is that of all steps since the record, and has the place that a recovery publishes."""
    target = opened()
    target.ask(1, 0)
    target.begin_batch(1, 0)
    target.commit(HeldAttempt(0, 2, 1, "of two"), [])
    target.begin_batch(1, 2)
    target.commit(HeldAttempt(0, 3, 1, "of three"), [])

    assert target.newest() == HeldAttempt(0, 3, 1, "of three")
    assert opened().ask(3, 0) == HeldAttempt(0, 3, 1, "of three")


def test_the_outbox_and_the_row_are_committed_together_or_not_at_all(opened: Any, declared: Sql) -> None:
    """A database that refuses the messages of a batch keeps none of it."""
    with sqlite3.connect(declared.url.removeprefix("sqlite:///")) as made:
        made.execute(f"CREATE TRIGGER full BEFORE INSERT ON {OUTBOX} BEGIN SELECT RAISE(ABORT, 'no room'); END")
    target = opened()
    target.ask(1, 0)

    with pytest.raises(RetriableError, match="no room"):
        commit(target, 1, 0)
    assert row(declared) == (0, 0, 1)


def test_a_batch_that_has_begun_keeps_others_from_beginning(
    opened: Any, declared: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite: the row is read under the lock of the file, so no other transaction moves it before the commit."""
    monkeypatch.setattr(Sqlite, "lock_s", 0.01)
    first, second = opened(), opened()
    first.ask(1, 0)
    first.begin_batch(1, 0)

    with pytest.raises(RetriableError, match="locked"):
        second.begin_batch(1, 0)
    first.commit(HeldAttempt(0, 1, 1, ""), [])
    assert row(declared) == (0, 1, 1)


def test_a_statement_behind_the_end_of_a_transaction_is_refused(opened: Any) -> None:
    """SQLite ends one by itself, for instance where the disk is full; what follows would be committed alone."""
    target = opened()
    target.ask(1, 0)
    target.begin_batch(1, 0)
    target.mark()
    target.in_use.execute("CREATE TABLE rows (id INTEGER)")
    cursor = target.dialect.cursor(target.in_use)
    target.in_use.execute("ROLLBACK")

    with pytest.raises(sqlite3.OperationalError, match="the transaction has ended"):
        cursor.execute("SELECT 1")


class Recorder:
    """A connection of a server that writes down what it is asked, and finds the row of the task."""

    def __init__(self, row: Sequence[Any]) -> None:
        self.asked: list[str] = []
        self._row = row
        self.brief = False
        self.deferrable = False
        self.limited = False
        self.changed = False
        self.rowcount = 1

    def execute(self, statement: str, parameters: Any = None) -> Recorder:
        """Write it down."""
        self.asked.append(" ".join(statement.split()))
        return self

    def fetchone(self) -> Sequence[Any]:
        """The row."""
        return self._row

    def cursor(self) -> Recorder:
        """Itself."""
        return self

    def pipeline(self) -> Any:
        """No pipeline."""
        return nullcontext()

    def close(self) -> None:
        """Nothing to do."""


@pytest.mark.parametrize("dialect", [Postgres("postgresql://nowhere/"), MySql("mysql://nowhere/")], ids=["pg", "my"])
def test_servers_lock_the_row_before_the_first_write_and_commit_behind_the_last(
    dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is compared under its own lock; row, outbox and what the function writes are one transaction."""
    connection = Recorder([0, 0, 1, "", "me"])
    monkeypatch.setattr(dialect, "connect", lambda: connection)
    monkeypatch.setattr(dialect, "name_of", lambda _: "me")
    target = SqlTarget(dialect, TaskName("g", "book", 0))

    target.begin_batch(1, 0)
    begun = len(connection.asked)
    connection.execute("INSERT INTO rows VALUES (1)")
    target.commit(HeldAttempt(0, 1, 1, ""), [RECORD])

    locked = [one for one in connection.asked[:begun] if one.startswith("SELECT base, step, owner")]
    assert len(locked) == 2, "once to say who it is, once for the batch"
    assert all(one.endswith(" FOR UPDATE") for one in locked)
    assert connection.asked[begun - 1] == SAVEPOINT
    of_ours = ("INSERT", "RELEASE", "DELETE", "UPDATE", "WITH moved AS (UPDATE", "COMMIT")
    last = [one.removeprefix("WITH moved AS (") for one in connection.asked[begun:] if one.startswith(of_ours)]
    assert last[:2] == ["INSERT INTO rows VALUES (1)", RELEASE]
    assert [" ".join(one.split()[:3]) for one in last[2:5]] == [
        f"DELETE FROM {OUTBOX}",
        f"UPDATE {TASKS} SET",
        f"INSERT INTO {OUTBOX}",
    ]
    assert last[5].startswith("COMMIT")
    assert len(last) == 6


def _sqlite(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("said")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("dialect", "error"),
    [
        (Sqlite("sqlite:///x"), _sqlite(sqlite3.SQLITE_BUSY)),
        (Sqlite("sqlite:///x"), _sqlite(sqlite3.SQLITE_FULL)),
        (Sqlite("sqlite:///x"), _sqlite(sqlite3.SQLITE_IOERR_WRITE)),
        (Postgres("postgresql://nowhere/"), psycopg.errors.SerializationFailure("said")),
        (Postgres("postgresql://nowhere/"), psycopg.errors.DeadlockDetected("said")),
        (Postgres("postgresql://nowhere/"), psycopg.errors.DiskFull("said")),
        (Postgres("postgresql://nowhere/"), psycopg.errors.AdminShutdown("said")),
        (MySql("mysql://nowhere/"), pymysql.err.OperationalError(1213, "said")),
        (MySql("mysql://nowhere/"), pymysql.err.InternalError(6, "said: a file could not be deleted")),
        (MySql("mysql://nowhere/"), pymysql.err.OperationalError(1205, "said")),
        (MySql("mysql://nowhere/"), pymysql.err.OperationalError(1114, "said")),
    ],
)
def test_what_no_step_has_caused_is_an_outage(dialect: Dialect, error: Exception) -> None:
    """The whole transaction is tried again, and no message becomes an error."""
    assert "said" in dialect.outage(error)


@pytest.mark.parametrize(
    ("dialect", "error"),
    [
        (Sqlite("sqlite:///x"), _sqlite(sqlite3.SQLITE_CONSTRAINT_UNIQUE)),
        (Postgres("postgresql://nowhere/"), psycopg.errors.UniqueViolation("said")),
        (MySql("mysql://nowhere/"), pymysql.err.IntegrityError(1062, "said")),
    ],
)
def test_what_a_step_has_caused_is_none(dialect: Dialect, error: Exception) -> None:
    """It becomes an error message; to try it again would help nothing."""
    assert dialect.outage(error) == ""


def test_a_refusal_in_mid_run_names_what_helps(
    opened: Callable[[], SqlTarget], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R7: the database let the user in at the start, so no topic is missing, and nothing has to be restarted."""
    target = opened()

    def refuse(_: Dialect) -> Any:
        raise ConfigError("PostgreSQL refuses the connection: password authentication failed. Correct the address")

    monkeypatch.setattr(Sqlite, "connect", refuse)
    with pytest.raises(ConfigError, match="password") as asked:
        target.ask(1, 0)
    with pytest.raises(RetriableError, match="password") as begun:
        target.begin_batch(1, 0)

    for error in (asked.value, begun.value):
        assert "the task then resumes by itself" in error.remedy
        assert "topic" not in error.remedy
