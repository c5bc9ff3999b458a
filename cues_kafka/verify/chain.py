"""Check the backing records of one task from outside: each must follow from the one before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cues_kafka.core.delivery import SETTLED
from cues_kafka.core.records import KEY, Attempt, Record, Start, Totals
from cues_kafka.core.strategies import AT_LEAST_ONCE, AT_MOST_ONCE
from cues_kafka.core.taking import in_flight
from cues_kafka.errors import CodecError
from cues_kafka.ports.log import Position, WireMessage
from cues_kafka.records.history import HISTORY, History, decode_history
from cues_kafka.records.reading import read_record
from cues_kafka.records.requests import what_settled
from cues_kafka.verify.migrated import Migration, migration

PROBLEMS = 10
"""Number of texts that are kept for one task."""


class Chain:
    """
    The backing records of one task, in order (I13).

    Attributes:
        newest: the last record so far.
        begin: positions of the `Start`, if compaction has left it.
        next_offset: offset at which to look for the next record.
        hidden: an open transaction hides what follows.
        history: what operators did to the task (X6).
        moved: sequence of the last record with which an operator moved the task; None: none is there.
        whole: no record was compacted away, so an operator's would be there.
        problems: what is wrong.
        stores_since: by store, the step behind which the records name it first; None: it is not known.
        loose: records of at-least-once are among them, so outcomes may be there several times.
        rows: for a slot of a staged processor and a feed, the rows that each of its records publishes, by sequence.
        settled: what the requests to replay came to that it settled, by the key of their records (Y2).
    """

    def __init__(self, transactional_id: str) -> None:
        self.newest: Record | None = None
        self.begin: tuple[Position, ...] | None = None
        self.next_offset = 0
        self.hidden = False
        self.history = History()
        self.moved: int | None = None
        self.whole = True
        self.problems: list[str] = []
        self.stores_since: dict[str, int | None] = {}
        self.rows: dict[int, int] = {}
        self.settled: dict[bytes, str] = {}
        self.loose = False
        self._transactional_id = transactional_id

    def feed(self, messages: Sequence[WireMessage]) -> None:
        """Take the next messages of the backing partition."""
        for message in messages:
            offset = message.offset()
            key = message.key() or b""
            if key == HISTORY:
                self._told(message)
            elif key.startswith(SETTLED):
                self.settled[key] = what_settled(message.value() or b"").outcome
            elif key == KEY:
                try:
                    record = read_record(message)
                except CodecError as error:
                    self._say(f"the backing record at offset {offset} cannot be read: {error}")
                    continue
                for text in (*self._alone(record), *self._after(record, offset)):
                    self._say(f"backing record {record.sequence} at offset {offset}: {text}")
                if record.staged or record.place:
                    self.rows[record.sequence] = record.batch.deliveries - record.batch.nils  # rows of files have none
                for name, _ in record.stores:
                    known = self.newest is not None and not self.newest.moving_from
                    self.stores_since.setdefault(name, self.newest.step if known and self.newest else None)
                if self.newest is None:
                    self.whole = record.sequence == 0
                elif record.writer.runtime == "tool" and record.strategy == self.newest.strategy:  # else in place (W7)
                    self.moved = record.sequence
                elif record.sequence > self.newest.sequence + 1:
                    self.whole = False
                self.loose = self.loose or record.strategy == AT_LEAST_ONCE
                self.newest = record
                self.next_offset = offset + 1

    def _told(self, message: WireMessage) -> None:
        try:
            self.history = decode_history(message.value())
        except CodecError as error:
            self._say(f"the history of its moves at offset {message.offset()} cannot be read: {error}")
            return
        if self.begin is None:
            self.begin = self.history.began
        if moves := [move.sequence for move in self.history.moves if not move.name]:
            self.moved = max(moves[-1], self.moved or 0)

    @property
    def migrations(self) -> list[Migration]:
        """The moves that gave the task other inputs."""
        return [made for move in self.history.moves if (made := migration(move)) is not None]

    @property
    def explained(self) -> str:
        """What may have made anomalies of this task, and what to do then; empty: no operator has moved it."""
        if self.moved is None and self.whole:
            return ""
        begin = (
            "an operator may have moved this task, by reset, accept-loss, migrate or rename"
            if self.moved is None
            else f"an operator moved this task at backing record {self.moved}, by reset, accept-loss, migrate or rename"
        )
        return (
            f"{begin}. Messages that came again then count as duplicated, and skipped ones as lost, and totals differ, "
            "for as long as the topics hold them. If the lines above are about these, nothing has to be repaired. A "
            "processor with a new name= has a count of its own"
        )

    def _say(self, text: str) -> None:
        if len(self.problems) < PROBLEMS:
            self.problems.append(text)

    def _alone(self, record: Record) -> Iterator[str]:
        for name, counts in (("totals", record.totals), ("counts of its batch", record.batch)):
            if counts.deliveries != counts.outputs + counts.errors + counts.nils or counts.messages < counts.outputs:
                yield f"its {name} do not add up: {_show(counts)}"
        totals = record.totals
        steps = totals.taken if record.strategy == AT_MOST_ONCE else totals.deliveries + totals.dropped
        if record.step != steps:
            yield f"it says step {record.step}, but its totals say {steps} deliveries"
        if record.strategy == AT_MOST_ONCE and in_flight(record) < 0:
            yield f"its totals settle and drop more steps than they take: {_show(record.totals)}"
        if record.writer.transactional_id != self._transactional_id:
            yield f"{record.writer.transactional_id!r} wrote it, which does not hold this task"

    def _after(self, record: Record, offset: int) -> Iterator[str]:
        before = self.newest
        if before is None:
            if isinstance(record, Start) and not record.moving_from:  # else it began under its former name (X5)
                self.begin = record.positions
            return
        if AT_LEAST_ONCE in (before.strategy, record.strategy):
            return  # nothing fences its writers, so an older record may follow a newer one (W5)
        yield from _staged_after(before, record)
        gap = record.sequence - before.sequence
        # A record and its marker take two offsets, so compaction may have made a wider gap. A tool's record may skip
        # sequences (X2).
        skips = record.writer.runtime != "tool" and offset - self.next_offset + 1 < 2 * gap
        if gap < 1 or skips:
            yield f"it follows record {before.sequence}: records are missing or repeated"
        if isinstance(record, Start):
            yield "it is a second beginning"
        for old, new in zip(before.positions, record.positions, strict=False):
            back = new.offset < old.offset and record.strategy != AT_MOST_ONCE  # steps may be given back (W2)
            if old[:3] == new[:3] and back:
                yield f"its position on {new.topic!r} goes back from {old.offset} to {new.offset}"
        if gap == 1 and record.totals != before.totals.plus(record.batch):
            yield f"its totals are not those before it and its batch: {_show(record.totals)}"
        taken = record.batch.taken if record.strategy == AT_MOST_ONCE else record.batch.deliveries
        if gap == 1 and record.step != before.step + (taken if isinstance(record, Attempt) else 0):
            yield f"it says step {record.step} after step {before.step}"


def _staged_after(before: Record, record: Record) -> Iterator[str]:
    """T3: publication numbers grow, and each part is published once under a number."""
    was, now = before.staged, record.staged
    if was is None or now is None:
        if was is not now:
            yield "records of a staged processor and others are mixed"
        return
    if now.parts != was.parts:
        yield f"it has {now.parts} parts, the record before it {was.parts}"
    if now.number < was.number:
        yield f"its publication number goes back from {was.number} to {now.number}"
    if isinstance(before, Attempt) and now.number == was.number:
        yield f"publication {now.number} is published a second time"


def _show(counts: Totals) -> str:
    return ", ".join(f"{value} {name}" for name, value in counts._asdict().items())
