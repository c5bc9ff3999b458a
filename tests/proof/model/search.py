"""Breadth-first search: every state within the faults of a world, or the first ones of them, up to a number.

A counterexample is a shortest path, because states are met in the order of their distance. Progress (I5, I10) is judged
along the way: from every state, the calm transitions alone, in a fixed order, must lead to the end; so no recovery ever
needs a transaction time-out, a zombie's step or a late request. That order is one schedule: it shows that a way exists,
and endless mutual fencing along another would not be seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tests.proof.model.invariants import Invariants
from tests.proof.model.machine import Broken
from tests.proof.model.states import Moves, State
from tests.proof.model.world import World

MANY = 1_000
"""Calm steps: several times what the longest world needs from its first state to its last."""


class Move(NamedTuple):
    """One line of a path: which of the state's moves it was, who moved, and what the mover did."""

    number: int
    who: str
    what: str


@dataclass(frozen=True, slots=True)
class Found:
    """
    What a search found.

    Attributes:
        states: distinct ones.
        transitions: between them.
        depth: of the last state; the length of the counterexample where there is one.
        seconds: that it took.
        complete: whether all states within the faults were seen.
        violated: what is wrong; empty: nothing.
        path: a shortest way there.
    """

    states: int
    transitions: int
    depth: int
    seconds: float
    complete: bool
    violated: str = ""
    path: tuple[Move, ...] = ()

    @property
    def rate(self) -> float:
        """States per second."""
        return self.states / max(self.seconds, 1e-9)


class Search:
    """One search through one world."""

    def __init__(self, world: World, *, limit: int | None = None, progress: bool = True) -> None:
        """
        Args:
            world: with its faults.
            limit: states after which to stop.
            progress: whether I5 is checked too.
        """
        self._world = world
        self._limit = limit
        self._progress = progress
        self._invariants = Invariants(world)
        self._parents: dict[State, State | None] = {}
        self._drained: set[State] = set()
        self._transitions = 0

    def run(self) -> Found:
        """Until all is seen, the limit is reached, or something is wrong."""
        began = time.perf_counter()
        first = self._world.first()
        self._parents[first] = None
        violated, last = "", first
        depth = 0
        layer = [first]
        complete = True
        while layer and not violated:
            following: list[State] = []
            for state in layer:
                last, violated = state, self._visit(state, following)
                if violated:
                    break
            else:
                depth += 1
            if self._limit is not None and len(self._parents) >= self._limit and following and not violated:
                complete = False
                break
            layer = following
        path = tuple(self._path(last)) if violated else ()
        seconds = time.perf_counter() - began
        return Found(
            len(self._parents), self._transitions, len(path) if violated else depth, seconds, complete, violated, path
        )  # fmt: skip

    def _visit(self, state: State, following: list[State]) -> str:
        """What is wrong with a state; its successors that are new."""
        violated = self._invariants.violated(state)
        if violated:
            return violated
        try:
            moves = self._world.moves(state)
        except Broken as broken:
            return str(broken)
        self._transitions += len(moves)
        parents = self._parents
        for _, _, after in moves:
            if after not in parents:
                parents[after] = state
                following.append(after)
        return self._never_ends(state) if self._progress else ""

    def _never_ends(self, state: State) -> str:
        """I5, judged once for all numbers of faults that are left: no calm transition depends on them."""
        return followed(self._world, self._world.healed(state), self._world.calm, self._drained)

    def _path(self, state: State) -> Iterator[Move]:
        """From the first state to this one."""
        states = [state]
        while (before := self._parents[states[-1]]) is not None:
            states.append(before)
        states.reverse()
        for before, after in pairwise(states):
            moves = enumerate(self._world.moves(before))
            yield next(Move(i, *label) for i, (label, _, found) in moves if found == after)


def stuck(world: World, state: State, moves: Moves, drained: set[State]) -> str:
    """
    I5: what keeps a healed world from delivering everything; empty: nothing.

    Args:
        world: which.
        state: where the faults stop.
        moves: of that state.
        drained: states that are known to come to the end; those on the way are added.
    """
    return followed(world, state, lambda at: _calm(moves if at == state else world.moves(at)), drained)


def followed(world: World, state: State, calm: Callable[[State], State | None], drained: set[State]) -> str:
    """The same, where `calm` gives what a healed world does next; None: nothing."""
    passed: dict[State, None] = {}
    at = state
    while at not in drained:
        if at in passed:
            return "I5: without faults it goes round and never delivers"
        passed[at] = None
        if len(passed) > MANY:
            return f"I5: without faults it does not deliver within {MANY:,} steps"
        try:
            following = calm(at)
        except Broken as broken:
            return f"without faults: {broken}"
        if world.done(at):
            break
        if following is None:
            return "I5: without faults nothing can happen, and not all is delivered"
        at = following
    drained.update(passed)
    return ""


def _calm(moves: Moves) -> State | None:
    return next((after for _, calm, after in moves if calm), None)
