"""The state machine of one task. Everything that decides about delivery lives here or in `recover`.

`handle(task, event)` gives the task as it is afterwards and the one effect that must be done next. It is pure: tasks
are frozen values, time comes with events. An event that `TRANSITIONS` does not list for the task's state raises and
changes nothing. The interpreter (runtime) does effects and reports events; whatever fails, it says `Failed`, and the
task comes back by R1.

Two lanes. Where a snapshot is due (`snapshot_due`), the shell says `Polled` before it looks at a message, and calls
user code only when it is told to `Call`. Elsewhere it may call user code while the last commit is still under way (P7)
and says `Called` when the task is ready again; what was called meanwhile is thrown away if that commit failed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.moves import decide, moved_halt
from cues_kafka.core.records import Attempt, Choice, Record, Snapshot, Start, Totals
from cues_kafka.core.recover import Delivered, Fresh, Pending, Refuse, first_positions, other_writer, plan_of, recover
from cues_kafka.core.spec import Move, Spec
from cues_kafka.core.staged import Announce, Publish, Turn, is_published, verdict
from cues_kafka.ports import Positions

MAX_ROUNDS = 5
"""R7: rounds back to R1 without progress in between, then the task stops and says why."""

FENCED_WITHIN_S = 60.0
"""R7: fenced twice within this time by somebody else: stop with his name instead of fencing him in turn."""

FORGOTTEN_AFTER_S = 60.0
"""R7: a task that has worked for so long since its last recovery counts its rounds from 0 again."""

STALE_FOR_S = 15.0
"""R5: how long a refusal that a cut-off leader or coordinator could cause is asked again."""

ALONE_AT = 1
"""Q2a: deaths on a single step, from which on nothing else of its process runs while it is delivered."""

CAREFUL_AT = 2
"""Q2: deaths on the same ranges, from which on one step goes into a transaction."""

MARKER = 1
"""A transaction leaves one marker behind its records in each partition."""


class State(Enum):
    """What a task is doing; each but the first, READY and the last two waits for the answer to one effect."""

    NEW = "new"
    INITIALISING = "initialising"
    FETCHING_OFFSETS = "fetching offsets"
    FETCHING_WATERMARK = "fetching watermark"
    READING_NEWEST = "reading newest"
    FETCHING_INPUTS = "fetching inputs"
    FETCHING_SIBLING = "fetching sibling"
    FETCHING_PARTS = "fetching parts"
    ASSIGNING = "assigning"
    READY = "ready"
    CALLING = "calling"
    BEGINNING = "beginning"
    SENDING_OFFSETS = "sending offsets"
    PRODUCING = "producing"
    FLUSHING = "flushing"
    COMMITTING = "committing"
    DISCARDING = "discarding"
    STOPPED = "stopped"
    RELEASED = "released"


class IllegalEvent(AssertionError):
    """The shell told a task what cannot happen in its state."""


@dataclass(frozen=True, slots=True)
class Due:
    """Exactly these ranges are to be delivered next, in this order of bindings; `starts` deaths on them so far."""

    ends: Positions
    steps: int
    choice: Choice
    starts: int


@dataclass(frozen=True, slots=True)
class Task:
    """
    One processor at one partition, at one moment.

    Attributes:
        spec: what never changes.
        state: see `State`.
        record: the newest committed record; None before the first.
        pending: the record of the transaction under way.
        then: what the transaction under way leads to: CALLING, READY, ASSIGNING, STOPPED or RELEASED.
        halt: why the task stops, or stopped.
        expected: where the next task record must land (P6a).
        due: ranges that must be delivered as they are: a retry's, or those of the snapshot just committed.
        first: no batch of steps was begun since this start of the task (S1).
        careful_until: one step per transaction up to here (Q2).
        choice: what remains of a recorded choice of alts: with effects, and in careful mode.
        owner: sequence of this start's first record; None before it.
        rounds: returns to R1 since the last commit of an attempt (R7).
        recovered_at_s: when R5 was last answered.
        fenced_at_s: when it was last fenced.
        fenced_twice: within `FENCED_WITHIN_S`, and nothing was delivered since.
        stale_since_s: since when R5 would refuse for what may be a stale answer.
        unleft: recovering before R4, or stopped: the newest record may be a snapshot of ours that nobody left (Q1).
        leaving: revoked while it recovered; it goes on only to say `left`.
        offsets: the answer of R2, while R3 to R5 go on.
        inputs: the answer of R5.
    """

    spec: Spec
    state: State = State.NEW
    record: Record | None = None
    pending: Record | None = None
    then: State = State.READY
    halt: on.Halt | None = None
    expected: int = 0
    due: Due | None = None
    first: bool = True
    careful_until: Positions = ()
    choice: Choice = ()
    owner: int | None = None
    rounds: int = 0
    recovered_at_s: float | None = None
    fenced_at_s: float | None = None
    fenced_twice: bool = False
    stale_since_s: float | None = None
    unleft: bool = False
    leaving: bool = False
    offsets: tuple[tuple[str, int | None], ...] = ()
    inputs: tuple[tuple[str, on.InputFacts], ...] = ()

    @property
    def positions(self) -> Positions:
        """Where the task stands, by its newest committed record."""
        return self.record.positions if self.record else ()

    @property
    def careful(self) -> bool:
        """Whether the next step must be alone in its transaction (Q2)."""
        return _before(self.positions, self.careful_until)

    @property
    def snapshot_due(self) -> bool:
        """Whether the shell must say `Polled`, and wait for `Call`, before it touches a message (S1, S2)."""
        return self.first or self.due is not None or (self.spec.effects and self.spec.pairing == "alts")

    @property
    def pipelined(self) -> bool:
        """Whether user code may be called while a commit is under way (P7)."""
        return not (self.snapshot_due or self.careful or self.spec.effects)

    @property
    def alone(self) -> bool:
        """
        Whether nothing else of the process may run user code from now until `settled` (Q2a).

        The due step has a death behind it. One more must be its own: a message of another task that kills the process
        meanwhile would be counted on it.
        """
        due = self.due
        return due is not None and due.steps == 1 and due.starts >= ALONE_AT and not self.quarantined

    @property
    def settled(self) -> bool:
        """Whether a death of the process would count on nothing of this task that it would not count on anyway."""
        if self.state is State.READY:
            return not _unleft(self, self.record)
        return self.state in (State.NEW, State.STOPPED, State.RELEASED)

    @property
    def published(self) -> bool:
        """Whether the part that this slot is there for is out (T3)."""
        return is_published(self.spec.staged, self.record)

    @property
    def next_sequence(self) -> int:
        """The sequence of the record after the pending one, or else after the newest one."""
        newest = self.pending or self.record
        return newest.sequence + 1 if newest else 0

    @property
    def quarantined(self) -> bool:
        """Whether the due step has killed its process too often (Q3)."""
        after = self.spec.quarantine_after
        return after is not None and self.due is not None and self.due.steps == 1 and self.due.starts > after


Next: TypeAlias = tuple[Task, do.Effect]


def handle(task: Task, event: on.Event) -> Next:
    """
    One step of the machine.

    Raises:
        IllegalEvent: `TRANSITIONS` does not list this event for the task's state. The task is as it was.
    """
    try:
        handler, following = TRANSITIONS[task.state][type(event)]
    except KeyError:
        raise IllegalEvent(f"{task.spec.name} is {task.state.value}: {type(event).__name__} cannot happen") from None
    after, effect = handler(task, event)
    if after.state not in following:
        raise IllegalEvent(f"{task.spec.name}: {task.state.value} -> {after.state.value} is not in the table")
    return after, effect


# Recovery: R1 to R7. The session is initialised before anything is read, because init alone ends what an earlier owner
# left open and fences him; whoever reads first can miss a record that is committed a moment later.


def _assigned(task: Task, event: on.Assigned) -> Next:
    fresh = Task(task.spec, state=State.INITIALISING, first=event.first, unleft=task.unleft)
    return fresh, do.Init()


def _initialised(task: Task, _: on.Initialised) -> Next:
    return replace(task, state=State.FETCHING_OFFSETS), do.FetchOffsets()


def _offsets_fetched(task: Task, event: on.OffsetsFetched) -> Next:
    return replace(task, state=State.FETCHING_WATERMARK, offsets=tuple(event.offsets.items())), do.FetchWatermark()


def _watermark_fetched(task: Task, event: on.WatermarkFetched) -> Next:
    return replace(task, state=State.READING_NEWEST, expected=event.high), do.ReadNewest(event.high)


def _newest_read(task: Task, event: on.NewestRead) -> Next:
    task = replace(task, record=event.record, unleft=False)  # known from here on
    if event.unreadable:
        return _stop(
            task,
            on.Halt(
                "refused",
                event.unreadable,
                "find who else writes the backing topic: only this task may, under its transactional id",
            ),
        )
    record = event.record
    if task.fenced_twice and record and record.writer.incarnation != task.spec.writer.incarnation:
        return _stop(task, _claimed(record))
    return replace(task, state=State.FETCHING_INPUTS), do.FetchInputs()


def _inputs_fetched(task: Task, event: on.InputsFetched) -> Next:
    task = replace(task, inputs=tuple(event.inputs.items()), recovered_at_s=event.at_s)
    if task.spec.staged:
        return _staged(task)
    if task.spec.move:
        return _move(task, task.spec.move)
    match recover(task.spec, task.record, dict(task.offsets), event.inputs):
        case Refuse(halt, stale):
            return _refused(task, halt, event.at_s) if stale else _stop(task, halt)
        case Fresh():
            return _release(task) if task.leaving else (replace(task, state=State.FETCHING_SIBLING), do.FetchSibling())
        case Delivered(record):
            task = replace(task, record=record, careful_until=record.careful_until, choice=record.choice)
            return _assign(replace(task, first=task.first or task.careful), record.positions)
        case Pending(record, starts):
            return _assign(_retry(task, record, starts), record.positions)


def _retry(task: Task, record: Snapshot, starts: int) -> Task:
    """Q1 to Q3: the same ranges again; after two deaths on several steps, one by one, and the first as new ranges."""
    until = record.careful_until or (record.ends if starts >= CAREFUL_AT else ())
    kept = record.choice if until or task.spec.effects else ()
    task = replace(task, first=True, careful_until=until, choice=kept)
    if starts >= CAREFUL_AT and record.steps > 1:
        return task
    if record.writer.incarnation == task.spec.writer.incarnation and not record.left:
        # After P8: this very snapshot is the newest record, so S1 is served; another one would only put off the call.
        task = replace(task, first=False, owner=record.owner)
    return replace(task, due=Due(record.ends, record.steps, take(record.choice, record.steps), starts))


def _assign(task: Task, positions: Positions) -> Next:
    if task.quarantined and not task.spec.errors:
        places = ", ".join(f"{p.topic}/{task.spec.partition} at {p.offset}" for p in positions)
        # At least: deaths before it had a snapshot of its own are not in this count (Q1, Q2).
        text = f"the message {places} killed its process at least {task.due.starts if task.due else 0} times"
        return _stop(task, on.Halt("refused", text, "declare an errors topic, which takes it, or fix the function"))
    if task.leaving:
        return _leave(task, State.RELEASED)
    return replace(task, state=State.ASSIGNING, stale_since_s=None), do.AssignReader(positions)


def _sibling_read(task: Task, event: on.SiblingRead) -> Next:
    positions = first_positions(task.spec, dict(task.inputs), event.born)
    born = task.spec.width if event.born is None else event.born
    start = Start(
        sequence=0,
        step=0,
        positions=positions,
        born=born,
        writer=task.spec.writer,
        strategy=task.spec.strategy,
        fingerprint=plan_of(task.spec, dict(task.inputs)),
    )
    return _transact(task, start, State.ASSIGNING)


def _staged(task: Task, settled: bool | None = None) -> Next:
    """T2, T3: a slot of a staged processor has no inputs of its own; its record says what it may do."""
    assert task.spec.staged
    if task.record and (refusal := other_writer(task.spec, task.record)):
        return _stop(task, refusal.halt)
    match verdict(task.spec.staged, task.record, settled=settled):
        case on.Halt() as halt:
            return _stop(task, halt)
        case Turn.ASK:
            assert task.record
            assert task.record.staged
            newest = task.record.staged
            return replace(task, state=State.FETCHING_PARTS), do.FetchParts(newest.number, newest.parts)
        case Turn.SNAPSHOT:
            return _transact(task, _announcement(task), State.READY)
        case Turn.GO:
            return replace(task, state=State.READY), do.Await()


def _move(task: Task, move: Move) -> Next:
    """X2: a tool writes one record, and stops."""
    match decide(task.spec, move, task.record, dict(task.inputs)):
        case on.Halt() as halt:
            return _stop(task, halt)
        case record:
            return _transact(replace(task, halt=moved_halt(task.spec)), record, State.STOPPED)


def _parts_read(task: Task, event: on.PartsRead) -> Next:
    """Part 0 is this very record: an attempt says that it is published."""
    return _staged(task, event.settled and isinstance(task.record, Attempt))


def _announcement(task: Task) -> Snapshot:
    """T2: the first committed one wins; its sequence is the publication number."""
    assert isinstance(task.spec.staged, Announce)
    batch, newest = task.spec.staged.batch, task.record
    return Snapshot(
        sequence=task.next_sequence,
        step=newest.step if newest else 0,
        positions=(),
        totals=newest.totals if newest else Totals(),
        born=batch.parts,
        writer=task.spec.writer,
        strategy=task.spec.strategy,
        staged=replace(batch, number=task.next_sequence),
        ends=(),
        steps=0,
    )


def _publication(task: Task, batch: Totals) -> Attempt:
    """T3: a part's record says which publication it is of; part 0 keeps what was announced, which T2 asks for."""
    role, newest = task.spec.staged, task.record
    if not isinstance(role, Publish) or task.published:
        raise IllegalEvent(f"{task.spec.name} has nothing to publish")
    mine = role.batch
    return Attempt(
        sequence=task.next_sequence,
        step=(newest.step if newest else 0) + batch.deliveries,
        positions=(),
        totals=(newest.totals if newest else Totals()).plus(batch),
        batch=batch,
        born=mine.parts,
        writer=task.spec.writer,
        strategy=task.spec.strategy,
        staged=newest.staged if newest and mine.part == 0 else mine,
    )


