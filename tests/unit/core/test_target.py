"""E1: how a task goes on behind what its target holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.machine import handle
from cues_kafka.core.records import Attempt, Record, TargetRow, Totals
from cues_kafka.core.spec import Move, Spec
from cues_kafka.core.states.recovery import STALE_FOR_S
from cues_kafka.core.task import Doing, Task
from tests.unit.core.world import ME, RECREATED, at, attempt, facts, make_spec, snapshot, start

SPEC = make_spec(effects=True, target=True, errors=True)
BATCH = Totals(5, 3, 1, 1, 4).settled
AHEAD = TargetRow(base=40, step=45, owner=3, ends=at(17, spec=SPEC), batch=BATCH)

ELSEWHERE = replace(AHEAD, ends=tuple(p._replace(topic_id=RECREATED) for p in AHEAD.ends))
"""What an application of the same name has called in another cluster."""


def asked(
    record: Record | None, row: TargetRow | None, spec: Spec = SPEC, *, since_s: float | None = None
) -> tuple[Task, do.Effect]:
    """The task after the target's answer, from a recovery that found this record; `since_s`: asked again since then."""
    task, effect = Task(spec), None
    offsets = {p.binding: p.offset for p in record.positions} if record else {"in": None}
    for event in (
        on.Assigned(), on.Initialised(), on.OffsetsFetched(offsets), on.WatermarkFetched(10), on.NewestRead(record),
        on.InputsFetched(facts(spec), 1.0),
    ):  # fmt: skip
        task, effect = handle(task, event)
        task = replace(task, stale_since_s=since_s)
    assert effect == do.AskTarget(record.sequence + 1 if record else 0, record.step if record else 0)
    return handle(task, on.TargetAsked(row))


@pytest.mark.parametrize(
    "record",
    [
        attempt(SPEC, 10),
        snapshot(SPEC, (10,), (12,), 2),
        snapshot(SPEC, (10,), (11,), 1, starts=7),
        snapshot(SPEC, (10,), (12,), 2, starts=2, careful_until=at(12)),
    ],
    ids=["delivered", "a shorter batch is due", "a message that would be quarantined", "careful mode"],
)
def test_attempt_that_the_target_is_ahead_with_is_committed_whole(record: Record) -> None:
    """Nothing is called, counted as a death or quarantined: its effects are there, and only Kafka lacks the outcome."""
    task, effect = asked(record, AHEAD)

    assert (effect, task.then) == (do.Begin(), Doing.FETCHING_INPUTS)
    made = task.pending
    assert isinstance(made, Attempt)
    assert (made.sequence, made.step, made.positions, made.batch) == (8, 45, at(17, spec=SPEC), BATCH)
    assert (made.totals, made.careful_until, made.choice) == (record.totals.plus(BATCH), (), ())


def test_task_decides_again_by_the_record_that_has_caught_up() -> None:
    """What lies behind the published attempt is checked as in every recovery (R5)."""
    task, _ = asked(attempt(SPEC, 10), AHEAD)
    for event in (on.Done(), on.Done(), on.Done(), on.Flushed(4, 4, 10), on.Committed()):
        task, effect = handle(task, event)
    assert (task.state, effect, task.offsets) == (Doing.FETCHING_INPUTS, do.FetchInputs(), (("in", 17),))

    task, effect = handle(task, on.InputsFetched(facts(SPEC, low=20), 2.0))
    assert effect == do.AskTarget(8, 45)
    task, effect = handle(task, on.TargetAsked(AHEAD))
    assert isinstance(effect, do.Stop)
    assert "offsets [17, 20)" in effect.halt.text


def test_task_whose_target_stands_where_its_record_stands_goes_on() -> None:
    """Whatever the attempt was made over."""
    task, effect = asked(attempt(SPEC, 10), replace(AHEAD, base=33, step=40))

    assert effect == do.AssignReader(at(10, spec=SPEC))
    assert task.first


def test_fresh_task_goes_on_where_the_target_has_no_row_or_one_without_steps() -> None:
    """The first batch makes the row."""
    for row in (None, TargetRow(base=0, step=0)):
        _, effect = asked(None, row)
        assert effect == do.FetchSibling()


