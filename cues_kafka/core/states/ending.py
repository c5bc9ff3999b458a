"""Failures, and the loss of the partition: what may come in nearly every state."""

from __future__ import annotations

from dataclasses import replace

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.halts import exhausted
from cues_kafka.core.states import delivery
from cues_kafka.core.states import transitions as go
from cues_kafka.core.states.transitions import Next
from cues_kafka.core.task import Doing, Task

FENCED_WITHIN_S = 60.0
"""R7: a task that another writer fences twice within this time stops and names it, instead of fencing it back."""

FORGOTTEN_AFTER_S = 60.0
"""R7: a task that has worked for this time since its last recovery counts its rounds from 0 again."""

_WORKING = frozenset(
    Doing[name]
    for name in ("READY", "CALLING", "BEGINNING", "SENDING_OFFSETS", "EMITTING", "PRODUCING", "FLUSHING", "COMMITTING")
)
"""The states behind a recovery, in which time counts as worked."""


def failed(task: Task, event: on.Failed) -> Next:
    """P8, R7: the task never goes on with this session. Only R4 tells the outcome of a commit."""
    if task.leaving:
        return go.release(task)
    if event.fenced and task.spec.slot:
        # D5: the one that fenced delivers this range, or is a native worker; taking the id back would only fence it.
        return go.stop(task, on.Halt("fenced", event.text, "see the newest record of the task: its writer runs it"))
    task = replace(task, carried=task.in_doubt)
    if event.fenced:
        last = task.fenced_at_s
        twice = task.fenced_twice or (last is not None and event.at_s - last < FENCED_WITHIN_S)
        task = replace(task, fenced_at_s=event.at_s, fenced_twice=twice)
    if task.state in _WORKING and event.at_s - (task.recovered_at_s or 0.0) >= FORGOTTEN_AFTER_S:
        task = replace(task, rounds=0)
    if task.rounds >= go.MAX_ROUNDS:
        return go.stop(task, exhausted(task, event))
    back = replace(go.back(task), stale_since_s=task.stale_since_s)
    return back, do.Discard(event.text, min(0.1 * 2**task.rounds, 5.0) if task.rounds else 0.0)


def revoked(task: Task, event: on.Revoked) -> Next:
    """A3: in READY and CALLING the session is idle, so the task can write `left`; else the next init decides."""
    if task.spec.rules.takes:
        if event.called and task.state is Doing.CALLING:
            task = delivery.with_outcomes(task, event.called)
        if task.carried and task.carried.due:
            return go.settle(replace(task, leaving=True), Doing.RELEASED)
    return go.leave(task, Doing.RELEASED)


def interrupted(task: Task, _: on.Revoked) -> Next:
    """
    Q1, W2: the task is revoked while it recovers, or after a failure stopped it; a rebalance is no death.

    If it owes anything, it returns to R1 once more to commit that.
    """
    if not task.owes or task.leaving:
        return go.release(task)
    back = Task(task.spec, state=Doing.DISCARDING, left_due=task.may_owe_left, leaving=True, carried=task.carried)
    return back, do.Discard("committing what is due before the partition is given up", 0.0)


def abandoned(task: Task, _: on.Lost | on.Revoked) -> Next:
    """Give the partition up without a commit."""
    return go.release(task)
