"""A slot delivers one range of one partition, exactly once, whatever Spark does (D1 to D6), on the memory broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from cues_kafka import Graph, Place, Processor, Retry, Source, Topic
from cues_kafka.brokers.memory import MemoryBroker, MemoryReader
from cues_kafka.client.client import Client
from cues_kafka.core.records import Attempt, Record, Snapshot, Start
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.observe.tally import TaskTally
from cues_kafka.on_spark.direct.slot import Slot
from cues_kafka.on_spark.query.books import DriverBooks
from cues_kafka.on_spark.query.outcome import Outcome, SlotsStopped, outcome_of_row, raise_stops
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import records_of
from cues_kafka.records.scanning import read_all
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.interpreter import Hook
from cues_kafka.task.making.build import caller_of
from cues_kafka.task.making.prepare import prepare
from cues_kafka.task.making.specs import Identity, spec_of

IN = TopicPartition("in", 0)


class Killed(BaseException):
    """Ends a slot as SIGKILL would: nothing of it runs any more."""


class World:
    """A pipe over one partition, and slots on it."""

    def __init__(self, fn: Callable[[Any], Any], topics: Mapping[str, Topic] | None = None, **options: Any) -> None:
        processor = Processor(fn, name="pipe", inputs="in", outputs="out", **options)
        self.graph = Graph("g", Source("in"), processor, errors="errors", topics=topics)
        self.broker = MemoryBroker()
        self.planned, self.facts = prepare(self.graph, self.broker)
        self.client = Client(self.broker, self.graph, name="test")
        self.identity = Identity.of_process("spark", "query")
        self._attempts = 0

    def slot(self, hook: Hook | None = None, policy: CommitPolicy | None = None) -> Slot:
        """Another Spark task attempt."""
        self._attempts += 1
        who = replace(self.identity, incarnation=f"run.{self._attempts}")
        processor = self.graph.processors["pipe"]
        spec = replace(spec_of(self.graph, self.planned, processor, 1, who)(0), slot=True)
        caller = caller_of(self.graph, processor, self.facts, {}, 1_000_000)
        given: dict[str, Any] = {} if policy is None else {"policy": policy}
        return Slot(spec, caller, broker=self.broker, clock=SystemClock(), hook=hook, **given)

    def ends(self) -> dict[str, int]:
        """The last stable offset of the input."""
        return {"in": self.broker.watermarks([IN])[IN].stable}

    def records(self) -> list[Record]:
        """The backing topic."""
        return records_of(list(read_all(self.broker, "g.pipe.backing", 1)))

    def out(self) -> list[Any]:
        """What readers see."""
        return [one.value for one in self.client.messages("out")]


def same(value: int) -> int:
    return value


def failing(value: int) -> int:
    if value == 2:
        raise ValueError("two")
    return value


def test_a_slot_passes_metadata_on() -> None:
    """As native workers do: outputs carry the place of their input."""
    world = World(same, topics={"in": Topic(meta={"offset"})})
    world.client.send("in", 7)

    world.slot().deliver(world.ends(), first=False)

    [message] = world.client.messages("out")
    assert dict(message.headers)["cues-meta"] == b"1 - in/0@0"
    assert message.meta.places == {"in": Place("in", 0, 0)}


def test_a_range_is_delivered_and_its_end_is_the_position() -> None:
    """Markers below the end are moved over, so that the next range begins where this one ended."""
    world = World(failing)
    world.client.send_many("in", [1, 2, 3])

    outcome = world.slot().deliver(world.ends(), first=False)

    assert outcome.positions == world.ends() == {"in": 4}
    assert (outcome.counts.deliveries, outcome.counts.outputs, outcome.counts.errors) == (3, 2, 1)
    assert world.out() == [1, 3]
    assert [type(record) for record in world.records()] == [Start, Attempt]


def test_slots_tell_the_driver_what_native_tasks_tell_observers_and_it_adds_that_up() -> None:
    """
    Durations, retries, kinds of errors, stops. A slot that stopped has told it, although it delivered nothing.

    What it told is not in the text of a failed batch, in which the same outcome comes to the driver a second time.
    """
    calls: list[int] = []

    def poor(value: int) -> int:
        calls.append(value)
        if value == 3 and calls.count(3) == 1:
            raise ConnectionError("once")
        if value == 4:
            raise ConnectionError("always")
        return failing(value)

    world = World(poor, retry=Retry(ConnectionError, first_s=0.001, for_s=0.01))
    run: Any = None  # it is asked for the status only
    books = DriverBooks("pipe", run, world.broker, SystemClock(), lambda: None)

    def keep(outcome: Outcome) -> TaskTally:
        books.keep(outcome, stands=not outcome.kind)
        found = books._outcomes[0].tally
        assert found
        return found

    keep(world.slot().enter())
    world.client.send_many("in", [1, 2, 3])
    first = keep(world.slot().deliver(world.ends(), first=False))
    assert (first.deliveries, first.retries, first.kinds, first.stops) == (3, 1, {"raised": 1}, 0)
    assert sum(first.batch_s.counts) == sum(first.commit_s.counts) == first.batches >= 1
    assert first.size > 0
    assert "two" in first.error

    world.client.send("in", 4)
    stopped = world.slot().deliver(world.ends(), first=False)
    second = keep(stopped)
    assert stopped.kind
    assert books._outcomes[0].positions == {"in": 4}, "where the task stands"
    assert (second.deliveries, second.stops) == (3, 1)
    assert second.retries > first.retries
    assert second.stopped_s
    assert outcome_of_row(json.loads(stopped.as_text)) == stopped
    with pytest.raises(SlotsStopped) as failed:
        raise_stops([stopped], 0)
    assert '"tally": null' in str(failed.value)


def test_a_range_that_was_delivered_is_left_alone() -> None:
    """Spark may run a batch again: its checkpoint is a hint, the record the truth."""
    world = World(same)
    world.client.send_many("in", [1, 2, 3])
    world.slot().deliver(world.ends(), first=False)
    before = world.records()

    outcome = world.slot().deliver(world.ends(), first=False)

    assert (outcome.kind, outcome.counts.deliveries) == ("", 0)
    assert world.out() == [1, 2, 3]
    assert world.records() == before


@pytest.mark.parametrize("hint", [0, 2, 3])
def test_a_hint_makes_no_difference_to_what_is_delivered(hint: int) -> None:
    """Spark's start may be older or newer than the position: nothing is repeated and nothing skipped."""
    world = World(same)
    world.client.send_many("in", [1, 2, 3, 4])
    world.slot().deliver({"in": 2}, first=False)

    world.slot().deliver(world.ends(), first=False, hint={"in": hint})

    assert world.out() == [1, 2, 3, 4]


