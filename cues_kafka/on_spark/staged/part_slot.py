"""The slot of a staged processor: it publishes one part of a batch in one transaction (T3, D3 to D5)."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Any, BinaryIO, Final, TypeAlias

import pyarrow.compute as pc

from cues_kafka.core import events as on
from cues_kafka.core.delivery import HEADER, provenance_prefix
from cues_kafka.core.records import Record, Totals
from cues_kafka.core.spec import Spec
from cues_kafka.core.staged import Publish, is_published
from cues_kafka.core.task import Doing, Task
from cues_kafka.on_spark.query.outcome import Outcome, fenced_outcome
from cues_kafka.on_spark.query.slots import FENCED_S, WATCH_S, interpreter_of
from cues_kafka.on_spark.staged.chunks import unpacked
from cues_kafka.on_spark.staged.manifest import Chunk, altered, checksum
from cues_kafka.on_spark.staged.topics import SETTLED, StagedTarget
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Headers
from cues_kafka.records.reading import newest_record
from cues_kafka.task.calling.outbox import Outbox
from cues_kafka.task.interpreter import Hook

IN_MEMORY: Final = 64 * 1024 * 1024
"""Bytes of a part's chunks in memory; the rest waits on the local disk until it is published."""


class Spool:
    """The chunks of a part, each of them checked, which can be read repeatedly; error messages say where it is."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._file: BinaryIO = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # type: ignore[assignment] # noqa: SIM115
        self._lengths: list[int] = []

    def take(self, coming: Iterable[tuple[int, bytes]], expected: tuple[Chunk, ...]) -> None:
        """Keep the chunks that come, if they are exactly the announced ones in that order; else raise a ConfigError."""
        count = 0
        for row, payload in coming:
            if count >= len(expected) or row != expected[count].row:
                raise altered(self._where, f"have row {row}, which was not announced")
            if checksum(payload).hex() != expected[count].checksum:
                raise altered(self._where, f"do not have their checksum at row {row}")
            self._file.write(payload)
            self._lengths.append(len(payload))
            count += 1
        if count < len(expected):
            raise altered(self._where, f"end before row {expected[count].row}")

    def __iter__(self) -> Iterator[Any]:
        self._file.seek(0)
        for length in self._lengths:
            yield unpacked(self._file.read(length))

    def close(self) -> None:
        self._file.close()


class _RowChunks:
    """The rows of a part that go to a target, each chunk behind the number of its first row; read repeatedly."""

    def __init__(self, spool: Spool, chunks: Sequence[Chunk]) -> None:
        self._spool, self._chunks = spool, chunks

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        pairs = zip(self._chunks, self._spool, strict=True)
        return ((one.row, table) for one, table in pairs if not (one.errors or one.settles))


Commit: TypeAlias = Callable[[Iterable[tuple[int, Any]]], Sequence[Any]]
"""Commits the rows of a part to a target, and returns the error messages of refused ones (E7); see `FrameTarget`."""


class PartSlot:
    """
    A slot of a staged processor: it enters, announces, or publishes its part, as the spec's role in `staged` says.

    The brokers end its transaction after `timeout_s`; `batch_bytes` is that of `ports.Broker.session`.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        broker: Broker,
        clock: Clock,
        timeout_s: float = math.inf,
        hook: Hook | None = None,
        batch_bytes: int | None = None,
    ) -> None:
        self._spec = spec
        self._broker = broker
        self._clock = clock
        self._timeout_s = timeout_s
        self._interpreter = interpreter_of(spec, broker, clock, hook, batch_bytes)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="recover")
        self._recovered: Future[Any] | None = None
        self._entered = False

    @property
    def task(self) -> Task:
        """The task as it is now; its record says what was announced."""
        return self._interpreter.task

    @property
    def _role(self) -> Publish:
        role = self._spec.staged
        assert isinstance(role, Publish)
        return role

    def recover(self) -> Outcome:
        """Do `Enter` or `Announce`, which are done when the task has recovered."""
        try:
            self._enter()
            return self._outcome(self._totals)
        finally:
            self.close()

    def begin(self) -> None:
        """Begin to recover in the background, because recovery mostly waits (D2)."""
        if self._recovered is None:
            self._recovered = self._pool.submit(self._enter)

    def close(self) -> None:
        """Close the slot; a second call does nothing."""
        self._pool.shutdown()
        if self._entered:
            self._entered = False
            self._interpreter.advance(on.Revoked())

    def publish(
        self,
        spool: Spool,
        coming: Iterable[tuple[int, bytes]],
        chunks: tuple[Chunk, ...],
        target: StagedTarget,
        *,
        in_files: int = 0,
        commit: Commit | None = None,
    ) -> Outcome:
        """
        Do `Publish`: write the part in one transaction, if it is not published yet.

        The spool is filled while the slot recovers, with what comes: (number of the first row, bytes) of each chunk.
        `in_files` is the number of rows that this part counts as delivered without a message, because files have them.
        `commit` commits the rows of this part to a target; then chunks without errors are such rows. Requests to replay
        count as rows without a message, too.
        """
        settled = sum(chunk.rows for chunk in chunks if chunk.settles)
        rows, announced = sum(chunk.rows for chunk in chunks) - settled, sum(chunk.errors for chunk in chunks)
        interpreter = self._interpreter
        try:
            self.begin()
            assert self._recovered
            spool.take(coming, chunks)
            self._recovered.result()
            before, known, began_s = self._totals, self.task.record, math.inf
            while interpreter.task.state is Doing.READY and not interpreter.task.published:
                # Taken before records are made: then this attempt is the pending one.
                prefix = provenance_prefix(self._spec.full_name, self.task.next_sequence, ())
                # Behind the recovery, so by the owner; before the record, which says that it is done.
                refused = commit(_RowChunks(spool, chunks)) if commit else ()
                errors = announced + sum(map(len, refused))
                nils = in_files + settled + (rows - errors if commit else 0)
                good = 0 if commit else rows - errors
                own = (
                    table for one, table in zip(chunks, spool, strict=True) if one.errors or one.settles or not commit
                )
                records = self._records(chain(own, refused), good + errors, target, prefix)
                counts = Totals(good + errors + nils, good, errors, nils, good)
                called = on.Called((), counts) if counts.deliveries else on.Idle(())
                began_s = self._clock.monotonic()
                interpreter.advance(called, records)
            halt = interpreter.task.halt
            if interpreter.task.state is Doing.STOPPED and halt and halt.kind == "fenced":
                late = self._clock.monotonic() - began_s > self._timeout_s
                return self._watch(halt, known, late=late)
            return self._outcome(before)
        finally:
            self.close()

    def _enter(self) -> None:
        self._entered = True
        self._interpreter.advance(on.Assigned(first=False))

    def _records(self, spool: Iterable[Any], rows: int, target: StagedTarget, prefix: bytes) -> Iterator[Outbox]:
        """Make the records, chunk by chunk; each says which of the part's rows it is."""
        spec = self._spec
        index, form = 0, prefix.replace(b"%", b"%%") + b"%d/" + b"%d -" % rows
        for table in spool:
            box = Outbox()
            outputs = table.column("output")
            if outputs[0].as_py() == SETTLED:
                keys, values = (table.column(name).to_pylist() for name in ("key", "value"))
                box.extend_alike(spec.backing, spec.partition, keys, values, 0)
                yield box
                continue
            for number in outputs.unique().to_pylist():
                mine = pc.indices_nonzero(pc.equal(outputs, number))
                own = table if len(mine) == len(table) else table.take(mine)
                output = target.topic(number)
                places = [form % (index + i) for i in mine.to_pylist()]
                given = own.column("headers")
                alone = output.provenance and given.null_count == len(own)
                box.extend(
                    output.topic,
                    spec.partition % output.partitions,
                    own.column("key").to_pylist(),
                    own.column("value").to_pylist(),
                    places if alone else _headers(places, given.to_pylist(), provenance=output.provenance),
                    own.column("timestamp").to_pylist(),
                    alone=alone,
                )
            index += len(table)
            yield box

    def _watch(self, halt: on.Halt, known: Record | None, *, late: bool) -> Outcome:
        """
        D5: this slot is fenced. Succeed when the record shows that the other owner published this part.

        `known` is the newest record before the transaction. If `late`, the brokers may have ended the transaction,
        which the client cannot tell from fencing.
        """
        spec, role = self._spec, self._role
        deadline = self._clock.monotonic() + FENCED_S
        while True:
            record = newest_record(spec, self._broker, self._clock)
            if is_published(role, record) and record:
                return fenced_outcome(Outcome(spec.name, spec.partition, totals=record.totals), record, spec)
            newer = record is not None and record.staged is not None and record.staged.number > role.batch.number
            if newer or self._clock.monotonic() > deadline:
                break
            self._clock.sleep(WATCH_S)
        if late and record == known:
            text = (
                f"its transaction timed out: batch {role.batch.batch} is not published within {self._timeout_s:g} s, "
                f"and no other slot has written: {halt.text}"
            )
            remedy = (
                "raise transaction_timeout_s (brokers allow 900); for later batches also more Spark tasks or a smaller "
                "max_offsets_per_trigger"
            )
        else:
            who = record.writer if record else None
            name = f"{who.name!r} ({who.runtime}, {who.incarnation})" if who else "another process"
            text = f"fenced by {name}, which has not published batch {role.batch.batch}: {halt.text}"
            claimed = Outcome(
                spec.name, spec.partition, kind="claimed", text=text, remedy="stop one of the two drivers"
            )
            return fenced_outcome(claimed, record, spec)
        return Outcome(spec.name, spec.partition, kind="claimed", text=text, remedy=remedy)

    def _outcome(self, before: Totals) -> Outcome:
        task, spec = self.task, self._spec
        totals = self._totals
        counts = Totals(*(b - a for a, b in zip(before, totals, strict=True)))
        halt = task.halt if task.state is Doing.STOPPED else None
        why = (halt.kind, halt.text, halt.remedy) if halt else ()
        return Outcome(spec.name, spec.partition, {}, counts, totals, *why)

    @property
    def _totals(self) -> Totals:
        record = self.task.record
        return record.totals if record else Totals()


def _headers(places: list[bytes], given: list[Any], *, provenance: bool) -> list[Headers]:
    own: list[Headers] = [[(one["key"], one["value"]) for one in each or ()] for each in given]
    return [[(HEADER, place), *each] for place, each in zip(places, own, strict=True)] if provenance else own
