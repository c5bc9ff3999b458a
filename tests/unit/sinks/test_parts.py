"""A database that commits a batch in parts, before Kafka's transaction of all of them (E1)."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import (
    CommitPolicy,
    Graph,
    Interrupt,
    Memory,
    Message,
    Processor,
    RetriableError,
    Retry,
    Source,
    Sql,
    TaskStopped,
    Topic,
    connect,
    start,
)
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.core.records import Attempt
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.records.reading import records_of
from cues_kafka.records.scanning import read_all
from cues_kafka.sinks.dialect import TASKS
from cues_kafka.sinks.sql import SqlTarget
from cues_kafka.task.parts.part_commits import MOST, WITHIN_S
from cues_kafka.testing.tester import Crash, Tester, VirtualClock
from cues_kafka.workers.worker import ProcessorWorker
from tests.unit.task.test_guards import Disturbed

SMALL = 2
"""Messages in a transaction of the database."""

FIRST = 2
"""Messages under the snapshot of the first batch, which has no parts."""


class World:
    """
    A tester with a database and one task.

    Attributes:
        called: what the function was given.
        held: base and step of each commit of the database.
        before: called in the function, before it writes.
        at_target: called before each commit of the database.
    """

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, *, outputs: str | None = None, **more: Any) -> None:
        with sqlite3.connect(path) as made:
            made.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY)")
        self.path = path
        self.called: list[int] = []
        self.held: list[tuple[int, int]] = []
        self.before: Callable[[int], Any] = lambda _: None
        self.at_target: Callable[[int], None] = lambda _: None
        processor = Processor(
            self.work, name="f", inputs="in", outputs=outputs, effects={"db": Sql(f"sqlite:///{path}")}, **more
        )
        graph = Graph("g", Source("in"), processor, errors="failed", defaults=Topic(partitions=1))
        self.faults = Disturbed("commit", lambda _: None)
        broker = MemoryBroker(clock=VirtualClock(), faults=self.faults)
        self.tester = Tester(graph, broker=broker, policy=CommitPolicy(max_messages=SMALL))
        commits = SqlTarget.commit

        def commit(target: SqlTarget, held: HeldAttempt, records: Sequence[Any]) -> None:
            self.at_target(held.step)
            commits(target, held, records)
            self.held.append((held.base, held.step))

        monkeypatch.setattr(SqlTarget, "commit", commit)

    def work(self, n: int, db: Any) -> Any:
        """A row for each."""
        self.called.append(n)
        self.before(n)
        db.execute("INSERT INTO rows VALUES (?)", (n,))
        return n

    @property
    def rows(self) -> list[int]:
        """What is committed in the database."""
        with sqlite3.connect(self.path) as opened:
            return [row[0] for row in opened.execute("SELECT id FROM rows ORDER BY id")]

    @property
    def steps(self) -> list[int]:
        """Where the attempts of Kafka end."""
        return [one.step for one in self.tester.records("f") if isinstance(one, Attempt)]

    def run(self, messages: int, crash: Crash | None = None) -> None:
        """Deliver this number of messages."""
        for n in range(messages):
            self.tester.send("in", Message(n, partition=0))
        self.tester.run(crash=crash)


class Sink(World):
    """The same without messages."""

    def work(self, n: int, db: Any) -> None:
        """A row for each."""
        super().work(n, db)


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sink:
    """A processor that only writes rows."""
    return Sink(tmp_path / "a.db", monkeypatch)


def test_one_transaction_of_kafka_follows_several_of_the_database(sink: Sink) -> None:
    """Each row is that of all steps since the record of Kafka."""
    sink.run(FIRST + MOST * SMALL + 1)

    first = [(0, FIRST)]
    parts = [(FIRST, FIRST + SMALL * (i + 1)) for i in range(MOST)]
    end = FIRST + MOST * SMALL
    assert sink.held == [*first, *parts, (end, end + 1)]
    assert sink.steps == [FIRST, end, end + 1]
    assert sink.rows == sink.called == [*range(end + 1)]
    assert sink.tester.totals("f").deliveries == end + 1


def test_outputs_are_published_behind_each_transaction_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outbox has the records of the whole attempt: each part would write those of the parts before again."""
    world = World(tmp_path / "a.db", monkeypatch, outputs="out")
    world.run(8)

    assert world.held == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert world.steps == [2, 4, 6, 8]
    assert world.rows == world.tester.values("out") == [*range(8)]


