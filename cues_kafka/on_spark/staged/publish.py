"""T3: publish the parts of an announced batch, by Spark's tasks or by the driver, and read the records of slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from cues_kafka.brokers.options import Kafka
from cues_kafka.codecs.lookup import MadeFor
from cues_kafka.core.records import Attempt, Record, Staged
from cues_kafka.core.spec import Spec
from cues_kafka.core.staged import RESET, Enter, Publish, Role, is_published
from cues_kafka.errors import ConfigError
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.on_spark.columns import ValueForm, form_of
from cues_kafka.on_spark.connections import shared_broker
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.query.slots import incarnation
from cues_kafka.on_spark.redelivery import Redelivery
from cues_kafka.on_spark.staged.chunks import chunks_in
from cues_kafka.on_spark.staged.error_rows import Refusing
from cues_kafka.on_spark.staged.manifest import Chunk, altered
from cues_kafka.on_spark.staged.part_slot import Commit, PartSlot, Spool
from cues_kafka.on_spark.staged.target import TOPICS, DuePart, FrameTarget, PartTarget
from cues_kafka.on_spark.staged.topics import StagedTarget
from cues_kafka.on_spark.undecoded import Undecoded
from cues_kafka.ports.broker import Broker
from cues_kafka.records.reading import newest_record
from cues_kafka.sinks.standing import StandsAt
from cues_kafka.task.calling.carried import NOTHING, Carried
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.specs import Identity, frame_spec


@dataclass(frozen=True, slots=True)
class StagedWork:
    """
    What the slots of a staged processor need, as one value that is pickled for them.

    Attributes:
        codecs: declarations of the outputs' codecs; every value must fit.
        key_fields: `key=` of the output topics.
        stateless: Spark keeps no state between two batches.
        identity: id of this run of the query.
        query: Spark's id of the query.
        carried: what error messages have besides the reason.
        undecoded: makes error messages of what cannot be decoded, for each input.
        redelivery: takes requests to replay errors, for each input; empty: there is no replay topic.
        into: where rows go (E5), besides the target's outputs.
        in_files: rows of the announced batch that are in files; part 0 counts them.
        above: how far the target was when the announced batch was prepared (`Manifest.log_at`).
    """

    options: Kafka
    graph: str
    processor: str
    parts: int
    target: StagedTarget
    codecs: tuple[CodecSpec, ...]
    key_fields: tuple[str | None, ...]
    stateless: bool
    identity: Identity
    query: str = ""
    carried: Carried = NOTHING
    undecoded: tuple[Undecoded, ...] = ()
    redelivery: tuple[Redelivery, ...] = ()
    into: FrameTarget = TOPICS
    in_files: int = 0
    above: int = -1

    @property
    def forms(self) -> list[ValueForm]:
        """How rows become values, by output."""
        topics = [output.topic for output in self.target.outputs]
        return [form_of(c, MadeFor(topic, self.options)) for c, topic in zip(self.codecs, topics, strict=True)]

    def spec(self, part: int, role: Role, who: str) -> Spec:
        """The spec of a slot's task, with its role."""
        identity = replace(self.identity, incarnation=who)
        return frame_spec(self.graph, self.processor, part, self.parts, identity, inputs=(), staged=role)

    @property
    def broker(self) -> Broker:
        """The connection of this process for questions."""
        return shared_broker(self.options, self.identity.incarnation)

    def slot(self, part: int, role: Role, who: str) -> PartSlot:
        """The slot of one part, in this process."""
        spec, timeout_s = self.spec(part, role, who), self.options.transaction_timeout_s
        batch_bytes = self.target.batch_bytes
        return PartSlot(spec, broker=self.broker, clock=SystemClock(), timeout_s=timeout_s, batch_bytes=batch_bytes)

    def publish(
        self, batch: Staged, chunks: Mapping[int, tuple[Chunk, ...]], coming: Coming, parts: Sequence[int], attempt: int
    ) -> Iterator[Outcome]:
        """
        T3: publish some parts in turn, while the slots of the others recover. Stop after a part that refuses.

        `coming` gives the chunks of a part, as (number of the first row, bytes); `chunks` are the announced ones, with
        which they are compared before the transaction begins; `attempt` is the number of the Spark task's attempt.
        """
        with ExitStack() as leaving:
            slots = {part: self._publishing(batch, part, attempt) for part in parts}
            for slot in slots.values():
                leaving.callback(slot.close)
                slot.begin()  # now: a process that outlives its query must not take over an id later
            for part, slot in slots.items():
                in_files = 0 if part else self.in_files
                with closing(Spool(f"part {part} of batch {batch.batch} ({batch.attempt})")) as spool:
                    commit = self._commit(replace(batch, part=part))
                    outcome = slot.publish(
                        spool, coming(part), chunks.get(part, ()), self.target, in_files=in_files, commit=commit
                    )
                yield outcome
                if outcome.kind:  # the other slots would wait as long, with the same result
                    return

    def _commit(self, batch: Staged) -> Commit | None:
        """What commits the rows of one part; None: they are messages, or the driver has committed them."""
        if not isinstance(self.into, PartTarget):
            return None
        return partial(self.into.commit_part, DuePart(batch, self.above, self.refusing(batch)))

    def refusing(self, batch: Staged) -> Refusing:
        """What makes error messages of rows of a batch."""
        where = (self.graph, self.processor, self.query, batch.batch)
        return Refusing(*where, self.codecs, self.target, self.options, self.carried, self.parts)

    def _publishing(self, batch: Staged, part: int, attempt: int) -> PartSlot:
        own = replace(batch, part=part, extents=batch.extents if part == 0 else ())
        return self.slot(part, Publish(own), incarnation(batch.query, batch.batch, part, attempt))


