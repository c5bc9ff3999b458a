"""What staged worlds are made of besides brokers: Spark's drivers and checkpoints, and what records must be (T1 to T4).

Workers are places: `driver` is one of Spark's drivers, `tasks` has the Spark tasks that the driver of the same number
waits for, by part, and `lost` those whose driver is gone, or has taken them for lost; they go on all the same.
"""

from __future__ import annotations

from typing import NamedTuple

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.records import Attempt, Extent, Record, Snapshot, Staged, Writer
from cues_kafka.core.spec import Spec
from cues_kafka.core.staged import Role
from tests.proof.model.machine import Facts, Key, Machine, Register
from tests.proof.model.states import COMMITTING, ONGOING, Delivered, Outcome, Part, Setting, State, shown
from tests.proof.model.world import World

OFF, ENTERING, READY, ANNOUNCING, PUBLISHING, PUBLISHED, STOPPED, REFUSED = range(8)
"""What a driver is doing. `STOPPED` and `REFUSED`: it ended with an error, and is started again while it is current."""

WAITING, OUT, FAILED = range(3)
"""What a driver heard of a part."""


class Checkpoint(NamedTuple):
    """Of one query: where its batch 0 began, where each batch that was planned ends, and how many are committed."""

    begins: int = 0
    ends: tuple[int, ...] = ()
    committed: int = 0

    def extent(self, batch: int) -> tuple[int, int]:
        """Of a batch that was planned."""
        return self.ends[batch - 1] if batch else self.begins, self.ends[batch]


class Driver(NamedTuple):
    """
    One of Spark's drivers.

    Attributes:
        doing: see above.
        query: number of its checkpoint.
        next: number of its next batch.
        begins: where batch 0 would begin, by the newest record that it saw when it started.
        batch: number of the batch that it has staged, then of the one that was announced; -1: none.
        told: what it heard of each part.
        settled: the publication that it saw in every part; -1: none.
    """

    doing: int = OFF
    query: int = 0
    next: int = 0
    begins: int = 0
    batch: int = -1
    told: tuple[int, ...] = ()
    settled: int = -1


class Spark(NamedTuple):
    """
    What is neither the brokers' nor a task's.

    Attributes:
        drivers: by place.
        current: the one that was started last; what another one does is a zombie's doing.
        checkpoints: by query.
        saved: the newest state of a checkpoint in whose place an old copy was put.
        dropped: batches whose files were taken away while they might still be announced.
    """

    drivers: tuple[Driver, ...]
    current: int = 0
    checkpoints: tuple[Checkpoint, ...] = (Checkpoint(), Checkpoint())
    saved: Checkpoint | None = None
    dropped: tuple[int, ...] = ()


class StagedMachine(Machine):
    """Slots without inputs of their own: what concerns no broker is answered at once."""

    def at_once(self, effect: do.Effect, key: Key) -> on.Event | None:
        """See `Machine`. A death between two such effects cannot be told from one before both."""
        match effect:
            case do.FetchOffsets():
                return on.OffsetsFetched({})
            case do.Begin() | do.Discard() | do.SendOffsets(extents=()):
                return on.Done()
        return super().at_once(effect, key)


def extent_of(batch: Staged) -> tuple[int, int]:
    """Where a batch begins and ends in the input."""
    [one] = batch.extents
    return int(one.start), int(one.end)


