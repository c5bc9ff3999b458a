"""The state machine of one task. Everything that decides about delivery lives here or in `recover`.

`handle(task, event)` returns the task as it is afterwards and the one effect that must be done next. It is pure: tasks
are frozen values, and time comes with events. An event that `TRANSITIONS` does not list for the task's state raises
and changes nothing. The interpreter in `runtime` does the effects and reports events. When an effect fails, it reports
`Failed`, and the task returns to R1.

There are two ways to deliver. Where a snapshot is due (`Task.snapshot_due`), the shell reports `Polled` before it
looks at a message, and calls user code when the task says `Call`. Elsewhere the shell may call user code while the
last commit is under way (P7) and reports `Called` when the task is ready again. If that commit failed, the shell
throws away what it called meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.events import IllegalEvent
from cues_kafka.core.halts import claimed, exhausted
from cues_kafka.core.moves import decide, moved_halt
from cues_kafka.core.records import Attempt, Record, Snapshot, Start, TargetRow, Totals
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
from cues_kafka.core.replays import replayed, standing
from cues_kafka.core.spec import Move
from cues_kafka.core.staged import Publish, Turn, verdict
from cues_kafka.core.tails import announced, begun, behind, in_row, placed
from cues_kafka.core.taking import Stale, after_call, nothing_carried, resumed
from cues_kafka.core.target import compare
from cues_kafka.core.task import Doing, Due, Task
from cues_kafka.core.turns import take
from cues_kafka.core.writing import (
    announcement_of,
    attempt_in,
    attempt_of,
    left_of,
    owner_of,
    publication_of,
    snapshot_of,
    start_of,
    take_of,
)
from cues_kafka.ports.log import Positions

MAX_ROUNDS = 5
"""R7: after this many returns to R1 without progress, the task stops and says why."""

FENCED_WITHIN_S = 60.0
"""R7: a task that another writer fences twice within this time stops and names it, instead of fencing it back."""

FORGOTTEN_AFTER_S = 60.0
"""R7: a task that has worked for this time since its last recovery counts its rounds from 0 again."""

STALE_FOR_S = 15.0
"""R5: for this time a task asks again before it believes a refusal that a cut-off broker could cause."""

CAREFUL_AT = 2
"""Q2: deaths on the same ranges after which each transaction has one step."""

MARKER = 1
"""Offsets that the marker of a transaction takes in each partition."""


Next: TypeAlias = tuple[Task, do.Effect]


def handle(task: Task, event: on.Event) -> Next:
    """
    Take one step of the machine.

    Raises:
        IllegalEvent: `TRANSITIONS` does not list this event for the task's state. The task does not change.
    """
    try:
        handler, states = TRANSITIONS[task.state][type(event)]
    except KeyError:
        raise IllegalEvent(f"{task.spec.name} is {task.state.value}: {type(event).__name__} cannot happen") from None
    after, effect = handler(task, event)
    if after.state not in states:
        raise IllegalEvent(f"{task.spec.name}: {task.state.value} -> {after.state.value} is not in the table")
    return after, effect


# Recovery: R1 to R7. The session is initialised before anything is read. Init alone ends the open transaction of an
# earlier owner and fences it; a task that reads first can miss a record that is committed a moment later.


def _assigned(task: Task, event: on.Assigned) -> Next:
    kept = Task(task.spec, left_due=task.left_due, carried=task.carried, resolved=task.resolved)
    # E1: a target tells starts apart by the sequence of their first record, which is committed before their batches.
    return replace(kept, state=Doing.INITIALISING, first=event.first or task.spec.target), do.Init()


def _initialised(task: Task, _: on.Initialised) -> Next:
    return replace(task, state=Doing.FETCHING_OFFSETS), do.FetchOffsets()


def _offsets_fetched(task: Task, event: on.OffsetsFetched) -> Next:
    return replace(task, state=Doing.FETCHING_WATERMARK, offsets=tuple(event.offsets.items())), do.FetchWatermark()


def _watermark_fetched(task: Task, event: on.WatermarkFetched) -> Next:
    return replace(task, state=Doing.READING_NEWEST, expected=event.high, follows=False), do.ReadNewest(event.high)


def _newest_read(task: Task, event: on.NewestRead) -> Next:
    task = replace(task, record=event.record, left_due=False)  # the record tells from here on
    record = event.record
    if event.unreadable:
        remedy = "find who else writes the backing topic: only this task may, under its transactional id"
        return _stop(task, on.Halt("refused", event.unreadable, remedy))
    if task.fenced_twice and record and record.writer.incarnation != task.spec.writer.incarnation:
        return _stop(task, claimed(record))
    return replace(task, state=Doing.FETCHING_INPUTS), do.FetchInputs()


def _inputs_fetched(task: Task, event: on.InputsFetched) -> Next:
    task = replace(
        task, inputs=tuple(event.inputs.items()), tail_facts=tuple(event.tails.items()), recovered_at_s=event.at_s
    )
    if task.spec.staged:
        return _staged(task)
    if task.spec.target and not task.leaving:
        step = task.record.step if task.record else 0
        return replace(task, state=Doing.ASKING_TARGET), do.AskTarget(owner_of(task), step)
    return _decided(task)


def _target_asked(task: Task, event: on.TargetAsked) -> Next:
    """E1: what the target is ahead with is committed first, whatever is due, and nothing is called for it."""
    assert task.recovered_at_s is not None
    match compare(task.spec, task.record, event.row):
        case Refuse(halt, stale):
            return _refused(task, halt, task.recovered_at_s) if stale else _stop(task, halt)
        case TargetRow() as row:
            assert task.record
            if refusal := refused(task.spec, task.record, dict(task.offsets), dict(task.inputs)):
                return _refused(task, refusal.halt, task.recovered_at_s) if refusal.stale else _stop(task, refusal.halt)
            task = _as_recorded(task, task.record)
            return _transact(task, in_row(task, attempt_in(task, row), row), Doing.FETCHING_INPUTS)
        case None:
            return _decided(task)


def _decided(task: Task) -> Next:
    """R5, X2: go on by the newest record, or move the task."""
    if task.spec.move:
        return _move(task, task.spec.move)
    assert task.recovered_at_s is not None
    found = recover(task.spec, task.record, dict(task.offsets), dict(task.inputs))
    facts = dict(task.tail_facts)
    match standing(task.spec, placed(task.spec, found, facts), facts):
        case Refuse(halt, stale):
            return _refused(task, halt, task.recovered_at_s) if stale else _stop(task, halt)
        case Fresh() if task.carried:
            return _discard(task, "no record was read, and there was one before")
        case Fresh():
            return _release(task) if task.leaving else (replace(task, state=Doing.FETCHING_SIBLING), do.FetchSibling())
        case Delivered(record) if task.spec.rules.takes:
            return _resumed(replace(task, record=record), record)
        case Delivered(record):
            task = _as_recorded(replace(task, record=record), record)
            return _assign(replace(task, first=task.first or task.careful), record.positions)
        case Pending(record, starts):
            return _assign(_retry(replace(task, record=record), record, starts), record.positions)


def _resumed(task: Task, record: Record) -> Next:
    """W3, W4: go on with what is carried, if the newest record is the one that it must follow."""
    try:
        carried = resumed(task.spec, record, task.carried)
    except Stale:
        return _discard(task, "an older record was read than before")
    task = replace(task, carried=carried)
    if task.leaving:
        return _settle(task, Doing.RELEASED) if carried.due else _release(task)
    if carried.halt is None:
        return _assign(task, carried.ends)
    return _settle(replace(task, halt=carried.halt), Doing.STOPPED)


def _as_recorded(task: Task, record: Record) -> Task:
    """The task with what the record says of careful mode, and of a choice and of ends that are kept."""
    return replace(
        task,
        careful_until=record.careful_until,
        careful_timers=record.careful_timers,
        choice=record.choice,
        tail_ends=record.tail_ends,
    )


def _retry(task: Task, record: Snapshot, starts: int) -> Task:
    """Q1 to Q3, F3: deliver the same ranges or timers again; after two deaths on several steps, step by step."""
    task = _as_recorded(task, record)
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
    return replace(task, due=_due(record, starts))


def _due(record: Snapshot, starts: int) -> Due:
    """What a snapshot announces; timers have no binding that a choice could name."""
    choice = () if record.timers else take(record.choice, record.steps)
    return Due(record.ends, record.steps, choice, starts, record.timers, record.replay)


def _assign(task: Task, positions: Positions) -> Next:
    if task.quarantined and not task.spec.errors:
        places = ", ".join(f"{p.topic}/{task.spec.partition} at {p.offset}" for p in positions)
        what = f"the first timer, with {places} next," if task.due and task.due.timers else f"the message {places}"
        # "At least": deaths before the message had a snapshot of its own are not in this count (Q1, Q2).
        text = f"{what} killed its process at least {task.due.starts if task.due else 0} times"
        return _stop(task, on.Halt("refused", text, "declare an errors topic, which takes it, or fix the function"))
    if task.leaving:
        return _leave(task, Doing.RELEASED)
    return replace(task, state=Doing.ASSIGNING, stale_since_s=None), do.AssignReader(positions)


def _sibling_read(task: Task, event: on.SiblingRead) -> Next:
    if event.moving_from:
        return _stop(task, incomplete(task.spec, event.moving_from).halt)
    held = None if task.spec.rules.fenced else dict(task.offsets)
    positions = first_positions(task.spec, dict(task.inputs), event.born, held, task.resolved)
    if not task.spec.rules.fenced:
        # W6: each round sends the same offsets, so it does no harm when those of a former one come late.
        task = replace(task, resolved=positions)
    born = task.spec.width if event.born is None else event.born
    return _transact(task, begun(task, start_of(task, positions, born), event.born), Doing.ASSIGNING)


def _staged(task: Task, settled: bool | None = None) -> Next:
    """T2, T3: a slot of a staged processor has no inputs; its newest record says what it may do."""
    assert task.spec.staged
    if task.record and (refusal := foreign(task.spec, task.record)):
        return _stop(task, refusal.halt)
    match verdict(task.spec.staged, task.record, settled=settled):
        case on.Halt() as halt:
            return _stop(task, halt)
        case Turn.ASK:
            assert task.record
            assert task.record.staged
            newest = task.record.staged
            return replace(task, state=Doing.FETCHING_PARTS), do.FetchParts(newest.number, newest.parts)
        case Turn.SNAPSHOT:
            return _transact(task, announcement_of(task), Doing.READY)
        case Turn.GO:
            return replace(task, state=Doing.READY), do.Await()


def _move(task: Task, move: Move) -> Next:
    """X2: a tool writes one record, and stops."""
    match decide(task.spec, move, task.record, dict(task.inputs)):
        case on.Halt() as halt:
            return _stop(task, halt)
        case record:
            return _transact(replace(task, halt=moved_halt(task.spec)), record, Doing.STOPPED)


def _parts_read(task: Task, event: on.PartsRead) -> Next:
    """T2: the record of part 0 is the task's own; an attempt says that it is published."""
    return _staged(task, event.settled and isinstance(task.record, Attempt))


