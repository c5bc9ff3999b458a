"""Recovery, R1 to R6: from an assigned partition to a reader at the task's positions.

The session is initialised before anything is read. Init alone ends the open transaction of an earlier owner and fences
it; a task that reads first can miss a record that is committed a moment later.
"""

from __future__ import annotations

from dataclasses import replace

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.halts import claimed
from cues_kafka.core.moves import decide, moved_halt
from cues_kafka.core.records import Attempt, Record, Snapshot, TargetRow
from cues_kafka.core.recover import (
    Delivered,
    Fresh,
    Pending,
    Refuse,
    first_positions,
    foreign,
    incomplete,
    recover,
    refused,
)
from cues_kafka.core.replays import standing
from cues_kafka.core.spec import Move
from cues_kafka.core.staged import Turn, verdict
from cues_kafka.core.states import transitions as go
from cues_kafka.core.states.transitions import Next
from cues_kafka.core.tails import begun, in_row, placed
from cues_kafka.core.taking import Stale, resumed
from cues_kafka.core.target import compare
from cues_kafka.core.task import Doing, Task
from cues_kafka.core.writing import announcement_of, attempt_in, owner_of, start_of

STALE_FOR_S = 15.0
"""R5: for this time a task asks again before it believes a refusal that a cut-off broker could cause."""

CAREFUL_AT = 2
"""Q2: deaths on the same ranges after which each transaction has one step."""


def assigned(task: Task, event: on.Assigned) -> Next:
    """R1: forget everything except what is owed, carried and resolved, and take the lock."""
    kept = Task(task.spec, left_due=task.left_due, carried=task.carried, resolved=task.resolved)
    # E1: a target tells starts apart by the sequence of their first record, which is committed before their batches.
    return replace(kept, state=Doing.INITIALISING, first=event.first or task.spec.target), do.Init()


def discarded(task: Task, _: on.Done) -> Next:
    """R1: the old session is gone; take the lock with a new one."""
    return replace(task, state=Doing.INITIALISING), do.Init()


def initialised(task: Task, _: on.Initialised) -> Next:
    """R2: earlier owners are fenced; ask for the offsets of the group."""
    return replace(task, state=Doing.FETCHING_OFFSETS), do.FetchOffsets()


def offsets_fetched(task: Task, event: on.OffsetsFetched) -> Next:
    """R3: ask for the high watermark of the backing partition."""
    return replace(task, state=Doing.FETCHING_WATERMARK, offsets=tuple(event.offsets.items())), do.FetchWatermark()


def watermark_fetched(task: Task, event: on.WatermarkFetched) -> Next:
    """R4: ask for the newest record below the high watermark."""
    return replace(task, state=Doing.READING_NEWEST, expected=event.high, follows=False), do.ReadNewest(event.high)


def newest_read(task: Task, event: on.NewestRead) -> Next:
    """R4: the newest record is known; ask for the facts about the inputs."""
    task = replace(task, record=event.record, left_due=False)  # the record tells from here on
    record = event.record
    if event.unreadable:
        remedy = "find who else writes the backing topic: only this task may, under its transactional id"
        return go.stop(task, on.Halt("refused", event.unreadable, remedy))
    if task.fenced_twice and record and record.writer.incarnation != task.spec.writer.incarnation:
        return go.stop(task, claimed(record))
    return replace(task, state=Doing.FETCHING_INPUTS), do.FetchInputs()


def inputs_fetched(task: Task, event: on.InputsFetched) -> Next:
    """R5: all facts are known, except those of a target, which is asked now."""
    task = replace(
        task, inputs=tuple(event.inputs.items()), tail_facts=tuple(event.tails.items()), recovered_at_s=event.at_s
    )
    if task.spec.staged:
        return _staged(task)
    if task.spec.target and not task.leaving:
        step = task.record.step if task.record else 0
        return replace(task, state=Doing.ASKING_TARGET), do.AskTarget(owner_of(task), step)
    return _decided(task)


def target_asked(task: Task, event: on.TargetAsked) -> Next:
    """E1: what the target is ahead with is committed first, whatever is due, and nothing is called for it."""
    match compare(task.spec, task.record, event.row):
        case Refuse() as refusal:
            return _refuse(task, refusal)
        case TargetRow() as row:
            assert task.record
            if found := refused(task.spec, task.record, dict(task.offsets), dict(task.inputs)):
                return _refuse(task, found)
            task = go.as_recorded(task, task.record)
            return go.transact(task, in_row(task, attempt_in(task, row), row), Doing.FETCHING_INPUTS)
        case None:
            return _decided(task)