def _reader_assigned(task: Task, _: on.Done) -> Next:
    return replace(task, state=State.READY), do.Await()


def _refused(task: Task, halt: on.Halt, at_s: float) -> Next:
    """A refusal that a stale answer could cause: new clients, from R1 again, for a while (R5)."""
    if task.leaving:
        return _release(task)
    since = at_s if task.stale_since_s is None else task.stale_since_s
    if at_s - since >= STALE_FOR_S:
        return _stop(task, halt)
    task = replace(task, stale_since_s=since, record=None, state=State.DISCARDING, unleft=_owes_left(task))
    return task, do.Discard(f"asked again: {halt.text}", 1.0)


def _failed(task: Task, event: on.Failed) -> Next:
    """P8, R7: whatever it was, never go on with this session. The outcome of a commit is known only after R4."""
    if task.leaving:
        return _release(task)
    if event.fenced and task.spec.slot:
        # D5: whoever fenced delivers this range, or is a native worker; taking the id back would only fence him.
        return _stop(task, on.Halt("fenced", event.text, "see the newest record of the task: its writer runs it"))
    fenced_twice = task.fenced_twice
    if event.fenced:
        last = task.fenced_at_s
        fenced_twice = fenced_twice or (last is not None and event.at_s - last < FENCED_WITHIN_S)
    if task.state in _WORKING and event.at_s - (task.recovered_at_s or 0.0) >= FORGOTTEN_AFTER_S:
        task = replace(task, rounds=0)
    if task.rounds >= MAX_ROUNDS:
        return _stop(task, _exhausted(task, event))
    back = Task(
        task.spec,
        state=State.DISCARDING,
        rounds=task.rounds + 1,
        fenced_at_s=event.at_s if event.fenced else task.fenced_at_s,
        fenced_twice=fenced_twice,
        stale_since_s=task.stale_since_s,
        unleft=_owes_left(task),
    )
    return back, do.Discard(event.text, min(0.1 * 2**task.rounds, 5.0) if task.rounds else 0.0)


