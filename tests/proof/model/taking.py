"""Worlds whose tasks are at-most-once: a batch is taken before it is called (W1 to W4).

User code is called step by step here: that a step starts is one transition, that it ends another one. So a process may
die or lose its task between any two of them, and a revocation meets a call at each of its moments.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from cues_kafka.core import effects as do
from cues_kafka.core.records import Record
from cues_kafka.core.spec import Move, Spec
from cues_kafka.core.strategies import AT_MOST_ONCE
from cues_kafka.core.taking import in_flight
from cues_kafka.core.task import Doing, Task
from tests.proof.model.machine import Key, offsets_of
from tests.proof.model.states import HOLE, IDLE, MEANS, Delivered, Lane, Part, State, Step, Turn
from tests.proof.model.world import World

IN_ORDER = frozenset({"revoked", "committed", "inputs"})
"""What a task hears last that was revoked in order: it has committed what it had, or had nothing to commit (W2)."""


class Running(NamedTuple):
    """
    A batch that was taken.

    Attributes:
        begin: where its first step stands.
        steps: all of them.
        started: how many user code got.
        done: those that ended, and how.
    """

    begin: tuple[int, ...]
    steps: tuple[Step, ...]
    started: int = 0
    done: Delivered = ()


class TakingWorld(World):
    """A setting at-most-once, and everything that can happen in it."""

    def _spec(self, w: int, deaths: int, p: int, move: Move | None = None) -> Spec:
        return replace(super()._spec(w, deaths, p, move), strategy=AT_MOST_ONCE, quarantine_after=None)

    def finished(self, p: int, part: Part) -> bool:
        """Nothing is in flight either; or a step has stopped its task on purpose."""
        record = self.newest(part)
        stopped = any(self._kind(p, step) == "s" for step in part.started)
        return record is not None and not in_flight(record) and (stopped or super().finished(p, part))

    # What is carried from one transaction to the next one.

    def _tell(self, s: State, w: int, p: int, lane: Lane, *key: Any) -> State:
        before = self.task(lane)
        after = super()._tell(s, w, p, lane, *key)
        if (new := self.worker(after, w).lanes[p]) is None:
            in_order = key[0] in IN_ORDER and before.state is not Doing.STOPPED
            return after if in_order else self._excused(after, p)
        waits = self.task(new).carried
        kept = lane.carried if waits and waits.batch.deliveries else ()
        return self._put_lane(after, w, p, new._replace(carried=kept, own=lane.own))

    def _excused(self, s: State, p: int) -> State:
        """From now on steps of this task may be dropped."""
        return self._put_part(s, p, self.part(s, p)._replace(excused=True))

    def _killed(self, s: State, p: int) -> State:
        return self._excused(super()._killed(s, p), p)

    def _marked(self, part: Part) -> Part:
        """The cleaner leaves the record before the newest one, so that an old answer of a leader finds it (R3)."""
        after = super()._marked(part)
        before = max((i for i, entry in enumerate(part.log) if entry >= 0 and entry & 1), default=-1)
        if before < 0 or after.log[before] != HOLE:
            return after
        return after._replace(log=(*after.log[:before], part.log[before], *after.log[before + 1 :]))

    # A batch.

    def _place(self, task: Task) -> tuple[int, ...]:
        return offsets_of(task.carried.ends) if task.carried else super()._place(task)

    def _fetched(self, lane: Lane, steps: tuple[Step, ...]) -> Lane:
        return lane._replace(own=Running(self._place(self.task(lane)), steps))

    def _at_the_end(self, turn: Turn, offsets: tuple[int, ...]) -> None:
        """W1: what waits is committed at once where nothing is there to take."""
        s, w, p, lane, owner, out = turn
        carried = self.task(lane).carried
        if carried is None or not carried.due:
            super()._at_the_end(turn, offsets)
            return
        high = self.highs(self.part(s, p))
        out.append(
            ((self._name(w, p), f"commits what waits, at {high}"), owner, self._tell(s, w, p, lane, "idle", high))
        )

    def _call(self, turn: Turn, call: do.Call) -> None:
        """One step starts, or the one that is under way ends; between two steps the batch may end early."""
        s, w, p, lane, owner, out = turn
        running = lane.own
        if running.started > len(running.done):
            self._ends(turn, running)
            return
        step = running.steps[running.started]
        part = self.part(s, p)
        wrong = part.wrong or (f"I15: {step} is started twice" if step in part.started else "")
        begun = self._put_part(s, p, part._replace(started=(*part.started, step), wrong=wrong))
        after = self._put_lane(begun, w, p, lane._replace(own=running._replace(started=running.started + 1)))
        out.append(((self._name(w, p), f"starts {step}"), owner, after))
        if running.done:
            out.append(((self._name(w, p), "ends the batch early"), False, self._say_called(turn, running, "")))

    def _ends(self, turn: Turn, running: Running) -> None:
        s, w, p, lane, owner, out = turn
        step = running.steps[len(running.done)]
        for kind, halt in MEANS[self._kind(p, step)]:
            who = self._name(w, p), f"ends {step}: {kind}{halt}"
            if halt == "kill":
                out.append((who, owner, self._dead(s, w, by=p)))
            elif halt:
                out.append((who, owner, self._say_called(turn._replace(s=self._excused(s, p)), running, halt)))
            else:
                ended = running._replace(done=(*running.done, (step, kind)))
                if len(ended.done) == len(running.steps):
                    out.append((who, owner, self._say_called(turn, ended, "")))
                else:
                    out.append((who, owner, self._put_lane(s, w, p, lane._replace(own=ended))))

    def _say_called(self, turn: Turn, running: Running, halt: str) -> State:
        lane = turn.lane._replace(carried=running.done)
        return self._tell(turn.s, turn.w, turn.p, lane, "called", *self._report(running, halt))

    def _report(self, running: Running, halt: str) -> Key:
        """W2: the position is behind the last step that was started."""
        ends = self._behind(running.begin, running.steps[: running.started])
        return ends, (*self._counts(running.done), running.started), halt

    def _so_far(self, lane: Lane) -> tuple[Lane, Key]:
        if self.task(lane).state is not Doing.CALLING:
            return lane, ()
        return lane._replace(carried=lane.own.done), self._report(lane.own, "")

    def _lane(self, s: State, w: int, p: int, lane: Lane, out: Any) -> None:
        """A step that is under way when its task is revoked may be dropped."""
        running, group = lane.own, self.group(s)
        under_way = running is not None and running.started > len(running.done)
        if under_way and group.owners[p] == w and group.revoking[p] and not lane.said:
            s = self._excused(s, p)
        super()._lane(s, w, p, lane, out)

    # What must hold.

    def judged(self, part: Part, record: Record, steps: list[Step]) -> str:
        """I15, I16: the positions, what is settled, dropped and in flight, and the outcomes, add up."""
        ends, totals = offsets_of(record.positions), record.totals
        rows = zip(self.places, part.begin or (0,) * len(ends), ends, strict=True)
        below = [sum(begin <= o < end for o in places) for places, begin, end in rows]
        due = max(below) if self.setting.pairing == "join" else sum(below)
        if not record.step == totals.taken == due:
            return f"I13: {due} messages lie below {ends}, {record.step} steps and {totals} are recorded"
        if totals.deliveries != totals.outputs + totals.errors + totals.nils or totals.dropped < 0:
            return f"I13: {totals}"
        if len(steps) != totals.outputs + totals.errors:
            return f"I2: {len(steps)} deliveries have outcomes, the record counts {totals}"
        if not 0 <= in_flight(record) <= self.setting.batch:
            return f"I16: {in_flight(record)} steps in flight by {totals}, and a batch has {self.setting.batch}"
        if totals.dropped and not part.excused:
            return f"I16: {totals.dropped} steps are dropped, and no process died"
        if set(steps) - set(part.started):
            return "I2: an outcome of a step that was never called"
        if part.phase == IDLE and part.held != ends:
            return f"I2: group offsets {part.held} beside positions {ends}"
        return ""