Coming = Callable[[int], Iterator[tuple[int, bytes]]]


@dataclass(frozen=True)
class PublishFiles:
    """The function of job 2 if Spark's tasks see the files of the manifest: numbers of parts in, outcomes out."""

    work: StagedWork
    batch: Staged
    chunks: Mapping[int, tuple[Chunk, ...]]
    files: Sequence[Path]

    def __call__(self, parts: Iterable[int]) -> Iterator[Outcome]:
        return self.work.publish(self.batch, self.chunks, self._coming, list(parts), attempt_number())

    def _coming(self, part: int) -> Iterator[tuple[int, bytes]]:
        files = dict.fromkeys(chunk.file for chunk in self.chunks[part])
        try:
            yield from chunks_in([self.files[file] for file in files], part)
        except (FileNotFoundError, PermissionError) as error:
            raise ConfigError(
                f"{error}: the driver has found this staged file, but the Spark task that publishes it does not. Give "
                "a checkpoint on a file system that all executors see and may read: restore the directory there"
            ) from None
        except (OSError, pa.ArrowException) as error:
            raise altered(f"part {part} of batch {self.batch.batch}", f"cannot be read ({error})") from None


@dataclass(frozen=True)
class PublishRows:
    """The function of job 2 if Spark reads the staged files: chunks of one part in, its outcome out."""

    work: StagedWork
    batch: Staged
    chunks: Mapping[int, tuple[Chunk, ...]]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        rows = _rows(batches)
        first = next(rows, None)
        if first is None:
            return
        part, coming = first[0], _of_part(first[0], chain([first], rows))
        for outcome in self.work.publish(self.batch, self.chunks, lambda _: coming, [part], attempt_number()):
            yield pa.RecordBatch.from_pydict({"outcome": [outcome.as_text]})


def attempt_number() -> int:
    """Attempt number of the Spark task that calls."""
    context = TaskContext.get()
    return context.attemptNumber() if context else 0


def _rows(batches: Iterator[Any]) -> Iterator[tuple[int, int, bytes]]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("part", "row", "payload"))
        yield from zip(*columns, strict=True)


def _of_part(part: int, rows: Iterable[tuple[int, int, bytes]]) -> Iterator[tuple[int, bytes]]:
    for other, row, payload in rows:
        if other != part:
            raise ConfigError(f"one Spark task got chunks of parts {part} and {other}: report this")
        yield row, payload


def enter(work: StagedWork, part: int) -> tuple[Outcome, Staged | None]:
    """D6: end the open transaction of a predecessor; part 0 says which batch is the newest."""
    slot = work.slot(part, Enter(work.query, work.stateless, part), f"{work.identity.incarnation}.enter")
    outcome = slot.recover()
    return outcome, slot.task.record.staged if slot.task.record else None


def newest_batch(work: StagedWork, broker: Broker) -> Staged | None:
    """The newest announced batch, as any reader sees it."""
    record = _newest(work, broker)
    return record.staged if record is not None else None


def stands_at(work: StagedWork, broker: Broker) -> StandsAt | None:
    """Where the processor stands, as any reader sees it; None: it has no record."""
    record = _newest(work, broker)
    if record is None or record.staged is None:
        return None
    return StandsAt(record.staged.number, isinstance(record, Attempt), record.staged.batch == RESET)


def _newest(work: StagedWork, broker: Broker) -> Record | None:
    return newest_record(work.spec(0, Enter("", work.stateless, 0), "look"), broker, SystemClock())


def published(work: StagedWork, batch: Staged) -> list[Outcome] | None:
    """The outcomes of the slots if every part of a batch is published for any reader, else None."""
    found = []
    for part in range(batch.parts):
        role = Publish(replace(batch, part=part))
        record = newest_record(work.spec(part, role, "look"), work.broker, SystemClock())
        if record is None or not is_published(role, record):
            return None
        found.append(Outcome(f"{work.processor}/{part}", part, totals=record.totals))
    return found