@pytest.mark.parametrize(
    ("record", "row", "text", "remedy"),
    [
        (attempt(SPEC, 10), replace(AHEAD, base=30, step=35), "restored from a backup", "--to database"),
        (attempt(SPEC, 10), replace(AHEAD, base=41, step=46), "holds an attempt over step 41", "--to database"),
        (attempt(SPEC, 10), None, "has no row of it, although it has taken 40 steps", "--to here"),
        (None, AHEAD, "records of 'g.p.backing' were lost", "--to database"),
        (attempt(SPEC, 10), ELSEWHERE, "an application of this name on another cluster", "another graph name"),
        (
            attempt(SPEC, 10),
            replace(AHEAD, batch=BATCH._replace(taken=4)),
            "counts 4 steps, and has 5 between its ends: another program wrote",
            "--to database",
        ),
    ],
    ids=["a backup", "another base", "no row", "no record", "another cluster", "other counts"],
)
def test_task_refuses_where_the_target_does_not_fit(
    record: Record | None, row: TargetRow | None, text: str, remedy: str
) -> None:
    """I12: it writes nothing; going on would repeat or lose effects. A leader that is cut off gives an old record."""
    task, effect = asked(record, row)
    if isinstance(effect, do.Discard):
        assert text in effect.text
        assert row is not None
        assert row.step > (record.step if record else 0)
        task, effect = asked(record, row, since_s=1.0 - STALE_FOR_S)

    assert isinstance(effect, do.Stop)
    assert text in effect.halt.text
    assert remedy in effect.halt.remedy
    assert (task.pending, task.record) == (None, record)


def test_outcomes_are_committed_although_the_input_was_recreated() -> None:
    """They need no message: the target has their effects, so they must not be lost. The task refuses afterwards."""
    old = replace(AHEAD, ends=tuple(p._replace(topic_id=RECREATED) for p in AHEAD.ends))
    record = attempt(SPEC, 10)
    task, _ = asked(replace(record, positions=tuple(p._replace(topic_id=RECREATED) for p in record.positions)), old)

    assert task.pending is not None
    assert task.pending.positions == old.ends


def test_tool_commits_what_the_target_is_ahead_with_and_has_the_operator_look_again() -> None:
    """X2: the plan that the operator was shown was made without it."""
    move = Move(after=7, positions=at(0, spec=SPEC))
    task, effect = asked(attempt(SPEC, 10), AHEAD, replace(SPEC, move=move))
    assert effect == do.Begin()
    for event in (on.Done(), on.Done(), on.Done(), on.Flushed(4, 4, 10), on.Committed()):
        task, effect = handle(task, event)
    task, effect = handle(task, on.InputsFetched(facts(SPEC), 2.0))
    task, effect = handle(task, on.TargetAsked(AHEAD))

    assert isinstance(effect, do.Stop)
    assert "has moved since" in effect.halt.text


def test_task_that_only_says_left_does_not_ask() -> None:
    """Q1: it goes on only to commit that it left; the next owner asks."""
    mine = snapshot(SPEC, (10,), (12,), 2, writer=ME)
    task = Task(SPEC, state=Doing.FETCHING_INPUTS, record=mine, offsets=(("in", 10),), leaving=True, left_due=True)

    _, effect = handle(task, on.InputsFetched(facts(SPEC), 1.0))

    assert effect == do.Begin()


def test_target_that_does_not_answer_costs_a_round() -> None:
    """R7: as a broker that does not answer."""
    task = Task(SPEC, state=Doing.ASKING_TARGET, record=start(SPEC, 0))

    task, effect = handle(task, on.Failed("asking target: no connection", 1.0))

    assert isinstance(effect, do.Discard)
    assert task.rounds == 1


@pytest.mark.parametrize("starts", [0, 3], ids=["called", "quarantined"])
def test_start_commits_a_record_of_its_own_before_its_target_commits_anything(starts: int) -> None:
    """No slot leaves the snapshot out (D3), and no quarantine: others may ask with a number that is not committed."""
    spec = replace(SPEC, slot=True)
    record = snapshot(spec, (10,), (11,), 1, starts=starts)
    task, effect = Task(spec), None
    for event in (
        on.Assigned(first=False), on.Initialised(), on.OffsetsFetched({"in": 10}), on.WatermarkFetched(10),
        on.NewestRead(record), on.InputsFetched(facts(spec), 1.0), on.TargetAsked(replace(AHEAD, step=40)), on.Done(),
        on.Polled(at(11, spec=spec), 1),
    ):  # fmt: skip
        task, effect = handle(task, event)
    assert (effect, task.pending and task.pending.owner) == (do.Begin(), record.sequence + 1)

    for answer in (on.Done(), on.Done(), on.Done(), on.Flushed(1, 1, 10), on.Committed()):
        task, effect = handle(task, answer)
    assert isinstance(effect, do.Quarantine if starts else do.Call)
    assert task.owner == record.sequence + 1
