"""DataFrames into Kafka, exactly once, where their plan has no shuffle (D1 to D4).

Each micro-batch is one job. Its Spark partitions are the input's partitions, so each of them commits its rows and its
place in one transaction. The driver says which ranges the batch has (Spark writes them into the checkpoint before it
calls us) and publishes an empty attempt for those that left no row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka
from cues_kafka.codecs.lookup import codec_for
from cues_kafka.core.records import Writer
from cues_kafka.core.spec import Input, Spec
from cues_kafka.errors import CodecError, ConfigError, TaskStopped
from cues_kafka.graph.declare import Json
from cues_kafka.graph.names import backing_topic, group_id, transactional_id
from cues_kafka.plan.plan import backing_config
from cues_kafka.ports import NewTopic, Positions, TopicPartition
from cues_kafka.runtime.build import Identity
from cues_kafka.runtime.calling.outputs import Output
from cues_kafka.runtime.spark.columns import as_messages
from cues_kafka.runtime.spark.connections import shared_broker
from cues_kafka.runtime.spark.direct.frame_slot import FrameSlot, Range, Row
from cues_kafka.runtime.spark.query.jobs import AT_ONCE, RESULT, run_job
from cues_kafka.runtime.spark.query.offset_log import batch_ends, query_id
from cues_kafka.runtime.spark.query.outcome import Outcome, outcome_of_row, raise_stops
from cues_kafka.runtime.spark.query.plans import made, plan_of
from cues_kafka.runtime.spark.query.run import QuerySettings, Tell, slot_position
from cues_kafka.runtime.spark.query.slots import POLICY, incarnation, written
from cues_kafka.runtime.task.clock import SystemClock
from cues_kafka.runtime.task.lane import CommitPolicy
from cues_kafka.runtime.workers import Job

PROCESSOR: Final = "write"
"""The processor's name where there is no graph: `<name>.write.backing` and its like."""

INPUT: Final = "input"

_SHUFFLES: Final = re.compile(r"(?<!Broadcast)Exchange\b|\bUnion\b|\bCoalesce \d")


