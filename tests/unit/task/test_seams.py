"""The places where the next thing is put in: each with one small inhabitant that touches no other file.

A task's own context (later: stores), a `Sink` (later: databases), an `Inlet` (later: feeds), an `Observer` (later:
metrics). All of them run through the native worker on the memory broker.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, Processor, Raw, Retry, Source, Topic
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.memory.log import MemoryMessage
from cues_kafka.client.client import Client
from cues_kafka.core.spec import Spec
from cues_kafka.errors import RetriableError
from cues_kafka.ports.broker import Inlet
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.facts import ClusterFacts, TopicFacts, Watermarks
from cues_kafka.ports.log import Fetched, TopicPartition
from cues_kafka.ports.observer import BatchReport, Observer
from cues_kafka.ports.target import Sink
from cues_kafka.task.alone import Alone
from cues_kafka.task.making.build import caller_of
from cues_kafka.task.making.prepare import prepare
from cues_kafka.task.making.specs import Identity, spec_of
from cues_kafka.task.parts.participant import CallContext
from cues_kafka.task.parts.sink import SinkBatches
from cues_kafka.testing.stand_ins import Inline
from cues_kafka.testing.tester import VirtualClock
from cues_kafka.workers.options import WorkerOptions
from cues_kafka.workers.worker import ProcessorWorker


class Shell:
    """The worker of a graph's only processor, in virtual time, with what a seam adds."""

    def __init__(
        self,
        graph: Graph,
        *,
        context_of: Callable[[Spec], CallContext] | None = None,
        partitions: int = 1,
        **seams: Any,
    ) -> None:
        self.clock = VirtualClock()
        self.broker = MemoryBroker(clock=self.clock)
        self.client = Client(self.broker, graph)
        planned, facts = prepare(graph, self.broker)
        [processor] = graph.processors.values()
        caller = caller_of(graph, processor, facts, {}, self.broker.max_bytes)
        caller.context_of = context_of or caller.context_of
        identity = Identity.of_process("memory", "seams")
        self.worker = ProcessorWorker(
            processor.name,
            broker=self.broker,
            clock=self.clock,
            caller=caller,
            spec_of=spec_of(graph, planned, processor, partitions, identity),
            options=WorkerOptions(instance="seams", alone=Alone(), **seams),
            changed=lambda: None,
            executor=Inline(),
        )
        self.worker.open()

    def run(self, seconds: float = 5.0) -> None:
        """Let it work."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.worker.poll_once()
            self.worker.call_once()
            self.clock.advance(0.1)

    def values(self, topic: str) -> list[Any]:
        """What was committed there."""
        return [message.value for message in self.client.messages(topic)]


# A context for each task


def test_each_task_calls_the_function_with_a_context_of_its_own() -> None:
    """As a store will be: two tasks of one processor, each with a dictionary that the other one never sees."""

    def count(value: int, counts: dict[int, int]) -> None:
        counts[value] = counts.get(value, 0) + 1

    graph = Graph(
        "g",
        Source("in"),
        Processor(count, inputs="in", opts={"counts": {}}),
        topics={"in": Topic(partitions=2)},
    )
    stores: dict[str, dict[int, int]] = {}
    shell = Shell(
        graph,
        partitions=2,
        context_of=lambda spec: CallContext({"counts": stores.setdefault(spec.name, {})}),
    )
    for key in ("a", "b", "c", "d"):
        sent = shell.client.send("in", 1, key=key)
        shell.client.send("in", 10 + sent.partition, key=key)

    shell.run()

    left, right = stores["count/0"], stores["count/1"]
    assert left[1] + right[1] == 4
    assert set(left) == {1, 10}
    assert set(right) == {1, 11}


# A sink


class Ledger:
    """A database: what the function writes, and an outbox of what Kafka gets, in one transaction per batch."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.db.execute("CREATE TABLE paid (n INTEGER)")
        self.db.execute("CREATE TABLE outbox (sequence INTEGER, value BLOB)")
        self.away = 0
        self.seen: list[int] = []

    def begin_batch(self, _: int) -> None:
        """Begin a transaction; void steps may have left one."""
        if self.away:
            self.away -= 1
            raise RetriableError("the database does not answer")
        self.discard()
        self.db.execute("BEGIN")

    def begin_step(self) -> None:
        """Remember where the step begins."""
        self.db.execute("SAVEPOINT step")

    def undo_step(self) -> None:
        """Go back there."""
        self.db.execute("ROLLBACK TO step")

    def before_commit(self, sequence: int, records: Iterable[tuple[Any, ...]]) -> None:
        """Make the batch durable here first."""
        self.db.executemany("INSERT INTO outbox VALUES (?, ?)", [(sequence, record[3]) for record in records])
        self.db.execute("COMMIT")
        self.seen.append(len(self.rows("outbox")))

    def after_commit(self, sequence: int) -> None:
        """Kafka has it now."""
        self.db.execute("DELETE FROM outbox WHERE sequence <= ?", (sequence,))

    def discard(self) -> None:
        """End the transaction."""
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def rows(self, table: str) -> list[Any]:
        """What a reader of the database sees."""
        return self.db.execute(f"SELECT * FROM {table}").fetchall()


