"""Where tailers stand, and up to where they show messages (S5, L1, L2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.events import InputFacts
from cues_kafka.core.records import Attempt, Snapshot, TargetRow, Totals
from cues_kafka.core.recover import Delivered, Fresh, Pending, Refuse
from cues_kafka.core.spec import Input, Spec
from cues_kafka.core.tails import begin, behind_loss, placed
from cues_kafka.core.task import Task
from cues_kafka.core.writing import row_of
from cues_kafka.ports.log import Position, Positions
from tests.unit.core.test_task import again
from tests.unit.core.world import RECREATED, A, B, World, at, attempt, facts, make_spec, snapshot

OLD, OWN = Input("old", "beta"), Input("own", "alpha")
SPEC = make_spec(errors=True, effects=True, tailers=(OLD,), fixed_views=True)
FREE = make_spec(errors=True, tailers=(OLD, OWN))
TAILED = {"old": InputFacts(B, 3, 50, 60), "own": InputFacts(A, 0, 100, 100)}
RETRY = on.Halt("retry", "not now")


def tail(offset: int, binding: str = "old") -> Positions:
    """Where a tailer stands, or ends."""
    topic, topic_id = ("beta", B) if binding == "old" else ("alpha", A)
    return (Position(binding, topic, topic_id, offset),)


def world_of(spec: Spec, *log: Any) -> World:
    """A world that knows the tailed topics."""
    found = on.InputsFetched(facts(spec), 1000.0, {one.binding: TAILED[one.binding] for one in spec.tailers})
    return World(spec, log=list(log), answers={do.FetchInputs: [found] * 50})


def restarted(world: World, name: str) -> World:
    """Another process, with what is on the cluster."""
    new = again(world, name)
    new.answers = world.answers
    return new


def polled(end: int, steps: int, tail_end: int) -> on.Polled:
    """Messages are there, and the tailed log ends there."""
    return on.Polled(at(end), steps, tail_ends=tail(tail_end))


def called(end: int, steps: int, stands: int, halt: on.Halt | None = None) -> on.Called:
    """Steps have ended, which left the tailer there."""
    return on.Called(at(end) if steps else (), Totals(steps, steps, 0, 0, steps), halt, tails=tail(stands))


def test_a_fresh_task_has_its_tailers_begin_where_start_says() -> None:
    """At the beginnings of their logs, or at their last stable offsets; a partition added later at the beginning."""
    for start, born, offset in (("earliest", None, 3), ("latest", None, 50), ("latest", 1, 3), (17, None, 3)):
        spec = replace(FREE, start=start)
        world = world_of(spec)
        world.born = born
        world.begin()

        assert world.log[0].tails == begin(spec, TAILED, born)
        assert world.log[0].tails[0] == tail(offset)[0]


def test_a_tailer_that_was_added_begins_at_start_and_a_removed_one_is_forgotten() -> None:
    """The next record says so."""
    world = world_of(FREE, attempt(FREE, 5, tails=(*tail(7), Position("gone", "beta", B, 1))))
    task, _ = world.begin()
    assert task.record
    assert task.record.tails == (*tail(7), *tail(0, "own"))
    task, _ = world.run(task, on.Polled(at(6), 1))

    assert world.log[-1].tails == (*tail(7), *tail(0, "own"))


def test_a_task_whose_tailers_are_all_removed_forgets_them() -> None:
    """Their places and their ends."""
    spec = make_spec()
    found = placed(spec, Delivered(attempt(spec, 5, tails=tail(7), tail_ends=tail(9))), {})

    assert isinstance(found, Delivered)
    assert (found.record.tails, found.record.tail_ends) == ((), ())


def test_a_tailer_that_reads_another_topic_now_has_none_of_its_old_ends() -> None:
    """They are offsets of the former topic."""
    other = make_spec(effects=True, tailers=(Input("old", "alpha"),), fixed_views=True)
    record = snapshot(SPEC, (5,), (9,), 4, tails=tail(7), tail_ends=tail(9))
    found = placed(other, Pending(record, 1), {"old": InputFacts(A, 0, 100, 100)})

    assert isinstance(found, Pending)
    assert found.record.tails == (Position("old", "alpha", A, 0),)
    assert found.record.tail_ends == ()


@pytest.mark.parametrize(
    ("found", "text", "remedy"),
    [
        ({"old": InputFacts(B, 8, 50, 60)}, "stands at 7, and the log begins at 8", "accept-loss"),
        ({"old": InputFacts(RECREATED, 0, 50, 60)}, "deleted and recreated", "accept-loss"),
        ({}, "has no partition 1", "create the topic"),
        ({"old": InputFacts(B, 0, 8, 8)}, "stands at 9, past the end 8", "what the brokers lost"),
    ],
)
def test_a_tailer_does_not_go_on_over_messages_that_are_gone(
    found: dict[str, InputFacts], text: str, remedy: str
) -> None:
    """A refusal names the tailer; one that a stale answer could cause is asked again."""
    decision = placed(SPEC, Pending(snapshot(SPEC, (5,), (9,), 4, tails=tail(7), tail_ends=tail(9)), 1), found)

    assert isinstance(decision, Refuse)
    assert text in decision.halt.text
    assert remedy in decision.halt.remedy
    assert decision.stale == ("past the end" in text)


def test_a_fresh_task_without_the_tailed_topic_is_refused() -> None:
    """It could not say where its tailer begins."""
    assert isinstance(placed(SPEC, Fresh(), {}), Refuse)
    assert isinstance(placed(SPEC, Fresh(), TAILED), Fresh)


def test_accepting_a_loss_moves_tailers_to_the_messages_that_are_left() -> None:
    """That of a recreated topic is left out: it begins at `start=`."""
    record = attempt(FREE, 5, tails=(*tail(1), *tail(4, "own")))

    assert behind_loss(record, TAILED) == (*tail(3), *tail(4, "own"))
    assert behind_loss(record, TAILED | {"own": InputFacts(RECREATED, 0, 1, 1)}) == tail(3)


def test_where_tailers_stand_is_in_the_attempt_and_not_among_the_offsets() -> None:
    """A tailer on the own input would overwrite the input's place there."""
    world = world_of(FREE, attempt(FREE, 5, tails=(*tail(7), *tail(0, "own"))))
    task, _ = world.begin()
    task, effect = world.run(task, on.Polled(at(6), 1))
    assert effect == do.Call(at(6), 1, (), 0)
    stands = (*tail(9), *tail(40, "own"))
    world.run(task, on.Called(at(6), Totals(1, 1, 0, 0, 1), tails=stands))

    assert world.log[-1].tails == stands
    sent = [one.positions for one in world.effects if isinstance(one, do.SendOffsets)]
    assert sent == [at(5), at(6)]


