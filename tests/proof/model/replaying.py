"""A world whose operator has error messages replayed (X1, Y1 to Y3), beside live traffic.

An error message is (number, offset): number 0 is that of the message at this offset, number n that of its n-th replay.
A request names one. What its replay gives is an outcome of a step of its own, so a second one would be seen; the
`settled` record that says so is an outcome of the kind `R`, which is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, TypeAlias

from cues_kafka.core import hashing
from cues_kafka.core.records import Attempt, Record
from cues_kafka.core.task import Due, Task
from tests.proof.model import stores
from tests.proof.model.machine import offsets_of
from tests.proof.model.states import MEANS, Delivered, Lane, Moves, Outcome, Part, State, Step, Turn, counts
from tests.proof.model.timers import messages_of
from tests.proof.model.world import World

FIRST: Final = 10
"""The place of the binding has this number, plus that of the replay, where a request began the step."""

SETTLED: Final = "R"
AGAIN: Final = "d"
"""How a step ends whose error is settled already: as nil, without a call."""

Error: TypeAlias = tuple[int, int]


def error_of(step: Step) -> Error:
    """The error message that a step leaves if it fails."""
    binding, offset = step[0]
    return (max(0, binding - FIRST), offset)


def replay_of(error: Error) -> Step:
    """The step of a replay."""
    number, offset = error
    return ((FIRST + number + 1, offset),)


def settled_by(step: Step) -> Error:
    """The error that a replay's step is about."""
    binding, offset = step[0]
    return (binding - FIRST - 1, offset)


def settled_in(part: Part) -> set[Error]:
    """The errors that have a `settled` record."""
    return {error_of(one.step) for one in part.outputs if one.kind == SETTLED}


def place_of(record: Record | None) -> int:
    """Where the task stands in its replay topic."""
    return record.replays[0].offset if record and record.replays else 0