class Payments:
    """A shell whose function writes into a `Ledger`."""

    def __init__(self) -> None:
        self.sink = Ledger()
        sink: Sink = self.sink
        self.taken_away = self.rolled_back = False
        graph = Graph(
            "g",
            Source("in"),
            Processor(self.pay, inputs="in", outputs="out", opts={"db": None}, effects=True),
            errors="errors",
        )
        context = CallContext({"db": self.sink.db}, [SinkBatches(sink)])
        self.metric = Metric()
        self.shell = Shell(graph, context_of=lambda _: context, observers=[self.metric])

    def pay(self, value: int, db: sqlite3.Connection) -> int:
        """Write, then fail or lose the task where the value says so."""
        db.execute("INSERT INTO paid VALUES (?)", (value,))
        if value < 0:
            raise ValueError(value)
        if value == 2 and not self.taken_away:
            self.taken_away = True
            self.shell.worker.on_lost([0])
            self.rolled_back = not db.in_transaction
            self.shell.worker.on_assign([0])
        return value


def test_sink_keeps_the_steps_that_ended_and_takes_back_those_that_became_errors() -> None:
    """The outbox held the batch's records before Kafka's commit, and is empty behind it."""
    payments = Payments()
    payments.taken_away = True
    payments.shell.client.send_many("in", [1, -5, 2])

    payments.shell.run()

    assert payments.sink.rows("paid") == [(1,), (2,)]
    assert payments.shell.values("out") == [1, 2]
    assert [error.exception for error in payments.shell.values("errors")] == ["ValueError"]
    assert payments.sink.seen == [3]
    assert payments.sink.rows("outbox") == []


def test_sink_forgets_a_batch_whose_task_was_taken_away() -> None:
    """The task is lost in the middle of its second call and assigned again: each payment is made once."""
    payments = Payments()
    payments.shell.client.send_many("in", [1, 2, 3])

    payments.shell.run()

    assert payments.rolled_back
    assert payments.sink.rows("paid") == [(1,), (2,), (3,)]
    assert payments.shell.values("out") == [1, 2, 3]


def test_task_recovers_from_a_sink_that_does_not_answer() -> None:
    """Like from a broker: the messages are neither lost nor made errors."""
    payments = Payments()
    payments.taken_away = True
    payments.sink.away = 1
    payments.shell.client.send_many("in", [1, 2])

    payments.shell.run()

    assert payments.metric.failures == ["the database does not answer"]
    assert payments.sink.rows("paid") == [(1,), (2,)]
    assert payments.shell.values("out") == [1, 2]


# An inlet


class Lines:
    """Lines of a file as messages; a line's number is its offset, and the id is of 16 bytes of the file's name."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._next: int | None = None

    def facts(self, topics: Collection[str]) -> ClusterFacts:
        """One partition."""
        return ClusterFacts(0, {topic: TopicFacts(topic, self._file.name.encode().ljust(16), 1) for topic in topics})

    def watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """From the first line to the last."""
        count = len(self._file.read_bytes().splitlines())
        return dict.fromkeys(partitions, Watermarks(0, count, count))

    def reader(self, _: str) -> Reader:
        """It is its own reader."""
        return self

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Go on at a line."""
        [(self._at, self._next)] = starts.items()

    def unassign(self, _: Collection[TopicPartition]) -> None:
        """Stop."""
        self._next = None

    pause = resume = unassign

    def poll(self, _: float, max_messages: int = 2) -> list[Fetched]:
        """A few lines at a time."""
        if self._next is None:
            return []
        lines = self._file.read_bytes().splitlines()
        numbers = range(self._next, min(self._next + max_messages, len(lines)))
        self._next = numbers.stop
        topic, partition = self._at
        messages: list[Any] = [MemoryMessage(topic, partition, n, None, lines[n], None, (1, 1), 0) for n in numbers]
        return [Fetched(self._at, messages, len(lines) if self._next == len(lines) else None)]

    def close(self) -> None:
        """Nothing is open."""


