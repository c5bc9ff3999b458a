"""Worlds whose tasks are at-least-once, and what becomes of them when their strategy is changed (W5 to W7).

Nothing fences a session here: what it has sent may land at any time, also when its process is dead. Outcomes that were
repeated are not counted, so `Part.delivered` says only which steps have one. A lane of another strategy works as in
`lanes`, on the same log.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.core.moves import behind_both
from cues_kafka.core.records import Record, Snapshot, Start
from cues_kafka.core.spec import Move, Spec
from cues_kafka.core.strategies import AT_LEAST_ONCE
from tests.proof.model.machine import Key, Machine, offsets_of
from tests.proof.model.states import (
    COMMITTING,
    HOLE,
    IDLE,
    NET,
    Group,
    Lane,
    Moves,
    Part,
    Setting,
    State,
    Step,
    Turn,
    Worker,
    put,
    shown,
)
from tests.proof.model.world import World


class LooseWorld(World):
    """A setting at-least-once, and everything that can happen in it."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._does[do.Emit] = self._emit

    def _spec(self, w: int, deaths: int, p: int, move: Move | None = None) -> Spec:
        return replace(super()._spec(w, deaths, p, move), strategy=self._strategy(w), quarantine_after=None)

    def finished(self, p: int, part: Part) -> bool:
        """Everything has an outcome; an older record that landed late only repeats some of it."""
        if self._is_fenced(part):
            return super().finished(p, part)
        high, found = self.highs(part), {*part.delivered, *(outcome.step for outcome in part.outputs)}
        rows = zip(self.places, part.begin, high, strict=True)
        return bool(part.begin) and all(((0, o),) in found for places, at, end in rows for o in places if at <= o < end)

    def _is_fenced(self, _: Part) -> bool:
        return False

    def _strategy(self, _: int) -> str:
        return self.setting.strategy

    def _fenced(self, lane: Lane) -> bool:
        return self.task(lane).spec.rules.fenced

    def _init(self, turn: Turn, effect: Any) -> None:
        if self._fenced(turn.lane):
            super()._init(turn, effect)
            return
        s, w, p, lane, owner, out = turn
        told = self._tell(s, w, p, lane._replace(session=True), "initialised")
        out.append(((self._name(w, p), "opens a session"), owner, told))
        self._lose(s, w, p, lane, "session", ("not opened", s), out=out)

    def _emit(self, turn: Turn, _: Any) -> None:
        """W5: the outcomes land, all, some or none, now or at any later time."""
        s, w, p, lane, owner, out = turn
        steps = tuple(step for step, _ in lane.carried)
        count = len(steps)
        who, full = self._name(w, p), self._landed(s, p, steps)
        out.append(
            ((who, f"writes outcomes of {steps}"), owner, self._tell(full, w, p, lane, "flushed", count, count, None))
        )
        late = self._send(s, ("steps", p, steps))
        some = self._landed(s, p, steps[:1])
        self._lose(
            s, w, p, lane, "outcomes", ("lost", s), ("written, no reply", full), ("will come late", late), out=out
        )
        spent = self._spend(some, NET)
        if spent is not None and count > 1:
            told = self._tell(spent, w, p, lane, "flushed", 1, count, None)
            out.append(((who, "writes one outcome of two"), False, told))

    def _landed(self, s: State, p: int, steps: tuple[Step, ...]) -> State:
        part = self.part(s, p)
        return self._put_part(s, p, part._replace(delivered=tuple(sorted({*part.delivered, *steps}))))

    def _flush(self, turn: Turn, effect: Any) -> None:
        if self._fenced(turn.lane):
            super()._flush(turn, effect)
            return
        s, w, p, lane, owner, out = turn
        record = self.task(lane).pending
        assert record
        number, high = self.machine.records.number(record), len(self.part(s, p).log)
        written = self._written(s, p, number)
        told = self._tell(written, w, p, lane, "flushed", 1, 1, high)
        out.append(((self._name(w, p), f"writes {shown(record)} at {high}"), owner, told))
        late = self._send(s, ("record", p, number))
        lost = [("lost", s), ("written, no reply", written), ("will come late", late)]
        self._lose(s, w, p, lane, "record", *lost, out=out)

    def _written(self, s: State, p: int, number: int) -> State:
        """A record is visible as it lands; the cleaner takes those before it, but never what is open."""
        part = self.part(s, p)
        log = tuple(HOLE if entry >= 0 and entry & 1 else entry for entry in part.log)
        begin = part.begin or offsets_of(self.machine.record(number).positions)
        return self._put_part(s, p, part._replace(log=(*log, number << 1 | 1), begin=begin))

    def _send_offsets(self, turn: Turn, send: do.SendOffsets) -> None:
        if self._fenced(turn.lane):
            super()._send_offsets(turn, send)
            return
        s, w, p, lane, owner, out = turn
        who, offsets = self._name(w, p), self._sent(send)
        begins = isinstance(self.task(lane).pending, Start)
        if not self._is_member(s, w):
            told = self._failed(s, w, p, lane, "no member") if begins else self._tell(s, w, p, lane, "done")
            out.append(((who, "offsets: no member any more"), owner, told))
            return
        held = self._put_part(s, p, self.part(s, p)._replace(held=offsets))
        out.append(((who, f"offsets: {offsets}"), owner, self._tell(held, w, p, lane, "done")))
        late = self._send(s, ("offsets", p, w, offsets))
        if begins:
            lost = [("lost", s), ("taken, no reply", held), ("will come late", late)]
            self._lose(s, w, p, lane, "offsets", *lost, out=out)
            return
        for how, world in (("lost", s), ("will come late", late)):
            if (spent := self._spend(world, NET)) is not None:
                out.append(((who, f"offsets: {how}"), False, self._tell(spent, w, p, lane, "done")))

    def _arrived(self, s: State, kind: str, p: int, message: Key) -> State:
        part = self.part(s, p)
        if kind == "steps":
            return self._landed(s, p, message[2])
        if kind == "record" and self.machine.record(message[2]).strategy == AT_LEAST_ONCE:
            return self._written(s, p, message[2])
        if kind == "offsets" and part.phase == IDLE:
            return self._put_part(s, p, part._replace(held=message[3]))
        return super()._arrived(s, kind, p, message)

    def judged(self, part: Part, record: Record | None) -> str:
        """I17: what lies below the record, or below the group's offsets, has an outcome."""
        found = {*part.delivered, *(outcome.step for outcome in part.outputs)}
        for what, ends in (("the record", offsets_of(record.positions) if record else ()), ("the group", part.held)):
            rows = zip(self.places, part.begin or ends, ends, strict=False)
            lost = [o for places, begin, end in rows for o in places if begin <= o < end and ((0, o),) not in found]
            if lost:
                return f"I17: {what} stands behind {lost}, which have no outcome"
        return ""


