"""A transaction, P5 to P7: one path for every record, and what a committed record leads to."""

from __future__ import annotations

from dataclasses import replace

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.records import Attempt, Record, Snapshot, Start
from cues_kafka.core.states import transitions as go
from cues_kafka.core.states.transitions import Next
from cues_kafka.core.taking import nothing_carried
from cues_kafka.core.task import Doing, Due, Task

MARKER = 1
"""Offsets that the marker of a transaction takes in each partition."""


def begun(task: Task, _: on.Done) -> Next:
    """P5: produce the record, or first what a strategy without a fence needs."""
    assert task.pending
    if not task.spec.rules.fenced:
        return _offsets(task) if isinstance(task.pending, Start) else _emit(task, task.pending)
    return replace(task, state=Doing.PRODUCING), do.Produce(task.pending)


def _emit(task: Task, pending: Record) -> Next:
    """W5: the outputs first, and the record once they are acknowledged."""
    if pending.batch.deliveries:
        return replace(task, state=Doing.EMITTING), do.Emit(pending)
    return replace(task, state=Doing.PRODUCING), do.Produce(pending)


def emitted(task: Task, event: on.Flushed) -> Next:
    """W5: the outputs are acknowledged; produce the record."""
    assert task.pending
    if event.delivered != event.produced:
        return go.discard(task, event.text)
    return replace(task, state=Doing.PRODUCING), do.Produce(task.pending)


def produced(task: Task, _: on.Done) -> Next:
    """P6: the record is produced; what follows depends on the strategy."""
    return _offsets(task) if task.spec.rules.fenced else (replace(task, state=Doing.FLUSHING), do.Flush())


def _offsets(task: Task) -> Next:
    """P5: always the record's positions, which R5 of the next owner compares; the client writes records meanwhile."""
    assert task.pending
    announced = task.pending.staged if isinstance(task.pending, Snapshot) else None
    begins = task.spec.move.begins if task.spec.move else ()
    extents = announced.extents if announced else begins
    return replace(task, state=Doing.SENDING_OFFSETS), do.SendOffsets(task.pending.positions, extents)


def offsets_sent(task: Task, _: on.Done) -> Next:
    """P5: the offsets are in the transaction, or committed by the member."""
    assert task.pending
    if task.spec.rules.fenced:
        return replace(task, state=Doing.FLUSHING), do.Flush()
    if isinstance(task.pending, Start):
        return replace(task, state=Doing.PRODUCING), do.Produce(task.pending)
    return committed(task, on.Committed())


def flushed(task: Task, event: on.Flushed) -> Next:
    """P6, P6a, P6b: count the delivery reports, and compare the place of the record."""
    if event.delivered != event.produced:
        return go.discard(task, event.text)
    if not task.spec.rules.fenced:
        return _landed(task)
    unmarked = task.follows and event.first_offset == task.expected - MARKER
    if event.first_offset != task.expected and not unmarked:
        # P6a: the answer to R3 was stale, or another writer writes this partition.
        return go.discard(task, f"the record landed at {event.first_offset}, not at {task.expected}: another writer?")
    # P6b: the broker has lost the marker of this session's last transaction. Its records are open again, in this one:
    # an abort would take back what other partitions have committed, and this commit commits both.
    task = replace(task, state=Doing.COMMITTING, expected=_after(event.first_offset, task.pending), follows=True)
    return task, do.Commit(unmarked)


def _landed(task: Task) -> Next:
    """W5, W6: a record without a transaction is there, behind what it speaks of; its offsets go with it, or went."""
    assert task.pending
    if isinstance(task.pending, Start):
        return committed(replace(task, resolved=()), on.Committed())
    return _offsets(task)


def _after(first_offset: int | None, record: Record | None) -> int:
    """P6a: behind the record, its `settled` records (Y2) and the marker."""
    assert first_offset is not None
    assert record
    return first_offset + 1 + record.batch.replays * isinstance(record, Attempt) + MARKER


def committed(task: Task, event: on.Committed) -> Next:
    """P7, P8: the record counts, unless its commit is suspect."""
    if event.suspect:
        # The request may still be on its way and could end the next transaction of this epoch (KAFKA-17754). The
        # transaction was probably committed, so this counts as progress: a slow coordinator never exhausts the rounds.
        return go.discard(replace(task, rounds=0), f"suspect commit: {event.suspect}")
    record = task.pending
    assert record
    owner = record.sequence if task.owner is None else task.owner
    # R7: a snapshot is no progress, or a task that fails behind it each time would never stop.
    rounds = task.rounds if isinstance(record, Snapshot) else 0
    task = replace(task, record=record, pending=None, owner=owner, rounds=rounds)
    return _taken(task, record) if task.spec.rules.takes else _on_from(task, record)


def _taken(task: Task, record: Record) -> Next:
    """W1: the batch before is settled, and the one that was taken may be called."""
    carried = task.carried or nothing_carried(record)
    steps = record.batch.taken - carried.batch.taken
    task = replace(task, carried=None, due=None)
    if task.then is not Doing.CALLING:
        return _on_from(task, record)
    due = Due(record.positions, steps, (), 0)
    return go.called_for(replace(task, first=False, due=due), due)


def _on_from(task: Task, record: Record) -> Next:
    """Go on to what this committed record leads to."""
    match task.then:
        case Doing.ASSIGNING:
            return go.assign(task, record.positions)
        case Doing.FETCHING_INPUTS:
            # E1: the target was ahead; the task decides again, by the record that has caught up with it.
            offsets: tuple[tuple[str, int | None], ...] = tuple((p.binding, p.offset) for p in record.positions)
            return replace(task, state=Doing.FETCHING_INPUTS, offsets=offsets, choice=()), do.FetchInputs()
        case Doing.CALLING:
            assert isinstance(record, Snapshot)
            due = go.due_of(record, record.starts)
            # With effects, a step that a retry delays keeps its place: a target would take another message under its
            # step number for it (I7, E1).
            choice = record.choice if task.spec.effects or task.careful else ()
            task = replace(task, first=False, due=due, choice=choice, tail_ends=record.tail_ends)
            return go.called_for(task, due)
        case Doing.STOPPED:
            assert task.halt
            return go.stop(task, task.halt)
        case Doing.RELEASED:
            return go.release(task)
        case _ if isinstance(record, Snapshot) and record.left:
            return replace(task, state=Doing.READY, first=True), do.Await()  # no snapshot stands before the due step
        case _:
            # Careful mode ends with the attempt that reaches its end; else its choice would hold for later messages.
            task = go.as_recorded(task, record)
            return replace(task, state=Doing.READY, due=None, fenced_twice=False), do.Await()
