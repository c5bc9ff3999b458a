"""A processor of DataFrames that is written staged, as `query.Run`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from cues_kafka.brokers.options import Kafka
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.core.records import Staged
from cues_kafka.core.spec import Spec
from cues_kafka.core.staged import RESET, Enter
from cues_kafka.errors import ConfigError
from cues_kafka.graph.names import backing_topic, replay_topic
from cues_kafka.on_spark.columns import key_column, messages_of
from cues_kafka.on_spark.frame_targets import frame_target
from cues_kafka.on_spark.query.files import has_jvm, names
from cues_kafka.on_spark.query.observed import observed_in
from cues_kafka.on_spark.query.offset_log import known_query, query_id
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.query.plans import OBSERVED, call_function, keeps_state
from cues_kafka.on_spark.query.run import QuerySettings, Tell
from cues_kafka.on_spark.query.slots import written
from cues_kafka.on_spark.redelivery import Redelivery
from cues_kafka.on_spark.source.ranges import Begins
from cues_kafka.on_spark.staged.batch import StagedBatch, stage_of
from cues_kafka.on_spark.staged.connect import check_shared
from cues_kafka.on_spark.staged.extents import BatchExtents, begins_of, begun, canonical, ends_in, offsets_in
from cues_kafka.on_spark.staged.files import Staging
from cues_kafka.on_spark.staged.publish import StagedWork, enter, newest_batch, published
from cues_kafka.on_spark.staged.topics import StagedTarget
from cues_kafka.on_spark.staged.undecoded import Counts
from cues_kafka.on_spark.undecoded import undecoded_of
from cues_kafka.ports.log import Position, Positions, TopicPartition
from cues_kafka.task.calling.carried import carried_by
from cues_kafka.task.making.other_inputs import other_sources
from cues_kafka.task.making.specs import Identity
from cues_kafka.task.workers import Job

LOOK_S: Final = 1.0
"""How often the records of slots are read at most, where no slot tells the driver where it stands."""


class StagedRun:
    """The run of a staged processor with any number of inputs and outputs; its slots are the parts of its batches."""

    def __init__(self, job: Job, settings: QuerySettings, frames: Mapping[str, Any] | None = None) -> None:
        """
        Args:
            job: the processor.
            settings: of the query.
            frames: what its function has returned, by which it is known to be staged; None: it is called.

        Raises:
            ConfigError: an output topic is not there, or two bindings are one topic.
        """
        assert isinstance(job.options, Kafka)
        graph, processor = job.graph, job.graph.dataframes[job.processor]
        self._heard = has_jvm(settings.session)  # with Spark Connect batches are written in a process of the server
        if not self._heard:
            check_shared(graph, processor, settings.checkpoint)
        topics = processor.read_topics
        if len(set(topics)) < len(topics):
            raise ConfigError(f"{processor.name!r} has two bindings of one topic: bind it once, and use it twice")
        self._job = job
        self._settings = settings
        self._processor = processor
        self._bindings = {topic: binding for binding, topic in processor.inputs}
        places = [TopicPartition(t, p) for t in topics for p in range(job.facts.topics[t].partitions)]
        marks = job.broker.watermarks(places)
        self._reached = {place: job.planned.first_of(processor, place, marks[place]) for place in places}
        identity = Identity.of_process("spark")
        self._undecoded = undecoded_of(
            graph, processor, identity, facts=job.facts, options=job.options, client_bytes=job.broker.max_bytes
        )
        if frames is None:
            frames = call_function(settings, job.options, graph, processor, self._positions(), counted=self._undecoded)
        self._work = self._work_of(identity, stateless=not any(map(keeps_state, frames.values())))
        if made := frame_target(processor, frames, graph.name):
            self._work = replace(self._work, parts=1 if processor.whole else self._work.parts, into=made[1])
        self._looked_s = float("-inf")
        self._newest: Staged | None = None
        self._undecided: list[Staged] = []
        if newest := newest_batch(self._work, job.broker):
            self._work = replace(self._work, parts=newest.parts)
        self.first: Spec = self._work.spec(0, Enter("", self._work.stateless, 0), self._work.identity.incarnation)

    def _work_of(self, identity: Identity, *, stateless: bool) -> StagedWork:
        """What the slots need; the parts of a batch are as many as the partitions of the widest input."""
        job, graph, processor = self._job, self._job.graph, self._processor
        assert isinstance(job.options, Kafka)
        declared = [graph.topic(topic) for _, topic in processor.outputs]
        width = max(job.facts.topics[topic].partitions for topic in processor.read_topics)
        if backing := job.facts.topics.get(backing_topic(graph.name, processor.name)):
            width = min(width, backing.partitions)  # an input may have got partitions since
        outputs = tuple(
            written(job.facts, topic, job.broker.max_bytes, provenance=one.provenance)
            for one, (_, topic) in zip(declared, processor.outputs, strict=True)
        )
        topic = graph.errors_of(processor)
        errors = written(job.facts, topic, job.broker.max_bytes) if topic else None
        return StagedWork(
            options=job.options,
            graph=graph.name,
            processor=processor.name,
            parts=width,
            target=StagedTarget(outputs, errors),
            codecs=tuple(one.value for one in declared),
            key_fields=tuple(
                key_column(codec_for(one.value, MadeFor(topic, job.options)), one.key)
                for one, (_, topic) in zip(declared, processor.outputs, strict=True)
            ),
            stateless=stateless,
            identity=identity,
            carried=carried_by(graph, processor),
            undecoded=tuple(self._undecoded.values()),
        )

    def enter(self, part: int) -> Outcome:
        if part == 0:
            self._work = replace(self._work, query=known_query(self._settings.session, self._settings.checkpoint))
        outcome, newest = enter(self._work, part)
        if part == 0:
            self._newest = newest
            if newest and not outcome.kind and (halt := other_sources(self._processor, newest)):
                return replace(outcome, kind=halt.kind, text=halt.text, remedy=halt.remedy)
        return outcome

    def leave(self, partition: int) -> Outcome:
        """See `query.Run`; user code has no snapshots here."""
        return self.enter(partition)

    def start(self, positions: Begins, tell: Tell) -> Any:
        """See `query.Run`; where the inputs begin is in the newest record, not in the slots' positions."""
        del positions
        job, settings, newest = self._job, self._settings, self._newest
        committed = names(settings.session, f"{settings.checkpoint}/commits")
        known = begun(newest, self._work.query, committed) if newest else {}
        self._reached = {**self._reached, **known}
        redelivery = self._redelivery(begins_of(newest, self._work.query, committed) if newest else {})
        self._work = replace(self._work, redelivery=tuple(redelivery.values()))
        first = self._positions()
        frames = call_function(
            *(settings, self._work.options, job.graph, self._processor, first),
            back=False,
            counted=self._undecoded,
            redelivery=redelivery,
        )
        whole = self._whole(frames)
        begins = {
            self._bindings[topic]: start_of(topic, offsets, known, redelivery.get(topic))
            for topic, offsets in first.items()
        }

        listed = job.graph.errors_of(self._processor) is not None
        taken = BatchExtents(self._work, settings.checkpoint, self._bindings, begins, listed=listed)
        batch = StagedBatch(self._work, taken, settings.checkpoint)
        if self._heard:
            batch = StagedBatch(
                *(self._work, taken, settings.checkpoint),
                tell=tell,
                done=self._done,
                undecided=self._undecided.append,
                observed=self._observed,
            )
        self._drop_losers(newest, batch)
        return settings.write(whole, f"{job.graph.name}.{self._processor.name}", batch, self._processor.output_mode)

    def _redelivery(self, begins: Mapping[str, str]) -> dict[str, Redelivery]:
        """Y4: what takes requests to replay errors, by topic; nothing if there is no replay topic."""
        graph, name = self._job.graph, self._processor.name
        facts = self._job.facts.topics.get(replay_topic(graph.name, name))
        if facts is None or graph.errors_of(self._processor) is None:
            return {}
        return {
            topic: Redelivery(
                undecoded=undecoded,
                topic=facts.name,
                topic_id=facts.topic_id,
                width=facts.partitions,
                errors=graph.error_topics(),
                bindings=tuple(sorted(self._bindings.values())),
                parts=self._work.parts,
                first=offsets_in(begins.get(undecoded.binding, ""), facts.name),
            )
            for topic, undecoded in self._undecoded.items()
        }

    def _observed(self) -> dict[str, Counts]:
        """What Spark has counted in the batch that it computes."""
        session, checkpoint = self._settings.session, self._settings.checkpoint
        counts = observed_in(session, query_id(session, checkpoint))
        return {
            name.removeprefix(OBSERVED): Counts(ranges or 0, messages or 0)
            for name, (ranges, messages) in counts.items()
            if name.startswith(OBSERVED)
        }

    def _whole(self, frames: Mapping[str, Any]) -> Any:
        """What job 1 packs: messages of all outputs, or rows of what `into=` names."""
        if made := frame_target(self._processor, frames, self._job.graph.name):
            return made[0]
        numbers = {binding: number for number, (binding, _) in enumerate(self._processor.outputs)}
        rows = [(numbers[binding], frame) for binding, frame in frames.items()]
        return messages_of(rows, self._work.key_fields, self._work.forms)

    def positions(self, outcome: Outcome) -> Positions:
        """See `query.Run`: what part 0 announced, for all inputs; the sums of their partitions' offsets."""
        if outcome.partition:
            return ()
        sums = dict.fromkeys(self._bindings, 0)
        for place, offset in self.reached.items():
            sums[place.topic] += offset
        return tuple(
            Position(self._bindings[topic], topic, self._job.facts.topics[topic].topic_id, total)
            for topic, total in sums.items()
        )

    @property
    def positions_in_group(self) -> bool:
        """See `query.Run`: the group has the offsets of the batch before the newest one (T4)."""
        return False

    @property
    def checkpoint_is_hint(self) -> bool:
        return False

    @property
    def reached(self) -> Mapping[TopicPartition, int]:
        if not self._heard:
            self._look()
        return self._reached

    def _look(self) -> None:
        """Find by the records how far the batches are that a process of the server writes; at most once in `LOOK_S`."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        newest = newest_batch(self._work, self._job.broker)
        if newest is not None and newest.batch != RESET and published(self._work, newest) is not None:
            self._done(newest)

    def _drop_losers(self, newest: Staged | None, batch: StagedBatch) -> None:
        """
        Delete attempts of this process that another one was preferred to; that is decided now that slot 0 was entered.

        If the newest record is of another batch, another driver may have published the attempt and gone on. Files that
        it left are beside those of its batch, and are deleted with them.
        """
        staging = Staging(self._settings.session, stage_of(self._settings.checkpoint))
        while self._undecided:
            one = self._undecided.pop()
            if newest is not None and _lost_to(newest, one):
                batch.drop(staging, one)

    def _done(self, batch: Staged) -> None:
        self._reached = {**self._reached, **ends_in(batch)}

    def _positions(self) -> dict[str, tuple[int, ...]]:
        """Where a query without a checkpoint begins, by topic."""
        found: dict[str, list[int]] = {topic: [] for topic in self._bindings}
        for place, offset in sorted(self._reached.items()):
            found[place.topic].append(offset)
        return {topic: tuple(offsets) for topic, offsets in found.items()}


def _lost_to(newest: Staged, one: Staged) -> bool:
    """Whether the newest record announces another attempt at the same batch."""
    return (newest.query, newest.batch) == (one.query, one.batch) and newest.attempt != one.attempt


def start_of(
    topic: str, offsets: tuple[int, ...], known: Mapping[TopicPartition, int], redelivery: Redelivery | None = None
) -> str:
    """
    Where batch 0 begins in a topic, without partitions that were added since, as in any batch's start.

    It has the places in the replay topic that the newest record has.
    """
    own = {str(p): offset for p, offset in enumerate(offsets) if not known or TopicPartition(topic, p) in known}
    asked = {} if redelivery is None else {str(p): offset for p, offset in redelivery.first.items()}
    return canonical({topic: own} | ({redelivery.topic: asked} if redelivery is not None and asked else {}))