def _discarded(task: Task, _: on.Done) -> Next:
    return replace(task, state=State.INITIALISING), do.Init()


def _claimed(record: Record) -> on.Halt:
    who = record.writer
    return on.Halt(
        "refused",
        f"fenced twice by {who.name!r} ({who.runtime}, {who.incarnation}), which runs this task too",
        "stop one of the two: a processor runs in one application and one runtime at a time",
    )


def _exhausted(task: Task, event: on.Failed) -> on.Halt:
    who = f", newest record by {task.record.writer.name!r}" if task.record else ""
    if event.fenced:
        return on.Halt(
            "refused", f"fenced {task.rounds + 1} times{who}: {event.text}", "stop whoever runs this task too"
        )
    return on.Halt("refused", f"gave up after {task.rounds} rounds{who}: {event.text}", event.remedy or _MEND)


_MEND = "fix the cause, and the task resumes; `cues-kafka plan MODULE:GRAPH --apply` recreates a topic that was deleted"


# Transactions: P2, P5 to P7. One path for every record.


def _transact(task: Task, record: Record, then: State) -> Next:
    return replace(task, state=State.BEGINNING, pending=record, then=then), do.Begin()


def _begun(task: Task, _: on.Done) -> Next:
    assert task.pending
    # In every transaction of any kind the offsets sent are exactly the record's positions (PROTOCOL 2): the check of
    # the generation comes with them, and R5 of the next owner compares them.
    announced = task.pending.staged if isinstance(task.pending, Snapshot) else None
    begins = task.spec.move.begins if task.spec.move else ()
    extents = announced.extents if announced else begins
    return replace(task, state=State.SENDING_OFFSETS), do.SendOffsets(task.pending.positions, extents)


