"""Mutants of the rules of feeds (G1 to G3); see `mutants`."""

from __future__ import annotations

from typing import Any, Final

from cues_kafka.core import feeds, writing
from cues_kafka.core.states import delivery
from cues_kafka.core.task import Task
from tests.proof.model.feeds import FeedWorld
from tests.proof.model.mutant import CRASH, NET, NOTHING, Mutant, Patch, around_world
from tests.proof.model.world import World


def _without_place() -> Patch:
    """G1: the record does not carry the place."""
    old = writing.attempt_of

    def attempt_of(task: Task, positions: Any, batch: Any, place: str = "") -> Any:
        del place
        return old(task, positions, batch)

    return delivery, "attempt_of", attempt_of


def _from_memory() -> Patch:
    """G1, R6: after a recovery the task reads on where it stood."""

    def begin(_: Any, world: FeedWorld, turn: Any, assign: Any) -> None:
        own = turn.lane.own
        if own is None:
            record = world.task(turn.lane).record
            assert record
            own = world.ends(record)[0]
        World._begin_to_read(world, turn._replace(lane=turn.lane._replace(own=own)), assign)

    return around_world("_begin_to_read", begin, FeedWorld)


def _from_the_beginning() -> Patch:
    """G1: a new process does not ask its record."""

    def begin(_: Any, world: FeedWorld, turn: Any, assign: Any) -> None:
        World._begin_to_read(world, turn._replace(lane=turn.lane._replace(own=turn.lane.own or 0)), assign)

    return around_world("_begin_to_read", begin, FeedWorld)


def _end_of_now() -> Patch:
    """G2: the offset is where the log ends before the transaction."""

    def own_end(task: Task) -> Any:
        [position] = feeds.own_end(task)
        return (position._replace(offset=task.expected),)

    return writing, "own_end", own_end


def _announced() -> Patch:
    """G3: the first batch of a start gets a snapshot, as of other tasks."""

    def snapshot_due(task: Task) -> bool:
        return task.first and task.spec.rules.snapshots

    return Task, "snapshot_due", property(snapshot_due)


FEEDS: Final = [
    Mutant("a feed's record has no place", "feed", NOTHING, (_without_place(),)),
    Mutant("a feed reads on where it stood", "feed", NET, (_from_memory(),)),
    Mutant("a feed begins at the beginning of its source", "feed", CRASH, (_from_the_beginning(),)),
    Mutant("a feed's offset is the end of its log before its record", "feed", NOTHING, (_end_of_now(),)),
    Mutant("a feed announces what it has not read", "feed", NOTHING, (_announced(),)),
]
"""Rules of feeds."""
