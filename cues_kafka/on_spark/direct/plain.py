"""Plain processors on Spark: Spark delivers rows with ranges, and the slots call the function."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import pyarrow as pa
from pyspark import TaskContext

from cues_kafka.core.records import Record, Snapshot
from cues_kafka.on_spark.direct.work import Work
from cues_kafka.on_spark.query.files import has_jvm
from cues_kafka.on_spark.query.jobs import RESULT, BatchFailed, cut_off, run_job
from cues_kafka.on_spark.query.offset_log import batch_ends
from cues_kafka.on_spark.query.outcome import Outcome, outcome_of_row, raise_stops
from cues_kafka.on_spark.query.run import DirectRun, QuerySettings, Tell
from cues_kafka.on_spark.query.slots import standing
from cues_kafka.on_spark.source.planning import from_json
from cues_kafka.on_spark.source.ranges import (
    PREFIX,
    Begins,
    RangeRow,
    SourceInput,
    offsets_of,
    range_source,
    row_of,
    rows_of,
)
from cues_kafka.records.reading import newest_record
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.specs import spec_of
from cues_kafka.task.workers import Job

TRIES: Final = 5
"""How often a replay is tried whose process dies: more often than it takes to quarantine it (Q3)."""


class PlainRun(DirectRun):
    """The run of a plain processor: Spark gets rows with ranges, and the slots call the function."""

    def __init__(self, job: Job, work: Work, settings: QuerySettings) -> None:
        processor = job.graph.processors[job.processor]
        super().__init__(job, settings, spec_of(job.graph, job.planned, processor, work.width, work.identity)(0))
        self._work = work
        self._cut: set[int] = set()
        self._replaying: list[int] = []  # partitions; a replay may outlast its query
        self._fenced: dict[int, str] = {}  # by partition, the incarnation of a replay that was fenced: it did not die

    def enter(self, partition: int) -> Outcome:
        """
        See `Run`. A replay that a predecessor has announced comes first: no slot of a batch can deliver it.

        A replay of this run that is under way goes on: it has the id, and a record, and the next batch waits for it
        (Y1). Whether its process works or has just died, only Spark knows. So nothing may be said in its place.
        """
        if partition in self._replaying:
            return standing(replace(self.first, partition=partition), self._job.broker, SystemClock())
        announced = self._announced(partition)
        if announced is not None and (done := self.replay(partition, announced.replays[0].offset + 1)).kind:
            return done
        if partition in self._cut:
            outcome = self.leave(partition)
            self._cut.discard(partition)
            return outcome
        return self._work.slot(partition, "driver").enter()

    def leave(self, partition: int) -> Outcome:
        """
        See `Run`.

        The driver takes the id first, so the slot can commit nothing more. If the newest record then is the slot's
        snapshot, the driver goes on as the slot's own incarnation, and says `left` in its place.
        """
        make = self._work.slot if self._announced(partition) is None else self._work.replay_slot
        outcome = make(partition, "driver").enter()
        record = self._newest(partition)
        own = f"{self._work.identity.incarnation}."
        if isinstance(record, Snapshot) and not record.left and record.writer.incarnation.startswith(own):
            return make(partition, record.writer.incarnation.removeprefix(own)).enter()
        return outcome

    def _newest(self, partition: int) -> Record | None:
        return newest_record(replace(self.first, partition=partition), self._job.broker, SystemClock())

    def _announced(self, partition: int) -> Snapshot | None:
        """The snapshot of a replay, if it is the newest record."""
        record = self._newest(partition) if self.first.replay else None
        return record if isinstance(record, Snapshot) and record.replay else None

    def replay(self, partition: int, until: int) -> Outcome:
        """See `Replays`. A message that kills its process is quarantined after some tries."""
        self._replaying.append(partition)
        try:
            if self._shows_fenced(partition) and (left := self.leave(partition)).kind:
                return left
            outcome = self._replay(partition, until)
            self._fenced[partition] = outcome.incarnation
            return outcome
        finally:
            self._replaying.remove(partition)

    def _shows_fenced(self, partition: int) -> bool:
        """
        Whether the newest record is the snapshot of the replay that was fenced, and not of one that died.

        Spark runs a replay again whose process died. The second attempt may be fenced before it has committed a
        snapshot. Then the newest one is of the first attempt, and its death counts (Q1).
        """
        if not (fenced := self._fenced.get(partition)):
            return False
        record = self._newest(partition)
        return isinstance(record, Snapshot) and record.writer.incarnation == fenced

    def _replay(self, partition: int, until: int) -> Outcome:
        deliver, why, session = (
            DeliverReplays(self._work),
            "Spark Connect gives no access to jobs",
            self._settings.session,
        )
        for _ in range(TRIES if has_jvm(session) else 0):
            try:
                [outcome] = run_job(
                    lambda: session.sparkContext.parallelize([(partition, until)], 1).mapPartitions(deliver).collect()
                )
            except BatchFailed as error:
                why = str(error)
            else:
                return cast(Outcome, outcome)
        spec = replace(self.first, partition=partition)
        text, remedy = f"an error could not be replayed: {why}", "fix the cause; it is tried again. Or run it natively"
        return Outcome(spec.name, partition, kind="refused", text=text, remedy=remedy)

    def start(self, positions: Begins, tell: Tell) -> Any:
        settings, name = self._settings, f"{self._job.graph.name}.{self._job.processor}"
        given = SourceInput(name, self._job.options, positions, settings.limit, pairing=self.first.pairing)
        settings.session.dataSource.register(range_source(given))
        frame = settings.session.readStream.format(PREFIX + name).load()
        return settings.write(
            frame, name, PlainBatch(self._work, settings.checkpoint, positions, tell, self._cut.update)
        )


class PlainBatch:
    """
    Spark calls it for each micro-batch: one job, a slot for each range.

    The ranges are rows of the frame, too. But to deliver these rows Spark would run a second Python process in each
    Spark task, for the source, and compile a plan in each batch. So the driver takes the ranges from the offset log, as
    Spark has just written them. A server of Spark Connect gives no access to jobs below DataFrames, so the rows count
    there.
    """

    def __init__(
        self,
        work: Work,
        checkpoint: str,
        positions: Begins,
        tell: Tell | None,
        cut: Callable[[set[int]], None] = lambda _: None,
    ) -> None:
        """
        Args:
            work: what its slots do.
            checkpoint: the query's directory.
            positions: where a query without a checkpoint begins.
            tell: gets the outcomes of slots.
            cut: gets the partitions whose slots were ended because another slot failed.
        """
        self._cut = cut
        self._work = work
        self._checkpoint = checkpoint
        self._positions = positions
        self._tell = tell
        self._first = True

    def __call__(self, frame: Any, number: int) -> None:
        """
        Deliver one micro-batch.

        Raises:
            SlotsStopped: a task stopped; Spark runs the batch again.
        """
        deliver = Deliver(self._work, first=self._first)
        if has_jvm(frame.sparkSession):
            outcomes = self._run(deliver, frame.sparkSession, number)
        else:
            rows = run_job(frame.mapInArrow(deliver, RESULT).collect)
            outcomes = [outcome_of_row(json.loads(row[0])) for row in rows]
        if self._tell:
            self._tell(outcomes)
        raise_stops(outcomes, number)
        self._first = False

    def _run(self, deliver: Deliver, session: Any, number: int) -> list[Outcome]:
        """Run one Spark task for each range that has work."""
        ends = batch_ends(session, self._checkpoint, number)
        before = batch_ends(session, self._checkpoint, number - 1) if number else {}
        ranges = rows_of({**offsets_of(self._positions), **from_json(before)}, from_json(ends))
        due = [one for one in ranges if deliver.is_due(one)]
        job = session.sparkContext.parallelize(due, len(due)).mapPartitions(deliver.each) if due else None
        if job is None:
            return []
        return run_job(job.collect, lambda text: self._cut({due[task].partition for task in cut_off(text, len(due))}))

    def __reduce__(self) -> Any:
        # For a server (Spark Connect); the outcomes of slots come back in the exception.
        return PlainBatch, (self._work, self._checkpoint, self._positions, None)


@dataclass(frozen=True)
class DeliverReplays:
    """The function of a job that delivers requests to replay errors: partition and end in, outcomes out."""

    work: Work

    def __call__(self, asked: Iterable[tuple[int, int]]) -> Iterator[Outcome]:
        """Deliver the requests of one partition."""
        context = TaskContext.get()
        attempt = str(context.taskAttemptId()) if context else "0"
        for partition, until in asked:
            yield self.work.replay(partition, until, attempt=attempt)


@dataclass(frozen=True)
class Deliver:
    """The function of the job: rows of ranges in, outcomes out."""

    work: Work
    first: bool

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Deliver each range; a Spark task has one row."""
        for batch in batches:
            for outcome in self.each(map(row_of, batch.to_pylist())):
                yield pa.RecordBatch.from_arrays([pa.array([outcome.as_text])], names=["outcome"])

    def is_due(self, given: RangeRow) -> bool:
        """Whether a range has work. In the first batch each has: a predecessor may have left a transaction open."""
        return self.first or given.holds_offsets

    def each(self, ranges: Iterable[RangeRow]) -> Iterator[Outcome]:
        """Deliver ranges, and yield the outcome of each."""
        context = TaskContext.get()
        attempt = str(context.taskAttemptId()) if context else "0"
        again = context is not None and context.attemptNumber() > 0
        for one in ranges:
            if again or self.is_due(one):
                yield self.work.deliver(one, attempt=attempt, first=self.first or again)
