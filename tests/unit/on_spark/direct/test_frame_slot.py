"""Rows of a DataFrame are committed with their task's place, once, whatever Spark does with the batch (D1, D3, D4)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cues_kafka import Graph, Processor, Raw, Source, Topic
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.client.client import Client
from cues_kafka.core.delivery import HEADER, parse_provenance
from cues_kafka.core.records import Record
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.on_spark.direct.frame_slot import FrameSlot, Range, Row
from cues_kafka.on_spark.query.outcome import outcome_of_row
from cues_kafka.on_spark.query.slots import incarnation
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import records_of
from cues_kafka.records.scanning import read_all
from cues_kafka.task.calling.outputs import Output
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.interpreter import Hook
from cues_kafka.task.making.prepare import prepare
from cues_kafka.task.making.specs import Identity, spec_of
from cues_kafka.testing.tester import Crash, Tester

RAW = {"in": Topic(value=Raw()), "out": Topic(value=Raw())}


class Killed(BaseException):
    """Ends a slot as SIGKILL would."""


def same(value: Any) -> Any:
    return value


class World:
    """Ten messages in one partition, and slots on it."""

    def __init__(self) -> None:
        pipe = Processor(same, name="copy", inputs="in", outputs="out")
        self.graph = Graph("g", Source("in"), pipe, topics=RAW)
        self.broker = MemoryBroker()
        self.planned, self.facts = prepare(self.graph, self.broker)
        self.broker.create([NewTopic("failed", 1)])
        self.client = Client(self.broker, self.graph, name="test")
        for n in range(10):
            self.client.send("in", b"%d" % n)
        self.identity = Identity.of_process("spark", "query")

    def slot(
        self,
        *,
        batch: int = 0,
        part: int = 0,
        attempt: int = 0,
        hook: Hook | None = None,
        errors: bool = True,
        **policy: int,
    ) -> FrameSlot:
        """One Spark task attempt."""
        who = replace(self.identity, incarnation=incarnation("q", batch, part, attempt))
        make = spec_of(self.graph, self.planned, self.graph.processors["copy"], 1, who)
        return FrameSlot(
            replace(make(0), slot=True),
            Output("out", 1, 1_000_000),
            broker=self.broker,
            clock=SystemClock(),
            errors=Output("failed", 1, 1_000_000) if errors else None,
            policy=CommitPolicy(**policy),
            hook=hook,
        )

    def out(self) -> list[Any]:
        """What readers see."""
        return [one.value for one in self.client.messages("out")]

    def failed(self) -> list[tuple[int, bytes]]:
        """The error messages that readers see: the offset in the provenance, and the value."""
        found = [(dict(m.headers() or [])[HEADER], m.value()) for m in read_all(self.broker, "failed", 1)]
        return [(parse_provenance(bytes(header or b"")).consumed[0].offset, value or b"") for header, value in found]

    def records(self) -> list[Record]:
        """The backing topic."""
        return records_of(list(read_all(self.broker, "g.copy.backing", 1)))


def rows(*offsets: int) -> Iterator[Row]:
    """A row for each offset."""
    return (Row(offset, b"k", b"%d" % offset, [], 5) for offset in offsets)


class Bad:
    """Messages that cannot be decoded, as a `LeftOut`; `position` is where the slot has begun."""

    def __init__(self, *offsets: int) -> None:
        self.offsets = list(offsets)
        self.position = -1

    def begin(self, position: int) -> None:
        self.position = position

    def below(self, offset: int) -> Iterator[Row]:
        while self.offsets and self.offsets[0] < offset:
            n = self.offsets.pop(0)
            yield Row(n, b"k", b"bad %d" % n, [], 0, f"in/0 at {n} cannot be decoded", {"kind": "decode", "at": f"{n}"})


def bad(*offsets: int) -> list[tuple[int, bytes]]:
    """Their error messages."""
    return [(n, b"bad %d" % n) for n in offsets]


@pytest.mark.parametrize("places", [(0,), (2,), (4,), (0, 4), (1, 2, 3), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("most", [1, 2, 50])
def test_error_messages_are_committed_in_their_places_among_rows(places: tuple[int, ...], most: int) -> None:
    """First, in the middle, last, and where the function gets no row at all; in transactions of any size."""
    world = World()
    good = [n for n in range(5) if n not in places]

    outcome = world.slot(max_messages=most).publish(rows(*good), Range(0, 5), Bad(*places))

    assert (outcome.kind, outcome.positions) == ("", {"in": 5})
    assert (world.out(), world.failed()) == ([b"%d" % n for n in good], bad(*places))
    counts = outcome.counts
    assert (counts.deliveries, counts.outputs, counts.errors, counts.messages) == (5, len(good), len(places), len(good))
    assert outcome.tally
    assert (outcome.tally.errors, outcome.tally.kinds) == (len(places), {"decode": len(places)})
    assert outcome_of_row(json.loads(outcome.as_text)) == outcome
    again = world.slot(attempt=1).publish(rows(*good), Range(0, 5), Bad(*places))
    assert (again.kind, world.failed()) == ("", bad(*places))


def test_rows_before_a_message_without_an_errors_topic_are_committed_and_the_slot_stops() -> None:
    """As natively: the steps before it count, and the text names the message."""
    world = World()
    for _ in range(2):
        outcome = world.slot(errors=False).publish(rows(0, 1, 3), Range(0, 5), Bad(2, 4))

        assert (outcome.kind, outcome.text) == ("unhandled", "in/0 at 2 cannot be decoded")
        assert outcome.remedy == "fix the cause, or declare an errors topic"
        assert (world.out(), outcome.positions) == ([b"0", b"1"], {"in": 2})
    assert world.slot(attempt=1).publish(rows(0, 1, 3), Range(0, 5), Bad(2, 4)).kind == ""
    assert (world.out(), world.failed()) == ([b"0", b"1", b"3"], bad(2, 4))


def test_what_a_predecessor_has_delivered_is_not_looked_for() -> None:
    """The slot says where it has begun."""
    world = World()
    world.slot().publish(rows(0), Range(0, 3), Bad(1))
    left_out = Bad(4)

    world.slot(batch=1).publish(rows(3), Range(3, 5), left_out)

    assert left_out.position == 3
    assert world.failed() == bad(1, 4)


def test_rows_and_the_end_of_the_range_are_committed_together() -> None:
    """Rows that a filter took away leave no trace but the position."""
    world = World()

    outcome = world.slot().publish(rows(1, 3), Range(0, 5))

    assert (outcome.kind, outcome.positions, outcome.counts.outputs) == ("", {"in": 5}, 2)
    assert world.out() == [b"1", b"3"]


def test_a_slot_tells_the_driver_what_its_batches_took_and_wrote_and_that_it_stopped() -> None:
    """The time of a batch begins with its first row. The slot does not count rows that were delivered before it."""

    class Seconds(SystemClock):
        now_s = 0.0

        def monotonic(self) -> float:
            return self.now_s

    def slow() -> Iterator[Row]:
        for row in rows(0, 1, 2):
            yield row
            clock.now_s += 1  # until the next one

    world, clock = World(), Seconds()
    slot = world.slot(max_messages=2)
    slot._clock = clock
    told = slot.publish(slow(), Range(0, 5)).tally
    assert told
    assert (told.batches, told.deliveries, told.messages, told.size, told.stops) == (2, 3, 3, 6, 0)
    assert sum(told.batch_s.counts) == sum(told.commit_s.counts) == 2
    assert (told.commit_s.total_s, told.batch_s.total_s) == (0, 2 + 1)
    assert told.committed_s

    again = world.slot(attempt=1).publish(rows(0, 1, 2), Range(0, 5)).tally
    assert again
    assert again.batches == 0
    stopped = world.slot(batch=1).publish(rows(8), Range(8, 9))
    assert "only what is below 5 was delivered" in stopped.text
    assert stopped.tally
    assert (stopped.tally.stops, stopped.tally.batches) == (1, 0)


def test_several_rows_of_one_message_are_one_delivery() -> None:
    """Their provenance says which of how many each is, so that a torn delivery is seen."""
    world = World()

    outcome = world.slot().publish(rows(1, 1, 2), Range(0, 3))

    assert (outcome.counts.deliveries, outcome.counts.messages) == (2, 3)
    headers = [dict(m.headers() or [])[HEADER] for m in read_all(world.broker, "out", 1)]
    places = [(p.index, p.count, p.consumed[0].offset) for p in map(parse_provenance, map(bytes, headers))]  # type: ignore[arg-type]
    assert places == [(0, 2, 1), (1, 2, 1), (0, 1, 2)]


def test_a_batch_that_comes_again_is_published_once() -> None:
    """Also when its rows are others, and when it was cut elsewhere: the position decides."""
    world = World()
    world.slot().publish(rows(0, 1, 2), Range(0, 3))

    assert world.slot(attempt=1).publish(rows(0, 1, 2), Range(0, 3)).kind == ""
    assert world.slot(batch=1).publish(rows(1, 2, 3, 4), Range(1, 5)).kind == ""
    assert world.out() == [b"0", b"1", b"2", b"3", b"4"]


def test_an_empty_range_of_rows_moves_the_position() -> None:
    """The driver publishes it for ranges that no Spark task returned."""
    world = World()

    assert world.slot().publish(iter(()), Range(0, 5)).positions == {"in": 5}
    assert world.records()[-1].totals.deliveries == 0


@pytest.mark.parametrize(
    ("given", "found", "says"),
    [
        (Range(2, 5), [3], "only what is below 0 was delivered"),
        (Range(0, 5), [3, 1], "offset 1 below 3"),
        (Range(0, 5), [7], "offset 7 outside of [0, 5)"),
    ],
    ids=["gap", "order", "alien"],
)
def test_what_would_lose_or_mix_is_refused(given: Range, found: list[int], says: str) -> None:
    """And writes nothing."""
    world = World()

    outcome = world.slot().publish(rows(*found), given)

    assert outcome.kind == "refused"
    assert says in outcome.text
    assert world.out() == []


def test_one_range_from_two_spark_partitions_is_an_error() -> None:
    """A union would bring it twice; the second half must not pass for done."""
    world = World()
    world.slot(part=0).publish(rows(0, 1), Range(0, 5))

    outcome = world.slot(part=4).publish(rows(2, 3), Range(0, 5))

    assert outcome.kind == "refused"
    assert "another Spark partition of the same batch" in outcome.text


def test_a_large_range_takes_several_transactions_between_messages() -> None:
    """Memory is bounded, and no message's rows are parted."""
    world = World()

    world.slot(max_messages=3).publish(rows(0, 1, 1, 1, 2, 3), Range(0, 5))

    assert [record.positions[0].offset for record in world.records()] == [0, 2, 5]
    assert world.out() == [b"0", b"1", b"1", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"key": None}, "takes no message without a key"),
        ({"timestamp_ms": 2**42}, "message.timestamp.after.max.ms=60000"),
        ({"timestamp_ms": 1}, "message.timestamp.before.max.ms=60000"),
        ({"headers": [("a\0b", b"")]}, "one with a NUL"),
        ({"value": b"x" * 1_000}, "more than the 1000 of the topic"),
    ],
    ids=["no key", "ahead", "behind", "header", "size"],
)
def test_a_row_that_the_topic_refuses_stops_the_slot_before_anything_of_its_batch(
    change: dict[str, Any], says: str
) -> None:
    """The broker would refuse the transaction for it, again and again, and say so in other words."""
    world = World()
    slot = world.slot()
    slot._output = Output("out", 1, 1_000, compacted=True, older_ms=60_000, newer_ms=60_000)
    good = Row(0, b"k", b"0", [], 0)
    outcome = slot.publish([good, good._replace(offset=1, **change)], Range(0, 2))

    assert outcome.kind == "refused"
    assert says in outcome.text
    assert "made of offset 1" in outcome.text
    assert world.out() == []


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", ["Init", "Begin", "SendOffsets", "Produce", "Flush", "Commit"])
def test_a_task_that_dies_anywhere_is_made_good_by_its_retry(moment: str, effect: str) -> None:
    """A kill before and after every effect; the same batch again."""
    world = World()
    world.slot().publish(rows(), Range(0, 0))

    def kill(when: str, what: str) -> None:
        if (when, what) == (moment, effect):
            raise Killed

    dying = world.slot(hook=kill)
    dying._close = lambda: None  # type: ignore[method-assign] # the dead close nothing
    with pytest.raises(Killed):
        dying.publish(rows(0, 2), Range(0, 5), Bad(1, 3, 4))
    outcome = world.slot(attempt=1).publish(rows(0, 2), Range(0, 5), Bad(1, 3, 4))

    assert (outcome.kind, outcome.positions) == ("", {"in": 5})
    assert (world.out(), world.failed()) == ([b"0", b"2"], bad(1, 3, 4))
    assert world.broker.watermarks([TopicPartition("out", 0)])[TopicPartition("out", 0)].stable > 0


@pytest.mark.parametrize("deaths", [1, 2, 3])
def test_a_slot_does_not_go_on_over_a_snapshot(deaths: int) -> None:
    """D3: its messages may kill their process; after two deaths they are due one by one, and not as a whole."""
    world = World()
    for _ in range(deaths):
        assert Tester(world.graph, broker=world.broker).run(crash=Crash("before", "Call")).crashed
    before = world.records()

    outcome = world.slot().publish(rows(0, 1, 2), Range(0, 3))

    assert (outcome.kind, "is a snapshot" in outcome.text) == ("refused", True)
    assert (world.records(), world.out()) == (before, [])
