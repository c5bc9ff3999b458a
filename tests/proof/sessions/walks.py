"""Random walks: they go deeper than a search, which sees all states near the first one, and miss most of what is near.

A walk makes one move after the other. What it meets is judged as in a search: each state by the invariants, and some of
them by whether everything is delivered from there on. A counterexample is shortened: moves are left out as long as the
others still lead to the same verdict.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tests.proof.model.machine import Broken
from tests.proof.model.search import Found, Move
from tests.proof.model.states import Moves, State
from tests.proof.model.world import World
from tests.proof.sessions.search import JointSearch, healed

STEPS = 150
"""Moves of a walk, at most. A world with two faults has delivered everything after 60 to 120."""

CALM = 0.75
"""How often a walk makes one of the calm moves, if there is one: else it would spend its faults within a few moves."""

JUDGED_EVERY = 5
"""Progress is judged of one state in five: it costs more than the walk."""


class Step(NamedTuple):
    """A move of a walk, by its label; `number` tells those with the same one apart."""

    who: str
    what: str
    number: int


def named(moves: Moves) -> dict[Step, State]:
    """Where each move leads; in their order."""
    seen: Counter[tuple[str, str]] = Counter()
    found = {}
    for label, _, after in moves:
        found[Step(*label, seen[label])] = after
        seen[label] += 1
    return found


class Walks(JointSearch):
    """Random walks through one world."""

    def __init__(self, world: World, *, progress: bool = True) -> None:
        """
        Args:
            world: with its faults.
            progress: whether it is judged, along both schedules.
        """
        super().__init__(world, progress=progress, turns=True)
        self._met: set[State] = set()

    def run_all(self, seeds: Sequence[int]) -> Found:
        """One walk for each seed, until something is wrong; `states` are distinct ones, and all walks together."""
        began = time.perf_counter()
        violated, longest = "", 0
        path: tuple[Move, ...] = ()
        for seed in seeds:
            violated, steps = self._walk(random.Random(seed))
            longest = max(longest, len(steps))
            if violated:
                steps = self._shortened(steps, violated)
                path = tuple(Move(step.number, step.who, step.what) for step in steps)
                break
        seconds = time.perf_counter() - began
        depth = len(path) if violated else longest
        return Found(len(self._met), self._transitions, depth, seconds, False, violated, path)

    def _walk(self, chance: random.Random) -> tuple[str, list[Step]]:
        """What is wrong at the end of a walk, if anything, and its moves."""
        state, steps = self._world.first(), list[Step]()
        while len(steps) < STEPS:
            if violated := self._judge(state, progress=chance.randrange(JUDGED_EVERY) == 0):
                return violated, steps
            try:
                moves = self._world.moves(state)
            except Broken as broken:
                return str(broken), steps
            if not moves:
                break
            self._transitions += len(moves)
            steps_on = named(moves)
            calm = [step for step, (_, calm, _) in zip(steps_on, moves, strict=True) if calm]
            step = chance.choice(calm if calm and chance.random() < CALM else [*steps_on])
            steps.append(step)
            state = steps_on[step]
        return "", steps

    def _judge(self, state: State, *, progress: bool) -> str:
        self._met.add(state)
        violated = self._invariants.violated(state)
        if violated or not (progress and self._judged):
            return violated
        self._seen += 1
        calm = healed(self._world, state)
        try:
            return self._stuck(calm) or self._stuck_in_turns(calm)
        except Broken as broken:
            return f"without faults: {broken}"

    def _shortened(self, steps: list[Step], violated: str) -> list[Step]:
        """Without the moves that the verdict does not need."""
        length = 0
        while length != len(steps):
            length, at = len(steps), 0
            while at < len(steps):
                fewer = steps[:at] + steps[at + 1 :]
                if self.verdict(fewer) == violated:
                    steps = fewer
                else:
                    at += 1
        return steps

    def verdict(self, steps: Sequence[Step]) -> str:
        """Where these moves lead; empty: to nothing wrong, or they cannot be made."""
        state = self._world.first()
        try:
            for step in steps:
                found = named(self._world.moves(state)).get(step)
                if found is None:
                    return ""
                state = found
            violated = self._judge(state, progress=True)
            self._world.moves(state)
        except Broken as broken:
            return str(broken)
        return violated