def _offsets_sent(task: Task, _: on.Done) -> Next:
    assert task.pending
    return replace(task, state=State.PRODUCING), do.Produce(task.pending)


def _produced(task: Task, _: on.Done) -> Next:
    return replace(task, state=State.FLUSHING), do.Flush()


def _flushed(task: Task, event: on.Flushed) -> Next:
    if event.delivered != event.produced:
        return _discard(task, f"{event.delivered} of {event.produced} records were acknowledged")
    if event.first_offset != task.expected and task.spec.strategy == "exactly-once":
        # P6a. A record where none was expected: R3 was stale, or somebody else writes this partition.
        return _discard(task, f"the record landed at {event.first_offset}, not at {task.expected}: another writer?")
    return replace(task, state=State.COMMITTING, expected=_after(event.first_offset)), do.Commit()


def _after(first_offset: int | None) -> int:
    assert first_offset is not None
    return first_offset + 1 + MARKER


def _committed(task: Task, event: on.Committed) -> Next:
    if event.suspect:
        # The request may still be on its way and could end the next transaction of this epoch (KAFKA-17754).
        # It was committed, as far as anybody can tell: progress, so that a slow coordinator never exhausts the rounds.
        return _discard(replace(task, rounds=0), f"suspect commit: {event.suspect}")
    record = task.pending
    assert record
    owner = record.sequence if task.owner is None else task.owner
    # R7 counts rounds without progress, and a snapshot is none: what fails behind it each time would go round for ever.
    rounds = task.rounds if isinstance(record, Snapshot) else 0
    return _on_from(replace(task, record=record, pending=None, owner=owner, rounds=rounds), record)


