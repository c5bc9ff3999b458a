"""Requests to replay errors of a staged processor: which of them a batch takes, and what becomes of them (Y4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from cues_kafka import (
    Codec,
    ConfigError,
    DataFrameProcessor,
    Graph,
    Memory,
    Processor,
    Raw,
    Source,
    Topic,
    connect,
    start,
)
from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.core.delivery import SETTLED, ErrorPlace
from cues_kafka.core.records import Extent
from cues_kafka.graph.names import replay_topic
from cues_kafka.on_spark.redelivery import AT_ONCE, Redelivered, Redelivery
from cues_kafka.on_spark.source.messages import COUNT, MessageReader
from cues_kafka.on_spark.source.ranges import SourceInput
from cues_kafka.on_spark.staged.chunks import first_row, unpacked
from cues_kafka.on_spark.staged.extents import canonical
from cues_kafka.on_spark.staged.manifest import FOUND_FROM, SETTLED_FROM
from cues_kafka.on_spark.staged.undecoded import Counts, Search, WriteUndecoded
from cues_kafka.on_spark.undecoded import undecoded_of
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.requests import Settled, decode_settled, encode_settled
from cues_kafka.task.making.specs import Identity

BACKING, REPLAY = "g.copy.backing", replay_topic("g", "copy")


class Strict(Codec):
    """Takes digits; once it is fixed, anything that is not empty."""

    def __init__(self, fixed: bool = False) -> None:
        self.fixed = fixed

    def encode(self, value: bytes) -> bytes:
        """As it is."""
        return value

    def decode(self, data: bytes) -> bytes:
        """As it is."""
        if not (data.isdigit() or (self.fixed and data)):
            raise ValueError(f"{data!r} is no number")
        return data


def graph_of(processor: Any, *, fixed: bool = False) -> Graph:
    """One processor, native or of DataFrames, with the same names."""
    return Graph(
        "g",
        Source("in"),
        processor(print, name="copy", inputs="in", outputs="out"),
        errors="g.errors",
        topics={"in": Topic(value=Strict(fixed), partitions=1), "out": Topic(value=Raw(), partitions=1)},
    )


@dataclass
class World:
    """Error messages of `copy` in memory, and what takes requests for them."""

    options: Memory
    broker: Broker
    redelivery: Redelivery

    @property
    def requests(self) -> int:
        """The end of the replay topic."""
        place = TopicPartition(REPLAY, 0)
        return self.broker.watermarks([place])[place].stable

    def taken(self, start: int = 0, end: int | None = None) -> list[Redelivered]:
        """What a batch takes of these offsets."""
        span = self.redelivery.range(0, start, self.requests if end is None else end)
        return self.redelivery.taken(self.broker, span)

    def send(self, topic: str, *messages: tuple[bytes, bytes]) -> None:
        """Write by hand."""
        sender = self.broker.sender("test")
        sender.send([(topic, 0, key, value, None, 0) for key, value in messages])
        sender.close()

    def settle(self, taken: Sequence[Redelivered]) -> None:
        """Publish a batch."""
        self.send(BACKING, *[(one.key, one.settled(1, failed=False)) for one in taken])


@pytest.fixture
def world() -> World:
    """Two messages failed, are fixed by now, and are asked for."""
    options = Memory()
    raw = Graph("raw", Source("in"), topics={"in": Topic(value=Raw(), partitions=1)})
    with start(graph_of(Processor), options) as running:
        with connect(options, raw) as client:
            for value in (b"one", b"2", b""):
                client.send("in", value, key="k")
        running.wait_idle(timeout_s=30)
    [broker], graph = options.held, graph_of(DataFrameProcessor, fixed=True)
    with Repairs(graph_of(Processor), broker) as tool:
        assert tool.ask("replay").asked == 2
    facts = broker.facts(["in", "g.errors", REPLAY])
    [undecoded] = undecoded_of(
        *(graph, graph.dataframes["copy"], Identity.of_process("spark")),
        facts=facts,
        options=options,
        client_bytes=broker.max_bytes,
    ).values()
    at = facts.topics[REPLAY]
    return World(
        options, broker, Redelivery(undecoded, REPLAY, at.topic_id, 1, ("g.errors",), (undecoded.binding,), 1, {})
    )


def test_messages_are_delivered_and_fail_as_the_codec_says_now(world: World) -> None:
    """A row, and a new error message with trace and coordinates."""
    taken = world.taken()
    [good], failed = world.redelivery.separated(taken)

    assert [(one.outcome, one.number) for one in taken] == [("row", 1)] * 2
    assert [message.value() for message in good.good] == [b"one"]
    [row] = world.redelivery.undecoded.rows(0, failed)
    assert row.offset == 2
    assert decode_settled(taken[1].settled(5, failed=True)) == Settled("error", 1, 5, taken[1].by)


def test_batch_that_runs_again_takes_what_it_has_settled_itself(world: World) -> None:
    """A part of it was published before its driver died; other requests for the same errors are repeats."""
    first = world.taken()
    world.settle(first[:1])

    assert world.taken() == first
    world.settle(first)
    assert world.taken() == first
    end = world.requests
    world.send(REPLAY, *[(one.key() or b"", one.value() or b"") for one in read(world, REPLAY)])
    assert world.taken(start=end) == []
    assert world.taken() == first


def test_first_of_two_requests_in_a_batch_counts(world: World) -> None:
    """Before anything is settled, and behind it."""
    world.send(REPLAY, *[(one.key() or b"", one.value() or b"") for one in read(world, REPLAY)])
    found = world.taken()

    assert len(found) == 2
    world.settle(found)
    assert world.taken() == found


def test_native_record_settles_for_good(world: World) -> None:
    """It names no request."""
    [one, other] = world.taken()
    world.send(BACKING, (one.key, encode_settled(Settled("output", 1, 1))))

    assert world.taken() == [other]


def test_what_is_no_request_or_not_proven_is_settled_by_its_place(world: World) -> None:
    """Nothing is delivered, and no error message is settled."""
    end = world.requests
    forged = next(one.value() for one in read(world, REPLAY)).replace(b'"number":1', b'"number":7')
    world.send(REPLAY, (b"k", b"no request"), (b"k", forged))

    unreadable, refused = world.taken(start=end)
    assert (unreadable.outcome, refused.outcome) == ("unreadable", "refused")
    assert [one.message for one in (unreadable, refused)] == [None, None]
    place = ErrorPlace(world.redelivery.topic_id, 0, end)
    assert unreadable.key == SETTLED + b"?" + str(place).encode()


def test_request_for_another_input_is_left_to_its_source(world: World) -> None:
    """What is no request at all is settled by the first input alone."""
    world.send(REPLAY, (b"k", b"no request"))
    other = replace(world.redelivery.undecoded, binding="other")
    bindings = ("other", world.redelivery.undecoded.binding)

    world.redelivery = replace(world.redelivery, bindings=bindings)
    assert [one.outcome for one in world.taken()] == ["row", "row"]
    world.redelivery = replace(world.redelivery, undecoded=other)
    assert [one.outcome for one in world.taken()] == ["unreadable"]


def test_message_that_is_gone_is_an_error_message(world: World) -> None:
    """The input was recreated, and the payload of undecoded messages is kept: without it nothing can be delivered."""
    world.redelivery = replace(world.redelivery, undecoded=replace(world.redelivery.undecoded, topic_id=bytes(16)))
    taken = world.taken()

    [good], failed = world.redelivery.separated(taken)
    assert [message.value() for message in good.good] == [b"one"]
    assert len(failed) == 1


def test_batch_takes_a_bounded_number_and_a_recreated_topic_from_its_start() -> None:
    """Spark's offsets alone say what a batch takes, so that it is the same when it comes again."""
    made = Redelivery(None, "r", b"", 2, (), (), 1, {1: 5})  # type: ignore[arg-type]
    here, there = TopicPartition("r", 0), TopicPartition("r", 1)

    assert made.begins() == {here: 0, there: 5}
    assert made.ends({there: 5}, {here: 3, there: 5000}) == {here: 3, there: 5 + AT_ONCE}
    assert made.ends({here: 90}, {here: 4, there: 0}) == {here: 4, there: 0}
    spans = [made.range(0, 3, 7), made.range(0, 3, 3), made.range(0, 90, 4)]
    assert [(span.start, span.end) for span in spans] == [(3, 7), (3, 3), (0, 4)]


