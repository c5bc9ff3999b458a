"""The machine of one task with a replay topic: what is announced and committed, how deaths are counted (Y1, Y2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.events import IllegalEvent
from cues_kafka.core.records import Attempt, Snapshot, Start, TargetRow, Totals
from cues_kafka.core.recover import Refuse, recover
from cues_kafka.core.replays import begin
from cues_kafka.core.spec import REPLAY, Spec
from cues_kafka.core.task import Task
from cues_kafka.ports.log import Positions
from tests.unit.core.test_task import again
from tests.unit.core.world import (
    RECREATED,
    TWO,
    B,
    World,
    at,
    attempt,
    called,
    deliver,
    facts,
    make_spec,
    snapshot,
    start,
)

SPEC = make_spec(errors=True, replay="g.p.replay")
ONE = Totals(1, 1, 0, 0, 1, replays=1)


def place(offset: int, topic_id: bytes = B) -> Positions:
    """Where the task stands in its replay topic."""
    return begin(SPEC, {REPLAY: on.InputFacts(topic_id, offset, offset, offset)})


def world_of(spec: Spec = SPEC, **changes: object) -> World:
    """A task that has delivered up to 5 and stands at 3 of the replay topic."""
    world = World(spec, log=[attempt(spec, 5, replays=place(3), **changes)])
    world.tails = {REPLAY: on.InputFacts(B, 0, 9, 9)}
    return world


def announced(world: World, task: Task) -> tuple[Task, do.Effect]:
    """A request is announced."""
    return world.run(task, on.Polled(task.positions, 1, replay=True))


def test_request_is_one_step_at_the_same_positions() -> None:
    """A snapshot with empty ranges, then an attempt that moves the place in the replay topic alone."""
    world = world_of()
    task, _ = world.begin()
    assert task.takes_replays
    task, effect = announced(world, task)
    assert effect == do.Call(at(5), 1, (), 0, replay=True)

    task, effect = world.run(task, on.Called(at(5), ONE, replays=place(4)))

    assert effect == do.Await()
    told, delivered = world.log[1:]
    assert isinstance(told, Snapshot)
    assert (told.positions, told.ends, told.steps, told.replay, told.replays) == (at(5), at(5), 1, True, place(3))
    assert isinstance(delivered, Attempt)
    assert (delivered.positions, delivered.step, delivered.replays) == (at(5), 41, place(4))
    assert delivered.totals.replays == 1
    assert task.takes_replays


def test_nothing_is_called_ahead_of_a_replay() -> None:
    """P7, Y1: it would have the sequence of the replay's attempt. Ahead of an attempt of messages it is called."""
    world = world_of()
    task, _ = world.begin()
    task, _ = deliver(world, task, at(6), 1)
    world.tasks.clear()
    task, _ = announced(world, task)
    task, _ = world.run(task, on.Called(at(6), ONE, replays=place(4)))
    beside = [task.pipelined for task in world.tasks if task.pending]
    world.tasks.clear()
    world.run(task, called(at(7), outputs=1))

    assert beside
    assert not any(beside)
    assert all(task.pipelined for task in world.tasks)


@pytest.mark.parametrize("spec", [make_spec(), make_spec(strategy="at-least-once")], ids=["fenced", "at-least-once"])
def test_nothing_is_called_ahead_of_the_first_record_and_of_a_stop(spec: Spec) -> None:
    """P7: a recovery ends behind the one, and nothing comes behind the other."""
    world = World(spec)
    task, _ = world.begin()
    task, _ = deliver(world, task, at(4), 1)
    world.run(task, called(at(5), outputs=1, halt=on.Halt("refused", "no more", "none")))

    started = [task.pipelined for task in world.tasks if isinstance(task.pending, Start)]
    stopping = [task.pipelined for task in world.tasks if isinstance(task.pending, Attempt) and task.halt]
    assert started
    assert stopping
    assert not any(started + stopping)


def test_next_record_lands_behind_the_record_that_settles() -> None:
    """P6a: two records and a marker."""
    world = world_of()
    task, _ = world.begin()
    task, _ = announced(world, task)
    before = task.expected

    task, _ = world.run(task, on.Called(at(5), ONE, replays=place(4)))

    assert task.expected == before + 3


def test_missing_marker_behind_the_record_that_settles_is_one_place() -> None:
    """P6b: the settling record was acknowledged, so it is there."""
    world = world_of()
    task, _ = world.begin()
    task, _ = announced(world, task)
    task, _ = world.run(task, on.Called(at(5), ONE, replays=place(4)))
    due = task.expected
    world.answers = {do.Flush: [on.Flushed(1, 1, due - 1)]}
    task, _ = announced(world, task)

    assert do.Commit(unmarked=True) in world.effects
    assert task.expected == due + 1


def test_deaths_on_a_replay_end_in_quarantine() -> None:
    """Its snapshot has one step, so it is taken out at the fourth start."""
    world = world_of()
    for death in range(3):
        world = again(world, f"run-{death}")
        task, _ = world.begin()
        task, effect = announced(world, task)
        assert effect == do.Call(at(5), 1, (), death, replay=True)
        assert task.alone == (death > 0)

    world = again(world, "last")
    task, _ = world.begin()
    task, effect = announced(world, task)
    assert effect == do.Quarantine(at(5), (), 3, replay=True)
    task, _ = world.run(task, on.Called(at(5), Totals(1, 0, 1, replays=1), replays=place(4)))

    assert not task.careful
    assert world.log[-1].replays == place(4)


