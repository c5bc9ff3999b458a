"""The search of `tests.proof.model.search`, with progress judged once for all numbers of faults that are left."""

from __future__ import annotations

from tests.proof.model.machine import Broken
from tests.proof.model.search import Search, stuck
from tests.proof.model.states import NO_FAULTS, State, put
from tests.proof.model.world import World


def healed(world: World, s: State) -> State:
    """The same moment, from which on nothing fails and nothing that is late arrives."""
    nothing, none_left = world.values.number(()), world.values.number(NO_FAULTS)
    return put(put(s, world._net, nothing), world._faults, none_left)


class JointSearch(Search):
    """Calm moves do not depend on the faults that are left, nor on what is late: so neither does progress."""

    def __init__(self, world: World, *, limit: int | None = None, progress: bool = True) -> None:
        super().__init__(world, limit=limit, progress=False)
        self._judged = progress

    def _visit(self, state: State, following: list[State]) -> str:
        violated = super()._visit(state, following)
        if violated or not self._judged:
            return violated
        calm = healed(self._world, state)
        if calm in self._drained:
            return ""
        try:
            return stuck(self._world, calm, self._world.moves(calm), self._drained)
        except Broken as broken:
            return f"without faults: {broken}"