def test_an_error_message_ends_the_parts(sink: Sink) -> None:
    """Its own part goes with it, and those before it are in the same attempt."""

    def before(n: int) -> None:
        if n == 5:
            raise ValueError("five")

    sink.before = before
    sink.run(10)

    assert sink.held == [(0, 2), (2, 4), (2, 6), (6, 8), (6, 10)]
    assert sink.steps == [2, 6, 10]
    assert sink.rows == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    [error] = sink.tester.errors()
    assert error.text == "five"


def test_a_retry_keeps_the_parts_before_it(sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are committed in Kafka before the pause, and not called again."""
    sink = Sink(tmp_path / "b.db", monkeypatch, retry=Retry(on=(OSError,), first_s=30))

    def before(n: int) -> None:
        if n == 7 and sink.called.count(7) <= 2:
            raise OSError("later")

    sink.before = before
    sink.run(10)

    assert sink.steps[:2] == [2, 7]
    assert sink.rows == [*range(10)]
    assert [n for n in sink.called if n < 6] == [*range(6)]


@pytest.mark.parametrize("error", [OSError, Interrupt])
def test_a_part_without_a_step_that_ended_holds_no_transaction(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first step is to be called again after a pause, or stops the task; others can write meanwhile."""
    sink = Sink(tmp_path / "b.db", monkeypatch, retry=Retry(on=(OSError,), first_s=30))

    def before(n: int) -> None:
        if n == FIRST + SMALL and sink.called.count(n) <= 2:
            raise error("not now")

    def at_commit(_: int) -> None:
        with closing(sqlite3.connect(sink.path, timeout=0, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")

    sink.before, sink.faults.disturb = before, at_commit
    with nullcontext() if error is OSError else pytest.raises(TaskStopped):
        sink.run(10)
    sink.tester.restart().run()

    assert sink.steps[:2] == [FIRST, FIRST + SMALL]
    assert sink.rows == [*range(10)]


@pytest.mark.parametrize("nth", [1, 3, 5])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", ["CommitTarget", "Begin", "Produce", "SendOffsets", "Commit", "Call"])
def test_a_crash_at_any_moment_leaves_each_row_once(effect: str, moment: str, nth: int, sink: Sink) -> None:
    """What the row is ahead with is published, and only what is behind it is called again."""
    messages = FIRST + MOST * SMALL + 5
    sink.run(messages, Crash(moment, effect, nth))
    sink.tester.restart().run()

    assert sink.rows == [*range(messages)]
    assert sink.tester.totals("f").deliveries == messages
    records = sink.tester.records("f")
    for one, other in pairwise(records):  # I13
        assert other.sequence == one.sequence + 1
        assert other.step == one.step + (other.batch.taken if isinstance(other, Attempt) else 0)


def test_a_death_between_two_parts_calls_nothing_of_the_first_one_again(sink: Sink) -> None:
    """The second of the parts is committed; Kafka has not begun."""
    sink.run(12, Crash("after", "CommitTarget", 3))

    assert (sink.steps, sink.rows) == ([2], [*range(6)])
    sink.tester.restart().run()

    assert sink.steps[:2] == [2, 6]
    assert sink.called == sink.rows == [*range(12)]


def test_a_part_that_the_database_refuses_is_called_again_alone(sink: Sink) -> None:
    """An outage in the third part: the recovery publishes the first two."""
    refused: list[int] = []

    def at_target(step: int) -> None:
        if step == 8 and not refused:
            refused.append(step)
            raise RetriableError("the server ends", code="TARGET")

    sink.at_target = at_target
    sink.run(12)

    assert sink.steps[:2] == [2, 6]
    assert sink.called == [0, 1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9, 10, 11]
    assert sink.rows == [*range(12)]
    assert sink.tester.errors() == []


def test_a_commit_of_kafka_that_fails_behind_parts_repeats_no_row(sink: Sink) -> None:
    """The fourth is that of the parts: start, snapshot, first batch, parts."""

    def at_commit(nth: int) -> None:
        if nth == 4:
            raise RetriableError("no broker answers")

    sink.faults.disturb = at_commit
    sink.run(FIRST + MOST * SMALL)

    assert sink.called == sink.rows == [*range(FIRST + MOST * SMALL)]
    assert sink.steps == [FIRST, FIRST + MOST * SMALL]


def test_another_owner_between_two_parts_keeps_the_next_one_out(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was paused there begins no part behind the answer that a recovery goes by."""
    begin, refused = SqlTarget.begin_batch, []

    def begins(target: SqlTarget, owner: int, step: int) -> None:
        if step == 6:
            with sqlite3.connect(sink.path) as heir:  # as `ask` of a later owner
                heir.execute(f"UPDATE {TASKS} SET owner = 100")
        try:
            begin(target, owner, step)
        except RetriableError as error:
            refused.append(str(error))
            raise

    monkeypatch.setattr(SqlTarget, "begin_batch", begins)
    with pytest.raises(TaskStopped):
        sink.run(12)

    assert "is at step 6, owner 100" in refused[0]
    assert sink.rows == sink.called == [*range(6)]


@pytest.mark.parametrize("pause_s", [0.0, WITHIN_S])
def test_parts_that_take_long_wait_for_kafka(pause_s: float, sink: Sink) -> None:
    """The group's offsets do not lag for long."""
    sink.before = lambda n: sink.tester.clock.advance(pause_s if n == 3 else 0.0)
    sink.run(8)

    assert sink.steps == ([2, 8] if not pause_s else [2, 4, 8])


@pytest.mark.parametrize("nth", [2, 3, 1 + MOST])
def test_a_stop_in_order_leaves_both_at_one_step(nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is asked to stop at a commit of the database. `rename` and `migrate` refuse where Kafka is behind."""
    sink, memory = Sink(tmp_path / "a.db", monkeypatch), Memory()
    reached, asked, revoked = threading.Event(), threading.Event(), threading.Event()
    stop, on_revoke = ProcessorWorker.stop, ProcessorWorker.on_revoke

    def stops(worker: ProcessorWorker, *, leave: bool) -> None:
        stop(worker, leave=leave)
        asked.set()

    def revokes(worker: ProcessorWorker, partitions: Sequence[int]) -> None:
        revoked.set()
        on_revoke(worker, partitions)

    def at_target(_: int) -> None:
        if len(sink.held) + 1 == nth:
            reached.set()
            assert asked.wait(30)
            assert not revoked.wait(0.2), "the task was given up before Kafka followed"

    monkeypatch.setattr(ProcessorWorker, "stop", stops)
    monkeypatch.setattr(ProcessorWorker, "on_revoke", revokes)
    monkeypatch.setattr("cues_kafka.workers.worker.PARTS_END_S", 30.0)
    sink.at_target = at_target
    graph = sink.tester.graph
    with start(graph, memory, policy=CommitPolicy(max_messages=SMALL)), connect(memory, graph) as client:
        client.send_many("in", [*range(FIRST + MOST * SMALL + 1)])
        assert reached.wait(30)

    newest = records_of(list(read_all(open_broker(memory), "g.f.backing", 1)))[-1]
    assert newest.step == sink.held[-1][1] == len(sink.rows) == nth * SMALL
