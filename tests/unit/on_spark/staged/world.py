"""Staged batches on the reference broker: announced and published by the slots that Spark uses, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from cues_kafka import DataFrameProcessor, Graph, Raw, Source, Topic
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.client.client import Client
from cues_kafka.core.records import Extent, Record, Staged, Writer
from cues_kafka.core.spec import Spec
from cues_kafka.core.staged import Announce, Enter, Publish, Role
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.names import transactional_id
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.staged.chunks import packed
from cues_kafka.on_spark.staged.manifest import Chunk, checksum
from cues_kafka.on_spark.staged.part_slot import PartSlot, Spool
from cues_kafka.on_spark.staged.topics import ERRORS, StagedTarget
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import records_of
from cues_kafka.records.scanning import read_all
from cues_kafka.task.calling.outputs import Output
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.prepare import prepare

PARTS = 3
SIZES = {"a": 2, "b": PARTS}


def same(a: Any, b: Any) -> Any:
    """Of DataFrames; no test calls it here."""
    return a, b


GRAPH = Graph(
    "g",
    Source("a"),
    Source("b"),
    DataFrameProcessor(same, name="frames", inputs={"a": "a", "b": "b"}, outputs={"x": "out", "y": "other"}),
    errors="g.errors",
    topics={
        **{name: Topic(value=Raw(), partitions=size) for name, size in SIZES.items()},
        **{name: Topic(value=Raw(), partitions=2) for name in ("out", "other")},
        "g.errors": Topic(partitions=2),
    },
)


def into_graph(into: Effect) -> Graph:
    """The same inputs, and no outputs: rows go to a target."""
    return Graph(
        "g",
        *map(Source, SIZES),
        DataFrameProcessor(same, name="frames", inputs={name: name for name in SIZES}, into=into),
        errors="g.errors",
        topics={
            **{name: Topic(value=Raw(), partitions=size) for name, size in SIZES.items()},
            "g.errors": Topic(partitions=2),
        },
    )


Rows = Sequence[tuple[int, bytes]]
"""(number of the output or `ERRORS`, value)."""


def typical(part: int) -> Rows:
    """Rows for both outputs and one that is refused, none for the last part."""
    if part == PARTS - 1:
        return ()
    return [(n % 2, b"%d-%d" % (part, n)) for n in range(5)] + [(ERRORS, b"bad")]


def chunks_of(rows: Rows) -> tuple[list[tuple[int, bytes]], tuple[Chunk, ...]]:
    """A part's rows as they are staged, and as they are announced."""
    if not rows:
        return [], ()
    batch = pa.RecordBatch.from_pylist(
        [
            {"output": output, "key": None, "value": value, "headers": None, "timestamp": 0, "error": output == ERRORS}
            for output, value in rows
        ],
        schema=pa.schema(
            [
                ("output", pa.int32()),
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
                ("timestamp", pa.int64()),
                ("error", pa.bool_()),
            ]
        ),
    )
    payload = packed(batch)
    errors = sum(output == ERRORS for output, _ in rows)
    return [(0, payload)], (Chunk(0, 0, len(rows), errors, checksum(payload).hex(), 0),)


@dataclass(frozen=True)
class Driver:
    """One query's driver, as far as it talks to Kafka."""

    world: World
    query: str
    stateless: bool = False

    def slot(self, part: int, role: Role) -> PartSlot:
        """A slot, in this process."""
        return PartSlot(self.world.spec(part, role, self.query), broker=self.world.broker, clock=SystemClock())

    def enter(self) -> list[Outcome]:
        """D6."""
        known = self.query if any(r.staged and r.staged.query == self.query for r in self.world.records(0)) else ""
        return [self.slot(part, Enter(known, self.stateless, part)).recover() for part in range(PARTS)]

    def prepared(self, batch: int) -> Staged:
        """T1: of all that the inputs hold by now, behind the newest batch."""
        newest = self.world.records(0)[-1].staged if self.world.records(0) else None
        starts = {extent.source: extent.end for extent in newest.extents} if newest else {}
        extents = tuple(
            Extent(name, self.world.ids[name], starts.get(name, self.world.offsets(name, "low")), end)
            for name, end in ((name, self.world.offsets(name, "stable")) for name in SIZES)
        )
        return Staged(
            query=self.query, batch=batch, attempt=f"{self.query}-{batch}", checksum=b"c", parts=PARTS, extents=extents
        )

    def announce(self, batch: int) -> tuple[Outcome, Staged | None]:
        """T2: what is announced by then."""
        slot = self.slot(0, Announce(self.prepared(batch), self.stateless))
        outcome = slot.recover()
        return outcome, slot.task.record.staged if slot.task.record else None

    def publish(self, batch: Staged, part: int, rows: Rows) -> Outcome:
        """T3."""
        coming, chunks = chunks_of(rows)
        own = replace(batch, part=part, extents=batch.extents if part == 0 else ())
        return self.slot(part, Publish(own)).publish(Spool("test"), coming, chunks, self.world.target)

    def deliver(self, batch: int, rows: Callable[[int], Rows] = typical) -> Staged:
        """A batch as a whole."""
        outcome, announced = self.announce(batch)
        assert not outcome.kind, outcome.text
        assert announced
        for part in range(PARTS):
            outcome = self.publish(announced, part, rows(part))
            assert not outcome.kind, outcome.text
        return announced


class World:
    """A graph with one staged processor; its inputs have ten messages each."""

    def __init__(self, graph: Graph = GRAPH) -> None:
        self.graph = graph
        self.broker = MemoryBroker()
        _, facts = prepare(graph, self.broker)
        self.ids = {name: facts.topics[name].topic_id for name in SIZES}
        self.slots = facts.topics["g.frames.backing"].partitions
        self.client = Client(self.broker, graph, name="test")
        self.target = StagedTarget(
            tuple(Output(topic, 2, 1_000_000, graph.topic(topic).provenance) for topic in ("out", "other")),
            Output("g.errors", 2, 1_000_000),
        )
        self.send(10)

    def send(self, count: int) -> None:
        """A number of them into each input."""
        for name in SIZES:
            for n in range(count):
                self.client.send(name, b"%d" % n, key=b"%d" % n)

    def driver(self, query: str = "first", *, stateless: bool = False) -> Driver:
        """Of this query."""
        return Driver(self, query, stateless)

    def spec(self, part: int, role: Role, who: str) -> Spec:
        """As `StagedWork` makes it."""
        name = transactional_id("g", "frames", part)
        return Spec(
            graph="g",
            processor="frames",
            partition=part,
            inputs=(),
            transactional_id=name,
            group="g.frames",
            backing="g.frames.backing",
            quarantine_after=None,
            width=PARTS,
            slot=True,
            staged=role,
            writer=Writer(name, "spark", "test", who),
        )

    def offsets(self, name: str, side: str) -> str:
        """Of an input, as Spark has them."""
        places = [TopicPartition(name, p) for p in range(SIZES[name])]
        marks = self.broker.watermarks(places)
        offsets = {str(place.partition): getattr(marks[place], side) for place in places}
        return json.dumps({name: offsets}, sort_keys=True, separators=(",", ":"))

    def records(self, part: int) -> list[Record]:
        """Of one slot."""
        messages = read_all(self.broker, "g.frames.backing", self.slots)
        return records_of([message for message in messages if message.partition() == part])

    def written(self, topic: str) -> int:
        """How many messages are committed there."""
        return len(list(read_all(self.broker, topic, 2)))