def _reader_assigned(task: Task, _: on.Done) -> Next:
    return replace(task, state=Doing.READY), do.Await()


def _refused(task: Task, halt: on.Halt, at_s: float) -> Next:
    """R5: a stale answer could cause this refusal, so the task asks again from R1 with new clients."""
    if task.leaving:
        return _release(task)
    since = at_s if task.stale_since_s is None else task.stale_since_s
    if at_s - since >= STALE_FOR_S:
        return _stop(task, halt)
    task = replace(task, stale_since_s=since, record=None, state=Doing.DISCARDING, left_due=task.may_owe_left)
    return task, do.Discard(f"asked again: {halt.text}", 1.0)


def _failed(task: Task, event: on.Failed) -> Next:
    """P8, R7: the task never goes on with this session. Only R4 tells the outcome of a commit."""
    if task.leaving:
        return _release(task)
    if event.fenced and task.spec.slot:
        # D5: the one that fenced delivers this range, or is a native worker; taking the id back would only fence it.
        return _stop(task, on.Halt("fenced", event.text, "see the newest record of the task: its writer runs it"))
    task = replace(task, carried=task.in_doubt)
    if event.fenced:
        last = task.fenced_at_s
        twice = task.fenced_twice or (last is not None and event.at_s - last < FENCED_WITHIN_S)
        task = replace(task, fenced_at_s=event.at_s, fenced_twice=twice)
    if task.state in _WORKING and event.at_s - (task.recovered_at_s or 0.0) >= FORGOTTEN_AFTER_S:
        task = replace(task, rounds=0)
    if task.rounds >= MAX_ROUNDS:
        return _stop(task, exhausted(task, event))
    back = replace(_back(task), stale_since_s=task.stale_since_s)
    return back, do.Discard(event.text, min(0.1 * 2**task.rounds, 5.0) if task.rounds else 0.0)


