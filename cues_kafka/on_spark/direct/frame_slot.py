"""The slot of a direct processor of DataFrames: it commits rows together with their place (D1, D3, D4).

The rows come through Spark, with the coordinates of the message that each was made from. The range comes from the
driver. Rows of one message stay together and are one delivery. The slot writes nothing while it waits for rows: it
collects them first, up to the commit policy's limit, and each transaction ends between two messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from cues_kafka.core import events as on
from cues_kafka.core.delivery import HEADER, provenance_prefix
from cues_kafka.core.records import Record, Snapshot, Totals
from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Doing
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.observe.log import LINES
from cues_kafka.observe.tally import Tally
from cues_kafka.on_spark.query.outcome import Outcome, outcome_of
from cues_kafka.on_spark.query.slots import POLICY, interpreter_of, watch, with_tally
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Headers
from cues_kafka.ports.observer import BatchReport
from cues_kafka.records.reading import newest_record
from cues_kafka.task.calling.ending import DECLARE_ERRORS
from cues_kafka.task.calling.outbox import Outbox
from cues_kafka.task.calling.outputs import OVERHEAD_BYTES, Output, size_of
from cues_kafka.task.interpreter import Hook
from cues_kafka.task.task_log import TaskLog


class Row(NamedTuple):
    """
    One output message.

    Attributes:
        offset: of the input message that the row was made from.
        key, value, headers: of the output.
        timestamp_ms: of the output; 0: the broker's time.
        why: of an error message: what happened to the input message, which cannot be decoded.
        note: of an error message: keys and values for the log.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    why: str = ""
    note: Mapping[str, Any] = MappingProxyType({})

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return len(self.key or b"") + len(self.value or b"") + size_of(self.headers) + OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Range:
    """This partition's part of the micro-batch, `[start, end)`, as the driver gives it."""

    start: int
    end: int


class LeftOut(Protocol):
    """Messages of a range of which the function gets no row, because they cannot be decoded."""

    def begin(self, position: int) -> None:
        """The slot has recovered: what is below its position is delivered."""
        ...

    def below(self, offset: int) -> Iterator[Row]:
        """Their error messages up to an offset, in order, from where the last call ended."""
        ...


class _Nothing:
    """Every message makes rows, or was left out by the function."""

    def begin(self, position: int) -> None:
        pass

    def below(self, offset: int) -> Iterator[Row]:
        del offset
        return iter(())


NO_PART = "-1"
"""Marks an incarnation of the driver, which publishes ranges without rows."""