def _on_from(task: Task, record: Record) -> Next:
    """What this committed record leads to."""
    match task.then:
        case State.ASSIGNING:
            return _assign(task, record.positions)
        case State.CALLING:
            assert isinstance(record, Snapshot)
            due = Due(record.ends, record.steps, take(record.choice, record.steps), record.starts)
            # With effects, what is called and put off by a retry keeps its place: another message under its step number
            # would be taken for it (I7, E1).
            choice = record.choice if task.spec.effects or task.careful else ()
            return replace(task, state=State.CALLING, first=False, due=due, choice=choice), _call(due)
        case State.STOPPED:
            assert task.halt
            return _stop(task, task.halt)
        case State.RELEASED:
            return _release(task)
        case _ if isinstance(record, Snapshot) and record.left:
            return replace(task, state=State.READY, first=True), do.Await()  # the due step waits under no snapshot
        case _:
            # Careful mode ends with the attempt that reaches its end; left on, it would lend its choice to others.
            task = replace(task, careful_until=record.careful_until, choice=record.choice, fenced_twice=False)
            return replace(task, state=State.READY, due=None), do.Await()


def _discard(task: Task, text: str) -> Next:
    if task.leaving:
        return _release(task)
    if task.rounds >= MAX_ROUNDS:
        return _stop(
            task, on.Halt("refused", f"gave up after {task.rounds} rounds: {text}", "find who else writes here")
        )
    back = Task(
        task.spec,
        state=State.DISCARDING,
        rounds=task.rounds + 1,
        fenced_at_s=task.fenced_at_s,
        fenced_twice=task.fenced_twice,
        unleft=_owes_left(task),
    )
    return back, do.Discard(text, 0.0)