def _back(task: Task) -> Task:
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


def _discarded(task: Task, _: on.Done) -> Next:
    return replace(task, state=Doing.INITIALISING), do.Init()


# Transactions: P2, P5 to P7. One path for every record.


def _transact(task: Task, record: Record, then: Doing) -> Next:
    return replace(task, state=Doing.BEGINNING, pending=record, then=then), do.Begin()


def _begun(task: Task, _: on.Done) -> Next:
    assert task.pending
    if not task.spec.rules.fenced:
        return _offsets(task) if isinstance(task.pending, Start) else _emit(task, task.pending)
    return replace(task, state=Doing.PRODUCING), do.Produce(task.pending)


def _offsets(task: Task) -> Next:
    """P5: always the record's positions, which R5 of the next owner compares; the client writes records meanwhile."""
    assert task.pending
    announced = task.pending.staged if isinstance(task.pending, Snapshot) else None
    begins = task.spec.move.begins if task.spec.move else ()
    extents = announced.extents if announced else begins
    return replace(task, state=Doing.SENDING_OFFSETS), do.SendOffsets(task.pending.positions, extents)


def _emit(task: Task, pending: Record) -> Next:
    """W5: the outputs first, and the record once they are acknowledged."""
    if pending.batch.deliveries:
        return replace(task, state=Doing.EMITTING), do.Emit(pending)
    return replace(task, state=Doing.PRODUCING), do.Produce(pending)


