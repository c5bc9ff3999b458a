"""The search of `tests.proof.model.search`, with progress judged once for all numbers of faults that are left.

Progress is judged along one of two schedules. In the first one, the first calm one of `moves` goes on. The other one
lets the tasks take turns, step by step, so that two of them that undo each other's work go round without end.
"""

from __future__ import annotations

from tests.proof.model.machine import Broken
from tests.proof.model.search import MANY, Search
from tests.proof.model.states import NO_FAULTS, State, put
from tests.proof.model.world import World
from tests.proof.sessions.joint import JointWorld


def healed(world: World, s: State) -> State:
    """The same moment, from which on nothing fails and nothing that is late arrives."""
    nothing, none_left = world.values.number(()), world.values.number(NO_FAULTS)
    return put(put(s, world._net, nothing), world._faults, none_left)


def first_calm(world: World, s: State) -> State | None:
    """What a healed world does next."""
    if isinstance(world, JointWorld):
        return world.calm(s)
    return next((after for _, calm, after in world.moves(s) if calm), None)


class JointSearch(Search):
    """Calm moves do not depend on the faults that are left, nor on what is late: so neither does progress."""

    def __init__(
        self,
        world: World,
        *,
        limit: int | None = None,
        progress: bool = True,
        nearest: int | None = None,
        turns: bool = False,
    ) -> None:
        """
        Args:
            world: with its faults.
            limit: states after which to stop.
            progress: whether it is judged.
            nearest: how many states it is judged of, the nearest ones; None: of all.
            turns: whether it is judged along the second schedule, too.
        """
        super().__init__(world, limit=limit, progress=False)
        self._judged = progress
        self._nearest = nearest
        self._turns = turns
        self._seen = 0
        self._in_turns: set[tuple[State, str]] = set()

    @property
    def judged(self) -> int:
        """Of how many states progress was judged."""
        return self._seen if self._judged else 0

    def _visit(self, state: State, following: list[State]) -> str:
        violated = super()._visit(state, following)
        if violated or not self._judged or (self._nearest is not None and self._seen >= self._nearest):
            return violated
        self._seen += 1
        calm = healed(self._world, state)
        try:
            return self._stuck(calm) or (self._stuck_in_turns(calm) if self._turns else "")
        except Broken as broken:
            return f"without faults: {broken}"

    def _stuck(self, state: State) -> str:
        """I5: see `tests.proof.model.search.stuck`."""
        passed: dict[State, None] = {}
        at = state
        while at not in self._drained:
            if at in passed:
                return "I5: without faults it goes round and never delivers"
            passed[at] = None
            if len(passed) > MANY:
                return f"I5: without faults it does not deliver within {MANY:,} steps"
            if self._world.done(at):
                if wrong := self._invariants.violated(at):
                    return f"without faults: {wrong}"
                break
            following = first_calm(self._world, at)
            if following is None:
                return "I5: without faults nothing can happen, and not all is delivered"
            at = following
        self._drained.update(passed)
        return ""

    def _stuck_in_turns(self, state: State) -> str:
        """I5 where no task makes two steps while another one could make one."""
        passed: dict[tuple[State, str], None] = {}
        at, last = state, ""
        while (at, last) not in self._in_turns:
            if (at, last) in passed:
                return "I5: with tasks that take turns it goes round and never delivers"
            passed[at, last] = None
            if len(passed) > MANY:
                return f"I5: with tasks that take turns it does not deliver within {MANY:,} steps"
            if self._world.done(at):
                if wrong := self._invariants.violated(at):
                    return f"without faults: {wrong}"
                break
            found = self._in_turn(at, last)
            if found is None:
                return "I5: without faults nothing can happen, and not all is delivered"
            at, last = found
        self._in_turns.update(passed)
        return ""

    def _in_turn(self, at: State, last: str) -> tuple[State, str] | None:
        """Brokers and group do at once what they can do; of the tasks, the next one behind the last one."""
        found: dict[str, State] = {}
        for (who, _), calm, after in self._world.moves(at):
            task = who.partition("+")[0]
            if calm and not task.startswith("w"):
                return after, last
            if calm:
                found.setdefault(task, after)
        if not found:
            return None
        who = min((one for one in found if one > last), default=min(found))
        return found[who], who
