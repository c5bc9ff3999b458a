"""What workers do in a world: each effect of a task as a transition, in the place of `task.interpreter`.

See `world` for what stands for what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, product
from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.core import hashing, turns
from cues_kafka.core.events import Halt
from cues_kafka.core.moves import MOVED
from cues_kafka.core.records import Attempt, Choice, Snapshot
from cues_kafka.core.task import Doing, Due, Task
from cues_kafka.ports.log import Coordinates
from tests.proof.model import stores
from tests.proof.model.cluster import Cluster
from tests.proof.model.machine import Key, offsets_of
from tests.proof.model.states import (
    COMMITTING,
    CRASH,
    HOLE,
    IDLE,
    MEANS,
    MOVE,
    NET,
    ONGOING,
    PAST_GATE,
    Delivered,
    Lane,
    Moves,
    Outcome,
    Part,
    Setting,
    State,
    Step,
    Turn,
    Worker,
    counts,
    newest_below,
    outcomes_of,
    put,
    shown,
    unowned,
)


class Lanes(Cluster):
    """Tasks at work."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._does: dict[type, Callable[..., None]] = {
            do.Init: self._init,
            do.FetchOffsets: self._fetch_offsets,
            do.FetchWatermark: self._fetch_watermark,
            do.ReadNewest: self._read_newest,
            do.FetchSibling: self._fetch_sibling,
            do.AssignReader: self._assign,
            do.Begin: self._go_on,
            do.Discard: self._go_on,
            do.SendOffsets: self._send_offsets,
            do.Flush: self._flush,
            do.Commit: self._commit,
            do.Await: self._await,
            do.Call: self._call,
            do.Quarantine: self._quarantine,
            do.Stop: self._stopped,
        }

    def _name(self, w: int, p: int) -> str:
        """Of a lane, for people."""
        return f"w{w}/p{p}"

    def _tell(self, s: State, w: int, p: int, lane: Lane, *key: Any) -> State:
        """An event for a lane; what it waits for next shows in the new state."""
        task, number = self.machine.tell(lane.task, key)
        effect = self.machine.effects.items[number]
        if isinstance(effect, do.Release):
            return self._put_lane(self._killed(s, p) if key[0] != "revoked" and self._unsaid(s, p) else s, w, p, None)
        ended = isinstance(effect, do.Discard | do.Stop)
        if ended and self._again(lane, effect, key):
            s = self._put_part(s, p, self.part(s, p)._replace(wrong="D5: a fenced slot goes on"))
        carried = () if ended else lane.carried
        alone = lane.alone and not self._settled(task)
        new = Lane(task, number, lane.session and not ended, carried, lane.said, alone=alone)
        new = new._replace(store=lane.store, own=lane.own)
        kept = new if ended else new._replace(turn=lane.turn, fetched=lane.fetched)
        return self._put_lane(s, w, p, kept)

    def _settled(self, task: int) -> bool:
        """Whether a task that is alone in its process need not be so any longer."""
        return self.machine.tasks.items[task].settled

    def _unsaid(self, s: State, p: int) -> bool:
        """Whether a task is given up under a snapshot without `left`: it could not be written; it counts as a death."""
        record = self._last(self.part(s, p))
        return isinstance(record, Snapshot) and not record.left

    def _again(self, lane: Lane, effect: Any, key: Key) -> bool:
        fenced = key[0] == "failed" and key[2]
        return fenced and self.task(lane).spec.slot and not isinstance(effect, do.Stop)

    # Slots of Spark.

    def _launching(self, s: State, out: Moves) -> None:
        """Spark starts a slot whose range is not delivered: the first at any moment, a further one when none lives."""
        if "slot" not in self.setting.workers:
            return
        for p, part in enumerate(self.parts(s)):
            if self.finished(p, part):
                continue
            lives = any(worker.lanes[p] is not None for worker in self.workers(s))
            calm = not lives and not any(self.group(s).members)
            for w, kind in enumerate(self.setting.workers):
                worker = self.worker(s, w)
                if kind == "slot" and worker.lanes[p] is None:
                    after = s if calm else self._spend(s, MOVE)
                    if after is not None:
                        after = self._put_lane(after, w, p, self._new_lane(w, worker.deaths, p))
                        out.append(((f"w{w}", f"is started as a slot for p{p}"), calm, after))

    # Lanes.

    def _lane(self, s: State, w: int, p: int, lane: Lane, out: Moves) -> None:
        if self.setting.workers[w] == "tool":
            self._tool(s, w, p, lane, out)
            return
        group, slot = self.group(s), self.setting.workers[w] == "slot"
        owner = slot or (group.owners[p] == w and group.members[w])
        revoked = owner and not slot and group.revoking[p] and not lane.said
        if revoked and self.task(lane).state not in PAST_GATE:
            told, so_far = self._so_far(lane._replace(said=True))
            out.append(((self._name(w, p), "is revoked"), True, self._tell(s, w, p, told, "revoked", *so_far)))
            return
        if lane.effect < 0:
            first = not slot or self.worker(s, w).deaths > 0
            out.append(((self._name(w, p), "begins to recover"), owner, self._tell(s, w, p, lane, "assigned", first)))
            return
        effect = self.machine.effects.items[lane.effect]
        if not owner and isinstance(effect, do.Discard | do.Stop):
            return  # a bound: a zombie that failed does nothing more before it hears that it is one
        self._does[type(effect)](Turn(s, w, p, lane, owner, out), effect)

    def _so_far(self, lane: Lane) -> tuple[Lane, Key]:
        """What the worker says of a call that is under way when it is told to give the task up."""
        return lane, ()

    def _tool(self, s: State, w: int, p: int, lane: Lane, out: Moves) -> None:
        """X2: one task after the other; a worker that joins the group ends the tool before its next transaction."""
        if any(before is not None for before in self.worker(s, w).lanes[:p]):
            return
        if lane.effect < 0:
            out.append(((self._name(w, p), "begins to move"), True, self._tell(s, w, p, lane, "assigned", True)))
            return
        effect = self.machine.effects.items[lane.effect]
        if isinstance(effect, do.SendOffsets) and not self._is_member(s, w):
            out.append(((f"w{w}", "gives up: a worker joined the group"), True, self._ended_tool(s, w)))
            return
        self._does[type(effect)](Turn(s, w, p, lane, owner=True, out=out), effect)

    def _ended_tool(self, s: State, w: int) -> State:
        deaths, lanes = self.worker(s, w)
        return self._put_worker(s, w, Worker(deaths, (None,) * len(lanes)))

    def _tool_stopped(self, s: State, w: int, p: int, halt: Halt) -> State:
        if halt.kind != MOVED:
            return self._ended_tool(s, w)
        part = self.part(s, p)
        if part.mover != f"w{w}.{self.worker(s, w).deaths}" and part.phase != COMMITTING:
            s = self._put_part(s, p, part._replace(wrong=f"X2: {halt.text}, says a tool that moved nothing"))
        return self._put_lane(s, w, p, None)

    def _current(self, s: State, w: int, p: int, lane: Lane) -> bool:
        """Whether the lane's session has the coordinator's epoch."""
        return lane.session and self.part(s, p).holder == w

    def _failed(self, s: State, w: int, p: int, lane: Lane, why: str, *, fenced: bool = False) -> State:
        return self._tell(s, w, p, lane, "failed", why, fenced)

    def _lose(self, s: State, w: int, p: int, lane: Lane, what: str, *after: tuple[str, State], out: Moves) -> None:
        """Variants of a request that went wrong: in each of these worlds the caller fails."""
        for how, world in after:
            spent = self._spend(world, NET)
            if spent is not None:
                out.append(((self._name(w, p), f"{what}: {how}"), False, self._failed(spent, w, p, lane, "no answer")))

    def _init(self, turn: Turn, _: Any) -> None:
        s, w, p, lane, owner, out = turn
        who, part = self._name(w, p), self.part(s, p)
        if part.phase == ONGOING:
            alive = self._open_elsewhere(s, p)
            if not (alive and lane.aborted):  # a bound: two that init in turn could do so without end
                after = self._put_lane(s, w, p, lane._replace(aborted=alive))
                out.append(((who, "init: the open transaction is aborted"), owner, self._fence(after, p)))
            return
        if part.phase != IDLE:
            return
        taken = self._taken(self._claimed(s, w, p), p, w)
        out.append(((who, "init: done"), owner, self._tell(taken, w, p, lane._replace(session=True), "initialised")))
        nobody = self._taken(s, p, -1)
        late = self._send(s, ("init", p))
        self._lose(s, w, p, lane, "init", ("applied, no reply", nobody), ("will come late", late), out=out)

    def _claimed(self, s: State, w: int, p: int) -> State:
        """Beside slots, a session that takes the id over ends the one before it: no group says who lives."""
        record = self.newest(self.part(s, p))
        mine = f"w{w}.{self.worker(s, w).deaths}"
        other = record is not None and record.writer.incarnation != mine
        return self._killed(s, p) if other and "slot" in self.setting.workers else s

    def _open_elsewhere(self, s: State, p: int) -> bool:
        """Whether the session that has a transaction open still has an owner."""
        holder = self.part(s, p).holder
        lane = self.worker(s, holder).lanes[p] if holder >= 0 else None
        return lane is not None and lane.session

    def _fetch_offsets(self, turn: Turn, _: Any) -> None:
        s, w, p, lane, owner, out = turn
        part = self.part(s, p)
        if part.pending and self._require_stable():
            after = self._failed(s, w, p, lane, "unstable")
            out.append(((self._name(w, p), "group offsets: not stable"), owner, after))
            return
        held = self._held_by(part)
        after = self._tell(s, w, p, lane, "held", held)
        out.append(((self._name(w, p), f"group offsets: {held or 'none'}"), owner, after))

    def _held_by(self, part: Part) -> tuple[int, ...]:
        """The group's offsets of the inputs that are asked for; empty: it has none."""
        return part.held

    def _require_stable(self) -> bool:
        return True

    def _fetch_watermark(self, turn: Turn, _: Any) -> None:
        s, w, p, lane, owner, out = turn
        high = self._watermark(self.part(s, p).log)
        after = self._tell(s, w, p, lane, "high", high)
        out.append(((self._name(w, p), f"high watermark: {high}"), owner, after))
        log = self.part(s, p).log
        stale = next((i for i in range(len(log) - 1, 0, -1) if log[i] >= 0), 0)
        spent = self._spend(s, NET) if stale else None
        if spent is not None:
            told = self._tell(spent, w, p, lane, "high", stale)
            out.append(((self._name(w, p), f"high watermark, of a leader that is none any more: {stale}"), False, told))

    def _watermark(self, log: tuple[int, ...]) -> int:
        return len(log)

    def _read_newest(self, turn: Turn, read: do.ReadNewest) -> None:
        s, w, p, lane, owner, out = turn
        number = newest_below(self.part(s, p).log, read.high)
        if number is None:
            after = self._failed(s, w, p, lane, "blocked")
            out.append(((self._name(w, p), "an open transaction blocks reading"), owner, after))
            return
        what = shown(self.machine.record(number)) if number >= 0 else "nothing"
        told = self._tell(s, w, p, lane, "newest", number, self.highs(self.part(s, p)))
        out.append(((self._name(w, p), f"reads {what}"), owner, told))

    def _fetch_sibling(self, turn: Turn, _: Any) -> None:
        s, w, p, lane, owner, out = turn
        records = [self.newest(part) for i, part in enumerate(self.parts(s)) if i != p]
        born = next((record.born for record in records if record), None)
        out.append(((self._name(w, p), f"sibling: {born}"), owner, self._tell(s, w, p, lane, "sibling", born)))

    def _go_on(self, turn: Turn, effect: Any) -> None:
        s, w, p, lane, owner, out = turn
        out.append(((self._name(w, p), type(effect).__name__), owner, self._tell(s, w, p, lane, "done")))

    def _assign(self, turn: Turn, assign: do.AssignReader) -> None:
        if not self.setting.stores:
            self._begin_to_read(turn, assign)
            return
        s, w, p, lane, owner, out = turn
        changes = self.part(s, p).changes
        ends = [(s, len(changes), owner)]
        if (stale := stores.stale_end(changes)) and (spent := self._spend(s, NET)) is not None:
            ends.append((spent, stale, False))
        for world, high, calm in ends:
            held = stores.read(changes, lane.store, high)
            if held is None or not self._fits(lane, held):
                after = self._failed(world, w, p, lane, "the store cannot be read")
                out.append(((self._name(w, p), f"cannot read the store up to {high}"), calm, after))
            else:
                self._begin_to_read(turn._replace(s=world, lane=lane._replace(store=held), owner=calm), assign)

    def _fits(self, lane: Lane, held: stores.Held) -> bool:
        """R4b: whether the changelog ends where the newest record says."""
        record = self.task(lane).record
        return held.mark == (dict(record.stores).get(stores.STORE) if record else None)

    def _begin_to_read(self, turn: Turn, assign: do.AssignReader) -> None:
        s, w, p, lane, owner, out = turn
        at = offsets_of(assign.positions)
        after = self._tell(s, w, p, lane, "done")
        if self.setting.grows and not self.part(s, p).begin:
            after = self._put_part(after, p, self.part(after, p)._replace(begin=at))
        out.append(((self._name(w, p), f"begins to read at {at}"), owner, after))

    # A transaction.

    def _send_offsets(self, turn: Turn, send: do.SendOffsets) -> None:
        s, w, p, lane, owner, out = turn
        who, part = self._name(w, p), self.part(s, p)
        if not self._current(s, w, p, lane):
            after = self._failed(s, w, p, lane, "fenced", fenced=True)
            out.append(((who, "offsets: fenced"), owner, after))
            return
        if part.phase not in (IDLE, ONGOING):
            return
        opened = self._put_part(s, p, part._replace(phase=ONGOING))
        offsets = self._sent(send)
        if not self._is_member(s, w):
            out.append(((who, "offsets: no member any more"), owner, self._failed(opened, w, p, lane, "no member")))
            return
        taken = self._put_part(s, p, part._replace(phase=ONGOING, pending=offsets))
        out.append(((who, f"offsets: {offsets}"), owner, self._tell(taken, w, p, lane, "done")))
        late = self._send(opened, ("offsets", p, w, offsets))
        lost = [("lost", s), ("taken, no reply", taken), ("will come late", late)]
        self._lose(s, w, p, lane, "offsets", *lost, out=out)

    def _sent(self, send: do.SendOffsets) -> tuple[int, ...]:
        return offsets_of(send.positions)

    def _loose(self, lane: Lane) -> tuple[int, tuple[Outcome, ...]]:
        """What a transaction holds: its record, and the outcomes of an attempt that delivers."""
        record = self.task(lane).pending
        assert record
        delivers = isinstance(record, Attempt) and record.batch.deliveries
        return self.machine.records.number(record), outcomes_of(lane.carried) if delivers else ()

    def _value(self, p: int, lane: Lane) -> Any:
        """The store behind the steps that are carried; those that failed are undone."""
        return lane.store.value + tuple(step for step, kind in lane.carried if self._keeps(kind))

    def _keeps(self, kind: str) -> bool:
        """Whether a step that ended so keeps its changes."""
        return kind in stores.KEEPS

    def _entry(self, number: int) -> int:
        """A record as it lands: not visible before the marker."""
        return number << 1

    def _settled_beside(self, number: int) -> tuple[int, ...]:
        """What else a transaction with this record writes into the backing partition, see `replaying`."""
        record = self.machine.record(number)
        return (HOLE,) * record.batch.replays if isinstance(record, Attempt) else ()

    def _flush(self, turn: Turn, _: Any) -> None:
        s, w, p, lane, owner, out = turn
        who, part = self._name(w, p), self.part(s, p)
        number, outcomes = self._loose(lane)
        if not self._current(s, w, p, lane):
            out.append(((who, "produce: fenced"), owner, self._failed(s, w, p, lane, "fenced", fenced=True)))
            return
        if part.phase not in (IDLE, ONGOING):
            return
        count, high = 1 + len(outcomes), len(part.log)
        opened = part._replace(phase=ONGOING, marked=True)
        landed = opened._replace(log=(*part.log, self._entry(number), *self._settled_beside(number)))
        if lane.carried and self.setting.stores and isinstance(self.machine.record(number), Attempt):
            changes = stores.written(part.changes, self.machine.record(number).step, self._value(p, lane))
            opened, landed = opened._replace(changes=changes), landed._replace(changes=changes)
        full = landed._replace(loose=part.loose + outcomes)
        text = f"produce: {shown(self.machine.record(number))} at {high}, {len(outcomes)} outcomes"
        out.append(
            ((who, text), owner, self._tell(self._put_part(s, p, full), w, p, lane, "flushed", count, count, high))
        )
        spent = self._spend(s, NET)
        if spent is None:
            return
        record_late = self._send(
            self._put_part(spent, p, opened._replace(loose=part.loose + outcomes)), ("record", p, number)
        )
        reports: list[tuple[str, State, int, int | None]] = [
            ("the record will come late", record_late, count - 1, None)
        ]
        if outcomes:
            late = self._send(self._put_part(spent, p, landed), ("outcomes", p, outcomes))
            reports.append(("the outcomes will come late", late, 1, high))
        for how, after, delivered, first in reports:
            told = self._tell(after, w, p, lane, "flushed", delivered, count, first)
            out.append(((who, f"produce: {how}"), False, told))
        lost = [("lost", s), ("written, no reply", self._put_part(s, p, full))]
        self._lose(s, w, p, lane, "produce", *lost, out=out)

    def _commit(self, turn: Turn, _: Any) -> None:
        s, w, p, lane, owner, out = turn
        who, part = self._name(w, p), self.part(s, p)
        if not self._current(s, w, p, lane):
            out.append(((who, "commit: fenced"), owner, self._failed(s, w, p, lane, "fenced", fenced=True)))
            return
        if part.phase not in (IDLE, ONGOING):
            return
        ended = self._ended(s, p)
        failed = lane
        if self.setting.stores and isinstance(self.task(lane).pending, Attempt):
            lane = lane._replace(store=lane.store._replace(value=self._value(p, lane)))
        out.append(((who, "commit: done"), owner, self._tell(ended, w, p, lane, "committed", None)))
        variants = [("lost", s), ("done, no reply", ended), ("will come late", self._send(s, ("end", p)))]
        self._lose(s, w, p, failed, "commit", *variants, out=out)
        spent = self._spend(ended, NET)
        if spent is not None:
            out.append(((who, "commit: done, no reply, asks again"), False, spent))
            told = self._tell(self._send(spent, ("end", p)), w, p, failed, "committed", "repeated")
            out.append(((who, "commit: done at the second try, the first will come late"), False, told))

    # User code.

    def _others_alone(self, s: State, w: int, p: int) -> bool:
        """Q2a: whether another task of this process must be the only one that runs user code."""
        return any(lane is not None and lane.alone for i, lane in enumerate(self.worker(s, w).lanes) if i != p)

    def _await(self, turn: Turn, _: Any) -> None:
        s, w, p, lane, owner, out = turn
        task, who = self.task(lane), self._name(w, p)
        offsets = self._place(task)
        if self._others_alone(s, w, p):
            return
        if task.due:
            self._await_due(turn, task.due, offsets)
            return
        part = self.part(s, p)
        rest = self.rest(offsets, self.highs(part), part.cleaned)
        cuts = self._cuts(task, rest)
        if self.setting.turns and not task.choice:
            cuts, lane = self._in_turns(lane, rest, 1 if task.careful else self.setting.batch)
            turn = turn._replace(lane=lane)
        for steps in cuts:
            ends = self._behind(offsets, steps)
            if task.snapshot_due:
                choice = self._choice(steps)
                announced = self._fetched(lane, steps)
                after = self._tell(s, w, p, announced, "polled", ends, len(steps), choice)
                out.append(((who, f"polls up to {ends} {choice or ''}"), owner, after))
            else:
                self._run(turn, steps)
        if not any(rest):
            self._at_the_end(turn, offsets)

    def _place(self, task: Task) -> tuple[int, ...]:
        """Where the next messages are taken."""
        return offsets_of(task.positions)

    def _await_due(self, turn: Turn, due: Due, offsets: tuple[int, ...]) -> None:
        """The announced messages again; where compaction took some, those that are left, or word that none is."""
        s, w, p, lane, owner, out = turn
        ends, count = offsets_of(due.ends), due.steps
        lane = lane._replace(alone=self.task(lane).alone)
        if owner and self.part(s, p).lost:
            s = self._put_part(s, p, self.part(s, p)._replace(lost=""))
        if self.setting.compacts:
            [left] = self.rest(offsets, ends, self.part(s, p).cleaned)
            count = len(left)
            lane = self._fetched(lane, tuple(((0, offset),) for offset in left))
        if count:
            after = self._tell(s, w, p, lane, "polled", ends, count, due.choice)
            out.append(((self._name(w, p), f"polls {count} again up to {ends}"), owner, after))
        else:
            out.append(
                ((self._name(w, p), f"finds nothing up to {ends}"), owner, self._tell(s, w, p, lane, "idle", ends))
            )

    def _fetched(self, lane: Lane, steps: tuple[Step, ...]) -> Lane:
        return lane._replace(fetched=steps) if self.setting.compacts else lane

    def _in_turns(self, lane: Lane, rest: list[tuple[int, ...]], limit: int) -> tuple[Iterator[tuple[Step, ...]], Lane]:
        """The one batch that the production rule takes, if there is one; and the lane, which knows who is next."""
        taken, following = turns.shares([len(offsets) for offsets in rest], limit, lane.turn)
        order = tuple(b for b, count in taken for _ in range(count))
        return iter([self._in_order(order, rest)] if order else []), lane._replace(turn=following)

    def _at_the_end(self, turn: Turn, offsets: tuple[int, ...]) -> None:
        s, w, p, lane, owner, out = turn
        high, who = self.highs(self.part(s, p)), self._name(w, p)
        if self.setting.workers[w] == "slot":
            if not lane.said:
                after = self._tell(s, w, p, lane._replace(said=True), "revoked")
                out.append(((who, "has delivered its range"), owner, after))
        elif offsets != high:
            out.append(((who, f"moves over markers to {high}"), owner, self._tell(s, w, p, lane, "idle", high)))

    def _cuts(self, task: Task, rest: list[tuple[int, ...]]) -> Iterator[tuple[Step, ...]]:
        """What may be taken at once, the largest first; one step in careful mode; a recorded choice is kept."""
        limit = 1 if task.step_by_step else self.setting.batch
        match self.setting.pairing:
            case "join":
                rows: list[Step] = [tuple(enumerate(row)) for row in zip(*rest, strict=False)]
                yield from (tuple(rows[:n]) for n in range(min(limit, len(rows)), 0, -1))
            case "alts":
                if task.choice:
                    order = self._ordered(task.choice)
                    yield from (self._in_order(order[:n], rest) for n in range(min(limit, len(order)), 0, -1))
                else:
                    yield from self._alternatives(rest, limit)
            case _:
                single = rest[0]
                yield from (tuple(((0, o),) for o in single[:n]) for n in range(min(limit, len(single)), 0, -1))

    def _alternatives(self, rest: list[tuple[int, ...]], limit: int) -> Iterator[tuple[Step, ...]]:
        for count in range(limit, 0, -1):
            for order in product(range(len(rest)), repeat=count):
                if all(order.count(b) <= len(offsets) for b, offsets in enumerate(rest)):
                    yield self._in_order(order, rest)

    def _in_order(self, order: tuple[int, ...], rest: list[tuple[int, ...]]) -> tuple[Step, ...]:
        taken = [iter(offsets) for offsets in rest]
        return tuple(((b, next(taken[b])),) for b in order)

    def _ordered(self, choice: Choice) -> tuple[int, ...]:
        return tuple(self.bindings.index(name) for name, run in choice for _ in range(run))

    def _choice(self, steps: tuple[Step, ...]) -> Choice:
        if self.setting.pairing != "alts":
            return ()
        return tuple((self.bindings[b], len(list(run))) for b, run in groupby(steps, key=lambda step: step[0][0]))

    def _behind(self, offsets: tuple[int, ...], steps: tuple[Step, ...]) -> tuple[int, ...]:
        ends = list(offsets)
        for step in steps:
            for binding, offset in step:
                ends[binding] = offset + 1
        return tuple(ends)

    def _due(self, task: Task, count: int, choice: Choice) -> tuple[Step, ...]:
        """The steps that a call or a quarantine is for."""
        rest = self.rest(offsets_of(task.positions))
        match self.setting.pairing:
            case "join":
                return tuple(tuple(enumerate(row)) for row in zip(*rest, strict=False))[:count]
            case "alts":
                return self._in_order(self._ordered(choice)[:count], rest)
            case _:
                return tuple(((0, o),) for o in rest[0][:count])

    def _call(self, turn: Turn, call: do.Call) -> None:
        if self._others_alone(turn.s, turn.w, turn.p):
            return
        steps = turn.lane.fetched if self.setting.compacts else ()
        self._run(turn, steps or self._due(self.task(turn.lane), call.steps, call.choice))

    def _run(self, turn: Turn, steps: tuple[Step, ...]) -> None:
        """User code for these steps: every way in which it can end."""
        s, w, p, lane, owner, out = turn
        task, who = self.task(lane), self._name(w, p)
        offsets = offsets_of(task.positions)
        wrong = self._identified(task, steps)
        for done, halt in self._results(turn, steps):
            kinds = "".join(kind for _, kind in done)
            begun = len(done) + (halt == "retry")  # who asks to be called again has acted already
            after = self._applied(s, p, task, list(steps[:begun]))
            after = self._witnessed(turn._replace(s=after), steps, done, halt)
            if wrong:
                after = self._put_part(after, p, self.part(after, p)._replace(wrong=wrong))
            if halt == "kill":
                out.append(
                    (
                        (who, f"calls user code, which kills its process after {len(done)}"),
                        owner,
                        self._dead(after, w, by=p),
                    )
                )
                continue
            if halt == "retry":
                spent = self._spend(after, NET)
                if spent is None or (not done and task.state is Doing.READY):
                    continue
                after = spent
            ends = self._behind(offsets, tuple(step for step, _ in done)) if done else ()
            if lane.fetched and task.due and len(done) == len(steps):
                ends = offsets_of(task.due.ends)  # a whole batch ends where it was announced to
            told = self._after_calls(turn._replace(s=after), ends, done, halt)
            out.append(((who, f"calls user code: {kinds or 'nothing'} {halt}"), owner and halt != "retry", told))
        self._deaths_inside(turn, task, steps)

    def _witnessed(self, turn: Turn, steps: tuple[Step, ...], done: Delivered, halt: str) -> State:
        """What the calls of these steps leave besides; the one that did not end was called, too. See `tailing`."""
        del steps, done, halt
        return turn.s

    def _after_calls(self, turn: Turn, ends: tuple[int, ...], done: Delivered, halt: str) -> State:
        """User code has ended these steps, and `halt` says why no more."""
        s, w, p, lane, *_ = turn
        lane = lane._replace(carried=done, fetched=())
        return self._tell(s, w, p, lane, "called", ends, self._counts(done), halt)

    def _deaths_inside(self, turn: Turn, task: Task, steps: tuple[Step, ...]) -> None:
        """A signal kills the process after some effects of user code."""
        s, w, p, _, _, out = turn
        spent = self._spend(s, CRASH) if self.setting.effects else None
        if spent is not None:
            for count in range(1, len(steps) + 1):
                after = self._dead(self._applied(spent, p, task, list(steps[:count])), w)
                out.append(((f"w{w}", f"dies in user code after {count} effects"), False, after))

    def _results(self, turn: Turn, steps: tuple[Step, ...]) -> Iterator[tuple[Delivered, str]]:
        """What user code may give: the steps that it ended with what became of them, and why not more."""
        found = [("", "")]
        for step in steps:
            kind = self._kind(turn.p, step)
            more = []
            for kinds, halt in found:
                if halt:
                    more.append((kinds, halt))
                else:
                    more += [(kinds + k if not h else kinds, h) for k, h in MEANS[kind]]
            found = more
        yield from ((tuple(zip(steps, kinds, strict=False)), halt) for kinds, halt in found)

    def _counts(self, done: Delivered) -> tuple[int, ...]:
        """`Totals` of steps that ended so."""
        return counts("".join(kind for _, kind in done))

    def _kind(self, p: int, step: Step) -> str:
        binding, offset = step[0]
        return self.logs(p)[binding][offset]

    def _identified(self, task: Task, steps: tuple[Step, ...]) -> str:
        """I6: the hash that user code is given names the delivery, on every attempt."""
        for step in steps:
            name = hashing.delivery_hash("g", "p", self._consumed(task, step))
            if self.hashes.setdefault((task.spec.partition, step), name) != name:
                return f"I6: the hash of {step} is another one at this attempt"
        return ""

    def _consumed(self, task: Task, step: Step) -> list[Coordinates]:
        ids = self.machine.facts.ids
        return [Coordinates(self.bindings[b], ids[b], task.spec.partition, offset) for b, offset in step]

    def _applied(self, s: State, p: int, task: Task, steps: list[Step]) -> State:
        """E1: lock the row, refuse a smaller owner, skip what is applied already, set both."""
        if not self.setting.effects or not steps:
            return s
        part = self.part(s, p)
        number, owner, applied = part.ledger
        mine = task.owner if task.owner is not None else -1
        if mine < owner:
            return s
        assert task.record
        for i, step in enumerate(steps):
            if task.record.step + i + 1 > number:
                number, applied = number + 1, (*applied, step)
        return self._put_part(s, p, part._replace(ledger=(number, mine, applied)))

    def _quarantine(self, turn: Turn, quarantine: do.Quarantine) -> None:
        s, w, p, lane, owner, out = turn
        part = self.part(s, p)
        steps = lane.fetched or self._due(self.task(lane), 1, quarantine.choice)
        ends = offsets_of(quarantine.ends)
        passed = self.rest(offsets_of(self.task(lane).positions), ends, part.cleaned)
        if len(steps) != 1 or (not lane.fetched and sum(map(len, passed)) != len(steps[0])):
            s = self._put_part(
                s, p, part._replace(wrong=f"I11: several messages up to {offsets_of(quarantine.ends)} are taken out")
            )
        told = self._after_calls(turn._replace(s=s), ends, ((steps[0], "q"),), "")
        out.append(((self._name(w, p), "takes the message out, undecoded"), owner, told))

    def _stopped(self, turn: Turn, stop: do.Stop) -> None:
        """A refusal is tried again later; a slot ends; who stops on purpose stays so until an operator comes."""
        s, w, p, lane, owner, out = turn
        if self.setting.workers[w] == "tool":
            out.append(((self._name(w, p), f"ends: {stop.halt.text}"), owner, self._tool_stopped(s, w, p, stop.halt)))
            return
        if self.setting.workers[w] == "slot":
            deaths, lanes = self.worker(s, w)
            after = self._put_worker(s, w, Worker(deaths + 1, put(lanes, p, None)))
            out.append(((self._name(w, p), f"ends: {stop.halt.text}"), owner, after))
        elif stop.halt.kind == "refused":
            out.append(
                (
                    (self._name(w, p), f"tries again after: {stop.halt.text}"),
                    owner,
                    self._tell(s, w, p, lane, "assigned", True),
                )
            )

    def _dead(self, s: State, w: int, *, by: int | None = None) -> State:
        """
        A new process in the place of the old one; as a static member it has its partitions at once.

        Args:
            s: the state.
            w: the worker's number.
            by: the task whose user code killed it; None: a signal from outside.
        """
        deaths, lanes = self.worker(s, w)
        group = self.group(s)
        after: list[Lane | None] = []
        for p, lane in enumerate(lanes):
            if lane is not None:
                s = self._killed(s, p)
                s = s if by in (None, p) else self._shared(s, p, f"w{w}.{deaths}")
            mine = group.owners[p] == w and group.members[w]
            if mine and group.revoking[p]:
                group = unowned(group, p)
                mine = False
            after.append(self._new_lane(w, deaths + 1, p) if mine else None)
        return self._put_worker(self._put_group(s, group), w, Worker(deaths + 1, tuple(after)))
