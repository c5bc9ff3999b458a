"""Messages of a staged batch that cannot be decoded: they make no row, and are published with it (T1).

Spark counts them while it computes the batch. Only where there are some, or where Spark did not read all ranges to
their ends, a job reads the ranges once more. Its chunks are files of the same attempt, and their errors are rows of the
same publication: part p has those of partition p of each input.

Where the batch takes requests to replay errors, the job reads them, too: it makes the records that settle them, and new
error messages of what failed again (Y4).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from cues_kafka.core.records import Staged
from cues_kafka.errors import RetriableError
from cues_kafka.on_spark.connections import shared_broker
from cues_kafka.on_spark.in_arrow import map_in_arrow
from cues_kafka.on_spark.query.jobs import RESULT, run_job
from cues_kafka.on_spark.query.outcome import Outcome, outcome_of_row, raise_stops
from cues_kafka.on_spark.redelivery import Redelivery
from cues_kafka.on_spark.source.messages import RESET
from cues_kafka.on_spark.source.planning import OffsetRange
from cues_kafka.on_spark.staged.chunks import CHUNK_BYTES, CHUNKS, chunk_of, first_row
from cues_kafka.on_spark.staged.extents import offsets_in
from cues_kafka.on_spark.staged.manifest import FOUND_FROM, SETTLED_FROM, Manifest
from cues_kafka.on_spark.staged.publish import StagedWork
from cues_kafka.on_spark.staged.topics import ERRORS, SETTLED
from cues_kafka.on_spark.undecoded import ErrorRow, Undecoded
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.extents import offsets_of
from cues_kafka.task.calling.ending import DECLARE_ERRORS

_ROWS: Final = 5_000
"""Error messages of a chunk, at most."""

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Counts(NamedTuple):
    """
    What Spark has counted of one input.

    Attributes:
        ranges: that were read to their ends.
        messages: that could not be decoded.
    """

    ranges: int
    messages: int


Observed: TypeAlias = Callable[[], Mapping[str, Counts]]
"""Gives the counts of the batch that is being computed, by binding."""


class Searched(NamedTuple):
    """One range in which messages are looked for; of the replay topic, where there is what takes its requests."""

    undecoded: Undecoded
    span: OffsetRange
    redelivery: Redelivery | None = None


class Search:
    """The search for messages of one attempt at a batch, on the driver."""

    def __init__(self, work: StagedWork, mine: Staged, observed: Observed) -> None:
        """
        Args:
            work: of the slots.
            mine: the attempt.
            observed: see there.
        """
        self._work, self._mine, self._observed = work, mine, observed
        self._expected: int | None = 0

    def chunks(self, session: Any, runs: int) -> Any:
        """
        Return a DataFrame of chunks of error messages; None: every message was decoded.

        Args:
            session: of Spark.
            runs: how often the batch was computed.

        Raises:
            SlotsStopped: there is no errors topic.
        """
        if not (spans := self._spans(runs)):
            return None
        count = len(spans)
        numbers = session.range(0, count, 1, count)
        if self._work.target.errors is None:
            first = FirstUndecoded(self._work, spans)
            rows = run_job(map_in_arrow(numbers, first, RESULT).collect)
            found = {one.task: one for one in (outcome_of_row(json.loads(row[0])) for row in rows)}
            raise_stops([found[task] for task in sorted(found)], self._mine.batch)
            self._compare(0)
            return None
        return map_in_arrow(numbers, WriteUndecoded(self._work, spans, int(time.time() * 1000)), CHUNKS)

    def check(self, manifest: Manifest) -> None:
        """Compare what was found with what Spark had counted."""
        self._compare(sum(chunk.errors for chunk in manifest.chunks if chunk.row >= FOUND_FROM))

    def _compare(self, found: int) -> None:
        """
        Refuse a batch of which a message has become readable meanwhile: it is neither a row nor an error message.

        Raises:
            RetriableError: then; the batch is computed again.
        """
        if self._expected is not None and found != self._expected:
            raise RetriableError(
                f"batch {self._mine.batch}: {self._expected} messages could not be decoded when it was computed, and "
                f"{found} a moment later, so the schema registry has another answer now"
            )

    def _spans(self, runs: int) -> list[Searched]:
        """The ranges that have messages which cannot be decoded, as far as Spark's counts tell."""
        observed: Mapping[str, Counts] | None = None
        found: list[Searched] = []
        for undecoded in self._work.undecoded:
            spans, asked = self._ranges(undecoded), self._asked(undecoded)
            if not spans and not asked:
                continue
            found += asked
            observed = self._observed() if observed is None else observed
            counts = observed.get(undecoded.binding)
            complete = counts is not None and counts.ranges == runs * (len(spans) + len(asked))
            if complete and counts is not None and not counts.messages:
                continue
            found += spans
            if not complete or counts is None:
                self._expected = None
            elif self._expected is not None:
                self._expected += counts.messages // runs
        return found

    def _ranges(self, undecoded: Undecoded) -> list[Searched]:
        extents = [one for one in self._mine.extents if one.source == undecoded.binding]
        found = []
        for extent in extents:
            start = offsets_of(extent, extent.start)
            for place, end in sorted(offsets_of(extent, extent.end).items()):
                if place.topic == undecoded.topic and (begin := start.get(place, 0)) < end:
                    found.append(Searched(undecoded, OffsetRange(place, begin, end)))
        return found

    def _asked(self, undecoded: Undecoded) -> list[Searched]:
        """The ranges of requests that the batch takes."""
        found = []
        for one in self._work.redelivery:
            for extent in self._mine.extents:
                if one.undecoded.binding == extent.source == undecoded.binding:
                    start, ends = offsets_in(extent.start, one.topic), offsets_in(extent.end, one.topic)
                    spans = [one.range(p, start.get(p, 0), end) for p, end in sorted(ends.items())]
                    found += [Searched(undecoded, span, one) for span in spans if span.start < span.end]
        return found