def _emitted(task: Task, event: on.Flushed) -> Next:
    assert task.pending
    if event.delivered != event.produced:
        return _discard(task, event.text)
    return replace(task, state=Doing.PRODUCING), do.Produce(task.pending)


def _offsets_sent(task: Task, _: on.Done) -> Next:
    assert task.pending
    if task.spec.rules.fenced:
        return replace(task, state=Doing.FLUSHING), do.Flush()
    if isinstance(task.pending, Start):
        return replace(task, state=Doing.PRODUCING), do.Produce(task.pending)
    return _committed(task, on.Committed())


def _produced(task: Task, _: on.Done) -> Next:
    return _offsets(task) if task.spec.rules.fenced else (replace(task, state=Doing.FLUSHING), do.Flush())


def _flushed(task: Task, event: on.Flushed) -> Next:
    if event.delivered != event.produced:
        return _discard(task, event.text)
    if not task.spec.rules.fenced:
        return _landed(task)
    unmarked = task.follows and event.first_offset == task.expected - MARKER
    if event.first_offset != task.expected and not unmarked:
        # P6a: the answer to R3 was stale, or another writer writes this partition.
        return _discard(task, f"the record landed at {event.first_offset}, not at {task.expected}: another writer?")
    # P6b: the broker has lost the marker of this session's last transaction. Its records are open again, in this one:
    # an abort would take back what other partitions have committed, and this commit commits both.
    task = replace(task, state=Doing.COMMITTING, expected=_after(event.first_offset, task.pending), follows=True)
    return task, do.Commit(unmarked)


