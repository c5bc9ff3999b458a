"""Defects in joint sessions, each of which takes one of their rules out: a seed of the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cues_kafka.core import events as on
from cues_kafka.workers.joint.rounds import SessionState
from cues_kafka.workers.joint.session import JointSession
from cues_kafka.workers.joint.share import Share
from tests.proof.simulation.options import Options
from tests.proof.simulation.shrink import attempt

Patch = pytest.MonkeyPatch

HARSH: dict[str, Any] = {
    "kill": 3, "pause": 10, "move": 30, "late": 60, "lose": 20, "suspect": 200, "stale": 150, "compact": 0, "forget": 0,
    "workers": 2, "partitions": 2, "poison": 0, "steps": 300, "max_messages": 3,
}  # fmt: skip
"""Faults that come more often than those of most seeds, so that few seeds are needed."""

RESTLESS: dict[str, Any] = HARSH | {"kill": 25, "stale": 0, "lose": 50, "partitions": 4, "move": 60}
"""The same with processes that come and go."""


def id_of_a_task_that_is_gone(patch: Patch) -> None:
    """J1: the session keeps its id, although another process has the task."""
    patch.setattr(SessionState, "left", SessionState.discards)


def places_are_not_looked_at(patch: Patch) -> None:
    """P6a, J3: the record of each task is taken to have landed where it should."""

    def flushed(_: Any, share: Share, produced: int, __: int | None) -> on.Event:
        return on.Flushed(produced, produced, share.interpreter.task.expected)

    patch.setattr(JointSession, "_flushed", flushed)


@pytest.mark.parametrize(
    ("plant", "seed", "changes", "found"),
    [
        (places_are_not_looked_at, 2_000_006, HARSH, "Violation: I13"),
        (id_of_a_task_that_is_gone, 2_000_015, RESTLESS, "Stuck"),
    ],
)
def test_a_defect_of_joint_sessions_is_found(
    plant: Callable[[Patch], None], seed: int, changes: dict[str, Any], found: str
) -> None:
    """And it is the defect that failed."""
    options = Options.of_seed(seed, changes)
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)

        assert attempt(options).failure.startswith(found)
    assert not attempt(options).failure
