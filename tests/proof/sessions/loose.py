"""At-least-once: the tasks of a process share one plain producer, and if it is given up, it is for all of them (J9)."""

from __future__ import annotations

from typing import Any

from cues_kafka.core import effects as do
from tests.proof.model.loose import LooseWorld
from tests.proof.model.states import Lane, State

WRITES = (do.Emit, do.Flush, do.SendOffsets)
"""Effects of a task that has something in the producer."""


class JointLoose(LooseWorld):
    """A setting at-least-once, whose workers have one producer each."""

    def _failed(self, s: State, w: int, p: int, lane: Lane, why: str, *, fenced: bool = False) -> State:
        """The producer is closed: who waits for its reports hears of that, and the next to write opens another one."""
        s = super()._failed(s, w, p, lane, why, fenced=fenced)
        for q, other in enumerate(self.worker(s, w).lanes):
            if q != p and other is not None and isinstance(self._effect_of(other), WRITES):
                s = self._tell(s, w, q, other, "failed", "the producer was closed", False)
        return s

    def _effect_of(self, lane: Lane) -> Any:
        return self.machine.effects.items[lane.effect] if lane.effect >= 0 else None