@dataclass(frozen=True)
class _InTask:
    """Reads ranges in a Spark task that gets their numbers."""

    work: StagedWork
    spans: Sequence[Searched]

    def _of(self, batches: Iterable[Any]) -> Iterator[tuple[int, Searched]]:
        for number in chain.from_iterable(batch.column("id").to_pylist() for batch in batches):
            yield number, self.spans[number]

    @property
    def _broker(self) -> Broker:
        return shared_broker(self.work.options, self.work.identity.incarnation)

    def _rows(self, one: Searched) -> Iterator[ErrorRow]:
        return one.undecoded.within(self._broker, one.span, remedy=RESET)

    def _part(self, place: TopicPartition) -> int:
        return place.partition % self.work.parts


@dataclass(frozen=True)
class FirstUndecoded(_InTask):
    """The function of a job without an errors topic: the first message of each range that cannot be decoded."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Say which message it is, as the outcome of a slot."""
        for _, one in self._of(batches):
            if (row := next(self._rows(one), None)) is not None:
                part = self._part(one.span.place)
                task = f"{self.work.processor}/{part}"
                outcome = Outcome(task, part, kind="unhandled", text=row.why, remedy=DECLARE_ERRORS)
                yield pa.RecordBatch.from_pydict({"outcome": [outcome.as_text]})


@dataclass(frozen=True)
class WriteUndecoded(_InTask):
    """
    The function of the job: numbers of ranges in, chunks of error messages out.

    Attributes:
        now_ms: their timestamp.
    """

    now_ms: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Make the chunks of the ranges of this Spark task."""
        for number, one in self._of(batches):
            part, row, settled = self._part(one.span.place), FOUND_FROM + first_row(number), None
            rows: Iterator[ErrorRow]
            if one.redelivery is None:
                rows = self._rows(one)
            else:
                rows, settled = self._replayed(one.redelivery, one.span)
            for held in _some(rows):
                yield chunk_of(part, row, self._messages(held))
                row += len(held)
            if settled is not None:
                yield chunk_of(part, SETTLED_FROM + first_row(number), settled)

    def _replayed(self, redelivery: Redelivery, span: OffsetRange) -> tuple[Iterator[ErrorRow], Any]:
        """What failed again, and the records that settle requests; None: there are none."""
        taken = redelivery.taken(self._broker, span)
        _, failed = redelivery.separated(taken)
        again = {id(one.message) for one in failed}
        values = [one.settled(self.now_ms, failed=id(one.message) in again) for one in taken]
        rows = redelivery.undecoded.rows(span.place.partition, failed)
        return rows, _records([one.key for one in taken], values) if taken else None

    def _messages(self, rows: Sequence[ErrorRow]) -> pa.RecordBatch:
        count = len(rows)
        headed = any(row.headers for row in rows)
        headers = [[{"key": name, "value": value} for name, value in row.headers] for row in rows]
        columns = {
            "output": pa.repeat(pa.scalar(ERRORS, pa.int32()), count),
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
            "headers": pa.array(headers, _HEADERS) if headed else pa.nulls(count, pa.binary()),
            "timestamp": pa.repeat(pa.scalar(self.now_ms, pa.int64()), count),
            "error": pa.repeat(pa.scalar(value=True), count),
        }
        return pa.RecordBatch.from_pydict(columns)


def _records(keys: Sequence[bytes], values: Sequence[bytes]) -> pa.RecordBatch:
    """Records of the backing topic, with the columns of messages."""
    count = len(keys)
    columns = {
        "output": pa.repeat(pa.scalar(SETTLED, pa.int32()), count),
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.nulls(count, pa.binary()),
        "timestamp": pa.repeat(pa.scalar(0, pa.int64()), count),
        "error": pa.repeat(pa.scalar(value=False), count),
    }
    return pa.RecordBatch.from_pydict(columns)


def _some(rows: Iterator[ErrorRow]) -> Iterator[list[ErrorRow]]:
    """Rows of one chunk at a time."""
    held: list[ErrorRow] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row.key or b"") + len(row.value or b"")
        if len(held) >= _ROWS or size >= CHUNK_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held