# Delivery: P1, P2, P4 and section 2.


def _polled(task: Task, event: on.Polled) -> Next:
    """P2: these ranges come next; where a snapshot is due it is committed before anything is decoded."""
    if task.due:
        task = _polled_again(task, task.due, event)
    due, newest = task.due, task.record
    assert newest
    if task.quarantined and due:
        return replace(task, state=State.CALLING, first=False), do.Quarantine(due.ends, due.choice, due.starts)
    if due and not task.first:
        # A retry of user code in the same start: its snapshot is the newest record already.
        return replace(task, state=State.CALLING), _call(due)
    snapshot = Snapshot(
        sequence=newest.sequence + 1,
        step=newest.step,
        positions=task.positions,
        totals=newest.totals,
        starts=due.starts if due else 0,
        careful_until=task.careful_until,
        choice=joined(event.choice, drop(task.choice, event.steps)),  # all that remains: a death forgets nothing
        owner=newest.sequence + 1 if task.owner is None else task.owner,
        born=newest.born,
        writer=task.spec.writer,
        strategy=task.spec.strategy,
        fingerprint=plan_of(task.spec, dict(task.inputs)),
        ends=event.ends,
        steps=event.steps,
    )
    return _transact(task, snapshot, State.CALLING)


def _polled_again(task: Task, due: Due, event: on.Polled) -> Task:
    """The same ranges, and all of their steps; fewer only where compaction may take messages (`Spec.compacted`)."""
    fewer = task.spec.compacted and 0 < event.steps < due.steps
    if due.ends != event.ends or (event.steps != due.steps and not fewer):
        name = f"{task.spec.name}: due up to {due.ends}, {due.steps} steps"
        raise IllegalEvent(f"{name}; polled up to {event.ends}, {event.steps} steps")
    # The deaths were those of several steps. A single one that is left has none of its own yet (Q2, Q3).
    starts = 0 if event.steps == 1 < due.steps else due.starts
    return replace(task, due=replace(due, steps=event.steps, starts=starts))


def _called(task: Task, event: on.Called) -> Next:
    """P4 to P7: what was delivered commits; then the task goes on, waits to call again, or stops."""
    stops = event.halt is not None and event.halt.kind != "retry"
    task = replace(task, halt=event.halt if stops else None)
    if event.batch.deliveries:
        return _transact(task, _attempt(task, event.ends, event.batch), State.STOPPED if stops else State.READY)
    if stops:
        return _leave(task, State.STOPPED)
    if task.alone and _unleft(task, task.record):
        # Q2a: others may run during the pause before the retry, and their deaths must not count on this step.
        assert task.record
        return _transact(task, replace(task.record, sequence=task.record.sequence + 1, left=True), State.READY)
    return replace(task, state=State.READY), do.Await()


def _idle(task: Task, event: on.Idle) -> Next:
    """P1; over ranges that are due only where compaction may have taken all of their messages (`Spec.compacted`)."""
    if task.due and not (task.spec.compacted and event.positions == task.due.ends):
        name = f"{task.spec.name}: due up to {task.due.ends}, {task.due.steps} steps"
        raise IllegalEvent(f"{name}; idle at {event.positions}")
    task = replace(task, choice=())  # nothing lies below the ends, so what it may still name was compacted away
    return _transact(task, _attempt(task, event.positions, Totals()), State.READY)


