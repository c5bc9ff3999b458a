"""A world whose tasks have timers (F1 to F4): which one is due, how batches are made of both, and what must hold.

Time is the offset of the newest message whose step was kept. A message may set one timer, which is due at an offset. So
what must come next is always known: the due timer that comes first, or else the next message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from cues_kafka.core import hashing
from cues_kafka.core.records import Record
from cues_kafka.core.task import Due, Task
from tests.proof.model import stores
from tests.proof.model.machine import offsets_of
from tests.proof.model.states import MEANS, Delivered, Lane, Part, Setting, Step, Turn, counts
from tests.proof.model.world import World

TIMER: Final = 9
"""Stands in the place of a binding: the step was begun by the timer that the message at this offset set."""


class Clock(NamedTuple):
    """
    What a task knows of its timers.

    Attributes:
        time: offset of the newest message whose step was kept; -1: none was.
        pending: (when it is due, offset of the message that set it), in the order in which they fire.
    """

    time: int = -1
    pending: tuple[tuple[int, int], ...] = ()

    @property
    def due(self) -> int:
        """How many timers are due."""
        return sum(at <= self.time for at, _ in self.pending)

    def behind(self, setting: Setting, step: Step, kind: str) -> Clock:
        """The clock when a step has ended so: what failed sets nothing, but a timer that fails is gone (F4)."""
        binding, offset = step[0]
        if binding == TIMER:
            return self._replace(pending=tuple(one for one in self.pending if one[1] != offset))
        if kind not in stores.KEEPS:
            return self
        at = setting.timers[offset]
        added = () if at == "." else ((int(at), offset),)
        return Clock(max(self.time, offset), tuple(sorted(self.pending + added)))


class Value(NamedTuple):
    """
    What the changelogs of a task say.

    Attributes:
        steps: that changed the store.
        clock: of its timers.
        history: all steps in the order in which they were taken, for the judge alone.
    """

    steps: tuple[Step, ...] = ()
    clock: Clock = Clock()
    history: Delivered = ()


def value_of(held: Any) -> Value:
    """What a process holds; a store that was never written is empty."""
    return held or Value()


def messages_of(steps: list[Step]) -> list[Step]:
    """The steps that messages began, and neither a timer nor a request to replay."""
    return [step for step in steps if step[0][0] < TIMER]


class TimerWorld(World):
    """A setting with timers."""

    def finished(self, p: int, part: Part) -> bool:
        """Whether neither a message nor a due timer is left."""
        newest = next((one for one in reversed(part.changes) if one is not None and one.committed), None)
        return super().finished(p, part) and not (newest and value_of(newest.value).clock.due)

    def _value(self, p: int, lane: Lane) -> Any:
        value = value_of(lane.store.value)
        clock = value.clock
        for step, kind in lane.carried:
            clock = self._behind_step(clock, step, kind)
        kept = tuple(step for step, kind in lane.carried if self._keeps(kind))
        return Value(value.steps + kept, clock, value.history + lane.carried)

    def _behind_step(self, clock: Clock, step: Step, kind: str) -> Clock:
        return clock.behind(self.setting, step, kind)

    def _counts(self, done: Delivered) -> tuple[int, ...]:
        timers = sum(step[0][0] == TIMER for step, _ in done)
        return (*counts("".join(kind for _, kind in done)), 0, 0, 0, timers)

    def _await(self, turn: Turn, _: Any) -> None:
        s, w, p, lane, owner, out = turn
        task, clock = self.task(lane), value_of(lane.store.value).clock
        if self._others_alone(s, w, p):
            return
        offsets = offsets_of(task.positions)
        if task.due:
            self._await_due(turn, task.due, offsets)
            return
        [rest] = self.rest(offsets, self.highs(self.part(s, p)))
        limit = 1 if task.careful else self.setting.batch
        if task.snapshot_due and self._announces_timers(clock):
            for count in range(min(limit, clock.due), 0, -1):
                after = self._tell(s, w, p, lane, "polled", offsets, count, (), True)
                out.append(((self._name(w, p), f"announces {count} timers"), owner, after))
        elif task.snapshot_due:
            for count in range(min(limit, len(rest)), 0, -1):
                ends = (rest[count - 1] + 1,)
                after = self._tell(s, w, p, lane, "polled", ends, count, ())
                out.append(((self._name(w, p), f"polls up to {ends}"), owner, after))
        else:
            for count in range(min(limit, len(rest) + len(clock.pending)), 0, -1):
                self._run(turn, ((),) * count)
        if not rest and not clock.due:
            self._at_the_end(turn, offsets)

    def _announces_timers(self, clock: Clock) -> bool:
        """F3: due timers are announced before any message."""
        return clock.due > 0

    def _await_due(self, turn: Turn, due: Due, offsets: tuple[int, ...]) -> None:
        if not due.timers:
            super()._await_due(turn, due, offsets)
            return
        s, w, p, lane, owner, out = turn
        lane = lane._replace(alone=self.task(lane).alone)
        after = self._tell(s, w, p, lane, "polled", offsets, due.steps, (), True)
        out.append(((self._name(w, p), f"announces {due.steps} timers again"), owner, after))

    def _call(self, turn: Turn, call: Any) -> None:
        if not self._others_alone(turn.s, turn.w, turn.p):
            self._run(turn, ((),) * call.steps)

    def _results(self, turn: Turn, steps: tuple[Step, ...]) -> Iterator[tuple[Delivered, str]]:
        """What each step is follows from the one before it."""
        lane = turn.lane
        yield from self._from_here(turn.p, self.task(lane), value_of(lane.store.value).clock, (), len(steps))

    def _from_here(
        self, p: int, task: Task, clock: Clock, done: Delivered, left: int
    ) -> Iterator[tuple[Delivered, str]]:
        step = self._following(task, clock, done) if left else None
        if step is None:
            if done:
                yield done, ""
            return
        for kind, halt in MEANS[self._kind(p, step)]:
            if halt:
                yield done, halt
            else:
                following = self._behind_step(clock, step, kind)
                yield from self._from_here(p, task, following, (*done, (step, kind)), left - 1)

    def _following(self, task: Task, clock: Clock, done: Delivered) -> Step | None:
        """F2, F3: the due timer that comes first, or the next message; what is announced is never of both kinds."""
        messages = [step[0][1] for step, _ in done if step[0][0] != TIMER]
        announced = task.due
        if self._timer_is_next(clock) and not (announced and not announced.timers):
            return ((TIMER, clock.pending[0][1]),)
        if announced and (announced.timers or self._closes(clock)):
            return None
        at = messages[-1] + 1 if messages else offsets_of(task.positions)[0]
        end = offsets_of(announced.ends)[0] if announced else self.machine.facts.high[0]
        [rest] = self.rest((at,), (end,))
        return ((0, rest[0]),) if rest else None

    def _timer_is_next(self, clock: Clock) -> bool:
        return clock.due > 0

    def _closes(self, clock: Clock) -> bool:
        """F3: an announced batch of messages ends with the step that makes a timer due."""
        return clock.due > 0

    def _behind(self, offsets: tuple[int, ...], steps: tuple[Step, ...]) -> tuple[int, ...]:
        return super()._behind(offsets, tuple(messages_of(list(steps))))

    def _due(self, task: Task, count: int, choice: Any) -> tuple[Step, ...]:
        if not (task.due and task.due.timers):
            return super()._due(task, count, choice)
        return ()

    def _quarantine(self, turn: Turn, quarantine: Any) -> None:
        _, w, p, lane, owner, out = turn
        if not quarantine.timers:
            super()._quarantine(turn, quarantine)
            return
        step = ((TIMER, value_of(lane.store.value).clock.pending[0][1]),)
        told = self._after_calls(turn, offsets_of(quarantine.ends), ((step, "q"),), "")
        out.append(((self._name(w, p), "takes the timer out"), owner, told))

    def _kind(self, p: int, step: Step) -> str:
        binding, offset = step[0]
        return self.setting.fires[offset] if binding == TIMER else super()._kind(p, step)

    def _identified(self, task: Task, steps: tuple[Step, ...]) -> str:
        """I6 for timers: their hash is another one than that of any message; `_results` says which steps they are."""
        for offset, at in enumerate(self.setting.timers):
            if at != ".":
                step = ((TIMER, offset),)
                name = hashing.timer_hash(
                    "g", "p", task.spec.partition, f"k{offset}", int(at), self._consumed(task, ((0, offset),))
                )
                if self.hashes.setdefault((task.spec.partition, step), name) != name:
                    return f"I6: the hash of {step} is another one at this attempt"
        return super()._identified(task, tuple(((0, o),) for o in self.places[0]))


def judged(world: TimerWorld, changes: stores.Changelog, record: Record, delivered: dict[Step, str]) -> str:
    """What is wrong with the store and the timers beside the newest record; empty: nothing."""
    newest = next((one for one in reversed(changes) if one is not None and one.committed), None)
    value = value_of(newest.value if newest else ())
    plain = tuple(one and replaced(one) for one in changes)
    return (
        stores.judged(plain, record, delivered) or _ordered(world.setting, value, record) or _outcomes(value, delivered)
    )


def replaced(change: stores.Change) -> stores.Change:
    """A change of the store alone, without its timers."""
    return change._replace(value=value_of(change.value).steps)


def _ordered(setting: Setting, value: Value, record: Record) -> str:
    """F2: every due timer fired before the next message, in the order of its time, and none fired before its time."""
    clock, at = Clock(), 0
    for step, kind in value.history:
        binding, offset = step[0]
        wanted = (TIMER, clock.pending[0][1]) if clock.due else (0, at)
        if (binding, offset) != wanted:
            return f"F2: {(binding, offset)} was taken where {wanted} came next: {value.history}"
        at += binding != TIMER
        clock = clock.behind(setting, step, kind)
    if clock != value.clock:
        return f"F4: the timers are {value.clock}, the steps leave {clock}"
    timers = sum(step[0][0] == TIMER for step, _ in value.history)
    if timers != record.totals.timers:
        return f"F1: {timers} timers fired, the record counts {record.totals.timers}"
    return ""


def _outcomes(value: Value, delivered: dict[Step, str]) -> str:
    """I2: what the changelog says was taken has its outcome."""
    taken = {step: kind for step, kind in value.history if kind != "n"}
    return "" if taken == delivered else f"I2: {taken} was taken, the outcomes are {delivered}"