@dataclass(frozen=True, slots=True)
class Frames:
    """
    What a Spark task needs to publish rows of one processor.

    Attributes:
        options: the cluster.
        graph, processor: names.
        source: the input topic.
        width: its partitions, which are the slots.
        starts: where a slot without a record begins.
        output: where to.
        codec: the output topic's declared codec, which every value must fit; None: any bytes.
        key_field: the output topic's `key=`.
        binding: of the input.
        identity: of the query run.
        query: Spark's id of the query; the same after a restart from its checkpoint.
        policy: when rows are committed at the latest.
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
    codec: Any = None
    key_field: str | None = None
    binding: str = INPUT

    def slot(self, partition: int, batch: int, part: int, attempt: int) -> FrameSlot:
        """The slot of one partition, in this process."""
        spec = self.spec(partition, incarnation(self.query, batch, part, attempt))
        return FrameSlot(
            spec,
            self.output,
            broker=shared_broker(self.options, self.identity.incarnation),
            clock=SystemClock(),
            policy=self.policy,
        )

    def spec(self, partition: int, who: str) -> Spec:
        """The task of one partition; `who`: the incarnation of its writer."""
        name = transactional_id(self.graph, self.processor, partition)
        return Spec(
            graph=self.graph,
            processor=self.processor,
            partition=partition,
            inputs=(Input(self.binding, self.source),),
            transactional_id=name,
            group=group_id(self.graph, self.processor),
            backing=backing_topic(self.graph, self.processor),
            start=self.starts[partition],
            quarantine_after=None,
            width=self.width,
            slot=True,
            writer=Writer(name, self.identity.runtime, self.identity.name, who),
        )


class FrameBatch:
    """What Spark calls for each micro-batch."""

    def __init__(
        self,
        prepare: Callable[[str, Mapping[int, Range], str], Frames],
        checkpoint: str,
        tell: Tell | None = None,
    ) -> None:
        """
        Args:
            prepare: from the input topic, its ranges and the query's id to what tasks need; called once.
            checkpoint: the query's directory.
            tell: gets what slots say.
        """
        self._prepare = prepare
        self._checkpoint = checkpoint
        self._tell = tell
        self._frames: Frames | None = None

    def __call__(self, frame: Any, number: int) -> None:
        """
        Publish one micro-batch.

        Raises:
            ConfigError: its plan cannot be written directly.
            SlotsStopped: a slot refuses; the batch comes again.
        """
        session = frame.sparkSession
        topic, ranges = batch_ranges(session, self._checkpoint, number)
        if self._frames is None:
            self._frames = self._prepare(topic, ranges, query_id(session, self._checkpoint))
        work = self._frames
        if max(ranges) >= work.width:
            raise ConfigError(
                f"{topic!r} has more partitions than the {work.width} that this query began with. Start it again: new "
                "partitions are read from their beginning."
            )
        check_plan(frame)
        publish = Publish(work, dict(ranges), number)
        rows = run_job(as_messages(frame, work.key_field).mapInArrow(publish, RESULT).collect)
        outcomes = [outcome_of_row(json.loads(row[0])) for row in rows]
        outcomes += publish_rest(work, ranges, {o.partition for o in outcomes}, number)
        if self._tell:
            self._tell(outcomes)
        raise_stops(outcomes, number)


def publish_rest(work: Frames, ranges: Mapping[int, Range], done: set[int], number: int) -> list[Outcome]:
    """Ranges that left no row (a filter took all, or there were markers only): their place moves all the same."""
    rest = [p for p, given in ranges.items() if given.start < given.end and p not in done]
    if not rest:
        return []
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="publish") as pool:
        return list(pool.map(lambda p: work.slot(p, number, -1, 0).publish((), ranges[p]), rest))


@dataclass(frozen=True)
class Publish:
    """The function of the job: messages in, outcomes out; all rows of a Spark task belong to one slot."""

    work: Frames
    ranges: dict[int, Range]
    batch: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Publish this Spark task's rows."""
        context = TaskContext.get()
        part, attempt = (context.partitionId(), context.attemptNumber()) if context else (0, 0)
        coming = (row for batch in batches for row in batch.to_pylist())
        first = next(coming, None)
        if first is None:
            return
        partition = first["partition"]
        given = self.ranges.get(partition)
        if given is None:
            raise ConfigError(f"a row of partition {partition} of {first['topic']!r}, which this batch does not have")
        slot = self.work.slot(partition, self.batch, part, attempt)
        outcome = slot.publish(self._rows(first, coming, partition), given)
        yield pa.RecordBatch.from_arrays([pa.array([json.dumps(asdict(outcome))])], names=["outcome"])

    def _rows(self, first: dict[str, Any], coming: Iterator[dict[str, Any]], partition: int) -> Iterator[Row]:
        row: dict[str, Any] | None = first
        while row is not None:
            if row["partition"] != partition or row["topic"] != self.work.source:
                raise ConfigError(
                    f"one Spark partition has rows of {self.work.source!r}/{partition} and of {row['topic']!r}/"
                    f"{row['partition']}: the plan shuffles or coalesces, which its analysis did not show. Leave the "
                    "coordinates out, then it is written staged."
                )
            headers = [(h["key"], h["value"]) for h in row["headers"] or ()]
            self._check(row)
            yield Row(row["offset"], row["key"], row["value"], headers, row["timestamp"])
            row = next(coming, None)

    def _check(self, row: dict[str, Any]) -> None:
        if self.work.codec is None or row["value"] is None:
            return
        try:
            codec_for(self.work.codec).decode(row["value"])
        except CodecError as error:
            where = f"{row['topic']}/{row['partition']} at {row['offset']}"
            raise CodecError(f"the row made of {where} does not fit {self.work.output.topic!r}: {error}") from None


def check_plan(frame: Any) -> None:
    """
    Refuse what would part or mix the input's partitions, as far as the batch's plan shows it; the slot sees the rest.

    Raises:
        ConfigError: with the node of the plan.
    """
    if found := _SHUFFLES.search(plan_of(frame, "executedPlan")):
        raise ConfigError(_staged(found.group().strip()))


def _staged(node: str) -> str:
    return (
        f"the plan has {node}: rows of several partitions would meet, or one partition would be parted. When the query "
        "was started its plan did not show it. A table that it is joined with may have grown: broadcast(table) keeps "
        "the query as it is. Else give it a new name and start it anew, then it is written staged."
    )