def _decided(task: Task) -> Next:
    """R5, X2: go on by the newest record, or move the task."""
    if task.spec.move:
        return _move(task, task.spec.move)
    found = recover(task.spec, task.record, dict(task.offsets), dict(task.inputs))
    facts = dict(task.tail_facts)
    match standing(task.spec, placed(task.spec, found, facts), facts):
        case Refuse() as refusal:
            return _refuse(task, refusal)
        case Fresh() if task.carried:
            return go.discard(task, "no record was read, and there was one before")
        case Fresh() if task.leaving:
            return go.release(task)
        case Fresh():
            return replace(task, state=Doing.FETCHING_SIBLING), do.FetchSibling()
        case Delivered(record) if task.spec.rules.takes:
            return _resumed(replace(task, record=record), record)
        case Delivered(record):
            task = go.as_recorded(replace(task, record=record), record)
            return go.assign(replace(task, first=task.first or task.careful), record.positions)
        case Pending(record, starts):
            return go.assign(_retry(replace(task, record=record), record, starts), record.positions)


def _resumed(task: Task, record: Record) -> Next:
    """W3, W4: go on with what is carried, if the newest record is the one that it must follow."""
    try:
        carried = resumed(task.spec, record, task.carried)
    except Stale:
        return go.discard(task, "an older record was read than before")
    task = replace(task, carried=carried)
    if task.leaving:
        return go.settle(task, Doing.RELEASED) if carried.due else go.release(task)
    if carried.halt is None:
        return go.assign(task, carried.ends)
    return go.settle(replace(task, halt=carried.halt), Doing.STOPPED)


def _retry(task: Task, record: Snapshot, starts: int) -> Task:
    """Q1 to Q3, F3: deliver the same ranges or timers again; after two deaths on several steps, step by step."""
    task = go.as_recorded(task, record)
    if starts >= CAREFUL_AT and record.timers:
        task = replace(task, careful_timers=task.careful_timers or record.steps)
    elif starts >= CAREFUL_AT:
        task = replace(task, careful_until=task.careful_until or record.ends)
    kept = task.choice if task.careful_until or task.spec.effects else ()
    task = replace(task, first=True, choice=kept)
    if starts >= CAREFUL_AT and record.steps > 1:
        return task
    own = record.writer.incarnation == task.spec.writer.incarnation and not record.left
    if own and not task.spec.target:
        # After P8 the newest record is this very snapshot, so S1 holds; another one would only delay the call. A target
        # may refuse the owner of that snapshot: a process that had lost the task already may have asked it since (E1).
        task = replace(task, first=False, owner=record.owner)
    return replace(task, due=go.due_of(record, starts))


def reader_assigned(task: Task, _: on.Done) -> Next:
    """The reader is at the task's positions; wait for messages."""
    return replace(task, state=Doing.READY), do.Await()


def sibling_read(task: Task, event: on.SiblingRead) -> Next:
    """R5: commit the first record of a task, with the positions that `start=` resolves to."""
    if event.moving_from:
        return go.stop(task, incomplete(task.spec, event.moving_from).halt)
    held = None if task.spec.rules.fenced else dict(task.offsets)
    positions = first_positions(task.spec, dict(task.inputs), event.born, held, task.resolved)
    if not task.spec.rules.fenced:
        # W6: each round sends the same offsets, so it does no harm when those of a former one come late.
        task = replace(task, resolved=positions)
    born = task.spec.width if event.born is None else event.born
    return go.transact(task, begun(task, start_of(task, positions, born), event.born), Doing.ASSIGNING)


def _staged(task: Task, settled: bool | None = None) -> Next:
    """T2, T3: a slot of a staged processor has no inputs; its newest record says what it may do."""
    assert task.spec.staged
    if task.record and (refusal := foreign(task.spec, task.record)):
        return go.stop(task, refusal.halt)
    match verdict(task.spec.staged, task.record, settled=settled):
        case on.Halt() as halt:
            return go.stop(task, halt)
        case Turn.ASK:
            assert task.record
            assert task.record.staged
            newest = task.record.staged
            return replace(task, state=Doing.FETCHING_PARTS), do.FetchParts(newest.number, newest.parts)
        case Turn.SNAPSHOT:
            return go.transact(task, announcement_of(task), Doing.READY)
        case Turn.GO:
            return replace(task, state=Doing.READY), do.Await()


def parts_read(task: Task, event: on.PartsRead) -> Next:
    """T2: the record of part 0 is the task's own; an attempt says that it is published."""
    return _staged(task, event.settled and isinstance(task.record, Attempt))


def _move(task: Task, move: Move) -> Next:
    """X2: a tool writes one record, and stops."""
    match decide(task.spec, move, task.record, dict(task.inputs)):
        case on.Halt() as halt:
            return go.stop(task, halt)
        case record:
            return go.transact(replace(task, halt=moved_halt(task.spec)), record, Doing.STOPPED)


def _refuse(task: Task, refusal: Refuse) -> Next:
    """R5: where a stale answer could cause the refusal, the task asks again from R1 with new clients."""
    halt, at_s = refusal.halt, task.recovered_at_s
    if not refusal.stale:
        return go.stop(task, halt)
    if task.leaving:
        return go.release(task)
    assert at_s is not None
    since = at_s if task.stale_since_s is None else task.stale_since_s
    if at_s - since >= STALE_FOR_S:
        return go.stop(task, halt)
    task = replace(task, stale_since_s=since, record=None, state=Doing.DISCARDING, left_due=task.may_owe_left)
    return task, do.Discard(f"asked again: {halt.text}", 1.0)