class ReplayWorld(World):
    """A setting with replays."""

    def finished(self, p: int, part: Part) -> bool:
        """Whether no message and no request is left."""
        return super().finished(p, part) and place_of(self.newest(part)) >= len(part.asked)

    def _asking(self, s: State, out: Moves) -> None:
        """X1: an operator asks for any error that is there, at any time and at no price; twice, too."""
        for p, part in enumerate(self.parts(s)):
            if len(part.asked) == self.setting.replays:
                continue
            for error in {error_of(one.step) for one in part.outputs if one.kind in "eq"}:
                if error in part.asked and self.setting.effects:
                    continue  # what is settled takes a step number without an effect, which `ledger` does not show
                after = self._put_part(s, p, part._replace(asked=(*part.asked, error)))
                out.append((("operator", f"asks for a replay of {error}"), False, after))

    # The shell.

    def _await(self, turn: Turn, effect: Any) -> None:
        super()._await(turn, effect)
        s, w, p, lane, owner, out = turn
        task = self.task(lane)
        if not self._others_alone(s, w, p) and self._comes_next(s, p, task) and self._waits(s, p, task):
            after = self._tell(s, w, p, lane, "polled", offsets_of(task.positions), 1, (), False, (), True)
            out.append(((self._name(w, p), "announces a replay"), owner, after))

    def _comes_next(self, s: State, p: int, task: Task) -> bool:
        """Y1: with effects the messages that are there come first in each start."""
        there = any(self.rest(offsets_of(task.positions), self.highs(self.part(s, p))))
        return task.takes_replays and not (there and task.messages_first)

    def _waits(self, s: State, p: int, task: Task) -> bool:
        return place_of(task.record) < len(self.part(s, p).asked)

    def _await_due(self, turn: Turn, due: Due, offsets: tuple[int, ...]) -> None:
        if not due.replay:
            super()._await_due(turn, due, offsets)
            return
        s, w, p, lane, owner, out = turn
        lane = lane._replace(alone=self.task(lane).alone)
        after = self._tell(s, w, p, lane, "polled", offsets, 1, (), False, (), True)
        out.append(((self._name(w, p), "announces the replay again"), owner, after))

    def _due(self, task: Task, count: int, choice: Any) -> tuple[Step, ...]:
        return () if task.due and task.due.replay else super()._due(task, count, choice)

    def _step_of(self, s: State, p: int, task: Task) -> Step:
        return replay_of(self.part(s, p).asked[place_of(task.record)])

    def _call(self, turn: Turn, call: Any) -> None:
        if not call.replay:
            super()._call(turn, call)
        elif not self._others_alone(turn.s, turn.w, turn.p):
            self._run(turn, (self._step_of(turn.s, turn.p, self.task(turn.lane)),))

    def _results(self, turn: Turn, steps: tuple[Step, ...]) -> Iterator[tuple[Delivered, str]]:
        if self._replays(steps):
            [step] = steps
            if self._is_settled(self.part(turn.s, turn.p), settled_by(step)):
                yield ((step, AGAIN),), ""
            else:
                for kind, halt in MEANS[self.setting.again[step[0][1]]]:
                    yield (() if halt else ((step, kind),)), halt
            return
        yield from super()._results(turn, steps)

    def _is_settled(self, part: Part, error: Error) -> bool:
        """Y2: a `settled` record is looked for before the call."""
        return error in settled_in(part)

    @staticmethod
    def _replays(steps: tuple[Step, ...]) -> bool:
        return bool(steps) and steps[0][0][0] > FIRST

    def _after_calls(self, turn: Turn, ends: tuple[int, ...], done: Delivered, halt: str) -> State:
        s, w, p, lane, *_ = turn
        lane = lane._replace(carried=done, fetched=())
        behind = self._behind_request(self.task(lane)) if self._replays(tuple(step for step, _ in done)) else -1
        return self._tell(s, w, p, lane, "called", ends, self._counts(done), halt, (), behind)

    def _behind_request(self, task: Task) -> int:
        """Y2: the place in the replay topic, which the attempt moves."""
        return place_of(task.record) + 1

    def _counts(self, done: Delivered) -> tuple[int, ...]:
        kinds = "".join("n" if kind == AGAIN else kind for _, kind in done)
        replays = sum(self._replays((step,)) for step, _ in done)
        return (*counts(kinds), 0, 0, 0, 0, replays)

    def _behind(self, offsets: tuple[int, ...], steps: tuple[Step, ...]) -> tuple[int, ...]:
        return super()._behind(offsets, tuple(messages_of(list(steps))))

    def _quarantine(self, turn: Turn, quarantine: Any) -> None:
        if not quarantine.replay:
            super()._quarantine(turn, quarantine)
            return
        s, w, p, lane, owner, out = turn
        step = self._step_of(s, p, self.task(lane))
        told = self._after_calls(turn, offsets_of(quarantine.ends), ((step, "q"),), "")
        out.append(((self._name(w, p), "takes the replay out"), owner, told))

    def _loose(self, lane: Lane) -> tuple[int, tuple[Outcome, ...]]:
        number, outcomes = super()._loose(lane)
        record = self.machine.record(number)
        if not isinstance(record, Attempt) or not record.batch.replays:
            return number, outcomes
        return number, (*outcomes, *self._settling(lane))

    def _settling(self, lane: Lane) -> tuple[Outcome, ...]:
        """Y2: the `settled` records of a transaction."""
        steps = [step for step, _ in lane.carried if self._replays((step,))]
        return tuple(Outcome(((FIRST + error[0], error[1]),), SETTLED, 0, 1) for error in map(settled_by, steps))

    def _keeps(self, kind: str) -> bool:
        return kind != AGAIN and super()._keeps(kind)

    def _identified(self, task: Task, steps: tuple[Step, ...]) -> str:
        """I6, Y1: a replay has the hash of the delivery that it repeats."""
        if not self._replays(steps):
            return super()._identified(task, steps)
        [step] = steps
        original = ((0, step[0][1]),)
        name = self._hash_of(task, original, settled_by(step)[0] + 1)
        if self.hashes.setdefault((task.spec.partition, original), name) != name:
            return f"I6: the hash of {step} is another one at its replay"
        return ""

    def _hash_of(self, task: Task, original: Step, replay: int) -> bytes:
        del replay
        return hashing.delivery_hash("g", "p", self._consumed(task, original))

    def _chain(self, before: Record | None, record: Record, part: Part, killed: int) -> str:
        if before and place_of(record) < place_of(before):
            return f"Y2: the place in the replay topic goes back, from {place_of(before)} to {place_of(record)}"
        return super()._chain(before, record, part, killed)

    # What must hold.

    def judged(self, part: Part, record: Record) -> str:
        """Y2: what lies below the place in the replay topic, and nothing else, is settled, with one outcome."""
        place, settled = place_of(record), settled_in(part)
        below = part.asked[:place]
        if record.totals.replays != place:
            return f"Y2: the place is {place}, and {record.totals.replays} replays are counted"
        if settled != set(below):
            return f"Y2: {below} lies below the place, and {settled} is settled"
        nil = {offset for offset, kind in enumerate(self.setting.again) if kind in "n?"}
        outcomes = {settled_by(one.step) for one in part.outputs if one.step[0][0] > FIRST and one.kind != SETTLED}
        dropped = self._dropped(part, record)
        silent = {error for error in settled - outcomes - dropped if error[1] not in nil}
        if outcomes & dropped:
            return f"Y2: {outcomes & dropped} was dropped first, and has an outcome"
        if silent or outcomes - settled:
            return f"Y2: {settled} is settled, and {outcomes} has outcomes"
        return ""

    def _dropped(self, part: Part, record: Record) -> set[Error]:
        """The errors below the place that were dropped, see `dropping`."""
        del part, record
        return set()

    def kept(self, part: Part, record: Record) -> Record:
        """The record as a judge of stores wants it: a step that called nothing changed nothing."""
        below = part.asked[: place_of(record)]
        silent = len(below) - len(set(below)) + len(self._dropped(part, record))
        return replace(record, totals=record.totals._replace(nils=record.totals.nils - silent))


def judged_store(world: ReplayWorld, part: Part, record: Record, delivered: dict[Step, str]) -> str:
    """What is wrong with a store beside the newest record; empty: nothing."""
    return stores.judged(part.changes, world.kept(part, record), delivered)