class FrameSlot:
    """Publish the rows of one range, once."""

    def __init__(
        self,
        spec: Spec,
        output: Output,
        *,
        broker: Broker,
        clock: Clock,
        errors: Output | None = None,
        policy: CommitPolicy = POLICY,
        hook: Hook | None = None,
    ) -> None:
        """
        Args:
            spec: the task, with `slot=True` and an incarnation made by `incarnation`.
            output: the output topic.
            errors: the errors topic; None: a message that cannot be decoded stops the slot.
            broker: the cluster.
            clock: time.
            policy: when rows are committed at the latest.
            hook: crash points.
        """
        self._spec = spec
        self._output = output
        self._errors = errors
        self._broker = broker
        self._clock = clock
        self._policy = policy
        self._tally = Tally(clock.time)
        self._log = TaskLog(spec.name, clock)
        limits = [one.batch_bytes for one in (output, errors) if one is not None and one.batch_bytes is not None]
        limit = min(limits, default=None)
        self._interpreter = interpreter_of(spec, broker, clock, hook, limit, observers=(self._tally,))
        self._began_s = 0.0  # when the first row of the batch under way came

    def publish(self, rows: Iterable[Row], given: Range, left_out: LeftOut | None = None) -> Outcome:
        """
        Commit the rows at or above the record's position, and the end of the range.

        Args:
            rows: of this partition, by ascending offset; they are read to their end in any case.
            given: the range that the driver gave.
            left_out: messages of the range that cannot be decoded; None: all of them can be.
        """
        return with_tally(self._outcome(rows, given, left_out or _Nothing()), self._tally)

    def _outcome(self, rows: Iterable[Row], given: Range, left_out: LeftOut) -> Outcome:
        coming = iter(rows)
        try:
            self._interpreter.advance(on.Assigned(first=False))
            before = self._totals
            halt = self._refusal(given) or self._publish(self._all(coming, given, left_out), given)
            for _ in coming:
                continue
            if halt and halt.kind == "fenced":
                done = watch(self._spec, self._broker, self._clock, {self._spec.inputs[0].topic: given.end}, halt)
                record = newest_record(self._spec, self._broker, self._clock)
                return done if done.kind else self._same_part(done, record)
            outcome = outcome_of(self._interpreter.task, before, halt)
            return outcome if outcome.kind else self._same_part(outcome, self._interpreter.task.record)
        finally:
            self._close()

    def _close(self) -> None:
        self._interpreter.advance(on.Revoked())

    # Rows that must not be published.

    def _refusal(self, given: Range) -> on.Halt | None:
        task = self._interpreter.task
        if task.state is Doing.STOPPED:
            return task.halt
        if isinstance(task.record, Snapshot):  # after two deaths nothing is due as a whole (Q2)
            text = f"the newest record of {self._spec.name} is a snapshot: its messages may kill their process"
            return on.Halt("refused", text, "finish them natively, where quarantine is at work, then come back")
        if self._position < given.start:
            text = f"the batch begins at {given.start}, but only what is below {self._position} was delivered"
            remedy = (
                "delete the checkpoint of its query, which then begins at the position; without a graph, begin there "
                "with startingOffsets"
            )
            return on.Halt("refused", f"{self._spec.name}: {text}", remedy)
        return None

    def _same_part(self, outcome: Outcome, record: Record | None) -> Outcome:
        """Refuse a range that the same batch delivered from another Spark partition (D1)."""
        if record is None:
            return outcome
        theirs, mine = (w.incarnation.rsplit(".", 3) for w in (record.writer, self._spec.writer))
        known = NO_PART not in (*theirs[2:3], *mine[2:3])
        if known and theirs[:2] == mine[:2] and theirs[2:3] != mine[2:3]:
            text = f"{self._spec.name} was delivered by another Spark partition of the same batch"
            remedy = "take union, repartition and coalesce out of the plan: a partition of the input is one Spark task"
            return outcome_of(self._interpreter.task, self._totals, on.Halt("refused", text, remedy))
        return outcome

    # The work.

    def _all(self, rows: Iterator[Row], given: Range, left_out: LeftOut) -> Iterator[Row]:
        """The rows, and in their places the error messages of messages that make none."""
        left_out.begin(self._position)
        for row in rows:
            yield from left_out.below(min(row.offset, given.end))
            yield row
        yield from left_out.below(given.end)

    def _publish(self, rows: Iterator[Row], given: Range) -> on.Halt | None:
        held: list[Row] = []
        size, last = 0, -1
        for row in rows:
            if not given.start <= row.offset < given.end or row.offset < last:
                return self._strange(row, given, last)
            full = size >= self._policy.max_bytes or len(held) >= self._policy.max_messages
            if full and row.offset != last:
                if halt := self._commit(held, last + 1):
                    return halt
                held, size = [], 0
            last = row.offset
            if row.offset >= self._position:
                if row.why and self._errors is None:
                    halt = self._commit(held, row.offset)
                    return halt or on.Halt("unhandled", row.why, DECLARE_ERRORS)
                if not row.why and (why := self._unwritable(row)):
                    return why
                if not held:
                    self._began_s = self._clock.monotonic()
                held.append(row)
                size += row.size
        return self._commit(held, given.end) if self._position < given.end else None

    def _commit(self, rows: Sequence[Row], to: int) -> on.Halt | None:
        """Do one transaction, again after each failure that the task recovers from, unless it was committed."""
        called_s = self._clock.monotonic()
        while self._position < to:
            task, before = self._interpreter.task, self._position
            ends = (task.positions[0]._replace(offset=to),)
            fresh = [row for row in rows if row.offset >= before]
            count, errors = len({row.offset for row in fresh}), sum(bool(row.why) for row in fresh)
            counts = Totals(count, count - errors, errors, 0, len(fresh) - errors)
            called = on.Called(ends, counts) if count else on.Idle(ends)
            self._interpreter.advance(called, (self._records(fresh),))
            if self._interpreter.task.state is Doing.STOPPED:
                return self._interpreter.task.halt
            if count and self._position >= to:
                self._tell(counts, fresh, called_s)
        return None

    def _tell(self, counts: Totals, rows: Sequence[Row], called_s: float) -> None:
        """What a native task tells its observers of a batch: here it begins with its first row."""
        task, now_s = self._spec.name, self._clock.monotonic()
        notes = [row.note for row in islice((row for row in rows if row.why), LINES)]
        totals = (counts.deliveries, counts.outputs, counts.errors, counts.messages)
        told = BatchReport(*totals, now_s - self._began_s, 0, notes)
        for observer in (self._tally, self._log):
            observer.committed(task, told)
        size = sum(len(row.key or b"") + len(row.value or b"") for row in rows)
        self._tally.measured(task, now_s - called_s, size)

    def _records(self, rows: Sequence[Row]) -> Outbox:
        made, task = Outbox(), self._interpreter.task
        inputs = [(position.binding, position.topic_id) for position in task.positions]
        prefix = provenance_prefix(self._spec.full_name, task.next_sequence, inputs)
        for offset, group in groupby(rows, attrgetter("offset")):
            same = list(group)
            for index, row in enumerate(same):
                output = self._errors if row.why and self._errors is not None else self._output
                header = (HEADER, b"%b%d/%d %d" % (prefix, index, len(same), offset))
                headers = [header, *row.headers] if output.provenance else row.headers
                partition = self._spec.partition % output.partitions if row.key is None else None
                made.add(output.topic, partition, row.key, row.value, headers or None, row.timestamp_ms)
        return made

    @property
    def _position(self) -> int:
        positions = self._interpreter.task.positions
        return positions[0].offset if positions else -1

    @property
    def _totals(self) -> Totals:
        record = self._interpreter.task.record
        return record.totals if record else Totals()

    def _strange(self, row: Row, given: Range, last: int) -> on.Halt:
        where = (
            f"below {last}, which came before it" if row.offset < last else f"outside of [{given.start}, {given.end})"
        )
        text = f"{self._spec.name}: a row of offset {row.offset} {where}"
        return on.Halt("refused", text, "keep the order and the coordinates of the input: no sort, union or shuffle")

    def _unwritable(self, row: Row) -> on.Halt | None:
        now_ms = int(self._clock.time() * 1000)
        why = self._output.refusal(row.key, row.size, row.headers, row.timestamp_ms, now_ms)
        text = f"{self._spec.name}: the row made of offset {row.offset} cannot be written: {why}"
        return on.Halt("refused", text, "change what the function makes of it, or the topic's setting") if why else None
