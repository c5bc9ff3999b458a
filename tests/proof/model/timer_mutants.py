"""Mutants of the rules of timers (F1 to F4); see `mutants`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from cues_kafka.core import writing
from cues_kafka.core.states import delivery, recovery
from cues_kafka.core.states import transitions as go
from cues_kafka.core.task import Task
from tests.proof.model.mutant import CRASH, NOTHING, Mutant, Patch, around_world, handler
from tests.proof.model.timers import TIMER, Clock, TimerWorld


def _world(name: str, new: Any) -> Patch:
    return around_world(name, new, TimerWorld)


def _kept_by_an_error() -> Patch:
    """F4: an error takes back the removal of its timer, too."""

    def behind(old: Any, world: TimerWorld, clock: Clock, step: Any, kind: str) -> Clock:
        after: Clock = old(world, clock, step, kind)
        return clock if step[0][0] == TIMER and kind in "eq" else after

    return _world("_behind_step", behind)


def _set_by_an_error() -> Patch:
    """F1: a step that failed has set its timer all the same."""

    def behind(old: Any, world: TimerWorld, clock: Clock, step: Any, kind: str) -> Clock:
        after: Clock = old(world, clock, step, "n" if kind == "e" and step[0][0] != TIMER else kind)
        return after

    return _world("_behind_step", behind)


def _after_the_next_message() -> Patch:
    """F2: a message comes first where there is one."""

    def following(old: Any, world: TimerWorld, task: Task, clock: Clock, done: Any) -> Any:
        if task.due is None and not done:
            return old(world, task, clock._replace(time=-1), done) or old(world, task, clock, done)
        return old(world, task, clock, done)

    return _world("_following", following)


def _by_key() -> Patch:
    """F2: due timers fire in another order."""

    def following(old: Any, world: TimerWorld, task: Task, clock: Clock, done: Any) -> Any:
        turned = tuple(sorted(clock.pending, key=lambda one: (one[0] > clock.time, one[1])))
        return old(world, task, clock._replace(pending=turned), done)

    return _world("_following", following)


def _batch_goes_on() -> Patch:
    """F3: an announced batch of messages goes on where one of its steps makes a timer due."""
    return _world("_closes", lambda *_: False)


def _mixed_under_a_snapshot() -> Patch:
    """F3: messages are announced although timers are due."""
    return _world("_announces_timers", lambda *_: False)


def _taken_for_messages() -> Patch:
    """F3: a restarted task takes announced timers for messages."""
    old = go.due_of

    def due(record: Any, starts: int) -> Any:
        return replace(old(record, starts), timers=False)

    return go, "due_of", due


def _not_counted() -> Patch:
    """Q1 for timers: their announcement begins with no deaths each time."""

    def polled(old: Any, task: Task, event: Any) -> Any:
        if event.timers and task.due:
            task = replace(task, due=replace(task.due, starts=0))
        return old(task, event)

    return handler("polled", polled)


def _alone_forgotten() -> Patch:
    """Q2 for timers: careful mode ends with its first timer."""
    old = writing.attempt_of

    def attempt(task: Task, positions: Any, batch: Any, place: str = "") -> Any:
        return replace(old(task, positions, batch, place), careful_timers=0)

    return delivery, "attempt_of", attempt


def _never_alone() -> Patch:
    """Q2 for timers: they are announced together each time."""
    old = recovery._retry

    def retry(task: Task, record: Any, starts: int) -> Task:
        if record.timers and record.steps > 1:
            task = replace(task, record=record)
            return replace(go.as_recorded(task, record), first=True, due=go.due_of(record, starts))
        return old(task, record, starts)

    return recovery, "_retry", retry


def _not_in_totals() -> Patch:
    """F1: the totals do not tell timers from messages."""
    return _world("_counts", lambda old, world, done: (*old(world, done)[:8], 0))


TIMERS: Final[tuple[Mutant, ...]] = (
    Mutant("a timer that failed is kept", "timers", NOTHING, (_kept_by_an_error(),), progress=False),
    Mutant("a step that failed sets its timer", "timers-retry", NOTHING, (_set_by_an_error(),), progress=False),
    Mutant("a message comes before a due timer", "timers-retry", NOTHING, (_after_the_next_message(),), progress=False),
    Mutant("due timers fire by their key", "timers", NOTHING, (_by_key(),), progress=False),
    Mutant("an announced batch passes a due timer", "timers-retry", NOTHING, (_batch_goes_on(),), progress=False),
    Mutant("messages announced before due timers", "timers-retry", CRASH, (_mixed_under_a_snapshot(),)),
    Mutant("announced timers taken for messages", "timers", CRASH, (_taken_for_messages(),)),
    Mutant("deaths on timers are not counted", "timers-kill", NOTHING, (_not_counted(),)),
    Mutant("timers are never fired alone", "timers-kill", NOTHING, (_never_alone(),)),
    Mutant("timers are not counted in the totals", "timers", NOTHING, (_not_in_totals(),), progress=False),
)

COVERED_TIMERS: Final[tuple[tuple[Mutant, str], ...]] = (
    (
        Mutant("one timer alone ends careful mode", "timers-kill", NOTHING, (_alone_forgotten(),)),
        "the one that kills comes first among those that are announced again",
    ),
)
