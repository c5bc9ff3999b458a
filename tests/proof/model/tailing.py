"""Worlds whose user code reads another topic with a tailer (S5, L1, L2).

Each step reads all that its tailer shows. So the messages of the tailed topic are told apart by who saw them: behind
each other, the steps that kept their moves must have seen each of them once, and the newest record says up to where.
Where views are fixed, each call of a step is compared with its first one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from cues_kafka.core import effects as do
from cues_kafka.core.records import Attempt, Record, Snapshot
from cues_kafka.core.spec import Input, Move, Spec
from tests.proof.model.machine import Facts, Machine, offsets_of
from tests.proof.model.states import Delivered, Lane, Moves, Outcome, Part, Setting, State, Step, Turn
from tests.proof.model.world import World

View: TypeAlias = tuple[int, int]
"""What a step saw: from where the tailer stood up to the end of what it showed."""

Seen: TypeAlias = tuple[tuple[Step, View], ...]


class Tailing(NamedTuple):
    """
    What a lane knows of its tailer.

    Attributes:
        at: where it stands, behind the steps that are called and not committed.
        end: up to where the present call sees; -1: to the end of the log.
        views: what the called steps saw.
    """

    at: int = 0
    end: int = -1
    views: Seen = ()


class TailWorld(World):
    """A setting with `tailed`."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        facts = self.machine.facts
        own = setting.tails_itself
        tailer = (Input("t", facts.inputs[0].topic if own else "topic-t"),)
        self.machine = Machine(
            Facts(facts.inputs, facts.ids, facts.high, tailer, (facts.ids[0] if own else b"t" * 16,), (setting.tailed,))
        )

    def _spec(self, w: int, deaths: int, p: int, move: Move | None = None) -> Spec:
        fixed = self.setting.fixed_views
        return replace(super()._spec(w, deaths, p, move), tailers=self.machine.facts.tailers, fixed_views=fixed)

    def _stages(self, s: State, out: Moves) -> Iterator[None]:
        """A message may arrive in the tailed topic at any time, at no price."""
        yield from super()._stages(s, out)
        for p, part in enumerate(self.parts(s)):
            if part.table < self.setting.tailed:
                after = self._put_part(s, p, part._replace(table=part.table + 1))
                out.append(((f"tailed p{p}", f"has grown to {part.table + 1}"), False, after))
        yield

    # Where a state has what the tailer showed.

    def _tailing(self, lane: Lane) -> Tailing:
        """What a lane knows of its tailer."""
        own: Tailing = lane.own
        return own

    def _with_tailing(self, lane: Lane, tailing: Tailing) -> Lane:
        return lane._replace(own=tailing)

    def _views_of(self, lane: Lane) -> Seen:
        """What the steps saw whose outcomes a lane commits next."""
        return self._tailing(lane).views

    def _seen_in(self, part: Part) -> Seen:
        """What the first call of each step saw."""
        return part.target or ()

    def _with_seen(self, part: Part, seen: Seen) -> Part:
        return part._replace(target=seen)

    # The shell.

    def _begin_to_read(self, turn: Turn, assign: do.AssignReader) -> None:
        """L2: tailers stand where the newest record says."""
        record = self.task(turn.lane).record
        assert record
        lane = self._with_tailing(turn.lane, self._stood(turn.lane, record))
        super()._begin_to_read(turn._replace(lane=lane), assign)

    def _stood(self, _: Lane, record: Record) -> Tailing:
        [at] = offsets_of(record.tails)
        return Tailing(at)

    def _tell(self, s: State, w: int, p: int, lane: Lane, *key: Any) -> State:
        """What the shell says of tailers besides."""
        if key[0] == "polled" and self.setting.fixed_views:
            key = (*key, False, (self._end(s, p),))
        if key[0] == "called":
            key = (*key, (self._tailing(lane).at,))
        return super()._tell(s, w, p, lane, *key)

    def _end(self, s: State, p: int) -> int:
        """The last stable offset of the tailed topic."""
        return self.part(s, p).table

    def _sent(self, send: do.SendOffsets) -> tuple[int, ...]:
        """By topic, as the shell sends them."""
        offsets = {position.topic: position.offset for position in send.positions}
        return tuple(offsets[one.topic] for one in self.machine.facts.inputs)

    # User code.

    def _call(self, turn: Turn, call: do.Call) -> None:
        end = offsets_of(call.tail_ends)[0] if call.tail_ends else -1
        lane = self._with_tailing(turn.lane, self._tailing(turn.lane)._replace(end=end))
        super()._call(turn._replace(lane=lane), call)

    def _views(self, turn: Turn, steps: tuple[Step, ...], kinds: str) -> tuple[Seen, int]:
        """What these steps saw, of which the last one may not have ended; and where the tailer stands behind them."""
        at, end = self._tailing(turn.lane).at, self._view_end(turn)
        seen: list[tuple[Step, View]] = []
        for i, step in enumerate(steps):
            kind = kinds[i : i + 1]
            seen.append((step, (at, at if kind == "q" else end)))
            at = end if self._keeps_moves(kind) else at
        return tuple(seen), at

    def _view_end(self, turn: Turn) -> int:
        """Up to where a call sees."""
        own = self._tailing(turn.lane)
        return max(own.at, self._end(turn.s, turn.p) if own.end < 0 else own.end)

    def _keeps_moves(self, kind: str) -> bool:
        """Whether a step that ended so keeps its moves; one that did not end has no kind (L1)."""
        return kind in ("o", "f", "n")

    def _witnessed(self, turn: Turn, steps: tuple[Step, ...], done: Delivered, halt: str) -> State:
        """S5: each call of a step sees what its first call saw."""
        s, p = turn.s, turn.p
        if not self.setting.fixed_views:
            return s
        part = self.part(s, p)
        seen: dict[Step, View] = dict(self._seen_in(part))
        for step, view in self._views(turn, steps[: len(done) + bool(halt)], "".join(kind for _, kind in done))[0]:
            if seen.setdefault(step, view) != view:
                part = part._replace(wrong=f"S5: a call of {step} saw {view}, the first one {seen[step]}")
        return self._put_part(s, p, self._with_seen(part, tuple(sorted(seen.items()))))

    def _after_calls(self, turn: Turn, ends: tuple[int, ...], done: Delivered, halt: str) -> State:
        steps = tuple(step for step, _ in done)
        views, at = self._views(turn, steps, "".join(kind for _, kind in done))
        if halt and self._keeps_moves(""):
            at = self._view_end(turn)
        lane = self._with_tailing(turn.lane, Tailing(at, -1, views))
        return super()._after_calls(turn._replace(lane=lane), ends, done, halt)

    def _loose(self, lane: Lane) -> tuple[int, tuple[Outcome, ...]]:
        """What a step writes shows what it saw."""
        number, outcomes = super()._loose(lane)
        views = dict(self._views_of(lane)) if outcomes else {}
        return number, tuple(outcome._replace(view=views[outcome.step]) for outcome in outcomes)

    # What must hold.

    def _chain(self, before: Record | None, record: Record, part: Part, killed: int) -> str:
        wrong = super()._chain(before, record, part, killed)
        delivers = isinstance(record, Attempt) and record.batch.deliveries
        if not wrong and self.setting.fixed_views and delivers and not isinstance(before, Snapshot):
            return "S5: a batch was called without a snapshot before it"
        return wrong

    def judged(self, part: Part, record: Record) -> str:
        """L1, L2: what is wrong with what the steps saw, and with where the record says that the tailer stands."""
        at = 0
        for step, kind, view in dict.fromkeys((one.step, one.kind, one.view) for one in part.outputs):
            if view[0] != at:
                return f"L1: {step} read from {view[0]}, and the steps before it had left the tailer at {at}"
            at = view[1] if kind in ("o", "f") else at
        [stands] = offsets_of(record.tails) or (-1,)
        return "" if stands == at else f"L2: the record says that the tailer stands at {stands}, and it does at {at}"