def test_source_gives_messages_and_those_of_requests_with_a_count_behind_each_range(world: World) -> None:
    """Its offsets name both topics, and a checkpoint without the replay topic begins at its start."""
    decoding = world.redelivery.undecoded.decoding
    given = SourceInput(
        "g.copy", world.options, {"in": (0,)}, back=False, decoding=decoding, counted=True, redelivery=world.redelivery
    )
    reader = MessageReader(given)
    assert reader.initialOffset() == {REPLAY: {"0": 0}, "in": {"0": 0}}
    for begin in ({"in": {"0": 0}}, reader.initialOffset()):
        end = reader.latestOffset(begin, ReadAllAvailable())
        assert end == {"in": {"0": 3}, REPLAY: {"0": world.requests}}
        [partition] = reader.partitions(begin, end)
        rows = [row for batch in reader.read(partition) for row in batch.to_pylist()]
        assert sorted(row["value"] for row in rows if row[COUNT] is None) == [b"2", b"one", b"one"]
        assert sorted(row[COUNT] for row in rows if row[COUNT] is not None) == [1, 1]
        assert {(row["topic"], row["partition"]) for row in rows if row[COUNT] is None} == {("in", 0)}
    [idle] = reader.partitions(end, end)
    assert list(reader.read(idle)) == []
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    with pytest.raises(ConfigError, match=r"the batch was begun with topic 'g\.copy\.replay'"):
        list(MessageReader(replace(given, redelivery=None)).read(partition))
    reader.stop()


