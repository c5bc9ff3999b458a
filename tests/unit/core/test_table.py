"""The table of transitions against the machine: all reachable tasks of small worlds, all events."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.events import IllegalEvent
from cues_kafka.core.machine import TRANSITIONS, handle
from cues_kafka.core.records import Attempt, Snapshot, TargetRow, Totals
from cues_kafka.core.spec import Spec
from cues_kafka.core.staged import Announce, Enter, Publish
from cues_kafka.core.states.transitions import MAX_ROUNDS
from cues_kafka.core.task import Doing, Due, Task
from tests.unit.core.world import (
    ME,
    OTHER_QUERY,
    QUERY,
    TWO,
    announced,
    at,
    attempt,
    facts,
    make_spec,
    published,
    snapshot,
    staged,
    start,
)

ALTS = make_spec(TWO, pairing="alts", effects=True, errors=True)
WORLDS = {
    "pipe": make_spec(),
    "compacted": make_spec(compacted=True),
    "alts": ALTS,
    "target": make_spec(effects=True, target=True),
    "at least once": make_spec(strategy="at-least-once"),
    "at most once": make_spec(strategy="at-most-once"),
    "entering": make_spec((), slot=True, staged=Enter(QUERY, stateless=False, part=0)),
    "announcing": make_spec((), slot=True, staged=Announce(staged(-1, batch=4, attempt="mine"), stateless=False)),
    "announcing again": make_spec((), slot=True, staged=Announce(staged(-1, batch=4), stateless=True, settled=5)),
    "publishing": make_spec((), slot=True, staged=Publish(staged(5))),
    "publishing another part": make_spec((), slot=True, staged=Publish(staged(5, part=1))),
}

READING = frozenset({Doing.FETCHING_WATERMARK, Doing.READING_NEWEST, Doing.FETCHING_INPUTS})
"""Where the answer of R2 still counts."""

Step = tuple[Doing, type[on.Event], Doing]


def events(task: Task) -> list[on.Event]:
    """What the world may say to this task now: each kind of event of its row, in all shapes that matter."""
    of_kind = shapes(task.spec, task.due, task.expected)
    never: set[type[on.Event]] = set()
    if task.spec.staged:  # it has no inputs of its own, and publishes once
        due = isinstance(task.spec.staged, Publish) and not task.published
        never = {on.Polled} if due else {on.Polled, on.Called, on.Idle}
    if not (task.spec.rules.snapshots or task.spec.rules.takes):
        never = {on.Polled}  # nothing is announced, and nothing taken
    if task.spec.rules.takes and task.state is Doing.READY:
        never = {on.Called}  # a batch is taken first
    if task.due and not task.spec.compacted:
        never.add(on.Idle)  # what is due is never passed over
    return [event for kind in TRANSITIONS[task.state] if kind not in never for event in of_kind[kind]]


@cache
def shapes(spec: Spec, due: Due | None, expected: int) -> dict[type[on.Event], list[on.Event]]:
    """All shapes of each event."""
    zero, two = tuple(0 for _ in spec.inputs), tuple(2 for _ in spec.inputs)
    ends, steps = (due.ends, due.steps) if due else (at(*two, spec=spec), 2)
    others = [
        snapshot(spec, zero, two, steps, starts=starts, choice=choice(spec, steps))
        for starts, steps in ((0, 2), (1, 2), (2, 1))
    ]
    mine = snapshot(spec, zero, two, 2, writer=ME, choice=choice(spec, 2))
    records = staged_records(spec) if spec.staged else [start(spec, *zero), attempt(spec, *zero), *others, mine]
    if not spec.rules.snapshots:
        flying = Totals(40, 30, 4, 6, 30, 42)
        records = [start(spec, *zero), attempt(spec, *zero), attempt(spec, *two, totals=flying, writer=ME)]
        records = [replace(record, strategy=spec.strategy) for record in records]
    begun = 1 if spec.rules.takes else 0
    return {
        on.OffsetsFetched: [on.OffsetsFetched({i.binding: offset for i in spec.inputs}) for offset in (None, 7)],
        on.WatermarkFetched: [on.WatermarkFetched(10)],
        on.NewestRead: [on.NewestRead(None), on.NewestRead(None, "not ours"), *map(on.NewestRead, records)],
        on.InputsFetched: [on.InputsFetched({}, 0.0), *(on.InputsFetched(facts(spec), now) for now in (1e3, 1.1e3))],
        on.TargetAsked: [on.TargetAsked(None), *map(on.TargetAsked, rows(spec))],
        on.SiblingRead: [on.SiblingRead(None), on.SiblingRead(1), on.SiblingRead(1, "o")],
        on.PartsRead: [on.PartsRead(settled) for settled in (True, False)],
        on.Flushed: [on.Flushed(got, 3, expected + off) for got, off in ((3, 0), (3, 1), (2, 0))],
        on.Committed: [on.Committed(), on.Committed("slow")],
        on.Failed: [on.Failed("x", 1e3), on.Failed("x", 1e3 + 1, fenced=True)],
        on.Polled: [on.Polled(ends, steps, choice(spec, steps))],
        on.Called: [
            on.Called(ends, Totals(steps, steps, 0, 0, steps, begun * steps)),
            *(on.Called(ends, Totals(1, 0, 0, 1, 0, begun), on.Halt(kind, "x")) for kind in ("retry", "unhandled")),
            *(on.Called(ends if begun else (), Totals(), on.Halt(kind, "x")) for kind in ("retry", "unhandled")),
        ],
        on.Idle: [on.Idle(ends)],
        on.Assigned: [on.Assigned()],
        on.Revoked: [on.Revoked(), *([on.Revoked(on.Called(ends, Totals(1, 1, 0, 0, 1, 2)))] if begun else [])],
        on.Lost: [on.Lost()],
        on.Done: [on.Done()],
        on.Initialised: [on.Initialised()],
    }


def rows(spec: Spec) -> list[TargetRow]:
    """Where a target stands: at the beginning, at the step of the records, ahead of it, and somewhere else."""
    ahead = TargetRow(
        base=40, step=42, ends=at(*(2 for _ in spec.inputs), spec=spec), batch=Totals(2, 1, 1, 0, 1).settled
    )
    return [TargetRow(base=0, step=0), TargetRow(base=30, step=40), ahead, TargetRow(base=41, step=44)]


def staged_records(spec: Spec) -> list[Any]:
    """Of this batch and of others: announced or published, of this query and of another."""
    batches = [
        *(staged(number, batch=batch) for number, batch in ((4, 2), (5, 3), (6, 4), (9, 5))),
        staged(5, query=OTHER_QUERY),
        staged(5, attempt="second"),
        staged(5, parts=3),
        staged(5, extents=()),
    ]
    return [kind(spec, batch) for batch in batches for kind in (announced, published)] + [attempt(spec)]


def choice(spec: Spec, steps: int) -> tuple[tuple[str, int], ...]:
    """The lead only."""
    return ((spec.inputs[0].binding, steps),) if spec.pairing == "alts" else ()


def outline(task: Task) -> tuple[Any, ...]:
    """What a task decides by; counters grow without end, and only their steps matter (they are checked below)."""
    record, pending = task.record, task.pending
    return (
        task.state, task.then, task.due, task.first, task.careful_until, task.choice, task.fenced_twice,
        task.rounds >= MAX_ROUNDS, task.owner is None, task.stale_since_s is None, task.fenced_at_s is None, task.halt,
        task.left_due, task.leaving, task.offsets if task.state in READING else (),
        (task.inputs, task.offsets, task.recovered_at_s) if task.state is Doing.ASKING_TARGET else (),
        type(record), record and (record.positions, record.starts, record.left, record.writer, record.staged),
        type(pending), pending and (pending.positions, pending.starts, pending.left, pending.staged),
        not task.spec.rules.fenced and pending is not None and pending.batch.deliveries > 0,
        task.carried and replace(task.carried, over=task.carried.over - (record.sequence if record else 0)),
    )  # fmt: skip


@cache
def explored(name: str) -> tuple[tuple[Task, on.Event, Task, do.Effect], ...]:
    """Breadth first from a new task and from one that has gone round too often: each outline once, with each event."""
    spec = WORLDS[name]
    begin = [Task(spec), Task(spec, state=Doing.INITIALISING, rounds=MAX_ROUNDS)]
    seen, queue = {outline(task) for task in begin}, deque(begin)
    found = []
    while queue:
        task = queue.popleft()
        for event in events(task):
            after, effect = handle(task, event)
            found.append((task, event, after, effect))
            if (key := outline(after)) not in seen:
                seen.add(key)
                queue.append(after)
    return tuple(found)


def test_every_transition_of_the_table_is_reached_and_no_other() -> None:
    """A row that nothing can reach would be a drawing of something else; `handle` refuses the others itself."""
    table = {(state, kind, to) for state, row in TRANSITIONS.items() for kind, (_, tos) in row.items() for to in tos}
    reached: set[Step] = {(t.state, type(e), a.state) for name in WORLDS for t, e, a, _ in explored(name)}

    assert {f"{s.name} {k.__name__} {t.name}" for s, k, t in table - reached} == set()
    assert reached <= table


@pytest.mark.parametrize("name", WORLDS)
def test_events_that_the_table_does_not_list_are_refused_without_change(name: str) -> None:
    """A shell that mixes up its answers must hear it at once."""
    for task in {(before.state, type(effect)): before for before, _, _, effect in explored(name)}.values():
        before = replace(task)
        for kind, [event, *_] in shapes(task.spec, task.due, task.expected).items():
            if kind not in TRANSITIONS[task.state]:
                with pytest.raises(IllegalEvent, match=task.state.value):
                    handle(task, event)
        assert task == before


@pytest.mark.parametrize("name", WORLDS)
def test_each_state_asks_for_its_own_effect(name: str) -> None:
    """So that the diagram, which shows states, says what is being done."""
    asks = {
        Doing.INITIALISING: do.Init, Doing.FETCHING_OFFSETS: do.FetchOffsets,
        Doing.FETCHING_WATERMARK: do.FetchWatermark, Doing.READING_NEWEST: do.ReadNewest,
        Doing.FETCHING_INPUTS: do.FetchInputs, Doing.ASKING_TARGET: do.AskTarget,
        Doing.FETCHING_SIBLING: do.FetchSibling, Doing.FETCHING_PARTS: do.FetchParts,
        Doing.ASSIGNING: do.AssignReader, Doing.READY: do.Await,
        Doing.BEGINNING: do.Begin, Doing.SENDING_OFFSETS: do.SendOffsets, Doing.PRODUCING: do.Produce,
        Doing.EMITTING: do.Emit, Doing.FLUSHING: do.Flush, Doing.COMMITTING: do.Commit,
        Doing.DISCARDING: do.Discard, Doing.STOPPED: do.Stop,
        Doing.RELEASED: do.Release,
    }  # fmt: skip
    for _, _, after, effect in explored(name):
        if after.state is Doing.CALLING:
            assert isinstance(effect, do.Call | do.Quarantine)
        else:
            assert type(effect) is asks[after.state]


@pytest.mark.parametrize("name", WORLDS)
def test_no_reachable_task_breaks_an_invariant(name: str) -> None:
    """P5, P6, S1, Q3, R6, I12, I13, on every step of the exploration."""
    for before, _event, after, effect in explored(name):
        pending = after.pending
        match effect:
            case do.SendOffsets(positions, extents):
                assert pending is not None
                assert positions == pending.positions  # of all inputs, the record's
                assert len(positions) == len(after.spec.inputs)
                assert bool(extents) == isinstance(after.spec.staged, Announce)  # a part has none (T4)
            case do.Produce(record):
                assert record == pending
                assert record.sequence == (after.record.sequence + 1 if after.record else 0)
                if after.record:
                    batch = record.batch if isinstance(record, Attempt) else Totals()
                    assert record.totals == after.record.totals.plus(batch)
                    assert record.step == after.record.step + batch.taken
                    assert after.spec.rules.takes or batch.taken == batch.deliveries
            case do.AssignReader(positions):
                assert after.record is not None
                assert positions == (after.carried.ends if after.carried else after.record.positions)
            case do.Call():
                newest = after.record
                if after.spec.rules.takes:
                    assert isinstance(newest, Attempt)
                    assert (newest.writer, newest.positions) == (ME, effect.ends)  # W1: taken before
                    continue
                assert isinstance(newest, Snapshot)
                assert newest.writer == ME  # S1: this start's own, committed
                assert (newest.ends, newest.steps) == (effect.ends, effect.steps)
                assert not after.quarantined
            case do.Quarantine():
                assert after.spec.errors
                assert after.quarantined
            case do.Stop(halt):
                assert halt.text
                assert pending is None
            case do.Release():
                assert pending is None
        if before.state in (Doing.FETCHING_INPUTS, Doing.ASKING_TARGET) and after.state is Doing.STOPPED:
            assert after.record == before.record
