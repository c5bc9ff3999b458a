"""A world whose user code writes into a target, such as a database, in one transaction with the attempt (E1).

Each step acts on the target once, unless it fails. A batch goes so: lock the task's row, compare it with the record,
call user code; commit the row, the outbox and what user code did; then Kafka's transaction. The first three are one
transition, because no other process sees a difference between a death behind the lock and one behind the call: both
ways the database rolls back. A death, a rebalance or a fault comes between any two of the others.

What may go wrong at the target, each at the price of a lost request: it does not answer, or refuses (an outage, a
deadlock, a full disk); it commits and the answer is lost; the commit comes late. And at the price of a death: the
process is gone, and the database still keeps its connection, with the lock, and perhaps with a commit on its way.
The next owner ends such a connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from cues_kafka.core import effects as do
from cues_kafka.core.records import Record, TargetRow, Totals
from cues_kafka.core.task import Task
from cues_kafka.core.writing import owner_of, row_of
from tests.proof.model import stores
from tests.proof.model.states import (
    CRASH,
    IDLE,
    MET,
    MOVE,
    NOT_OURS,
    REMEDIED,
    Delivered,
    Lane,
    Moves,
    Part,
    Setting,
    State,
    Step,
    Turn,
)
from tests.proof.model.timers import TimerWorld
from tests.proof.model.world import World

ACTS = stores.KEEPS
"""How a step ends that acts on the target; one that fails is rolled back to its savepoint."""


class Contents(NamedTuple):
    """
    What a database has of a task, as of one commit.

    Attributes:
        row: see `TargetRow`; None: there is none yet.
        outbox: the steps of the row's attempt, with what becomes of them in Kafka.
        value: of the store behind the row's attempt, in worlds with `Setting.stores`.
        named: sequence in the provenance of the outbox's records; -1: it is made when they are published.
        applied: steps that acted, in order, and how they ended.
    """

    row: TargetRow | None = None
    outbox: Delivered = ()
    value: Any = ()
    named: int = -1
    applied: Delivered = ()


class Open(NamedTuple):
    """A transaction that no process waits for: it holds the row, and may still commit this; None: it cannot."""

    commits: Contents | None


class Database(NamedTuple):
    """
    The target of one task.

    Attributes:
        now: what is committed.
        former: the same before the newest commit, in worlds with `Setting.restores`: there is a backup of it.
        open: see `Open`; None: there is none.
        restored: an old backup was put in the place of the newest state: see `Part.reset`.
        lost: what was there before.
        seen: what `tailed_outbox` keeps of the first calls.
    """

    now: Contents = Contents()
    former: Contents = Contents()
    open: Open | None = None
    restored: int = 0
    lost: Contents | None = None
    seen: Any = ()


class Batch(NamedTuple):
    """
    A batch between the calls of user code and the database's commit. It holds the row.

    Attributes:
        done: the steps, and what became of them.
        ends: where they reach up to.
        halt: why not more of them.
        cut: whether another process has ended its connection.
        ahead: whether it was called ahead of Kafka's commit, see `ahead`.
        kept: how many of its steps are committed already, see `parts`.
    """

    done: Delivered
    ends: tuple[int, ...]
    halt: str
    cut: bool = False
    ahead: bool = False
    kept: int = 0


class Published(NamedTuple):
    """What a lane has read from the outbox, until Kafka's transaction ends."""

    value: Any
    named: int


EMPTY = Database()