def _landed(task: Task) -> Next:
    """W5, W6: a record without a transaction is there, behind what it speaks of; its offsets go with it, or went."""
    assert task.pending
    if isinstance(task.pending, Start):
        return _committed(replace(task, resolved=()), on.Committed())
    return _offsets(task)


def _after(first_offset: int | None, record: Record | None) -> int:
    """P6a: behind the record, its `settled` records (Y2) and the marker."""
    assert first_offset is not None
    assert record
    return first_offset + 1 + record.batch.replays * isinstance(record, Attempt) + MARKER


def _committed(task: Task, event: on.Committed) -> Next:
    if event.suspect:
        # The request may still be on its way and could end the next transaction of this epoch (KAFKA-17754). The
        # transaction was probably committed, so this counts as progress: a slow coordinator never exhausts the rounds.
        return _discard(replace(task, rounds=0), f"suspect commit: {event.suspect}")
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
    return _called_for(replace(task, first=False, due=due), due)


def _on_from(task: Task, record: Record) -> Next:
    """Go on to what this committed record leads to."""
    match task.then:
        case Doing.ASSIGNING:
            return _assign(task, record.positions)
        case Doing.FETCHING_INPUTS:
            # E1: the target was ahead; the task decides again, by the record that has caught up with it.
            offsets: tuple[tuple[str, int | None], ...] = tuple((p.binding, p.offset) for p in record.positions)
            return replace(task, state=Doing.FETCHING_INPUTS, offsets=offsets, choice=()), do.FetchInputs()
        case Doing.CALLING:
            assert isinstance(record, Snapshot)
            due = _due(record, record.starts)
            # With effects, a step that a retry delays keeps its place: a target would take another message under its
            # step number for it (I7, E1).
            choice = record.choice if task.spec.effects or task.careful else ()
            task = replace(task, first=False, due=due, choice=choice, tail_ends=record.tail_ends)
            return _called_for(task, due)
        case Doing.STOPPED:
            assert task.halt
            return _stop(task, task.halt)
        case Doing.RELEASED:
            return _release(task)
        case _ if isinstance(record, Snapshot) and record.left:
            return replace(task, state=Doing.READY, first=True), do.Await()  # no snapshot stands before the due step
        case _:
            # Careful mode ends with the attempt that reaches its end; else its choice would hold for later messages.
            task = _as_recorded(task, record)
            return replace(task, state=Doing.READY, due=None, fenced_twice=False), do.Await()


def _discard(task: Task, text: str) -> Next:
    if task.leaving:
        return _release(task)
    if task.rounds >= MAX_ROUNDS:
        return _stop(task, on.Halt("refused", f"{task.rounds} attempts failed: {text}", "find who else writes here"))
    return _back(task), do.Discard(text, 0.0)


# Delivery: P1, P2, P4 and section 2.


def _polled(task: Task, event: on.Polled) -> Next:
    """P2, W1: these ranges come next. A snapshot or a take is committed before any message is decoded."""
    if task.spec.rules.takes:
        task = _carrying(task)
        return _transact(task, take_of(task, event.ends, event.steps), Doing.CALLING)
    if task.due:
        task = _polled_again(task, task.due, event)
    elif event.replay and not task.takes_replays:
        # Y1: what was announced or put off comes first.
        raise IllegalEvent(f"{task.spec.name}: a replay is polled where other steps are due")
    due = task.due
    if due and task.quarantined and not (task.first and task.spec.target):
        return _called_for(replace(task, first=False), due)
    if due and not task.first:
        # User code is called again in the same start: its snapshot is the newest record already.
        return _called_for(task, due)
    return _transact(task, announced(task, snapshot_of(task, event), event.tail_ends), Doing.CALLING)


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