def _attempt(task: Task, positions: Positions, batch: Totals) -> Attempt:
    if task.spec.staged:
        return _publication(task, batch)
    assert task.record
    careful = _before(positions, task.careful_until)
    return Attempt(
        sequence=task.record.sequence + 1,
        step=task.record.step + batch.deliveries,
        positions=positions,
        totals=task.record.totals.plus(batch),
        batch=batch,
        careful_until=task.careful_until if careful else (),
        choice=drop(task.choice, batch.deliveries) if careful or task.spec.effects else (),
        owner=task.record.sequence + 1 if task.owner is None else task.owner,
        born=task.record.born,
        writer=task.spec.writer,
        strategy=task.spec.strategy,
        fingerprint=plan_of(task.spec, dict(task.inputs)),
    )


def _call(due: Due) -> do.Call:
    return do.Call(due.ends, due.steps, due.choice, due.starts)


def take(choice: Choice, steps: int) -> Choice:
    """The first so many steps of a run-length coded choice."""
    taken: list[tuple[str, int]] = []
    for binding, count in choice:
        if steps <= 0:
            break
        taken.append((binding, min(count, steps)))
        steps -= count
    return tuple(taken)


def drop(choice: Choice, steps: int) -> Choice:
    """What remains of a run-length coded choice after so many steps."""
    rest: list[tuple[str, int]] = []
    for binding, count in choice:
        kept = max(0, count - steps)
        steps -= count - kept
        if kept:
            rest.append((binding, kept))
    return tuple(rest)


def _before(positions: Positions, until: Positions) -> bool:
    """Whether any binding stands before its place in `until`."""
    ends = {p.binding: p.offset for p in until}
    return any(p.offset < ends.get(p.binding, 0) for p in positions)


def joined(first: Choice, then: Choice) -> Choice:
    """One run-length coded choice behind another."""
    if first and then and first[-1][0] == then[0][0]:
        return (*first[:-1], (first[-1][0], first[-1][1] + then[0][1]), *then[1:])
    return first + then


# Endings.


def _leave(task: Task, to: State) -> Next:
    """Q1: whoever leaves in order under his own snapshot says so, lest it be counted as a death."""
    task = replace(task, leaving=to is State.RELEASED)
    if _unleft(task, task.record):
        assert task.record
        return _transact(task, replace(task.record, sequence=task.record.sequence + 1, left=True), to)
    if to is State.STOPPED:
        assert task.halt
        return _stop(task, task.halt)
    return _release(task)


def _revoked(task: Task, _: on.Revoked) -> Next:
    """A3. In READY and CALLING the session is idle, so `left` can be written; else the next owner's init decides."""
    return _leave(task, State.RELEASED)


def _unleft(task: Task, record: Record | None) -> bool:
    mine = record is not None and record.writer.incarnation == task.spec.writer.incarnation
    return mine and isinstance(record, Snapshot) and not record.left and not record.staged


def _owes_left(task: Task) -> bool:
    """Whether the newest record may be a snapshot of ours: the last commit's outcome is not known before R4."""
    return task.unleft or _unleft(task, task.record) or _unleft(task, task.pending)


def _interrupted(task: Task, _: on.Revoked) -> Next:
    """
    A revocation met a recovery, or a task that a failure has stopped; a rebalance is no death (Q1).

    Where `left` is owed, once more from R1, to say it.
    """
    owed = task.unleft if task.state is State.STOPPED else _owes_left(task)
    if not owed or task.leaving:
        return _release(task)
    back = Task(task.spec, state=State.DISCARDING, unleft=True, leaving=True)
    return back, do.Discard("leaving in order", 0.0)


def _abandoned(task: Task, _: on.Lost | on.Revoked) -> Next:
    return _release(task)


def _release(task: Task) -> Next:
    return replace(task, state=State.RELEASED, pending=None), do.Release()


def _stop(task: Task, halt: on.Halt) -> Next:
    """What is owed is remembered; but a slot's id is never taken again (D5)."""
    if task.leaving:
        return _release(task)
    unleft = _owes_left(task) and not task.spec.slot
    return replace(task, state=State.STOPPED, pending=None, halt=halt, unleft=unleft), do.Stop(halt)


Handler: TypeAlias = Callable[[Task, Any], Next]
Row: TypeAlias = dict[type, tuple[Handler, frozenset[State]]]


def _to(*names: str) -> frozenset[State]:
    return frozenset(State[name] for name in names)


