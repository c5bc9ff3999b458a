"""A database whose next batch is called while Kafka's commit of the last one is under way (P7, E1)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import CommitPolicy, Graph, Message, Processor, RetriableError, Retry, Source, Sql, Topic
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.sinks.sqlite import Sqlite
from cues_kafka.task.ahead import HELD_S
from cues_kafka.task.alone import PATIENCE_S
from cues_kafka.testing.tester import Tester, VirtualClock
from tests.unit.task.test_guards import Disturbed

MESSAGES = 8


class Ahead:
    """
    A tester with a database, whose caller is asked to work at each of Kafka's commits, one message in each.

    Attributes:
        called: what the function was given.
        seen: at each of Kafka's commits: how often the function was called ahead, and the rows that others see then.
        times: when that was.
        fails: the numbers of the commits that fail.
    """

    def __init__(
        self,
        path: Path,
        *,
        partitions: int = 1,
        fails: tuple[int, ...] = (),
        errors: str | None = "failed",
        **options: Any,
    ) -> None:
        with sqlite3.connect(path) as made:
            made.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY)")
        self.path = path
        self.called: list[int] = []
        self.seen: list[tuple[int, list[int]]] = []
        self.times: list[float] = []
        self.fails = fails
        self.before: Callable[[int, Any], None] = lambda _, __: None
        processor = Processor(
            self.work, name="f", inputs="in", outputs="out", effects={"db": Sql(f"sqlite:///{path}")}, **options
        )
        graph = Graph("g", Source("in"), processor, errors=errors, defaults=Topic(partitions=partitions))
        self.faults = Disturbed("commit", self.at_commit)
        broker = MemoryBroker(clock=VirtualClock(), faults=self.faults)
        self.tester = Tester(graph, broker=broker, policy=CommitPolicy(max_messages=2))

    def work(self, n: int, db: Any) -> int:
        """A row and a message."""
        self.called.append(n)
        db.execute("INSERT INTO rows VALUES (?)", (n,))
        self.before(n, db)
        return n

    def at_commit(self, nth: int) -> None:
        """Kafka's commit has been asked for and is not there yet."""
        before = len(self.called)
        while self.worker.call_once():
            pass
        self.seen.append((len(self.called) - before, self.rows()))
        self.times.append(self.tester.clock.monotonic())
        if nth in self.fails:
            raise RetriableError("no broker answers")

    @property
    def worker(self) -> Any:
        """The only one."""
        return self.tester._workers[0]

    def rows(self) -> list[int]:
        """What is committed in the database."""
        with sqlite3.connect(self.path) as opened:
            return [row[0] for row in opened.execute("SELECT id FROM rows ORDER BY id")]

    def is_locked(self) -> bool:
        """Whether others may not write now."""
        with sqlite3.connect(self.path, timeout=0, isolation_level=None) as opened:
            try:
                opened.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            opened.execute("ROLLBACK")
            return False

    def run(self, messages: int = MESSAGES) -> None:
        """Deliver this number of messages."""
        for n in range(messages):
            self.tester.send("in", Message(n, partition=0))
        self.tester.run()


@pytest.fixture
def locks_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite as if it were a server: with the only task of a process it makes no difference."""
    monkeypatch.setattr(Sqlite, "locks_rows", True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database will be."""
    return tmp_path / "a.db"


@pytest.mark.usefixtures("locks_rows")
def test_rows_of_a_call_ahead_are_committed_when_kafkas_commit_is_known(path: Path) -> None:
    """At each commit the database has the batch that is being committed, and nothing of the one called meanwhile."""
    world = Ahead(path)
    world.run()

    assert [ahead for ahead, _ in world.seen] == [0, 0, 0, 2, 2, 0], "start, snapshot, first batch, three batches"
    assert [rows for _, rows in world.seen][3:] == [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5], [*range(8)]]
    assert world.called == world.rows() == world.tester.values("out") == [*range(MESSAGES)]
    assert [record.step for record in world.tester.records("f")] == [0, 0, 2, 4, 6, 8]


@pytest.mark.usefixtures("locks_rows")
def test_calls_ahead_of_a_commit_that_fails_are_rolled_back_and_made_again(path: Path) -> None:
    """The two of the fourth commit; the rows of that batch are there already, and its outcomes come from them."""
    world = Ahead(path, fails=(4,))
    world.run()

    assert world.seen[3] == (2, [0, 1, 2, 3])
    assert world.called == [0, 1, 2, 3, 4, 5, 4, 5, 6, 7]
    assert world.rows() == world.tester.values("out") == [*range(MESSAGES)]
    assert world.tester.totals("f").deliveries == MESSAGES


@pytest.mark.usefixtures("locks_rows")
def test_outage_of_the_database_in_a_call_ahead_is_heard_behind_the_commit(path: Path) -> None:
    """The commit goes through, and one recovery follows it."""
    world = Ahead(path)

    def before(n: int, _: Any) -> None:
        if world.called.count(4) == 1 and n == 4:
            raise RetriableError("the server ends", code="TARGET")

    world.before = before
    world.run()

    assert world.called[:6] == [0, 1, 2, 3, 4, 4]
    assert world.rows() == world.tester.values("out") == [*range(MESSAGES)]
    assert world.tester.errors() == []


