"""The transitions that handlers of several states share.

Each gives the task as it is afterwards and its next effect: to commit a record, to call user code, to return to R1, to
stop, or to give the partition up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.records import Record, Snapshot
from cues_kafka.core.task import Doing, Due, Task
from cues_kafka.core.turns import take
from cues_kafka.core.writing import left_of, take_of
from cues_kafka.ports.log import Positions

Next: TypeAlias = tuple[Task, do.Effect]
"""What a handler returns: the task as it is afterwards, and the effect that must be done next."""

MAX_ROUNDS = 5
"""R7: after this many returns to R1 without progress, the task stops and says why."""


def transact(task: Task, record: Record, then: Doing) -> Next:
    """Commit this record in a transaction, and go on from there to `then`."""
    return replace(task, state=Doing.BEGINNING, pending=record, then=then), do.Begin()


def called_for(task: Task, due: Due) -> Next:
    """P4, Q3: user code is called for what is due; or it is taken out, if it has killed its process too often."""
    task = replace(task, state=Doing.CALLING)
    if task.quarantined:
        return task, do.Quarantine(due.ends, due.choice, due.starts, due.timers, due.replay)
    return task, do.Call(due.ends, due.steps, due.choice, due.starts, due.timers, task.tail_ends, due.replay)


def due_of(record: Snapshot, starts: int) -> Due:
    """What a snapshot announces; timers have no binding that a choice could name."""
    choice = () if record.timers else take(record.choice, record.steps)
    return Due(record.ends, record.steps, choice, starts, record.timers, record.replay)


def as_recorded(task: Task, record: Record) -> Task:
    """The task with what the record says of careful mode, and of a choice and of ends that are kept."""
    return replace(
        task,
        careful_until=record.careful_until,
        careful_timers=record.careful_timers,
        choice=record.choice,
        tail_ends=record.tail_ends,
    )


def settle(task: Task, then: Doing) -> Next:
    """W2: commit what is carried, and the position behind the last step that was started; take nothing."""
    assert task.carried
    return transact(task, take_of(task, task.carried.ends), then)


def leave(task: Task, to: Doing) -> Next:
    """Q1: a task that stops cleanly under its own snapshot commits `left`, so that recovery counts no death."""
    task = replace(task, leaving=to is Doing.RELEASED)
    if task.must_leave(task.record):
        return say_left(task, to)
    if to is Doing.STOPPED:
        assert task.halt
        return stop(task, task.halt)
    return release(task)


def say_left(task: Task, then: Doing) -> Next:
    """Commit `left` over the task's own snapshot."""
    assert isinstance(task.record, Snapshot)
    return transact(task, left_of(task.record), then)


def assign(task: Task, positions: Positions) -> Next:
    """Point the reader at these positions, unless what is due there must stop the task."""
    if task.quarantined and not task.spec.errors:
        places = ", ".join(f"{p.topic}/{task.spec.partition} at {p.offset}" for p in positions)
        what = f"the first timer, with {places} next," if task.due and task.due.timers else f"the message {places}"
        # "At least": deaths before the message had a snapshot of its own are not in this count (Q1, Q2).
        text = f"{what} killed its process at least {task.due.starts if task.due else 0} times"
        return stop(task, on.Halt("refused", text, "declare an errors topic, which takes it, or fix the function"))
    if task.leaving:
        return leave(task, Doing.RELEASED)
    return replace(task, state=Doing.ASSIGNING, stale_since_s=None), do.AssignReader(positions)


def discard(task: Task, text: str) -> Next:
    """R7: return to R1 with a new session, as long as rounds are left."""
    if task.leaving:
        return release(task)
    if task.rounds >= MAX_ROUNDS:
        return stop(task, on.Halt("refused", f"{task.rounds} attempts failed: {text}", "find who else writes here"))
    return back(task), do.Discard(text, 0.0)


def back(task: Task) -> Task:
    """R7: the task on its way to R1. It forgets what it read, and keeps what it owes, carries and has resolved."""
    return Task(
        task.spec,
        state=Doing.DISCARDING,
        rounds=task.rounds + 1,
        fenced_at_s=task.fenced_at_s,
        fenced_twice=task.fenced_twice,
        left_due=task.may_owe_left,
        carried=task.in_doubt,
        resolved=task.resolved,
    )


def stop(task: Task, halt: on.Halt) -> Next:
    """Stop, and remember whether `left` must be said; a slot never takes its id again (D5)."""
    if task.leaving:
        return release(task)
    left_due = task.may_owe_left and not task.spec.slot
    return replace(task, state=Doing.STOPPED, pending=None, halt=halt, left_due=left_due), do.Stop(halt)


def release(task: Task) -> Next:
    """Give the partition up."""
    return replace(task, state=Doing.RELEASED, pending=None), do.Release()