def test_every_batch_of_fixed_views_is_announced_with_the_ends_of_its_moment() -> None:
    """The first call is bounded, too; what came meanwhile is shown to the next batch."""
    world = world_of(SPEC, attempt(SPEC, 5, tails=tail(7)))
    task, _ = world.begin()
    for end in (50, 52):
        assert task.snapshot_due
        assert not task.pipelined
        task, effect = world.run(task, polled(8, 3, end))
        assert effect == do.Call(at(8), 3, (), 0, tail_ends=tail(end))
        assert isinstance(world.log[-1], Snapshot)
        assert world.log[-1].tail_ends == tail(end)
        task, _ = world.run(task, called(8, 3, end))
        assert isinstance(world.log[-1], Attempt)
        assert (world.log[-1].tails, world.log[-1].tail_ends) == (tail(end), ())


def test_a_retry_has_the_ends_of_its_first_call() -> None:
    """After a death, after a clean leave, and in the same process after a failure."""
    world = world_of(SPEC, attempt(SPEC, 5, tails=tail(7)))
    task, _ = world.begin()
    task, _ = world.run(task, polled(8, 3, 50))
    task, _ = world.run(task, world.failed())
    task, effect = world.run(task, polled(8, 3, 99))
    assert effect == do.Call(at(8), 3, (), 0, tail_ends=tail(50))
    world.run(task, on.Revoked())
    assert world.log[-1].tail_ends == tail(50)

    world = restarted(world, "next")
    task, _ = world.begin()
    task, effect = world.run(task, polled(8, 3, 99))

    assert effect == do.Call(at(8), 3, (), 0, tail_ends=tail(50))


def test_a_tailer_that_was_added_before_a_retry_gets_the_end_of_now() -> None:
    """It was shown to no call."""
    spec = replace(SPEC, tailers=(OLD, OWN))
    world = world_of(spec, snapshot(SPEC, (5,), (8,), 3, tails=tail(7), tail_ends=tail(50)))
    task, _ = world.begin()
    ends = (*tail(60), *tail(90, "own"))
    _, effect = world.run(task, on.Polled(at(8), 3, tail_ends=ends))

    assert effect == do.Call(at(8), 3, (), 1, tail_ends=(*tail(50), *tail(90, "own")))


