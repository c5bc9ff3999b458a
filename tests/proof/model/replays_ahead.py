"""A world with replays in which messages are called while a commit is under way (P7, Y1).

What is called ahead names the attempt that follows the record under way (O8): its sequence stands in the header of each
outcome. A replay may be announced where no snapshot is due. Behind its snapshot comes its own attempt, and what was
called meanwhile would have that one's sequence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cues_kafka.core import effects as do
from tests.proof.model.machine import offsets_of
from tests.proof.model.replaying import ReplayWorld
from tests.proof.model.states import Delivered, Lane, Moves, State, Turn

_UNDER_WAY = (do.Begin, do.SendOffsets, do.Flush, do.Commit)


class CalledAhead(NamedTuple):
    """
    A batch that was called before the commit under way was known.

    Attributes:
        done: its steps, and what became of them.
        ends: behind the last of them.
        sequence: of the attempt that its outcomes name.
    """

    done: Delivered
    ends: tuple[int, ...]
    sequence: int


class ReplayAheadWorld(ReplayWorld):
    """A setting with replays and with calls ahead."""

    def _lane(self, s: State, w: int, p: int, lane: Lane, out: Moves) -> None:
        super()._lane(s, w, p, lane, out)
        if lane.effect >= 0 and isinstance(self.machine.effects.items[lane.effect], _UNDER_WAY):
            self._call_ahead(Turn(s, w, p, lane, False, out))

    def _call_ahead(self, turn: Turn) -> None:
        s, w, p, lane, _, out = turn
        task, part, who = self.task(lane), self.part(s, p), self._name(w, p)
        if lane.own is not None or lane.said or not task.pipelined:
            return
        assert task.pending
        offsets = offsets_of(task.pending.positions)
        for steps in self._cuts(task, self.rest(offsets, self.highs(part))):
            for done, halt in self._results(turn, steps):
                if done and not halt:
                    ends = self._behind(offsets, tuple(step for step, _ in done))
                    ahead = CalledAhead(done, ends, task.next_sequence)
                    after = self._put_lane(s, w, p, lane._replace(own=ahead))
                    out.append(((who, f"calls ahead: {''.join(kind for _, kind in done)}"), False, after))

    def _init(self, turn: Turn, init: Any) -> None:
        """R1: what was called ahead of a commit that is not known is void."""
        super()._init(turn._replace(lane=turn.lane._replace(own=None)), init)

    def _await(self, turn: Turn, effect: Any) -> None:
        lane, task = turn.lane, self.task(turn.lane)
        if lane.own is None or task.snapshot_due:
            super()._await(turn, effect)
            return
        ahead: CalledAhead = lane.own
        s, w, p, _, owner, out = turn
        if ahead.sequence != task.next_sequence:
            named = f"O8: what was called ahead names attempt {ahead.sequence}, and it is {task.next_sequence}"
            s = self._put_part(s, p, self.part(s, p)._replace(wrong=named))
        turn = turn._replace(s=s, lane=lane._replace(own=None))
        out.append(((self._name(w, p), "commits what it called ahead"), owner, self._committed_ahead(turn, ahead)))

    def _committed_ahead(self, turn: Turn, ahead: CalledAhead) -> State:
        return self._after_calls(turn, ahead.ends, ahead.done, "")
