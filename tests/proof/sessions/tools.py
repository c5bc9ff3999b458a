"""What a tool of operators does beside joint sessions (X2, J8)."""

from __future__ import annotations

from cues_kafka.core.events import Halt
from cues_kafka.core.states.transitions import MAX_ROUNDS
from tests.proof.model.states import IDLE, ONGOING, Moves, State, Turn
from tests.proof.sessions.coordinator import Coordinator


class Tools(Coordinator):
    """A tool, which has the id of each task that it moves."""

    def _all_ended(self, turn: Turn) -> bool:
        """J8: a tool ends what is open under the id of any task, before it recovers one."""
        s, w, p, _, owner, out = turn
        for k in range(self.setting.partitions):
            if self.transaction(s, k).phase == ONGOING and k != p:
                out.append(((self._name(w, p), f"ends what id{k} has open"), owner, self._fence(s, k)))
        return all(self.transaction(s, k).phase == IDLE or k == p for k in range(self.setting.partitions))

    def _tool_stopped(self, s: State, w: int, p: int, halt: Halt) -> State:
        """J8: fewer things go wrong in a world than a tool has rounds (R7), so none of them makes it give up."""
        lane, part = self.worker(s, w).lanes[p], self.part(s, p)
        if lane is not None and self.task(lane).rounds >= MAX_ROUNDS:
            s = self._put_part(s, p, part._replace(wrong=f"J8: a tool gives up: {halt.text}"))
        return super()._tool_stopped(s, w, p, halt)

    def _noticing(self, s: State, out: Moves) -> None:
        """J8: the operator starts no worker before the tool has ended, so its progress needs none."""
        found: Moves = []
        super()._noticing(s, found)
        at_work = self.setting.moves > 0 and any(self.worker(s, self._workers - 1).lanes)
        for label, calm, after in found:
            out.append((label, calm and not at_work, after))