def _called(task: Task, event: on.Called) -> Next:
    """P4 to P7: commit what was delivered; then go on, wait to call again, or stop."""
    if task.spec.rules.takes:
        return _called_of_taken(task, event)
    stops = event.halt is not None and event.halt.kind != "retry"
    task = replace(task, halt=event.halt if stops else None)
    if event.batch.deliveries:
        made = replayed(task, _attempt(task, event.ends, event.batch, event.place), event.replays)
        made = behind(task, made, event.tails, put_off=event.halt is not None)
        return _transact(task, made, Doing.STOPPED if stops else Doing.READY)
    if stops:
        return _leave(task, Doing.STOPPED)
    if task.alone and task.must_leave(task.record):
        # Q2a: other tasks may run during the pause before the retry, and their deaths must not count on this step.
        return _say_left(task, Doing.READY)
    return replace(task, state=Doing.READY), do.Await()


def _called_of_taken(task: Task, event: on.Called) -> Next:
    """W1: what the calls left waits for the next transaction, unless the task stops."""
    if task.due is None:
        raise IllegalEvent(f"{task.spec.name}: called up to {event.ends}, and nothing is taken")
    task = _with_outcomes(task, event)
    assert task.carried
    if task.carried.halt is None:
        return replace(task, state=Doing.READY), do.Await()
    return _settle(replace(task, halt=task.carried.halt), Doing.STOPPED)


def _with_outcomes(task: Task, event: on.Called) -> Task:
    assert task.record
    assert task.due
    return replace(task, carried=after_call(task.record, task.due.steps, event), due=None)


def _carrying(task: Task) -> Task:
    assert task.record
    return task if task.carried else replace(task, carried=nothing_carried(task.record))


def _settle(task: Task, then: Doing) -> Next:
    """W2: commit what is carried, and the position behind the last step that was started; take nothing."""
    assert task.carried
    return _transact(task, take_of(task, task.carried.ends), then)


def _idle(task: Task, event: on.Idle) -> Next:
    """P1; over due ranges only if compaction may have taken all of their messages (`Spec.compacted`)."""
    gone = task.spec.compacted or bool(task.due and task.due.replay and event.replays)
    if task.due and (task.due.timers or not (gone and event.positions == task.due.ends)):
        name = f"{task.spec.name}: due up to {task.due.ends}, {task.due.steps} {_kind(task.due)}"
        raise IllegalEvent(f"{name}; idle at {event.positions}")
    if task.spec.rules.takes:
        task = _carrying(task)
        return _transact(task, take_of(task, event.positions), Doing.READY)
    task = replace(task, choice=())  # what it may still name was compacted away
    made = replayed(task, _attempt(task, event.positions, Totals()), event.replays)
    return _transact(task, behind(task, made, ()), Doing.READY)


def _attempt(task: Task, positions: Positions, batch: Totals, place: str = "") -> Attempt:
    """P5: the record of a batch whose steps are taken and settled together."""
    if not task.spec.staged:
        return attempt_of(task, positions, batch.settled, place)
    if not isinstance(task.spec.staged, Publish) or task.published:
        raise IllegalEvent(f"{task.spec.name} has nothing to publish")
    return publication_of(task, batch.settled)


def _called_for(task: Task, due: Due) -> Next:
    """P4, Q3: user code is called for what is due; or it is taken out, if it has killed its process too often."""
    task = replace(task, state=Doing.CALLING)
    if task.quarantined:
        return task, do.Quarantine(due.ends, due.choice, due.starts, due.timers, due.replay)
    return task, do.Call(due.ends, due.steps, due.choice, due.starts, due.timers, task.tail_ends, due.replay)


