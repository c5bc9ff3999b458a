"""Delivery, P1, P2 and P4: what is announced or taken, called, and reported as called."""

from __future__ import annotations

from dataclasses import replace

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.events import IllegalEvent
from cues_kafka.core.records import Attempt, Totals
from cues_kafka.core.replays import replayed
from cues_kafka.core.staged import Publish
from cues_kafka.core.states import transitions as go
from cues_kafka.core.states.transitions import Next
from cues_kafka.core.tails import announced, behind
from cues_kafka.core.taking import after_call, nothing_carried
from cues_kafka.core.task import Doing, Due, Task
from cues_kafka.core.writing import attempt_of, publication_of, snapshot_of, take_of
from cues_kafka.ports.log import Positions


def polled(task: Task, event: on.Polled) -> Next:
    """P2, W1: these ranges come next. A snapshot or a take is committed before any message is decoded."""
    if task.spec.rules.takes:
        task = _carrying(task)
        return go.transact(task, take_of(task, event.ends, event.steps), Doing.CALLING)
    if task.due:
        task = _polled_again(task, task.due, event)
    elif event.replay and not task.takes_replays:
        # Y1: what was announced or put off comes first.
        raise IllegalEvent(f"{task.spec.name}: a replay is polled where other steps are due")
    due = task.due
    if due and task.quarantined and not (task.first and task.spec.target):
        return go.called_for(replace(task, first=False), due)
    if due and not task.first:
        # User code is called again in the same start: its snapshot is the newest record already.
        return go.called_for(task, due)
    return go.transact(task, announced(task, snapshot_of(task, event), event.tail_ends), Doing.CALLING)


def _polled_again(task: Task, due: Due, event: on.Polled) -> Task:
    """P2: the same ranges and all of their steps; fewer only if compaction may take messages (`Spec.compacted`)."""
    fewer = task.spec.compacted and not due.timers and 0 < event.steps < due.steps
    same = (due.ends, due.timers, due.replay) == (event.ends, event.timers, event.replay)
    if not same or (event.steps != due.steps and not fewer):
        name = f"{task.spec.name}: due up to {due.ends}, {due.steps} {_kind(due)}"
        raise IllegalEvent(f"{name}; polled up to {event.ends}, {event.steps} {_kind(event)}")
    # The deaths count on several steps. A single step that is left has no death of its own yet (Q2, Q3).
    starts = 0 if event.steps == 1 < due.steps else due.starts
    return replace(task, due=replace(due, steps=event.steps, starts=starts))


def _kind(ranges: Due | on.Polled) -> str:
    return "timers" if ranges.timers else "replays" if ranges.replay else "steps"


def called(task: Task, event: on.Called) -> Next:
    """P4 to P7: commit what was delivered; then go on, wait to call again, or stop."""
    if task.spec.rules.takes:
        return _called_of_taken(task, event)
    stops = event.halt is not None and event.halt.kind != "retry"
    task = replace(task, halt=event.halt if stops else None)
    if event.batch.deliveries:
        made = replayed(task, _attempt(task, event.ends, event.batch, event.place), event.replays)
        made = behind(task, made, event.tails, put_off=event.halt is not None)
        return go.transact(task, made, Doing.STOPPED if stops else Doing.READY)
    if stops:
        return go.leave(task, Doing.STOPPED)
    if task.alone and task.must_leave(task.record):
        # Q2a: other tasks may run during the pause before the retry, and their deaths must not count on this step.
        return go.say_left(task, Doing.READY)
    return replace(task, state=Doing.READY), do.Await()


def _called_of_taken(task: Task, event: on.Called) -> Next:
    """W1: what the calls left waits for the next transaction, unless the task stops."""
    if task.due is None:
        raise IllegalEvent(f"{task.spec.name}: called up to {event.ends}, and nothing is taken")
    task = with_outcomes(task, event)
    assert task.carried
    if task.carried.halt is None:
        return replace(task, state=Doing.READY), do.Await()
    return go.settle(replace(task, halt=task.carried.halt), Doing.STOPPED)


def idle(task: Task, event: on.Idle) -> Next:
    """P1; over due ranges only if compaction may have taken all of their messages (`Spec.compacted`)."""
    gone = task.spec.compacted or bool(task.due and task.due.replay and event.replays)
    if task.due and (task.due.timers or not (gone and event.positions == task.due.ends)):
        name = f"{task.spec.name}: due up to {task.due.ends}, {task.due.steps} {_kind(task.due)}"
        raise IllegalEvent(f"{name}; idle at {event.positions}")
    if task.spec.rules.takes:
        task = _carrying(task)
        return go.transact(task, take_of(task, event.positions), Doing.READY)
    task = replace(task, choice=())  # what it may still name was compacted away
    made = replayed(task, _attempt(task, event.positions, Totals()), event.replays)
    return go.transact(task, behind(task, made, ()), Doing.READY)


def _attempt(task: Task, positions: Positions, batch: Totals, place: str = "") -> Attempt:
    """P5: the record of a batch whose steps are taken and settled together."""
    if not task.spec.staged:
        return attempt_of(task, positions, batch.settled, place)
    if not isinstance(task.spec.staged, Publish) or task.published:
        raise IllegalEvent(f"{task.spec.name} has nothing to publish")
    return publication_of(task, batch.settled)


def with_outcomes(task: Task, event: on.Called) -> Task:
    """W2: the task with what the calls of the taken batch left."""
    assert task.record
    assert task.due
    return replace(task, carried=after_call(task.record, task.due.steps, event), due=None)


def _carrying(task: Task) -> Task:
    assert task.record
    return task if task.carried else replace(task, carried=nothing_carried(task.record))