def test_inlet_gives_a_task_messages_that_are_in_no_topic(tmp_path: Path) -> None:
    """The position, a line number, is in the task's record: more lines come later, and none comes twice."""
    file = tmp_path / "lines.txt"
    file.write_text("one\ntwo\nthree\n", encoding="utf-8")
    inlet: Inlet = Lines(file)
    graph = Graph(
        "g",
        Source("lines"),
        Processor(lambda line: line.upper(), inputs="lines", outputs="out", name="shout"),
        defaults=Topic(Raw()),
    )
    shell = Shell(graph, inlet=inlet)

    shell.run()
    assert shell.values("out") == [b"ONE", b"TWO", b"THREE"]
    with file.open("a", encoding="utf-8") as more:
        more.write("four\n")
    shell.worker.on_revoke([0])
    shell.worker.on_assign([0])
    shell.run()

    assert shell.values("out") == [b"ONE", b"TWO", b"THREE", b"FOUR"]
    assert shell.values("lines") == []
    [position] = shell.worker.lanes[0].task.positions
    assert (position.topic_id, position.offset) == (b"lines.txt".ljust(16), 4)


# An observer


class Metric:
    """Counters, as a metrics page would have them."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.failures: list[str] = []
        self.seconds: list[float] = []
        self.notes: list[Mapping[str, Any]] = []

    def committed(self, task: str, batch: BatchReport) -> None:
        """Count deliveries."""
        self.count.update({f"{task} delivered": batch.deliveries, f"{task} errors": batch.errors, "commits": 1})
        self.seconds.append(batch.seconds)
        self.notes += batch.notes

    def retried(self, _: str, about: Mapping[str, Any], attempt: int, pause_s: float) -> None:
        """Count retries."""
        assert about["at"]
        assert pause_s > 0
        self.count["retries"] += attempt

    def failed(self, _: str, why: str, round_: int) -> None:
        """Keep the cause."""
        assert round_ > 0
        self.failures.append(why)

    def stopped(self, task: str, why: str, remedy: str, about: Mapping[str, Any]) -> None:
        """Count stops."""
        assert why
        assert remedy
        self.count[f"{task} stopped at {about['at']}"] += 1

    def recovered(self, task: str, after_s: float) -> None:
        """Count recoveries."""
        assert after_s > 0
        self.count[f"{task} recovered"] += 1


def test_observer_hears_of_commits_retries_stops_and_recoveries() -> None:
    """Once for each batch, with counts and times."""
    raised: Counter[int] = Counter()

    def fragile(value: int) -> int:
        raised[value] += 1
        if value == 2 and raised[value] == 1:
            raise TimeoutError("busy")
        if value == 3 and raised[value] == 1:
            raise ValueError("broken")
        return value

    graph = Graph(
        "g",
        Source("in"),
        Processor(fragile, inputs="in", outputs="out", retry=Retry(TimeoutError)),
    )
    metric = Metric()
    observer: Observer = metric
    shell = Shell(graph, observers=[observer])
    shell.client.send_many("in", [1, 2, 3, 4])

    shell.run(30)

    assert shell.values("out") == [1, 2, 3, 4]
    assert metric.count["fragile/0 delivered"] == 4
    assert metric.count["fragile/0 stopped at in/0 at 2"] == 1
    assert metric.count["fragile/0 recovered"] == 1
    assert metric.count["retries"] == 1
    assert metric.count["commits"] == len(metric.seconds) <= 4
    assert all(seconds > 0 for seconds in metric.seconds)


@pytest.mark.parametrize("size", [1, 400])
def test_observer_is_told_once_for_a_batch_however_large_it_is(size: int) -> None:
    """Never for each message."""
    graph = Graph("g", Source("in"), Processor(lambda value: value, inputs="in", outputs="out", name="same"))
    metric = Metric()
    shell = Shell(graph, observers=[metric])
    shell.client.send_many("in", list(range(size)))

    shell.run()

    assert metric.count["same/0 delivered"] == size
    assert metric.count["commits"] == 1