# Endings.


def _leave(task: Task, to: Doing) -> Next:
    """Q1: a task that stops cleanly under its own snapshot commits `left`, so that recovery counts no death."""
    task = replace(task, leaving=to is Doing.RELEASED)
    if task.must_leave(task.record):
        return _say_left(task, to)
    if to is Doing.STOPPED:
        assert task.halt
        return _stop(task, task.halt)
    return _release(task)


def _say_left(task: Task, then: Doing) -> Next:
    assert isinstance(task.record, Snapshot)
    return _transact(task, left_of(task.record), then)


def _revoked(task: Task, event: on.Revoked) -> Next:
    """A3: in READY and CALLING the session is idle, so the task can write `left`; else the next init decides."""
    if task.spec.rules.takes:
        if event.called and task.state is Doing.CALLING:
            task = _with_outcomes(task, event.called)
        if task.carried and task.carried.due:
            return _settle(replace(task, leaving=True), Doing.RELEASED)
    return _leave(task, Doing.RELEASED)


def _interrupted(task: Task, _: on.Revoked) -> Next:
    """
    Q1, W2: the task is revoked while it recovers, or after a failure stopped it; a rebalance is no death.

    If it owes anything, it returns to R1 once more to commit that.
    """
    if not task.owes or task.leaving:
        return _release(task)
    back = Task(task.spec, state=Doing.DISCARDING, left_due=task.may_owe_left, leaving=True, carried=task.carried)
    return back, do.Discard("committing what is due before the partition is given up", 0.0)


def _abandoned(task: Task, _: on.Lost | on.Revoked) -> Next:
    return _release(task)


def _release(task: Task) -> Next:
    return replace(task, state=Doing.RELEASED, pending=None), do.Release()


def _stop(task: Task, halt: on.Halt) -> Next:
    """Stop, and remember whether `left` must be said; a slot never takes its id again (D5)."""
    if task.leaving:
        return _release(task)
    left_due = task.may_owe_left and not task.spec.slot
    return replace(task, state=Doing.STOPPED, pending=None, halt=halt, left_due=left_due), do.Stop(halt)


Handler: TypeAlias = Callable[[Task, Any], Next]
Transitions: TypeAlias = dict[type, tuple[Handler, frozenset[Doing]]]


def _to(*names: str) -> frozenset[Doing]:
    return frozenset(Doing[name] for name in names)


_WORKING = _to("READY", "CALLING", "BEGINNING", "SENDING_OFFSETS", "EMITTING", "PRODUCING", "FLUSHING", "COMMITTING")
_BACK = _to("DISCARDING", "STOPPED")
_MAY_END: Transitions = {on.Lost: (_abandoned, _to("RELEASED")), on.Revoked: (_abandoned, _to("RELEASED"))}
_MAY_FAIL: Transitions = {on.Failed: (_failed, _BACK), **_MAY_END}
_RECOVERING: Transitions = {**_MAY_FAIL, on.Revoked: (_interrupted, _to("DISCARDING", "RELEASED"))}
_MAY_LEAVE: Transitions = {
    **_RECOVERING,
    on.Failed: (_failed, _BACK | _to("RELEASED")),
}  # a leaving task passes these states
_IN_TRANSACTION: Transitions = {**_MAY_FAIL, on.Failed: _MAY_LEAVE[on.Failed]}

_DECIDED = _to("FETCHING_SIBLING", "ASSIGNING", "DISCARDING", "STOPPED", "BEGINNING")