def test_a_step_that_is_put_off_is_the_next_batch_and_keeps_its_ends() -> None:
    """Behind it the ends are those of the moment again."""
    world = world_of(SPEC, attempt(SPEC, 5, tails=tail(7)))
    task, _ = world.begin()
    task, _ = world.run(task, polled(8, 3, 50))
    task, _ = world.run(task, called(6, 1, 20, RETRY))
    assert (world.log[-1].tails, world.log[-1].tail_ends) == (tail(20), tail(50))
    assert task.step_by_step

    task, effect = world.run(task, polled(7, 1, 99))
    assert effect == do.Call(at(7), 1, (), 0, tail_ends=tail(50))
    task, _ = world.run(task, called(7, 1, 30))

    assert world.log[-1].tail_ends == ()
    assert not task.step_by_step


def test_a_step_at_which_the_task_stopped_keeps_its_ends_over_a_restart() -> None:
    """It was called, and is called again."""
    world = world_of(SPEC, attempt(SPEC, 5, tails=tail(7)))
    task, _ = world.begin()
    task, _ = world.run(task, polled(8, 3, 50))
    world.run(task, called(6, 1, 20, on.Halt("interrupt", "stop")))
    world = restarted(world, "next")
    task, _ = world.begin()
    assert task.step_by_step
    _, effect = world.run(task, polled(7, 1, 99))

    assert effect == do.Call(at(7), 1, (), 0, tail_ends=tail(50))


def test_timers_that_fire_before_a_step_that_was_put_off_leave_its_ends() -> None:
    """F2 has them come first, and they have no tailers."""
    spec = replace(SPEC, stores=(("timers", "g.p.timers.changelog"),), timers=True)
    world = world_of(spec, attempt(spec, 5, tails=tail(7), tail_ends=tail(50)))
    task, _ = world.begin()
    task, _ = world.run(task, on.Polled(at(5), 1, timers=True, tail_ends=tail(60)))
    world.run(task, on.Called(at(5), Totals(1, 1, 0, 0, 1, timers=1), tails=tail(7)))

    assert world.log[-1].tail_ends == tail(50)


def test_careful_mode_keeps_the_ends_of_the_batch_that_it_goes_through() -> None:
    """From the second death on each step is called alone, and all of them see what the first call saw."""
    world = world_of(SPEC, snapshot(SPEC, (5,), (8,), 3, starts=1, tails=tail(7), tail_ends=tail(50)))
    task, _ = world.begin()
    for end, ends in ((6, tail(50)), (7, tail(50)), (8, ())):
        assert task.careful
        task, effect = world.run(task, polled(end, 1, 99))
        assert isinstance(effect, do.Call)
        assert effect.tail_ends == tail(50)
        task, _ = world.run(task, called(end, 1, 7))
        assert world.log[-1].tail_ends == ends
    assert not task.step_by_step


def test_a_target_keeps_where_tailers_stand_with_its_attempt() -> None:
    """E1: what it is ahead with is committed with the places and the ends of its row."""
    spec = replace(SPEC, target=True)
    world = world_of(spec, attempt(spec, 5, tails=tail(7)))
    row = TargetRow(base=40, step=41, ends=at(6), batch=Totals(1, 1, 0, 0, 1, 1), tails=tail(9), tail_ends=tail(50))
    world.answers[do.AskTarget] = [on.TargetAsked(row), on.TargetAsked(replace(row, base=41))]
    task, _ = world.begin()

    assert (world.log[-1].tails, world.log[-1].tail_ends) == (tail(9), tail(50))
    assert task.step_by_step


def test_a_task_without_tailers_writes_the_records_that_it_wrote_before() -> None:
    """Nothing of this is in its way."""
    spec = make_spec(errors=True)
    world = World(spec, log=[attempt(spec, 5)])
    task, _ = world.begin()
    assert isinstance(task, Task)
    task, _ = world.run(task, on.Polled(at(6), 1))
    task, _ = world.run(task, on.Called(at(6), Totals(1, 1, 0, 0, 1)))

    assert not task.snapshot_due
    assert row_of(task, at(7), Totals(1, 1)).tails == ()
    assert all((record.tails, record.tail_ends) == ((), ()) for record in world.log)