def batch_ranges(session: Any, checkpoint: str, number: int) -> tuple[str, dict[int, Range]]:
    """
    The ranges of a micro-batch, as Spark wrote them before it called: the input topic, and by partition its range.

    Raises:
        ConfigError: the query has several sources, or several topics.
    """
    ends = batch_ends(session, checkpoint, number)
    starts = batch_ends(session, checkpoint, number - 1) if number else {}
    if len(ends) != 1:
        raise ConfigError(f"the query reads {sorted(ends)}. Direct writing takes one topic; split it into queries.")
    [(topic, to)] = ends.items()
    since = starts.get(topic, {})
    return topic, {int(p): Range(since.get(p, -1), end) for p, end in to.items()}


def first_offsets(options: Kafka, source: str, ranges: Mapping[int, Range]) -> tuple[int, ...]:
    """Where slots without a record begin: at their ranges; batch 0 does not tell, so at the beginning of the log."""
    broker = open_broker(options)
    try:
        places = [TopicPartition(source, p) for p in range(max(ranges) + 1)]
        marks = broker.watermarks(places)
    finally:
        broker.close()
    return tuple(max(marks[p].low, ranges[p.partition].start if p.partition in ranges else 0) for p in places)


def enter(work: Frames) -> Frames:
    """
    D6 for DataFrames: the backing topic is there, nobody else runs the processor, every slot has a record.

    Raises:
        ConfigError: the group has members.
        TaskStopped: a slot refuses.
    """
    broker = open_broker(work.options)
    try:
        backing = backing_topic(work.graph, work.processor)
        facts = broker.facts([backing])
        if backing in facts.topics:
            broker.add_partitions(backing, work.width)
        else:
            broker.create([NewTopic(backing, work.width, min(3, facts.brokers), backing_config(facts.brokers))])
        if members := broker.members(group_id(work.graph, work.processor)):
            raise ConfigError(f"group {group_id(work.graph, work.processor)!r} has members {members}: stop them first")
    finally:
        broker.close()
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="enter") as pool:
        found = list(pool.map(lambda p: work.slot(p, -1, -1, 0).publish((), Range(-1, -1)), range(work.width)))
    if stops := [outcome for outcome in found if outcome.kind]:
        raise TaskStopped("; ".join(f"{stop.task}: {stop.text}. Remedy: {stop.remedy}" for stop in stops))
    return work


class FrameRun:
    """A processor of DataFrames, as `query.Run`: its function turns the streaming input into what is written."""

    def __init__(self, job: Job, settings: QuerySettings, policy: CommitPolicy) -> None:
        """
        Args:
            job: the processor, which has one input and one output.
            settings: of the query.
            policy: when rows are committed at the latest.

        Raises:
            ConfigError: the output topic is not there.
        """
        assert isinstance(job.options, Kafka)
        graph, processor = job.graph, job.graph.dataframes[job.processor]
        [(binding, source)], [(_, topic)] = processor.inputs, processor.outputs
        declared = graph.topic(topic)
        typed = isinstance(declared.value, Json)
        width = job.facts.topics[source].partitions
        marks = job.broker.watermarks([TopicPartition(source, p) for p in range(width)])
        self._job = job
        self._settings = settings
        self._work = Frames(
            job.options,
            graph.name,
            processor.name,
            source,
            width,
            tuple(mark.low for mark in marks.values()),
            written(job.facts, topic, job.broker.max_bytes, provenance=declared.provenance),
            Identity.of_process("spark"),
            policy=policy,
            codec=declared.value if typed else None,
            key_field=declared.key,
            binding=binding,
        )
        self.first: Spec = self._work.spec(0, "driver")

    def enter(self, partition: int) -> Outcome:
        """See `query.Run`."""
        return self._work.slot(partition, -1, -1, 0).publish((), Range(-1, -1))

    def leave(self, partition: int) -> Outcome:
        """See `query.Run`; user code has no snapshots here."""
        return self.enter(partition)

    def start(self, positions: tuple[int, ...], tell: Tell) -> Any:
        """See `query.Run`."""
        work, settings, graph = self._work, self._settings, self._job.graph
        batch = FrameBatch(lambda _, __, query: replace(work, query=query), settings.checkpoint, tell)
        processor = graph.dataframes[work.processor]
        [frame] = made(settings, work.options, graph, processor, {work.source: positions}).values()
        return settings.write(frame, f"{work.graph}.{work.processor}", batch, processor.output_mode)

    def positions(self, outcome: Outcome) -> Positions:
        """See `query.Run`."""
        return slot_position(self.first, self._job, outcome)

    @property
    def reached(self) -> None:
        """See `query.Run`."""
        return
