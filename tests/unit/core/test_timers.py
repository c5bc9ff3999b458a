"""The machine of one task with timers: what is announced, how deaths on them are counted, careful mode (F3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.events import IllegalEvent
from cues_kafka.core.records import Attempt, Snapshot, Totals
from cues_kafka.core.recover import Refuse, recover
from cues_kafka.core.task import Task
from tests.unit.core.test_task import again
from tests.unit.core.world import TWO, World, at, attempt, facts, make_spec, snapshot

SPEC = make_spec(errors=True, stores=(("timers", "g.p.timers.changelog"),), timers=True)
KEPT = (("timers", 40),)


def fired(world: World, task: Task, count: int, *, errors: int = 0) -> tuple[Task, do.Effect]:
    """Timers fire, as many as were announced."""
    totals = Totals(count, count - errors, errors, 0, count - errors, timers=count)
    return world.run(task, on.Called(task.positions, totals))


def test_announced_timers_are_fired_at_the_same_positions() -> None:
    """A snapshot with empty ranges, then an attempt that moves no position and counts the timers."""
    world = World(SPEC, log=[attempt(SPEC, 5, stores=KEPT)])
    task, _ = world.begin()
    task, effect = world.run(task, on.Polled(at(5), 2, timers=True))
    assert effect == do.Call(at(5), 2, (), 0, timers=True)

    task, effect = fired(world, task, 2)

    assert effect == do.Await()
    announced, delivered = world.log[1:]
    assert isinstance(announced, Snapshot)
    assert (announced.positions, announced.ends, announced.steps, announced.timers) == (at(5), at(5), 2, True)
    assert isinstance(delivered, Attempt)
    assert (delivered.positions, delivered.step, delivered.batch.timers) == (at(5), 42, 2)
    assert delivered.totals.timers == 2
    assert delivered.stores == (("timers", 42),)
    assert task.due is None


def test_deaths_on_timers_end_in_careful_mode_and_then_in_quarantine() -> None:
    """After two deaths one by one; after three on a single one it is taken out, and the next one goes on alone."""
    world = World(SPEC, log=[attempt(SPEC, 5, stores=KEPT)])
    for death in range(2):
        world = again(world, f"run-{death}")
        task, _ = world.begin()
        task, effect = world.run(task, on.Polled(at(5), 2, timers=True))
        assert effect == do.Call(at(5), 2, (), death, timers=True)

    for death in range(3):
        world = again(world, f"alone-{death}")
        task, _ = world.begin()
        assert task.careful
        assert task.careful_timers == 2
        task, effect = world.run(task, on.Polled(at(5), 1, timers=True))
        assert effect == do.Call(at(5), 1, (), death, timers=True)

    world = again(world, "last")
    task, _ = world.begin()
    task, effect = world.run(task, on.Polled(at(5), 1, timers=True))
    assert effect == do.Quarantine(at(5), (), 3, timers=True)
    task, _ = fired(world, task, 1, errors=1)
    assert task.careful_timers == 1
    task, _ = fired(world, task, 1)
    assert not task.careful
    assert world.log[-1].totals.timers == 2


def test_a_batch_of_messages_shows_that_no_timer_is_due() -> None:
    """So careful mode of timers ends with it."""
    world = World(SPEC, log=[attempt(SPEC, 5, stores=KEPT, careful_timers=3)])
    task, _ = world.begin()
    assert task.careful
    task, _ = world.run(task, on.Polled(at(6), 1))
    task, _ = world.run(task, on.Called(at(6), Totals(1, 1, 0, 0, 1)))

    assert task.careful_timers == 0


def test_careful_mode_of_messages_outlives_a_timer() -> None:
    """Each keeps its own end."""
    world = World(SPEC, log=[attempt(SPEC, 5, stores=KEPT, careful_until=at(9))])
    task, _ = world.begin()
    task, _ = world.run(task, on.Polled(at(5), 1, timers=True))
    task, _ = fired(world, task, 1)

    assert task.careful_until == at(9)
    assert task.careful


def test_a_recorded_choice_of_alts_outlives_a_timer() -> None:
    """A timer takes no message, so it takes none of the order that is kept for messages."""
    spec = make_spec(TWO, pairing="alts", effects=True, stores=SPEC.stores, timers=True)
    choice = (("left", 2), ("right", 1))
    world = World(spec, log=[attempt(spec, 5, 5, stores=KEPT, choice=choice)])
    task, _ = world.begin()
    task, effect = world.run(task, on.Polled(at(5, 5), 1, timers=True))
    assert effect == do.Call(at(5, 5), 1, (), 0, timers=True)
    assert world.log[-1].choice == choice
    task, _ = fired(world, task, 1)

    assert task.choice == choice
    assert world.log[-1].choice == choice


@pytest.mark.parametrize("polled", [on.Polled(at(5), 1, timers=True), on.Polled(at(5), 2), on.Polled(at(6), 2)])
def test_announced_timers_must_be_fired_as_they_were(polled: on.Polled) -> None:
    """Neither fewer of them, nor messages instead."""
    world = World(SPEC, log=[snapshot(SPEC, (5,), (5,), 2, stores=KEPT, timers=True)])
    task, _ = world.begin()

    with pytest.raises(IllegalEvent, match="2 timers"):
        world.run(task, polled)


def test_a_position_does_not_move_over_announced_timers() -> None:
    """Also where compaction may take messages: it takes no timers."""
    spec = replace(SPEC, compacted=True)
    world = World(spec, log=[snapshot(spec, (5,), (5,), 2, stores=KEPT, timers=True)])
    task, _ = world.begin()

    with pytest.raises(IllegalEvent, match="idle"):
        world.run(task, on.Idle(at(5)))


def test_announced_timers_are_refused_by_a_version_without_them() -> None:
    """It cannot fire them, and to go on would lose their place."""
    spec = replace(SPEC, timers=False)
    record = snapshot(spec, (5,), (5,), 2, stores=KEPT, timers=True)

    decision = recover(spec, record, {"in": 5}, facts(spec))

    assert isinstance(decision, Refuse)
    assert "timers" in decision.halt.text
    assert "former version" in decision.halt.remedy


def test_without_an_errors_topic_the_task_stops_and_names_the_timer() -> None:
    """As it does for a message that kills (Q3)."""
    spec = replace(SPEC, errors=False)
    world = World(spec, log=[snapshot(spec, (5,), (5,), 1, stores=KEPT, timers=True, starts=2)])

    _, effect = world.begin()

    assert isinstance(effect, do.Stop)
    assert "the first timer" in effect.halt.text
