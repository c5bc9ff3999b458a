"""
Joint sessions (J1 to J9) on the production core: near states of their worlds, and mutants with short counterexamples.

`python -m tests.proof.sessions` looks at more of them, and writes docs/proof/sessions.md.
"""

from __future__ import annotations

import pytest

from tests.proof.model import trace
from tests.proof.model.worlds import ONE
from tests.proof.sessions.mutants import COVERED, MUTANTS, JointMutant
from tests.proof.sessions.search import JointSearch
from tests.proof.sessions.worlds import WORLDS, with_faults, world_of

NEAREST = 300

QUICK = {
    "a blocked recovery does not return to R1",
    "a session goes on after a failure",
    "delivery reports not counted",
    "ids of their own",
    "no throwaway init",
    "the others commit without the task that failed",
}
"""Mutants that are found within a second."""


@pytest.mark.parametrize("name", ["joint", "joint-former", "joint-target"])
def test_no_near_state_of_a_joint_world_violates_an_invariant(name: str) -> None:
    """The first ones from the start."""
    found = JointSearch(world_of(with_faults(name, ONE)), limit=NEAREST).run()

    assert not found.violated, "\n".join(trace.lines(found.path, found.violated))
    assert found.states > 100


@pytest.mark.full
@pytest.mark.parametrize("name", WORLDS)
def test_no_state_of_a_joint_world_violates_an_invariant(name: str) -> None:
    """The nearest 5,000."""
    found = JointSearch(world_of(with_faults(name, ONE)), limit=5_000).run()

    assert not found.violated, "\n".join(trace.lines(found.path, found.violated))


@pytest.mark.parametrize(
    "mutant", [pytest.param(one, id=one.name, marks=() if one.name in QUICK else pytest.mark.slow) for one in MUTANTS]
)
def test_a_mutant_of_joint_sessions_is_caught(mutant: JointMutant) -> None:
    """A world in which one survives has a hole of its own; that the explorer itself fails is no counterexample."""
    violated = mutant.explore().violated

    assert violated
    assert not any(name in violated for name in ("IndexError", "KeyError", "TypeError"))


def test_names_of_joint_mutants_are_their_own() -> None:
    """The page has one line for each."""
    names = [one.name for one in (*MUTANTS, *(one for one, _ in COVERED))]

    assert len({*names}) == len(names)
