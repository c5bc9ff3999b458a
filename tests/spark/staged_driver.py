"""The program that tests of staged writing kill: a Spark session, and DataFrames that count on it.

Every row says in a header which attempt at its batch computed it, and in a column a number that no two computations
share; so a reader sees it when two attempts are mixed, and a redo never gives the same bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark import TaskContext

from cues_kafka import DataFrameProcessor, Graph, Json, Source, Topic
from cues_kafka.core.records import Staged
from cues_kafka.core.staged import Enter, Role
from cues_kafka.on_spark.query import files
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.query.worker import SparkWorker
from cues_kafka.on_spark.staged import run as staged_run
from cues_kafka.on_spark.staged.batch import StagedBatch
from cues_kafka.on_spark.staged.files import MANIFEST, SMALL_BYTES, Staging
from cues_kafka.on_spark.staged.manifest import Manifest
from cues_kafka.on_spark.staged.part_slot import PartSlot
from cues_kafka.on_spark.staged.publish import StagedWork
from cues_kafka.spark import Spark
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.interpreter import Hook
from cues_kafka.task.workers import Job
from tests.spark.fault_driver import Point, run_graph, session_of

WIDTH = 4
KEYS = 24
ATTEMPT = "attempt"
"""Header of an output: which attempt computed it."""

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Number:
    """What comes in."""

    n: int
    at: datetime = NOON


def counts(numbers: Any, *, wide: int = 1) -> Any:
    """How often each key has come so far, and `wide` random numbers."""
    from pyspark.sql import functions as f

    counted = numbers.groupBy(f.col("_cues.key").cast("string").alias("key")).agg(f.count("*").alias("count"))
    return counted.withColumn("nonce", f.concat(*[f.expr("uuid()") for _ in range(wide)]))


def windows(numbers: Any) -> Any:
    """What each minute has held, once it is over."""
    from pyspark.sql import functions as f

    minutes = numbers.withWatermark("at", "1 minute").groupBy(f.window("at", "1 minute").alias("minute"))
    summed = minutes.agg(f.count("*").alias("count"), f.sum("n").alias("sum"))
    key = f.unix_seconds("minute.start").cast("string").alias("key")
    return summed.select(key, "count", "sum", f.expr("uuid()").alias("nonce"))


def graph(name: str, kind: str = "counts", wide: int = 1) -> Graph:
    """
    One aggregation between topics of one test's own.

    Args:
        name: of the graph, and prefix of its topics.
        kind: `counts`, each change of a key's count; or `windows`, final rows of minutes.
        wide: how many random numbers there are in a row.
    """

    def wide_counts(numbers: Any) -> Any:
        return counts(numbers, wide=wide)

    fn: Callable[..., Any] = windows if kind == "windows" else wide_counts
    mode: Any = "append" if kind == "windows" else "update"
    return Graph(
        name,
        Source(f"{name}.in"),
        DataFrameProcessor(fn, name="work", inputs=f"{name}.in", outputs=f"{name}.out", output_mode=mode),
        errors=f"{name}.errors",
        topics={
            f"{name}.in": Topic(value=Json(Number), partitions=WIDTH),
            f"{name}.out": Topic(value=Json(), partitions=WIDTH),
        },
    )


@dataclass(frozen=True, slots=True)
class StagedPoint(Point):
    """
    A crash point of staged writing.

    Attributes:
        where: of a slot `before Commit` and the like; or, of a batch, `staging` (in job 1), `unlisted` (its files are
            there, their manifest is not), `staged`, `announced`, `published`, `behind` (Spark has not noted it yet).
        role: of a slot: `Enter`, `Announce` or `Publish`.
        batch: of which batch; None: of any.
        held: the driver publishes the rows, as it does where they are few; else Spark's tasks do, as with many.
    """

    role: str = ""
    batch: int | None = None
    held: bool = False

    def of_slot(self, role: Role, part: int) -> Hook | None:
        """For one slot; of those that publish, where the rows are published."""
        batch = None if isinstance(role, Enter) else role.batch.batch
        if type(role).__name__ != self.role or self.batch not in (None, batch):
            return None
        if self.role == "Publish" and (TaskContext.get() is None) != self.held:
            return None
        return self.hook(part, "driver" if self.entering else "")

    def pass_by(self, where: str, batch: int) -> None:
        """In a batch."""
        if where == self.where and self.batch in (None, batch) and self._mine():
            self._act(batch)


@dataclass(frozen=True, slots=True)
class PointedStagedWork(StagedWork):
    """Work whose slots have a crash point."""

    point: StagedPoint | None = None

    def slot(self, part: int, role: Role, who: str) -> PartSlot:
        """With the hook."""
        hook = self.point.of_slot(role, part) if self.point else None
        return PartSlot(self.spec(part, role, who), broker=self.broker, clock=SystemClock(), hook=hook)


class PointedBatch(StagedBatch):
    """Batches that have crash points, and name the attempt in each row."""

    def __init__(
        self, work: StagedWork, *args: Any, done: Callable[[Staged], None] = lambda _: None, **settings: Any
    ) -> None:
        def behind(batch: Staged) -> None:
            done(batch)
            self._pass("behind", batch.batch)

        point = work.point if isinstance(work, PointedStagedWork) else None
        small_bytes = SMALL_BYTES if point is None or point.held else 0
        super().__init__(work, *args, done=behind, small_bytes=small_bytes, **settings)

    def _stage(self, staging: Staging, frame: Any, mine: Staged) -> Manifest:
        from pyspark.sql import functions as f

        name = f.struct(f.lit(ATTEMPT).alias("key"), f.lit(mine.attempt.encode()).alias("value"))
        marked = frame.withColumn("headers", f.array(name))
        if point := self._point:
            marked = marked.mapInArrow(_passing(point, mine.batch), marked.schema)
        with mock.patch("cues_kafka.on_spark.staged.files.write_bytes", self._unlisted(mine.batch)):
            manifest = super()._stage(staging, marked, mine)
        self._pass("staged", mine.batch)
        return manifest

    def _announce(self, mine: Staged) -> Staged:
        announced = super()._announce(mine)
        self._pass("announced", mine.batch)
        return announced

    def _publish(self, staging: Staging, batch: Staged, manifest: Manifest) -> list[Outcome]:
        outcomes = super()._publish(staging, batch, manifest)
        self._pass("published", batch.batch)
        return outcomes

    def _unlisted(self, batch: int) -> Callable[..., None]:
        write = files.write_bytes

        def pass_and_write(session: Any, path: files.Place, data: bytes) -> None:
            if str(path).endswith(MANIFEST):
                self._pass("unlisted", batch)
            write(session, path, data)

        return pass_and_write

    def _pass(self, where: str, batch: int) -> None:
        if self._point:
            self._point.pass_by(where, batch)

    @property
    def _point(self) -> StagedPoint | None:
        return self._work.point if isinstance(self._work, PointedStagedWork) else None


def _passing(point: StagedPoint, batch: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function of job 1 that stands still behind its first rows."""

    def through(batches: Iterator[Any]) -> Iterator[Any]:
        for one in batches:
            yield one
            point.pass_by("staging", batch)

    return through


@dataclass(frozen=True, slots=True)
class PointedStagedSpark(Spark):
    """The engine, with crash points."""

    point: StagedPoint | None = None

    def worker(self, job: Job) -> SparkWorker:
        """With points in its slots."""
        worker = Spark.worker(self, job)
        run: Any = worker._planned
        assert isinstance(run, staged_run.StagedRun)
        run._work = PointedStagedWork(
            **{f.name: getattr(run._work, f.name) for f in fields(StagedWork)}, point=self.point
        )
        return worker


def main(setup: Mapping[str, Any]) -> int:
    """The session, then the graph until told to stop."""
    engine = PointedStagedSpark(
        session_of(setup),
        checkpoint=setup["checkpoint"],
        max_offsets_per_trigger=setup["limit"],
        point=StagedPoint(**setup["point"], pipe=setup["pipe"]) if setup["point"] else None,
    )
    with mock.patch.object(staged_run, "StagedBatch", PointedBatch):
        return run_graph(setup, engine)


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