class OutboxWorld(World):
    """A setting with a target, and everything that can happen in it."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._does[do.AskTarget] = self._ask

    def database(self, s: State, p: int) -> Database:
        """The target of task `p`."""
        return self.part(s, p).target or EMPTY

    def _put_database(self, s: State, p: int, database: Database) -> State:
        return self._put_part(s, p, self.part(s, p)._replace(target=database))

    def _row(self, s: State, p: int) -> TargetRow:
        return self.database(s, p).now.row or TargetRow(base=0, step=0, owner=-1)

    # What comes from outside.

    def _stages(self, s: State, out: Moves) -> Iterator[None]:
        """See `World`."""
        if self.setting.restores:
            self._restoring(s, out)
        yield from super()._stages(s, out)
        for p in range(self.setting.partitions):
            database = self.database(s, p)
            if database.open and database.open.commits:
                after = self._committed(s, p, database, database.open.commits)
                out.append(((f"database p{p}", "gets a commit that was late"), False, after))
        yield

    def _restoring(self, s: State, out: Moves) -> None:
        """An operator restores an old backup, or a fail-over loses commits; an operator restores the newest state."""
        for p, part in enumerate(self.parts(s)):
            database = self.database(s, p)
            if database.restored in (NOT_OURS, MET):
                assert database.lost
                newest = database._replace(now=database.lost, restored=REMEDIED, lost=None)
                after = self._put_database(s, p, newest)
                out.append((("operator", f"restores the newest state of p{p}"), True, after))
            elif not database.restored and part.phase == IDLE and self._caught_up(s, p):
                for backup in {Contents(), database.former}:
                    spent = self._spend(s, MOVE)
                    if spent is not None and backup != database.now:
                        cut = self._cut(spent, p, -1)
                        old = Database(now=backup, former=backup, restored=NOT_OURS, lost=database.now)
                        row = backup.row.step if backup.row else "none"
                        out.append(
                            (
                                (f"database p{p}", f"is restored: its row is {row}"),
                                False,
                                self._put_database(cut, p, old),
                            )
                        )

    def _caught_up(self, s: State, p: int) -> bool:
        """Whether Kafka has what the database has. Else what is lost was never seen, and is simply done again."""
        record = self.newest(self.part(s, p))
        return record is not None and record.step == self._row(s, p).step > 0

    def _taken(self, s: State, p: int, w: int) -> State:
        s = super()._taken(s, p, w)
        database = self.database(s, p)
        return self._put_database(s, p, database._replace(restored=MET)) if database.restored == NOT_OURS else s

    # The lock of the row.

    def _holder(self, s: State, p: int, w: int) -> str:
        """Who else holds the row; empty: no connection does."""
        if self.database(s, p).open:
            return "a connection without a process"
        for other, worker in enumerate(self.workers(s)):
            lane = worker.lanes[p]
            if other != w and lane is not None and isinstance(lane.own, Batch) and not lane.own.cut:
                return self._name(other, p)
        return ""

    def _cut(self, s: State, p: int, w: int) -> State:
        """End the connections that hold the row, but for that of `w`."""
        for other, worker in enumerate(self.workers(s)):
            lane = worker.lanes[p]
            if other != w and lane is not None and isinstance(lane.own, Batch):
                s = self._put_lane(s, other, p, lane._replace(own=lane.own._replace(cut=True)))
        database = self.database(s, p)
        return self._put_database(s, p, database._replace(open=None)) if database.open else s

    def _waits(self, turn: Turn) -> bool:
        """Whether the row is locked: then what holds it is ended (I5), at a time-out of the lock."""
        s, w, p, _, owner, out = turn
        holder = self._holder(s, p, w)
        if holder:
            out.append(((self._name(w, p), f"ends {holder}, which holds the row"), owner, self._cut(s, p, w)))
        return bool(holder)

    # Recovery.

    def _waits_to_ask(self, turn: Turn) -> bool:
        """What is being committed now must be seen, or must not happen any more."""
        return self._waits(turn)

    def _ask(self, turn: Turn, ask: do.AskTarget) -> None:
        s, w, p, lane, owner, out = turn
        self._lose(s, w, p, lane, "asks the target", ("no answer", s), out=out)
        if self._waits_to_ask(turn):
            return
        now = self.database(s, p).now
        if self._row(s, p).step > ask.step:
            lane = lane._replace(carried=now.outbox, own=Published(now.value, now.named))
        what = f"steps {now.row.base} to {now.row.step}" if now.row else "nothing"
        told = self._tell(self._fenced(s, p, ask), w, p, lane, "asked", now.row)
        out.append(((self._name(w, p), f"asks the target, which has {what}"), owner, told))

    def _fenced(self, s: State, p: int, ask: do.AskTarget) -> State:
        """
        The row gets the owner's number: former owners cannot move it any more.

        Only where it stands at the record's step, or is the attempt behind it.
        """
        row, database = self._row(s, p), self.database(s, p)
        if ask.step not in (row.step, row.base):
            return s
        row = replace(row, owner=max(row.owner, ask.owner))
        return self._put_database(s, p, database._replace(now=database.now._replace(row=row)))

    def _tell(self, s: State, w: int, p: int, lane: Lane, *key: Any) -> State:
        """What a lane keeps of the target ends with the batch, or with the transaction that publishes it."""
        if key[0] not in ("asked", "done", "flushed"):
            lane = lane._replace(own=None)
        s = super()._tell(s, w, p, lane, *key)
        after = self.worker(s, w).lanes[p]
        if after is not None and after.own is not None and not after.carried:
            s = self._put_lane(s, w, p, after._replace(own=None))
        return s

    def _value(self, p: int, lane: Lane) -> Any:
        return lane.own.value if isinstance(lane.own, Published) else super()._value(p, lane)

    def _flush(self, turn: Turn, effect: Any) -> None:
        s, _, p, lane, *_ = turn
        record = self.task(lane).pending
        assert record
        if isinstance(lane.own, Published) and lane.own.named not in (-1, record.sequence):
            wrong = f"O8: provenance names attempt {lane.own.named}, attempt {record.sequence} has it"
            turn = turn._replace(s=self._put_part(s, p, self.part(s, p)._replace(wrong=wrong)))
        super()._flush(turn, effect)

    # A batch.

    def _await(self, turn: Turn, effect: Any) -> None:
        if not self._goes_on(turn):
            super()._await(turn, effect)

    def _call(self, turn: Turn, call: do.Call) -> None:
        if not self._goes_on(turn):
            super()._call(turn, call)

    def _quarantine(self, turn: Turn, quarantine: do.Quarantine) -> None:
        if not self._goes_on(turn) and self._begins(turn):
            super()._quarantine(turn, quarantine)

    def _run(self, turn: Turn, steps: tuple[Step, ...]) -> None:
        if self._begins(turn):
            super()._run(turn, steps)

    def _begins(self, turn: Turn) -> bool:
        """Lock the row, and compare it with the record; if it is another one, the batch is void."""
        s, w, p, lane, owner, out = turn
        if self._waits(turn):
            return False
        task, row = self.task(lane), self._row(s, p)
        if not self._fits_row(task, row):
            after = self._failed(s, w, p, lane, "the target is elsewhere")
            out.append(((self._name(w, p), f"finds row {row.step} of owner {row.owner}"), owner, after))
            return False
        return True

    def _fits_row(self, task: Task, row: TargetRow) -> bool:
        assert task.record
        return row.step == task.record.step and row.owner <= owner_of(task)

    def _after_calls(self, turn: Turn, ends: tuple[int, ...], done: Delivered, halt: str) -> State:
        if not self._goes_through(done):
            return super()._after_calls(turn, ends, done, halt)
        return self._put_lane(turn.s, turn.w, turn.p, turn.lane._replace(own=Batch(done, ends, halt)))

    def _goes_through(self, done: Delivered) -> bool:
        """Whether these steps need the database's commit: all do, whatever became of them."""
        return bool(done)

    def _goes_on(self, turn: Turn) -> bool:
        """The database's commit, if a batch waits for it."""
        s, w, p, lane, owner, out = turn
        batch, who, database = lane.own, self._name(w, p), self.database(s, p)
        if not isinstance(batch, Batch):
            return False
        if batch.cut:
            out.append(((who, "target: its connection was ended"), owner, self._failed(s, w, p, lane, "cut")))
            return True
        written = self._written(s, p, lane, batch)
        done = self._committed(s, p, database, written)
        behind = turn._replace(s=done, lane=lane._replace(own=None))
        after = super()._after_calls(behind, batch.ends, batch.done, batch.halt)
        assert written.row
        out.append(((who, f"target: commits steps {written.row.base} to {written.row.step}"), owner, after))
        late = self._put_database(s, p, database._replace(open=Open(written)))
        variants = [("refuses", s), ("has committed, no answer", done), ("will get the commit late", late)]
        self._lose(s, w, p, lane, "target", *variants, out=out)
        return True

    def _written(self, s: State, p: int, lane: Lane, batch: Batch) -> Contents:
        """What the database has when this batch is committed."""
        task, now = self.task(lane), self.database(s, p).now
        row = row_of(task, self.machine.facts.positions(batch.ends), Totals(*self._counts(batch.done)))
        acted = tuple((step, kind) for step, kind in batch.done[batch.kept :] if self._acts(kind))
        value = self._value(p, lane._replace(carried=batch.done, own=None)) if self.setting.stores else ()
        return Contents(row, batch.done, value, self._named(task), now.applied + acted)

    def _acts(self, kind: str) -> bool:
        """Whether what a step wrote is kept; that of a failed one is rolled back."""
        return kind in ACTS

    def _named(self, _: Task) -> int:
        """O8: rows of the outbox are stored without the sequence of an attempt."""
        return -1

    def _committed(self, s: State, p: int, database: Database, written: Contents) -> State:
        former = database.now if self.setting.restores else Contents()
        s = self._put_database(s, p, database._replace(now=written, former=former, open=None))
        if database.restored in (NOT_OURS, MET):
            wrong = "E1: a batch is applied to a database that lost commits"
            s = self._put_part(s, p, self.part(s, p)._replace(wrong=wrong))
        return s

    # Deaths and rebalances.

    def _lane(self, s: State, w: int, p: int, lane: Lane, out: Moves) -> None:
        """A task that is revoked waits for no call (A3), and for no commit of its target either."""
        known = len(out)
        super()._lane(s, w, p, lane, out)
        if not isinstance(lane.own, Batch) or lane.own.cut or not self._commits(lane):
            return
        for (who, what), _, after in out[known:]:
            if what == "is revoked":
                late = Open(self._written(s, p, lane, lane.own))
                left = self._put_database(after, p, self.database(after, p)._replace(open=late))
                out.append(((who, "is revoked while the target commits"), False, left))

    def _dying(self, s: State, w: int, out: Moves) -> None:
        """A death frees the row, or the database does not notice it; then a commit may be on its way."""
        super()._dying(s, w, out)
        for p, lane in enumerate(self.worker(s, w).lanes):
            if lane is None or not isinstance(lane.own, Batch) or lane.own.cut:
                continue
            left = [("lock", None), *([("commit", self._written(s, p, lane, lane.own))] if self._commits(lane) else [])]
            for what, commits in left:
                spent = self._spend(s, CRASH)
                assert spent
                dead = self._dead(spent, w)
                after = self._put_database(dead, p, self.database(dead, p)._replace(open=Open(commits)))
                out.append(((f"w{w}", f"dies, and leaves a {what} at the target"), False, after))

    def _commits(self, _: Lane) -> bool:
        """Whether a batch that is called is committed next; see `ahead`."""
        return True

    # Moves.

    def _begun_anew(self, part: Part, record: Record) -> Part:
        """X2: what acted before counts no more; a batch that acts from now on is an attempt of the move's successor."""
        if part.target:
            part = part._replace(target=part.target._replace(now=part.target.now._replace(applied=())))
        return super()._begun_anew(part, record)

    def _decide(self, s: State, p: int) -> Part:
        part = super()._decide(s, p)
        if self.database(s, p).restored == MET and not part.wrong:
            return part._replace(wrong="I12: a recovery wrote although the target lost commits")
        return part