class ChangedWorld(LooseWorld):
    """
    W7: an operator changes the strategy of tasks, beside a worker of the former one that still runs.

    The first worker runs the former declaration, the second one the new one; it is started when the tool is through.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.machine = Machine(self.machine.facts)

    def first(self) -> State:
        """Only the former worker is there."""
        s = super().first()
        group = self.group(s)
        return self._put_group(s, Group((True, False, False), group.owners, group.revoking))

    def _strategy(self, w: int) -> str:
        return self.setting.changes if w else self.setting.strategy

    def done(self, s: State) -> bool:
        """Also, no task has a record of the former strategy."""
        changed = all(
            (record := self.newest(part)) and record.strategy == self.setting.changes for part in self.parts(s)
        )
        return changed and super().done(s)

    def _operating(self, s: State, out: Moves) -> None:
        """W7: the verb, as long as a record of the former strategy is the newest; behind it the new worker comes."""
        w, group = len(self.setting.workers) - 1, self.group(s)
        lives, lanes = self.worker(s, w)
        if any(lanes):
            return
        left = [p for p, part in enumerate(self.parts(s)) if self._is_former(part)]
        if left and any(group.members):
            after = s
            for member in range(w):
                after = self._expelled(after, member) if group.members[member] else after
            out.append((("operator", "stops the workers"), True, after))
        elif left:
            wanted: list[Lane | None] = [None] * self.setting.partitions
            for p in left:
                move = self._wanted(self.part(s, p))
                if move is not None:
                    wanted[p] = Lane(self.machine.new(self._spec(w, lives + 1, p, move)))
            if any(wanted):
                after = self._put_worker(s, w, Worker(lives + 1, tuple(wanted)))
                out.append((("operator", "changes the strategy"), True, after))
        else:
            changed = all(self.newest(part) for part in self.parts(s))
            if not group.members[changed] and not any(self.worker(s, changed).lanes):
                joined = self._put_group(s, group._replace(members=put(group.members, int(changed), True)))
                out.append((("operator", f"starts the {'new' if changed else 'former'} worker"), True, joined))

    def _is_fenced(self, part: Part) -> bool:
        return not self._is_former(part)

    def _is_former(self, part: Part) -> bool:
        record = self.newest(part)
        return record.strategy == self.setting.strategy if record else bool(part.held)

    def _wanted(self, part: Part) -> Move | None:
        record = self.newest(part)
        if isinstance(record, Snapshot):
            return None
        names = dict(zip(self.bindings, part.held or (0,) * len(self.bindings), strict=True))
        begin = record.positions if record else self.machine.facts.positions(part.held)
        positions = behind_both(record, names) if record else begin
        return Move(after=record.sequence if record else -1, positions=positions, strategy=self.setting.changes)

    def _noticing(self, s: State, out: Moves) -> None:
        """A worker ends when it hears that it was expelled; the operator starts the new one again."""
        for w in (0, 1):
            worker = self.worker(s, w)
            if not self.group(s).members[w] and any(worker.lanes):
                after = self._put_worker(s, w, Worker(worker.deaths, (None,) * self.setting.partitions))
                out.append(((f"w{w}", "hears that it was stopped, and ends"), True, after))

    def _chain(self, before: Record | None, record: Record, part: Part, killed: int) -> str:
        """I13 from the change on; a former worker may write between, which only the next recovery sees."""
        if record.writer.runtime == "tool":
            if part.held and any(p < h for p, h in zip(offsets_of(record.positions), part.held, strict=True)):
                return f"W7: the tool goes back to {offsets_of(record.positions)}, the group stands at {part.held}"
            return ""
        if before is not None and before.strategy != record.strategy:
            return ""
        return super()._chain(before, record, part, killed)

    def _marked(self, part: Part) -> Part:
        """The tool has moved the task, although a former worker may have written behind its record meanwhile."""
        after = super()._marked(part)
        opened = [self.machine.record(entry >> 1) for entry in part.log if entry >= 0 and not entry & 1]
        won = part.phase == COMMITTING and opened and opened[0].writer.runtime == "tool"
        return self._begun_anew(after, opened[0]) if won else after

    def _begun_anew(self, part: Part, record: Record) -> Part:
        """The tool moves nothing here that counts again."""
        return part._replace(mover=record.writer.incarnation)
