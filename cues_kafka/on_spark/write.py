"""`write_exactly_once`: write any DataFrame into a topic, without a graph.

A streaming DataFrame is written directly if its rows name the message that they were made from and its plan keeps the
input's partitions apart, else staged. A DataFrame that does not stream is one staged batch with the name of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import uuid4

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.core.records import Extent, Staged
from cues_kafka.errors import ConfigError, TaskStopped
from cues_kafka.graph.declare import CodecSpec, CommitPolicy, Raw
from cues_kafka.graph.names import check_dotted
from cues_kafka.on_spark.columns import META, PLACE, messages_of
from cues_kafka.on_spark.direct.frame_batch import FrameBatch
from cues_kafka.on_spark.direct.frame_slot import Range
from cues_kafka.on_spark.direct.frame_work import PROCESSOR, Frames, first_offsets
from cues_kafka.on_spark.direct.frame_work import enter as enter_slots
from cues_kafka.on_spark.letter_case import refuse_ambiguous
from cues_kafka.on_spark.query.checkpoint import repaired
from cues_kafka.on_spark.query.entering import claim, enter_all, refuse, stopped_tasks
from cues_kafka.on_spark.query.files import has_jvm
from cues_kafka.on_spark.query.jobs import BatchFailed
from cues_kafka.on_spark.query.offset_log import known_query
from cues_kafka.on_spark.query.outcome import SlotsStopped
from cues_kafka.on_spark.query.plans import addressed, check_store, keeps_state, shuffle_node, streams
from cues_kafka.on_spark.query.run import QuerySettings
from cues_kafka.on_spark.query.slots import POLICY, written
from cues_kafka.on_spark.query.triggers import streaming_trigger
from cues_kafka.on_spark.shipping import ship_codecs, ship_options
from cues_kafka.on_spark.staged.batch import StagedBatch
from cues_kafka.on_spark.staged.connect import check_classic
from cues_kafka.on_spark.staged.extents import extents_of
from cues_kafka.on_spark.staged.publish import StagedWork, enter, newest_batch
from cues_kafka.on_spark.staged.topics import StagedTarget
from cues_kafka.ports.broker import Broker
from cues_kafka.records.extents import ids_of
from cues_kafka.task.calling.outputs import Output
from cues_kafka.task.making.specs import Identity

RAW: Final = Raw()

JOB: Final = "job"
"""The query id of a batch that does not stream."""


@dataclass(frozen=True, slots=True)
class Written:
    """
    The result for a DataFrame that does not stream.

    Attributes:
        rows: rows in the topic, written by this run or an earlier one.
        errors: rows that became error messages instead.
        again: an earlier run wrote it, and this run has changed nothing.
    """

    rows: int
    errors: int
    again: bool


def write_exactly_once(
    frame: Any,
    options: Kafka,
    *,
    topic: str,
    name: str,
    checkpoint: str,
    value: CodecSpec = RAW,
    trigger: str = "0 seconds",
    output_mode: str = "append",
    errors: str | None = None,
    policy: CommitPolicy = POLICY,
) -> Any:
    """
    Write a DataFrame into a topic, exactly once.

    A streaming DataFrame is written directly if its rows carry the coordinates of the message that they were made from
    (`_cues`; or `topic`, `partition` and `offset`, as Spark's own Kafka source has them) and its plan has neither a
    shuffle nor state. Every other one is staged: prepared once in files below the checkpoint, then published. A
    DataFrame that does not stream is a job: it is written once, and another run with the same name writes nothing.

    Columns: `_key`, `_headers` and `_timestamp` if they are there. `value` alone, if it is bytes or text, is the value
    as it is (with `key` beside it, as for Spark's Kafka sink), unless the class of `value=` has such a field. Otherwise
    all other columns are the value, in the format of `value=`.

    Args:
        frame: a DataFrame of any kind.
        options: the cluster that the topic is on; for direct writing the input must be on the same one.
        topic: the topic to write, which must exist.
        name: names this job, its backing topic, transactional ids and group; never change it, never use it twice.
        checkpoint: the query's directory; a staged query goes on with the same one only, also without state. A frame
            that does not stream is staged there, below its name.
        value: the codec of the values; without one, columns are written as JSON, and bytes and text as they are.
        trigger: see `Spark`.
        output_mode: `append` or `update`, as Spark has them.
        errors: topic for rows that the topic does not take: too large, without a key for a compacted topic, or with a
            timestamp that is too far off; None: such a row fails its batch. Direct writing does not use it.
        policy: when rows are committed at the latest; a staged part is one transaction.

    Returns:
        Spark's `StreamingQuery`; for a frame that does not stream, when it is written, a `Written`.

    Raises:
        ConfigError: a topic does not exist, or the session cannot write it, or Spark takes two columns for one.
        GraphError: the codec's class has a field that cannot travel.
        TaskStopped: a slot refuses, for example because the checkpoint is not the one that the records name; or a job
            failed, for example because a row does not fit.
        BrokerError: the cluster does not answer.
    """
    check_dotted(name, "write_exactly_once")
    if output_mode not in ("append", "update"):
        raise ConfigError(f"output_mode={output_mode!r}: choose 'append' or 'update'")
    options = ship_options(options)
    if value is not RAW:
        ship_codecs([value])
        codec_for(value, MadeFor(topic, options))  # refused now, not in a Spark task
    return _Write(frame, options, topic, name, checkpoint, value, trigger, output_mode, errors, policy).begin()


@dataclass(frozen=True, slots=True)
class _Write:
    """The arguments of `write_exactly_once`, checked as far as no cluster is asked."""

    frame: Any
    options: Kafka
    topic: str
    name: str
    checkpoint: str
    value: CodecSpec
    trigger: str
    output_mode: str
    errors: str | None
    policy: CommitPolicy

    def begin(self) -> Any:
        """Start the query, or write the batch."""
        frame, session = self.frame, self.frame.sparkSession
        refuse_ambiguous(frame, self.name)
        broker = open_broker(self.options)
        try:
            direct = frame.isStreaming and _is_direct(frame)
            if frame.isStreaming and has_jvm(session):
                _check_checkpoint(session, self.checkpoint, self.name, hint=direct)
            target = self._target(broker)
            if direct:
                prepare = _prepare(self.options, self.name, target.outputs[0], self.policy, self.value)
                batch = FrameBatch(prepare, self.checkpoint)
                return self._settings.write(frame, f"{self.name}.{PROCESSOR}", batch)
            work = _work(frame, self.options, self.name, target, self.value)
            check_classic(session)
            work = _entered(broker, work, known_query(session, self.checkpoint) if frame.isStreaming else JOB)
            if not frame.isStreaming:
                return _job(frame, work, self.checkpoint)
        finally:
            broker.close()
        return _staged(frame, work, self._settings, self.output_mode)

    def _target(self, broker: Broker) -> StagedTarget:
        """The topics, which must exist."""
        facts = broker.facts([self.topic, *([self.errors] if self.errors else [])])
        output = written(facts, self.topic, broker.max_bytes)
        return StagedTarget((output,), written(facts, self.errors, broker.max_bytes) if self.errors else None)

    @property
    def _settings(self) -> QuerySettings:
        return QuerySettings(self.frame.sparkSession, self.checkpoint, streaming_trigger(self.trigger))


def _check_checkpoint(session: Any, checkpoint: str, name: str, *, hint: bool) -> None:
    """
    Begin a damaged checkpoint again where that is safe.

    Raises:
        TaskStopped: the query needs what its checkpoint had.
    """
    if halt := repaired(session, checkpoint, "", hint=hint):
        raise TaskStopped(f"{name} stopped: {halt}")


def _is_direct(frame: Any) -> bool:
    """Whether rows name their message, and the partitions of the only input stay apart."""
    placed = META in frame.columns or set(PLACE) <= set(frame.columns)
    return placed and streams(frame) == 1 and not shuffle_node(frame)


def _prepare(
    options: Kafka, name: str, output: Output, policy: CommitPolicy, value: CodecSpec
) -> Callable[[str, Mapping[int, Range], str], Frames]:
    identity = Identity.of_process("spark", name)

    def prepare(source: str, ranges: Mapping[int, Range], query: str) -> Frames:
        starts = first_offsets(options, source, ranges)
        work = Frames(options, name, PROCESSOR, source, len(starts), starts, output, identity, query, policy)
        return enter_slots(replace(work, codec=value))

    return prepare


def _work(frame: Any, options: Kafka, name: str, target: StagedTarget, value: CodecSpec) -> StagedWork:
    if frame.isStreaming:
        check_store(name, frame)
    return StagedWork(
        options=options,
        graph=name,
        processor=PROCESSOR,
        parts=target.outputs[0].partitions,
        target=target,
        codecs=(value,),
        key_fields=(None,),
        stateless=not frame.isStreaming or not keeps_state(frame),
        identity=Identity.of_process("spark", name),
    )


def _entered(broker: Broker, work: StagedWork, query: str) -> StagedWork:
    """D6: the backing topic exists, no other process writes, and the open transaction of a predecessor is ended."""
    # The backing topic may be older than partitions that were added to the output.
    parts = min(work.parts, claim(broker, work.graph, work.processor, work.parts))
    work = replace(work, parts=parts, query=query)
    if newest := newest_batch(work, broker):
        work = replace(work, parts=newest.parts)
    # Only the checkpoint tells where the sources of a stream were: Spark does not log where batch 0 begins.
    one = replace(work, stateless=query == JOB)
    refuse(enter_all(lambda part: enter(one, part)[0], work.parts))
    return work


def _staged(frame: Any, work: StagedWork, settings: QuerySettings, output_mode: str) -> Any:
    # Topics that are mirrored from another cluster have the same names here, and are others.
    here = addressed(frame, work.options.bootstrap)

    def extents(session: Any, number: int) -> tuple[Extent, ...]:
        def named(place: int, end: Any) -> tuple[str, bytes]:
            return str(place), _ids(work, end) if here else b""

        return extents_of(session, settings.checkpoint, number, names=named, first={})

    messages = messages_of([(0, frame)], work.key_fields, work.forms)
    batch = StagedBatch(replace(work, query=""), extents, settings.checkpoint)
    return settings.write(messages, f"{work.graph}.{work.processor}", batch, output_mode)


def _ids(work: StagedWork, end: Any) -> bytes:
    """The ids, by topic, as JSON, of the topics in offsets that have the form of a Kafka source."""
    topics = sorted(end) if isinstance(end, Mapping) and all(isinstance(v, Mapping) for v in end.values()) else []
    facts = work.broker.facts(topics).topics if topics else {}
    return ids_of({topic: one.topic_id for topic, one in facts.items()})


def _job(frame: Any, work: StagedWork, directory: str) -> Written:
    """Write one batch: publish what was announced, and leave alone what is published."""
    mine = Staged(query=JOB, batch=0, attempt=uuid4().hex, checksum=b"", parts=work.parts)
    # A directory of its own: cleaning up after one job must not see the announced files of another.
    batch = StagedBatch(work, lambda _, __: (), f"{directory.rstrip('/')}/jobs/{work.graph}")
    again = newest_batch(work, work.broker) is not None
    try:
        outcomes = batch.write(messages_of([(0, frame)], work.key_fields, work.forms), mine, prepared=again)
    except SlotsStopped as stopped:
        raise stopped_tasks(stopped.stops) from None
    except BatchFailed as failed:
        raise TaskStopped(str(failed)) from failed
    rows, errors = (sum(getattr(outcome.totals, field) for outcome in outcomes) for field in ("messages", "errors"))
    return Written(rows, errors, again and not any(outcome.counts.deliveries for outcome in outcomes))