TRANSITIONS: dict[Doing, Transitions] = {
    Doing.NEW: {on.Assigned: (_assigned, _to("INITIALISING")), **_MAY_END},
    Doing.INITIALISING: {on.Initialised: (_initialised, _to("FETCHING_OFFSETS")), **_MAY_LEAVE},
    Doing.FETCHING_OFFSETS: {on.OffsetsFetched: (_offsets_fetched, _to("FETCHING_WATERMARK")), **_MAY_LEAVE},
    Doing.FETCHING_WATERMARK: {on.WatermarkFetched: (_watermark_fetched, _to("READING_NEWEST")), **_MAY_LEAVE},
    Doing.READING_NEWEST: {on.NewestRead: (_newest_read, _to("FETCHING_INPUTS", "STOPPED", "RELEASED")), **_MAY_LEAVE},
    Doing.FETCHING_INPUTS: {
        on.InputsFetched: (
            _inputs_fetched,
            _to("ASKING_TARGET", "FETCHING_PARTS", "READY", "RELEASED") | _DECIDED,
        ),
        **_MAY_LEAVE,
    },
    Doing.ASKING_TARGET: {on.TargetAsked: (_target_asked, _DECIDED), **_RECOVERING},
    Doing.FETCHING_SIBLING: {on.SiblingRead: (_sibling_read, _to("BEGINNING", "STOPPED")), **_MAY_FAIL},
    Doing.FETCHING_PARTS: {on.PartsRead: (_parts_read, _to("BEGINNING", "STOPPED")), **_MAY_FAIL},
    Doing.ASSIGNING: {on.Done: (_reader_assigned, _to("READY")), **_RECOVERING},
    Doing.READY: {
        on.Polled: (_polled, _to("BEGINNING", "CALLING")),
        on.Called: (_called, _to("BEGINNING", "READY", "STOPPED")),
        on.Idle: (_idle, _to("BEGINNING")),
        **_MAY_FAIL,
        on.Revoked: (_revoked, _to("BEGINNING", "RELEASED")),
    },
    Doing.CALLING: {
        on.Called: (_called, _to("BEGINNING", "READY", "STOPPED")),
        **_MAY_FAIL,
        on.Revoked: (_revoked, _to("BEGINNING", "RELEASED")),
    },
    Doing.BEGINNING: {
        on.Done: (_begun, _to("SENDING_OFFSETS", "EMITTING", "PRODUCING")),
        **_IN_TRANSACTION,
        on.Revoked: (_revoked, _to("BEGINNING", "RELEASED")),
    },
    Doing.SENDING_OFFSETS: {
        on.Done: (_offsets_sent, _to("PRODUCING", "FLUSHING", "READY", "STOPPED")),
        **_IN_TRANSACTION,
    },
    Doing.EMITTING: {on.Flushed: (_emitted, _to("PRODUCING", "DISCARDING", "STOPPED")), **_MAY_FAIL},
    Doing.PRODUCING: {on.Done: (_produced, _to("FLUSHING", "SENDING_OFFSETS")), **_IN_TRANSACTION},
    Doing.FLUSHING: {
        on.Flushed: (
            _flushed,
            _to("COMMITTING", "SENDING_OFFSETS", "ASSIGNING", "DISCARDING", "STOPPED", "RELEASED"),
        ),
        **_IN_TRANSACTION,
    },
    Doing.COMMITTING: {
        on.Committed: (
            _committed,
            _to("READY", "CALLING", "ASSIGNING", "FETCHING_INPUTS", "DISCARDING", "STOPPED", "RELEASED"),
        ),
        **_IN_TRANSACTION,
    },
    Doing.DISCARDING: {
        on.Done: (_discarded, _to("INITIALISING")),
        **_MAY_END,
        on.Revoked: (_interrupted, _to("DISCARDING", "RELEASED")),
    },
    Doing.STOPPED: {
        on.Assigned: (_assigned, _to("INITIALISING")),
        **_MAY_END,
        on.Revoked: (_interrupted, _to("DISCARDING", "RELEASED")),
    },
    Doing.RELEASED: {},
}
"""What may happen in each state: event -> (handler, states that may follow). The docs' diagram is drawn from it."""