@pytest.mark.usefixtures("locks_rows")
def test_steps_before_one_that_is_retried_ahead_are_committed_before_the_pause(path: Path) -> None:
    """An open transaction would lock its rows for as long as the pause takes."""
    world = Ahead(path, retry=Retry(on=(OSError,), first_s=30))
    failed: list[float] = []

    def before(n: int, _: Any) -> None:
        if n == 5 and world.called.count(5) <= 2:
            failed.append(world.tester.clock.monotonic())
            raise OSError("later")

    world.before = before
    world.run()

    committed = next(at for at, (_, rows) in zip(world.times, world.seen, strict=True) if rows == [*range(5)])
    assert committed - failed[-1] < 1, "4, while 5 waits"
    assert world.rows() == world.tester.values("out") == [*range(MESSAGES)]


@pytest.mark.usefixtures("locks_rows")
def test_commit_that_takes_long_lets_go_of_what_calls_ahead_have_locked(path: Path) -> None:
    """In an outage of Kafka other programs would wait for these rows as long as it lasts."""
    world = Ahead(path)
    world.run(0)
    at_commit = world.faults.disturb
    locked: list[bool] = []

    def slow(nth: int) -> None:
        at_commit(nth)
        if nth == 4:
            for pause_s in (HELD_S / 2, HELD_S):
                world.tester.clock.advance(pause_s)
                for _ in range(3):
                    world.worker.call_once()
                locked.append(world.is_locked())

    world.faults.disturb = slow
    world.run()

    assert world.seen[3][0] == 2
    assert locked == [True, False]
    assert world.called == [0, 1, 2, 3, 4, 5, 4, 5, 6, 7]
    assert world.rows() == world.tester.values("out") == [*range(MESSAGES)]


@pytest.mark.usefixtures("locks_rows")
def test_commit_that_takes_long_lets_go_while_another_task_of_the_process_is_alone(path: Path) -> None:
    """That task may wait for these rows, and this one may not call meanwhile."""
    world, other = Ahead(path), object()
    world.run(0)
    alone, at_commit = world.worker._options.alone, world.faults.disturb
    locked: list[bool] = []

    def slow(nth: int) -> None:
        at_commit(nth)
        if nth == 4:
            assert alone.take(other, world.tester.clock.monotonic())
            world.tester.clock.advance(HELD_S)
            world.worker.call_once()
            locked.append(world.is_locked())
            alone.release(other)

    world.faults.disturb = slow
    world.run()

    assert (world.seen[3][0], locked) == (2, [False])
    assert world.rows() == world.tester.values("out") == [*range(MESSAGES)]


@pytest.mark.usefixtures("locks_rows")
def test_nothing_is_called_ahead_of_a_step_that_stops_the_task(path: Path) -> None:
    """It would be called again, and its locks be held until the task is tried again, up to a minute later."""
    world = Ahead(path, errors=None)

    def before(n: int, _: Any) -> None:
        if n == 3:
            raise ValueError("three")

    world.before = before
    with pytest.raises(ValueError, match="three"):
        world.run()

    assert world.seen[-1] == (0, [0, 1, 2])


@pytest.mark.usefixtures("locks_rows")
def test_two_tasks_of_a_process_are_not_called_ahead(path: Path) -> None:
    """The call of one could wait for a row that the other has locked, on the thread that would commit it."""
    world = Ahead(path, partitions=2)
    world.run()

    assert {ahead for ahead, _ in world.seen} == {0}


def test_database_that_locks_as_a_whole_is_not_called_ahead(path: Path) -> None:
    """SQLite: other tasks would wait for Kafka."""
    world = Ahead(path)
    world.run()

    assert {ahead for ahead, _ in world.seen} == {0}


@pytest.mark.usefixtures("locks_rows")
def test_open_batch_is_committed_while_another_task_of_the_process_is_alone(path: Path) -> None:
    """Q2a: the call of the one that is alone may wait for its rows; nothing is called for it meanwhile."""
    world, other = Ahead(path), object()
    world.run(0)
    alone, at_commit = world.worker._options.alone, world.faults.disturb
    times = [world.tester.clock.monotonic()]

    def then_alone(nth: int) -> None:
        at_commit(nth)
        times.append(world.tester.clock.monotonic())
        if len(world.seen) == 4:
            assert alone.take(other, times[-1])

    world.faults.disturb = then_alone
    world.run()

    assert world.seen[3:5] == [(2, [*range(4)]), (0, [*range(6)])], "4 and 5 are committed, and 6 is not called"
    assert times[4] - times[3] < PATIENCE_S
    assert world.rows() == world.tester.values("out") == [*range(MESSAGES)]