_WORKING = _to("READY", "CALLING", "BEGINNING", "SENDING_OFFSETS", "PRODUCING", "FLUSHING", "COMMITTING")
_BACK = _to("DISCARDING", "STOPPED")
_ENDS: Row = {on.Lost: (_abandoned, _to("RELEASED")), on.Revoked: (_abandoned, _to("RELEASED"))}
_FAILS: Row = {on.Failed: (_failed, _BACK), **_ENDS}
_MEETS: Row = {**_FAILS, on.Revoked: (_interrupted, _to("DISCARDING", "RELEASED"))}
_LEAVES: Row = {**_MEETS, on.Failed: (_failed, _BACK | _to("RELEASED"))}  # states that who is leaving goes through

_GOES: Row = {**_FAILS, on.Failed: _LEAVES[on.Failed]}

TRANSITIONS: dict[State, Row] = {
    State.NEW: {on.Assigned: (_assigned, _to("INITIALISING")), **_ENDS},
    State.INITIALISING: {on.Initialised: (_initialised, _to("FETCHING_OFFSETS")), **_LEAVES},
    State.FETCHING_OFFSETS: {on.OffsetsFetched: (_offsets_fetched, _to("FETCHING_WATERMARK")), **_LEAVES},
    State.FETCHING_WATERMARK: {on.WatermarkFetched: (_watermark_fetched, _to("READING_NEWEST")), **_LEAVES},
    State.READING_NEWEST: {on.NewestRead: (_newest_read, _to("FETCHING_INPUTS", "STOPPED", "RELEASED")), **_LEAVES},
    State.FETCHING_INPUTS: {
        on.InputsFetched: (
            _inputs_fetched,
            _to(
                "FETCHING_SIBLING",
                "FETCHING_PARTS",
                "ASSIGNING",
                "READY",
                "DISCARDING",
                "STOPPED",
                "BEGINNING",
                "RELEASED",
            ),
        ),
        **_LEAVES,
    },
    State.FETCHING_SIBLING: {on.SiblingRead: (_sibling_read, _to("BEGINNING")), **_FAILS},
    State.FETCHING_PARTS: {on.PartsRead: (_parts_read, _to("BEGINNING", "STOPPED")), **_FAILS},
    State.ASSIGNING: {on.Done: (_reader_assigned, _to("READY")), **_MEETS},
    State.READY: {
        on.Polled: (_polled, _to("BEGINNING", "CALLING")),
        on.Called: (_called, _to("BEGINNING", "READY", "STOPPED")),
        on.Idle: (_idle, _to("BEGINNING")),
        **_FAILS,
        on.Revoked: (_revoked, _to("BEGINNING", "RELEASED")),
    },
    State.CALLING: {
        on.Called: (_called, _to("BEGINNING", "READY", "STOPPED")),
        **_FAILS,
        on.Revoked: (_revoked, _to("BEGINNING", "RELEASED")),
    },
    State.BEGINNING: {
        on.Done: (_begun, _to("SENDING_OFFSETS")),
        **_GOES,
        on.Revoked: (_revoked, _to("BEGINNING", "RELEASED")),
    },
    State.SENDING_OFFSETS: {on.Done: (_offsets_sent, _to("PRODUCING")), **_GOES},
    State.PRODUCING: {on.Done: (_produced, _to("FLUSHING")), **_GOES},
    State.FLUSHING: {on.Flushed: (_flushed, _to("COMMITTING", "DISCARDING", "STOPPED", "RELEASED")), **_GOES},
    State.COMMITTING: {
        on.Committed: (_committed, _to("READY", "CALLING", "ASSIGNING", "DISCARDING", "STOPPED", "RELEASED")),
        **_GOES,
    },
    State.DISCARDING: {
        on.Done: (_discarded, _to("INITIALISING")),
        **_ENDS,
        on.Revoked: (_interrupted, _to("DISCARDING", "RELEASED")),
    },
    State.STOPPED: {
        on.Assigned: (_assigned, _to("INITIALISING")),
        **_ENDS,
        on.Revoked: (_interrupted, _to("DISCARDING", "RELEASED")),
    },
    State.RELEASED: {},
}
"""What may happen in each state: event -> (handler, states that may follow). The docs' diagram is drawn from it."""