def test_nothing_at_or_past_the_end_is_delivered() -> None:
    """The batch's end bounds it, although more is there; what comes later begins there."""
    world = World(same)
    world.client.send_many("in", [1, 2, 3, 4])

    assert world.slot().deliver({"in": 2}, first=False).positions == {"in": 2}
    assert world.out() == [1, 2]
    assert world.slot().deliver(world.ends(), first=False).positions == world.ends()
    assert world.out() == [1, 2, 3, 4]


def test_an_end_of_the_log_below_the_range_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """D2: the leader that said so lags behind the one that planned the range; what follows comes a moment later."""
    world = World(same)
    world.client.send_many("in", [1, 2, 3])
    world.client.send_many("in", [4, 5, 6])
    real = MemoryReader.poll
    lagged: list[MemoryReader] = []

    def lagging(self: MemoryReader, timeout_s: float, max_messages: int = 10_000) -> Any:
        found = real(self, timeout_s, max_messages)
        if not lagged and found and found[0].partition == IN and found[0].messages:
            lagged.append(self)
            self.unassign([IN])
            self.assign({IN: 4})
            return [found[0]._replace(messages=[m for m in found[0].messages if m.offset() < 3], eof=4)]
        return found

    monkeypatch.setattr(MemoryReader, "poll", lagging)

    outcome = world.slot().deliver(world.ends(), first=False)

    assert lagged
    assert outcome.positions == world.ends() == {"in": 8}
    assert world.out() == [1, 2, 3, 4, 5, 6]


def test_a_range_of_markers_alone_moves_the_position() -> None:
    """P1: otherwise the range would come again without end."""
    world = World(same)
    world.client.send_many("in", [1])
    world.slot().deliver({"in": 1}, first=False)

    outcome = world.slot().deliver(world.ends(), first=False)

    assert (outcome.positions, outcome.counts.deliveries) == (world.ends(), 0)


def test_the_first_batch_is_delivered_under_a_snapshot() -> None:
    """D3: a query's first batch, or a Spark task's retry, may follow a death."""
    world = World(same)
    world.client.send_many("in", [1, 2])

    world.slot().deliver(world.ends(), first=True)

    assert [type(record) for record in world.records()] == [Start, Snapshot, Attempt]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", ["Init", "Begin", "SendOffsets", "Produce", "Flush", "Commit", "Call"])
