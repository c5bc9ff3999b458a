"""What a Spark task needs to publish rows of a DataFrame, as one value that is pickled for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka
from cues_kafka.core.spec import Spec
from cues_kafka.graph.declare import CodecSpec, CommitPolicy, Raw
from cues_kafka.graph.names import backing_topic
from cues_kafka.on_spark.connections import shared_broker
from cues_kafka.on_spark.direct.frame_slot import FrameSlot, Range
from cues_kafka.on_spark.direct.left_out import Reported
from cues_kafka.on_spark.query.entering import claim, enter_all, refuse
from cues_kafka.on_spark.query.slots import POLICY, incarnation
from cues_kafka.on_spark.source.report import ReportReader, UndecodedReport
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import TopicPartition
from cues_kafka.task.calling.outputs import Output
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.specs import Identity, frame_spec

PROCESSOR: Final = "write"
"""The processor's name if there is no graph, as in `<name>.write.backing`."""


INPUT: Final = "input"


@dataclass(frozen=True, slots=True)
class Frames:
    """
    What a Spark task needs to publish rows of one processor.

    Attributes:
        options: the cluster.
        graph, processor: their names.
        source: the input topic.
        width: its partitions, which are the slots.
        starts: offsets at which slots without a record begin.
        output: the output topic.
        codec: the output topic's declared codec, which every value must fit.
        key_field: the output topic's `key=`.
        binding: name of the input's binding.
        identity: id of this run of the query.
        query: Spark's id of the query; the same after a restart from its checkpoint.
        policy: when rows are committed at the latest.
        report: messages of the input that cannot be decoded; None: the frame's source decides what becomes of them.
    """

    options: Kafka
    graph: str
    processor: str
    source: str
    width: int
    starts: tuple[int, ...]
    output: Output
    identity: Identity
    query: str = ""
    policy: CommitPolicy = POLICY
    codec: CodecSpec = field(default_factory=Raw)
    key_field: str | None = None
    binding: str = INPUT
    report: UndecodedReport | None = None

    @property
    def broker(self) -> Broker:
        """The connection of this process for questions."""
        return shared_broker(self.options, self.identity.incarnation)

    def slot(self, partition: int, batch: int, part: int, attempt: int) -> FrameSlot:
        """The slot of one partition, in this process."""
        spec = self.spec(partition, incarnation(self.query, batch, part, attempt))
        return FrameSlot(
            spec,
            self.output,
            broker=self.broker,
            clock=SystemClock(),
            errors=self.report.undecoded.errors if self.report else None,
            policy=self.policy,
        )

    def left_out(self, partition: int, given: Range, reader: ReportReader | None = None) -> Reported | None:
        """What cannot be decoded in a range; None: see `report`."""
        if self.report is None:
            return None
        return Reported(self.report.undecoded, self.broker, partition, given, reader)

    def spec(self, partition: int, who: str) -> Spec:
        """The spec of one partition's task; `who` is the incarnation of its writer."""
        identity, inputs = replace(self.identity, incarnation=who), ((self.binding, self.source),)
        start = self.starts[partition]
        return frame_spec(self.graph, self.processor, partition, self.width, identity, inputs=inputs, start=start)


def first_offsets(options: Kafka, source: str, ranges: Mapping[int, Range]) -> tuple[int, ...]:
    """
    Where slots without a record begin: at their ranges.

    Batch 0 has no starts, so there at the beginning of the log.
    """
    broker = open_broker(options)
    try:
        places = [TopicPartition(source, p) for p in range(max(ranges) + 1)]
        marks = broker.watermarks(places)
    finally:
        broker.close()
    return tuple(max(marks[p].low, ranges[p.partition].start if p.partition in ranges else 0) for p in places)


def enter(work: Frames) -> Frames:
    """
    D6 for DataFrames: the backing topic exists, no other process runs the processor, and every slot has a record.

    Raises:
        ConfigError: the group has members.
        TaskStopped: a slot refuses.
    """
    broker = open_broker(work.options)
    try:
        if claim(broker, work.graph, work.processor, work.width) < work.width:
            broker.add_partitions(backing_topic(work.graph, work.processor), work.width)
    finally:
        broker.close()
    refuse(enter_all(lambda p: work.slot(p, -1, -1, 0).publish((), Range(-1, -1)), work.width))
    return work
