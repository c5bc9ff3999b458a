"""Mutants of what a task does when a record lands below its place (P6a, P6b)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from cues_kafka.core import effects as do
from cues_kafka.core.task import Task
from tests.proof.model.mutant import NET, NETS, Handler, Mutant, handler


def _discarded(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
    """The rule before P6b."""
    return old(replace(task, follows=False), event)


def _any_lower(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
    if task.follows and event.first_offset is not None and event.first_offset < task.expected:
        task = replace(task, expected=event.first_offset)
    return old(task, event)


def _fresh_too(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
    return old(replace(task, follows=True), event)


def _place_kept(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
    """The next place is counted from where the record was due."""
    after, effect = old(task, event)
    if isinstance(effect, do.Commit) and effect.unmarked:
        after = replace(after, expected=after.expected + 1)
    return after, effect


MARKERS: Final[tuple[Mutant, ...]] = (
    Mutant(
        "a record one below its place is discarded",
        "forgotten",
        NET,
        (handler("flushed", _discarded),),
        progress=False,
    ),
    Mutant("a record at any lower place is committed", "forgotten", NET, (handler("flushed", _any_lower),)),
    Mutant("a record one below what R3 found is committed", "forgotten", NETS, (handler("flushed", _fresh_too),)),
    Mutant(
        "the place behind a missing marker is counted from where it was due",
        "forgotten",
        NETS,
        (handler("flushed", _place_kept),),
    ),
)
"""With what each of them breaks, see `mutants`."""