def test_a_slot_that_dies_anywhere_is_made_good_by_the_next(moment: str, effect: str) -> None:
    """A kill before and after every effect; the same range again."""
    world = World(same)
    world.client.send_many("in", [1, 2, 3])
    world.slot().enter()

    def kill(when: str, what: str) -> None:
        if (when, what) == (moment, effect):
            raise Killed

    slot = world.slot(kill)
    slot._close = lambda: None  # type: ignore[method-assign] # the dead close nothing
    with pytest.raises(Killed):
        slot.deliver(world.ends(), first=False)
    outcome = world.slot().deliver(world.ends(), first=True)

    assert outcome.positions == world.ends()
    assert world.out() == [1, 2, 3]


def test_a_fenced_slot_watches_and_never_takes_the_id_again() -> None:
    """D5: the attempt that fenced it delivers; this one succeeds with what the record shows."""
    world = World(same)
    world.client.send_many("in", [1, 2, 3])
    twin: list[Any] = []

    def overtaken(when: str, what: str) -> None:
        if (when, what) == ("before", "Begin") and not twin:
            twin.append(None)
            twin.append(world.slot().deliver(world.ends(), first=True))

    world.slot().enter()
    outcome = world.slot(overtaken).deliver(world.ends(), first=False)

    assert twin[1].counts.deliveries == 3
    assert (outcome.kind, outcome.positions, outcome.counts.deliveries) == ("", world.ends(), 0)
    assert world.out() == [1, 2, 3]


def test_a_fenced_slot_does_not_succeed_with_a_record_of_an_earlier_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """D5: Spark would commit a batch that no slot has delivered."""
    world = World(same)
    world.client.send_many("in", [1, 2, 3])
    monkeypatch.setattr("cues_kafka.on_spark.query.slots.FENCED_S", 0.0)

    def overtaken(when: str, what: str) -> None:
        if (when, what) == ("before", "Begin"):
            world.slot().deliver({"in": 2}, first=False)

    world.slot().enter()
    outcome = world.slot(overtaken).deliver(world.ends(), first=False)

    assert (outcome.kind, outcome.positions) == ("claimed", {"in": 2})
    assert f"has not delivered up to in at {world.ends()['in']}" in outcome.text
    assert world.out() == [1, 2]


def test_a_message_that_kills_is_quarantined_after_its_deaths() -> None:
    """Q1 to Q3 hold across Spark task attempts: each of them is an incarnation."""

    def killer(value: int) -> int:
        if value == 2:
            raise Killed
        return value

    world = World(killer)
    world.client.send_many("in", [1, 2, 3])
    world.slot().enter()
    deaths = 0
    while True:
        slot = world.slot()
        slot._close = lambda: None  # type: ignore[method-assign] # the dead close nothing
        try:
            outcome = slot.deliver(world.ends(), first=True)
        except Killed:
            deaths += 1
            continue
        break

    assert outcome.positions == world.ends()
    assert world.out() == [1, 3]
    assert world.records()[-1].totals.errors == 1
    assert 3 <= deaths <= 6


def test_an_unhandled_exception_leaves_in_order() -> None:
    """The steps before it commit; no death is counted against what was called (Q1)."""
    world = World(failing)
    world.graph = Graph("g", Source("in"), Processor(failing, name="pipe", inputs="in", outputs="out"))
    world.client.send_many("in", [1, 2, 3])

    outcome = world.slot().deliver(world.ends(), first=True)

    assert (outcome.kind, outcome.positions) == ("unhandled", {"in": 1})
    assert "ValueError: two" in outcome.text
    assert world.out() == [1]
    again = world.slot().deliver(world.ends(), first=True)
    assert (again.kind, again.counts.deliveries) == ("unhandled", 0)
    assert {record.starts for record in world.records()} == {0}


class SilentListener:
    """Takes partitions, and does nothing with them."""

    def on_assign(self, partitions: Any) -> None: ...
    def on_revoke(self, partitions: Any) -> None: ...
    def on_lost(self, partitions: Any) -> None: ...


def join(world: World) -> None:
    """A native worker joins the group of the processor."""
    world.broker.member("g.pipe", "in", SilentListener(), instance="worker-7").poll()