def test_announced_replay_comes_again_and_nothing_else() -> None:
    """After a death neither messages nor timers may come first."""
    world = World(SPEC, log=[snapshot(SPEC, (5,), (5,), 1, replay=True, replays=place(3))])
    world.tails = {REPLAY: on.InputFacts(B, 0, 9, 9)}
    task, _ = world.begin()
    assert task.due is not None
    assert task.due.replay
    assert not task.takes_replays

    with pytest.raises(IllegalEvent, match="due up to"):
        world.run(task, on.Polled(at(6), 1))
    with pytest.raises(IllegalEvent, match="1 replays"):
        world.run(task, on.Polled(at(5), 1))


@pytest.mark.parametrize(
    "changes",
    [{"careful_until": at(9)}, {"careful_timers": 2}, {"tail_ends": place(3)}, {"replays": ()}],
)
def test_replays_wait_for_what_was_announced_or_put_off(changes: dict[str, object]) -> None:
    """And for a replay topic."""
    task = Task(SPEC, record=attempt(SPEC, 5, **{"replays": place(3)} | changes))
    fields = {name: value for name, value in changes.items() if name != "replays"}
    task = replace(task, **fields)  # type: ignore[arg-type]

    assert not task.takes_replays


def test_replays_wait_for_a_recorded_choice() -> None:
    """The order that was kept for messages stays whole."""
    spec = make_spec(TWO, pairing="alts", effects=True, errors=True, replay="g.p.replay")
    world = World(spec, log=[attempt(spec, 5, 5, replays=place(3), choice=(("left", 2),))])
    world.tails = {REPLAY: on.InputFacts(B, 0, 9, 9)}
    task, _ = world.begin()

    assert not task.takes_replays
    with pytest.raises(IllegalEvent, match="other steps are due"):
        announced(world, task)


def test_replay_is_delivered_only_where_it_was_announced() -> None:
    """What was called ahead holds none."""
    world = world_of()
    task, _ = world.begin()
    task, _ = announced(world, task)

    with pytest.raises(ValueError, match="0 replays of 1 steps"):
        world.run(task, on.Called(at(5), Totals(1, 1, 0, 0, 1), replays=place(4)))


def test_announced_request_that_is_gone_is_passed() -> None:
    """The replay topic was recreated: the record goes on in the new one."""
    world = world_of()
    task, _ = world.begin()
    task, _ = announced(world, task)
    world = again(world, "next")
    world.tails = {REPLAY: on.InputFacts(RECREATED, 0, 0, 0)}
    task, _ = world.begin()
    assert task.due is not None
    assert task.due.replay

    task, effect = world.run(task, on.Idle(at(5), place(0, RECREATED)))

    assert effect == do.Await()
    assert task.due is None
    assert world.log[-1].replays == place(0, RECREATED)


@pytest.mark.parametrize(
    ("before", "found", "expected"),
    [
        ((), (B, 2, 9), 2),
        (place(5), (B, 0, 9), 5),
        (place(5), (B, 7, 9), 7),
        (place(5), (B, 0, 4), 4),
        (place(5), (RECREATED, 1, 9), 1),
    ],
)
def test_place_in_the_replay_topic_is_only_where_to_look_first(
    before: Positions, found: tuple[bytes, int, int], expected: int
) -> None:
    """Never outside of the log: what is settled is known from the records."""
    topic_id, low, high = found

    assert begin(SPEC, {REPLAY: on.InputFacts(topic_id, low, high, high)}, before)[0].offset == expected


def test_task_without_a_readable_replay_topic_keeps_its_place() -> None:
    """For the day when the topic is there again."""
    world = world_of()
    world.tails = {}
    task, _ = world.begin()
    task, _ = world.run(task, on.Polled(at(6), 1))
    task, _ = world.run(task, on.Called(at(6), Totals(1, 1, 0, 0, 1)))

    assert world.log[-1].replays == place(3)


def test_first_record_says_where_the_replay_topic_begins() -> None:
    """A request that comes before the first message is not missed."""
    world = World(SPEC)
    world.tails = {REPLAY: on.InputFacts(B, 2, 9, 9)}
    world.begin()

    assert world.log[0].replays == place(2)


def test_task_that_cannot_replay_refuses_an_announced_replay() -> None:
    """On Spark, or without an errors topic."""
    spec = replace(SPEC, replay="")
    record = snapshot(spec, (5,), (5,), 1, replay=True, replays=place(3))

    decision = recover(spec, record, {"in": 5}, facts(spec))

    assert isinstance(decision, Refuse)
    assert "announced the replay of an error" in decision.halt.text


def test_attempt_that_a_target_holds_moves_the_place() -> None:
    """E1: a death between the two commits loses neither."""
    spec = replace(SPEC, target=True, effects=True)
    world = World(spec, log=[start(spec, 5, replays=place(3), sequence=0)])
    world.tails = {REPLAY: on.InputFacts(B, 0, 9, 9)}
    row = TargetRow(base=0, step=1, owner=0, ends=at(5), batch=ONE._replace(taken=1), replays=place(4))
    world.answers[do.AskTarget] = [on.TargetAsked(row), on.TargetAsked(row)]
    task, _ = world.begin()

    assert (task.positions, world.log[1].replays, world.log[1].totals.replays) == (at(5), place(4), 1)
