"""A micro-batch of DataFrames that is written directly: one job whose Spark tasks commit their rows (D1 to D4)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext

from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.raw import as_is
from cues_kafka.errors import CodecError, ConfigError
from cues_kafka.on_spark.columns import as_messages, form_of
from cues_kafka.on_spark.direct.frame_slot import Range, Row
from cues_kafka.on_spark.direct.frame_work import Frames
from cues_kafka.on_spark.in_arrow import map_in_arrow
from cues_kafka.on_spark.query.jobs import AT_ONCE, RESULT, run_job
from cues_kafka.on_spark.query.offset_log import batch_ends, query_id
from cues_kafka.on_spark.query.outcome import Outcome, outcome_of_row, raise_stops
from cues_kafka.on_spark.query.plans import plan_of
from cues_kafka.on_spark.query.run import Tell
from cues_kafka.on_spark.source.report import ReportReader


class FrameBatch:
    """Spark calls it for each micro-batch."""

    def __init__(
        self,
        prepare: Callable[[str, Mapping[int, Range], str], Frames],
        checkpoint: str,
        tell: Tell | None = None,
    ) -> None:
        """
        Args:
            prepare: makes what tasks need from the input topic, its ranges and the query's id; called once.
            checkpoint: the query's directory.
            tell: gets the outcomes of slots.
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
            SlotsStopped: a slot refuses; Spark runs the batch again.
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
        publish = PublishFrames(work, dict(ranges), number)
        form = form_of(work.codec, MadeFor(work.output.topic, work.options))
        rows = run_job(map_in_arrow(as_messages(frame, work.key_field, form), publish, RESULT).collect)
        outcomes = [outcome_of_row(json.loads(row[0])) for row in rows]
        outcomes += publish_rest(work, ranges, {o.partition for o in outcomes}, number)
        if self._tell:
            self._tell(outcomes)
        raise_stops(outcomes, number)


def publish_rest(work: Frames, ranges: Mapping[int, Range], done: set[int], number: int) -> list[Outcome]:
    """Move over ranges without rows: a filter took all messages, or there were markers only."""
    rest = [p for p, given in ranges.items() if given.start < given.end and p not in done]
    if not rest:
        return []

    def publish(partition: int) -> Outcome:
        given = ranges[partition]
        return work.slot(partition, number, -1, 0).publish((), given, work.left_out(partition, given))

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="publish") as pool:
        return list(pool.map(publish, rest))


@dataclass(frozen=True)
class PublishFrames:
    """The function of the job: messages in, outcomes out; all rows of a Spark task belong to one slot."""

    work: Frames
    ranges: dict[int, Range]
    batch: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Publish the rows of this Spark task."""
        context = TaskContext.get()
        part, attempt = (context.partitionId(), context.attemptNumber()) if context else (0, 0)
        coming = (row for batch in batches for row in batch.to_pylist())
        report = self.work.report
        with ExitStack() as leaving:
            reader = None if report is None else ReportReader(report.path)
            if reader is not None:
                leaving.callback(reader.close)
            first = next(coming, None)
            partition = first["partition"] if first is not None else reader.partition if reader else None
            if partition is None:
                return
            given = self.ranges.get(partition)
            if given is None:
                raise ConfigError(
                    f"a row of partition {partition} of {self.work.source!r}, which this batch does not have"
                )
            slot = self.work.slot(partition, self.batch, part, attempt)
            rows = () if first is None else self._rows(first, coming, partition)
            outcome = slot.publish(rows, given, self.work.left_out(partition, given, reader))
        yield pa.RecordBatch.from_arrays([pa.array([outcome.as_text])], names=["outcome"])

    def _rows(self, first: dict[str, Any], coming: Iterator[dict[str, Any]], partition: int) -> Iterator[Row]:
        row: dict[str, Any] | None = first
        decode = codec_for(self.work.codec, MadeFor(self.work.output.topic, self.work.options)).decode
        while row is not None:
            if row["partition"] != partition or row["topic"] != self.work.source:
                raise ConfigError(
                    f"one Spark partition has rows of {self.work.source!r}/{partition} and of {row['topic']!r}/"
                    f"{row['partition']}: the plan shuffles or coalesces, which its analysis did not show. Leave the "
                    "coordinates out, then it is written staged."
                )
            headers = [(h["key"], h["value"]) for h in row["headers"] or ()]
            if decode is not as_is and row["value"] is not None:
                self._check(row, decode)
            yield Row(row["offset"], row["key"], row["value"], headers, row["timestamp"])
            row = next(coming, None)

    def _check(self, row: dict[str, Any], decode: Callable[[bytes], Any]) -> None:
        try:
            decode(row["value"])
        except CodecError as error:
            where = f"{row['topic']}/{row['partition']} at {row['offset']}"
            raise CodecError(f"the row made of {where} does not fit {self.work.output.topic!r}: {error}") from None


_SHUFFLES: Final = re.compile(r"(?<!Broadcast)Exchange\b|\bUnion\b|\bCoalesce \d")


def check_plan(frame: Any) -> None:
    """
    Refuse a plan that would split or mix the input's partitions. The slot sees what the plan does not show.

    Raises:
        ConfigError: the plan has such a node, which the text names.
    """
    if found := _SHUFFLES.search(plan_of(frame, "executedPlan")):
        raise ConfigError(_staged(found.group().strip()))


def _staged(node: str) -> str:
    return (
        f"the plan has {node}: rows of several partitions would meet, or one partition would be parted. When the query "
        "was started its plan did not show it. A table that it is joined with may have grown: broadcast(table) keeps "
        "the query as it is. Else give it a new name and start it again, then it is written staged."
    )


def batch_ranges(session: Any, checkpoint: str, number: int) -> tuple[str, dict[int, Range]]:
    """
    Return the ranges of a micro-batch, as Spark wrote them before it called: the input topic, and a range by partition.

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
