"""The simulation is itself tested: it finds planted defects within its thousand seeds, again, and makes them small."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.proof.defects import DEFECTS, called_ahead_survives_a_failed_commit, error_besides_an_output, never_alone
from tests.proof.simulation.options import MIXED, Options
from tests.proof.simulation.shrink import Result, attempt, shrink

SEEDS = 1_000
Plant = Callable[[pytest.MonkeyPatch], None]

SOON: dict[Plant, int] = {
    called_ahead_survives_a_failed_commit: 100,  # P7: a hundred seeds are run where a developer waits for them
    never_alone: 300,  # Q2a: in a part of them, processes die of one message and of nothing else
}
"""What must be found by an earlier seed than by one of a thousand."""


def run(plant: Plant, options: Options) -> Result:
    """One run with the defect, which is planted again: it may remember things."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        return attempt(options)


def first_failure(plant: Plant, first: int = 0) -> Result:
    """Of a thousand seeds, in order, from this one on."""
    for seed in range(first, first + SEEDS):
        result = run(plant, Options.of_seed(seed))
        assert not result.failure.startswith(("AttributeError", "ImportError", "NameError")), (
            "the defect itself is broken"
        )
        if result.failure:
            return result
    raise AssertionError(f"not found by {SEEDS} seeds")


@pytest.mark.parametrize("plant", DEFECTS, ids=lambda plant: plant.__name__)
def test_a_planted_defect_is_found_and_found_again(plant: Plant) -> None:
    """By the same seed, in the same words."""
    found = first_failure(plant, DEFECTS[plant])
    assert found.options.seed < SOON.get(plant, MIXED + SEEDS)
    assert run(plant, found.options).failure == found.failure
    assert not attempt(found.options).failure, "it was the defect that failed"


@pytest.mark.full
def test_a_failure_shrinks_to_the_least_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """One processor, no faults, few messages; its command replays it."""
    error_besides_an_output(monkeypatch)
    small = shrink(first_failure(lambda _: None), rounds=300)
    options = small.options
    assert not small.faults
    assert len(options.parts) == 1
    assert options.messages < 20
    assert (options.workers, options.partitions) == (1, 1)
    replayed = Options.of_seed(options.seed, json.loads(json.dumps(options.changes())))
    assert attempt(replayed).failure == small.failure