class Staging(World):
    """A staged setting, the numbers that its states are made of, and what T1 to T4 ask of what is committed."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.machine = StagedMachine(Facts((), (), ()))
        self.batches: Register[Staged] = Register()
        self._drivers = setting.workers.count("driver")
        self._lost = 2 * self._drivers
        self._end = len(setting.inputs[0])

    def first(self) -> State:
        """No driver was started, nothing is written."""
        return self._put_spark(super().first(), Spark((Driver(),) * self._drivers))

    def spark(self, s: State) -> Spark:
        """Drivers and checkpoints; they are where other worlds have the group."""
        return self.values.items[s[self._group]]  # type: ignore[return-value]

    def _put_spark(self, s: State, spark: Spark) -> State:
        return (*s[: self._group], self.values.number(spark), *s[self._group + 1 :])

    def _put_driver(self, s: State, d: int, driver: Driver) -> State:
        spark = self.spark(s)
        drivers = (*spark.drivers[:d], driver, *spark.drivers[d + 1 :])
        return self._put_spark(s, spark._replace(drivers=drivers))

    def _wrong(self, s: State, p: int, what: str) -> State:
        part = self.part(s, p)
        return self._put_part(s, p, part._replace(wrong=part.wrong or what)) if what else s

    def _slot(self, p: int, role: Role) -> Spec:
        name = f"g.p.{p}"
        return Spec(
            graph="g",
            processor="p",
            partition=p,
            inputs=(),
            transactional_id=name,
            group="g.p",
            backing="g.p.backing",
            quarantine_after=None,
            width=self.setting.partitions,
            slot=True,
            staged=role,
            writer=Writer(name, "spark", "application", "query run"),
        )

    # Batches and their files.

    def _staged(self, query: int, batch: int, extent: tuple[int, int], attempt: int) -> Staged:
        """T1. The checksum stands for what is in the files: the rows of this attempt and of no other."""
        start, end = map(str, extent)
        return Staged(
            query=f"q{query}",
            batch=batch,
            attempt=str(attempt),
            checksum=f"{query} {attempt} {start} {end}".encode(),
            parts=self.setting.partitions,
            extents=(Extent("a", b"a" * 16, start, end),),
        )

    def rows(self, batch: Staged, p: int) -> Delivered:
        """What the files of a batch hold for a part: a row for each message that leaves one there."""
        if not batch.checksum:
            return ()
        query, attempt, start, end = map(int, batch.checksum.split())
        offsets = (o for o in range(start, end) if self.setting.inputs[p][o] == "o")
        return tuple((((offset, p), (query, attempt)), "o") for offset in offsets)

    # What is committed.

    def decided(self, s: State, p: int) -> Record | None:
        """The newest record that is committed, whether or not its marker is written."""
        part = self.part(s, p)
        sure = [entry >> 1 for entry in part.log if entry >= 0 and (entry & 1 or part.phase == COMMITTING)]
        return self.machine.record(sure[-1]) if sure else None

    def whole(self, s: State, number: int) -> bool:
        """Whether a publication is in all parts."""
        records = [self.decided(s, p) for p in range(self.setting.partitions)]
        out = all(r is not None and r.staged is not None and r.staged.number >= number for r in records)
        lead = records[0]
        return out and lead is not None and (isinstance(lead, Attempt) or lead.sequence > number)

    def _lives(self, s: State, p: int, record: Record) -> bool:
        """Deaths are not counted here (Q1)."""
        return True

    def _decide(self, s: State, p: int) -> Part:
        part = super()._decide(s, p)
        for entry in part.log:
            if entry >= 0 and not entry & 1:
                record = self.machine.record(entry >> 1)
                wrong = self._announced(s, record) if isinstance(record, Snapshot) else self._published(s, p, record)
                part = part._replace(wrong=part.wrong or wrong)
        return part

    def _chain(self, before: Record | None, record: Record, part: Part, killed: int) -> str:
        """I13, T4: what each record must be to the one before it."""
        starts = (extent_of(record.staged)[0],) if isinstance(record, Snapshot) and record.staged else ()
        if record.sequence != (before.sequence + 1 if before else 0):
            return f"I13: sequence {record.sequence} follows {before.sequence if before else 'nothing'}"
        if record.step != (before.step if before else 0) + record.batch.deliveries:
            return f"I13: step {record.step} of {shown(record)} does not follow from the record before it"
        if part.pending != starts:
            return f"I2: offsets {part.pending} beside {shown(record)}"
        return ""

    def _announced(self, s: State, record: Record) -> str:
        """T2: over nothing, or over a batch that is wholly published, and exactly from its end on."""
        before, mine = self.newest(self.part(s, 0)), record.staged
        was = before.staged if before else None
        assert mine
        if mine.number != record.sequence:
            return f"T3: {shown(record)} is not numbered as its record"
        if any(self._same_attempt(self.batches.items[number], mine) for number in self.spark(s).dropped):
            return f"T1: the files of {shown(record)} were taken away"
        if extent_of(mine)[0] != (extent_of(was)[1] if was else 0):
            return f"I3: {shown(record)} begins at {extent_of(mine)[0]}, not where the last one ended"
        if was is None:
            return ""
        if not self.whole(s, was.number):
            return f"T2: {shown(record)} was announced over a batch that is not wholly published"
        if was.query != mine.query:
            return "" if self.setting.stateless else f"T2: {shown(record)} has not the state of {was.query}"
        return "" if mine.batch == was.batch + 1 else f"I1: {shown(record)} follows batch {was.batch}"

    def _same_attempt(self, one: Staged, other: Staged) -> bool:
        return (one.query, one.batch, one.attempt) == (other.query, other.batch, other.attempt)

    def _published(self, s: State, p: int, record: Record) -> str:
        """T3: once, of the batch that is announced, and just what was announced of it."""
        before, mine = self.newest(self.part(s, p)), record.staged
        lead = self.decided(s, 0) if p else before
        now = lead.staged if lead else None
        if mine is None or now is None:
            return f"T3: {shown(record)} is of no announced batch"
        if mine.number != now.number:
            return f"T3: {shown(record)} was published while publication {now.number} is announced"
        if before and not isinstance(before, Snapshot) and before.staged and before.staged.number >= mine.number:
            return f"I1: {shown(record)} was published there already"
        if not self._same_attempt(mine, now) or mine.checksum != now.checksum:
            return f"T3: {shown(record)} is not what was announced, attempt {now.attempt}"
        rows = tuple((outcome.step, outcome.kind) for outcome in self.part(s, p).loose)
        if rows != self.rows(now, p):
            return f"I8: {shown(record)} was committed with rows {rows}"
        return ""


def judge(world: Staging, part: Part) -> str:
    """What is wrong with one part; empty: nothing. The rest is seen when it happens, above."""
    if part.wrong or part.phase > ONGOING:
        return part.wrong
    record = world.newest(part)
    if record is None or record.staged is None:
        return "I2: rows or offsets without a record" if part.outputs or part.held else ""
    if record.staged.part == 0 and part.held != (extent_of(record.staged)[0],):
        return f"T4: group offsets {part.held} beside {shown(record)}"
    if record.totals.deliveries != len(part.outputs) or record.totals.outputs != len(part.outputs):
        return f"I2, I3: {len(part.outputs)} rows are out, the record counts {record.totals}"
    return _in_order(world, part.outputs)


def _in_order(world: Staging, outputs: tuple[Outcome, ...]) -> str:
    """I1, I3, I4: the rows of the first messages, each once, in order, whatever attempt they are of."""
    places = [outcome.step[0] for outcome in outputs]
    if places:
        p = places[0][1]
        due = [(offset, p) for offset, kind in enumerate(world.setting.inputs[p]) if kind == "o"]
        if places != due[: len(places)]:
            return f"I1, I3, I4: of part {p}, the rows {places} are out"
    return ""