@pytest.mark.parametrize("enters", [True, False])
def test_a_slot_gives_up_if_a_worker_was_there_before_its_init(enters: bool) -> None:
    """J8: it would find what the worker writes now, count a death that did not happen, and write beside the worker."""
    world = World(same)
    world.client.send_many("in", [1])
    seen: list[tuple[str, str]] = []

    def joined(when: str, what: str) -> None:
        seen.append((when, what))
        if (when, what) == ("before", "Init"):
            join(world)

    slot = world.slot(joined)
    outcome = slot.enter() if enters else slot.deliver(world.ends(), first=False)

    assert outcome.kind == "claimed"
    assert "worker-7" in outcome.text
    assert seen[:2] == [("before", "Init"), ("after", "Init")]
    assert {what for _, what in seen[2:]} <= {"Release"}
    assert world.records() == []


def test_a_processor_that_native_workers_run_is_not_touched() -> None:
    """R7: their group has members; not even their id is taken."""
    world = World(same)
    world.client.send_many("in", [1])

    join(world)
    seen: list[str] = []
    slot = world.slot(lambda _, what: seen.append(what))
    outcome = slot.deliver(world.ends(), first=False, hint={"in": 0})

    assert outcome.kind == "claimed"
    assert "worker-7" in outcome.text
    assert world.records() == []
    assert "Init" not in seen
    assert slot._intake._reader is None  # it began to fetch before it asked, and left nothing open


def test_batches_of_steps_are_bounded_by_messages_and_bytes() -> None:
    """A range of any size needs bounded memory: it is delivered in several transactions."""
    world = World(same)
    world.client.send_many("in", list(range(10)))

    world.slot(policy=CommitPolicy(max_messages=4)).deliver(world.ends(), first=False)

    assert world.out() == list(range(10))
    assert [record.positions[0].offset for record in world.records()] == [0, 4, 8, 11]


def test_a_slot_holds_no_more_bytes_than_a_batch_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range of large messages would be in memory as a whole before the first of them is called."""
    world = World(same)
    world.client.send_many("in", list(range(100, 110)))
    real, sizes = MemoryReader.poll, []

    def one_by_one(self: MemoryReader, timeout_s: float, max_messages: int = 10_000) -> Any:
        return real(self, timeout_s, 1)

    slot = world.slot(policy=CommitPolicy(max_bytes=6))
    work = slot._lane.work

    def watched() -> Any:
        sizes.append(slot._lane.buffer.size if slot._lane.buffer else 0)
        return work()

    monkeypatch.setattr(MemoryReader, "poll", one_by_one)
    monkeypatch.setattr(slot._lane, "work", watched)
    slot.deliver(world.ends(), first=False)

    assert world.out() == list(range(100, 110))
    assert max(sizes) == 2


@pytest.mark.timeout(20)
@pytest.mark.parametrize("policy", [CommitPolicy(max_messages=1), CommitPolicy(max_bytes=1)])
def test_a_range_that_was_announced_with_larger_batches_is_delivered_under_smaller_ones(
    policy: CommitPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A native worker died under a snapshot of three messages; a slot that read one at a time span without end."""
    world = World(same)
    world.client.send_many("in", [1, 2, 3])

    def kill(moment: str, effect: str) -> None:
        if (moment, effect) == ("before", "Call"):
            raise Killed

    dying = world.slot(kill)
    dying._close = lambda: None  # type: ignore[method-assign] # the dead close nothing
    with pytest.raises(Killed):
        dying.deliver(world.ends(), first=True)
    assert [record.steps for record in world.records() if isinstance(record, Snapshot)] == [3]

    poll = MemoryReader.poll
    monkeypatch.setattr(MemoryReader, "poll", lambda self, timeout_s: poll(self, timeout_s, 1))
    world.slot(policy=policy).deliver(world.ends(), first=True)

    assert world.out() == [1, 2, 3]


@pytest.mark.parametrize("keys", ["kl", "k"])
def test_a_slot_goes_on_with_what_compaction_has_left_of_an_announced_batch(keys: str) -> None:
    """Newer messages of a key supersede the older ones; the range ends where Spark planned it."""
    world = World(same, topics={"in": Topic(config={"cleanup.policy": "compact"})})
    for n, key in enumerate(keys):
        world.client.send("in", n, key=key)

    def dies(moment: str, effect: str) -> None:
        if (moment, effect) == ("before", "Call"):
            raise Killed

    with pytest.raises(Killed):
        world.slot(dies).deliver(world.ends(), first=True)
    world.client.send("in", 9, key="k")
    world.broker.compact("in")
    outcome = world.slot().deliver(world.ends(), first=True)

    assert (outcome.kind, outcome.positions) == ("", world.ends())
    assert world.out() == [1, 9][2 - len(keys) :]