class TimedOutboxWorld(OutboxWorld, TimerWorld):
    """A setting with a target and timers."""


def judged(world: OutboxWorld, part: Part, record: Record, outcomes: Delivered, below: list[Step]) -> str:
    """
    What is wrong with the target beside the newest record; empty: nothing.

    Args:
        world: the world.
        part: the task.
        record: the newest one.
        outcomes: steps with committed outcomes since the task began, or was moved, and what became of them.
        below: steps of messages that lie below the record's positions, and have no outcome.
    """
    database: Database = part.target or EMPTY
    now, step = database.now, record.step
    counted = Counter(acted for acted, _ in now.applied)
    if twice := [acted for acted, times in counted.items() if times > 1]:
        return f"E1: {twice[0]} acted twice: {now.applied}"
    if database.restored in (NOT_OURS, MET):
        return ""  # what is lost is not the task's doing; it must refuse, which is seen elsewhere
    row = now.row or TargetRow(base=0, step=0)
    if row.step < step:
        return f"E1: the target stands at step {row.step}, the record at {step}"
    acted = dict(now.applied)
    for one, kind in outcomes:
        expected = kind if kind in ACTS else None
        if acted.pop(one, None) != expected:
            return f"E1: {one} acted as {dict(now.applied).get(one)}, its outcome is {kind}"
    for one in below:
        if acted.pop(one, None) != "n":
            return f"E1, I8: {one} acted as {dict(now.applied).get(one)}, its outcome is nil"
    ahead = {one: kind for one, kind in now.outbox if kind in ACTS} if row.step > step else {}
    if acted != ahead:
        return f"E1: {acted} acted, the target is ahead with {ahead}"
    return ""