def test_second_job_settles_requests_and_publishes_what_failed_again(world: World) -> None:
    """Its ranges are those of the announcement; what Spark has counted must be what it finds."""
    extent = Extent("in", b'{"in":"x"}', '{"in":{"0":3}}', canonical({"in": {"0": 3}, REPLAY: {"0": world.requests}}))
    redelivery = world.redelivery
    binding = redelivery.undecoded.binding
    identity = SimpleNamespace(incarnation=uuid4().hex)
    work: Any = SimpleNamespace(
        undecoded=(redelivery.undecoded,), redelivery=(redelivery,), parts=1, options=world.options, identity=identity
    )
    mine: Any = SimpleNamespace(extents=(extent._replace(source=binding),), batch=0)
    for counts, expected in ((Counts(1, 1), 1), (Counts(0, 0), None)):  # the second: the plan read nothing
        search = Search(work, mine, lambda: {binding: counts})  # noqa: B023
        spans = search._spans(1)
        assert (len(spans), search._expected) == (1, expected)

    write = WriteUndecoded(work, spans, 7)
    errors, settled = (chunk.to_pylist()[0] for chunk in write([pa.RecordBatch.from_pydict({"id": [0]})]))

    assert errors["row"] < settled["row"] < FOUND_FROM + first_row(1), "a file has its chunks in the order of numbers"
    assert (settled["rows"], settled["errors"], settled["row"]) == (2, 0, SETTLED_FROM)
    records = unpacked(settled["payload"]).to_pylist()
    assert [decode_settled(one["value"]).outcome for one in records] == ["row", "error"]
    assert (errors["rows"], errors["errors"]) == (1, 1)
    [error] = unpacked(errors["payload"]).to_pylist()
    assert error_messages().decode(error["value"]).consumed[0].offset == 2


def read(world: World, topic: str) -> list[Any]:
    """All messages of a topic."""
    from cues_kafka.records.scanning import read_all

    return list(read_all(world.broker, topic, 1))
