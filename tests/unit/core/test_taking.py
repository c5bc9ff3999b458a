"""At-most-once: a batch is taken before it is called, and the next transaction has its outcomes (W1 to W4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.machine import handle
from cues_kafka.core.records import Attempt, Start, Totals
from cues_kafka.core.spec import Move
from cues_kafka.core.taking import in_flight
from cues_kafka.core.task import Doing, Task
from tests.unit.core.world import BEFORE, World, at, attempt, called, make_spec

SPEC = make_spec(strategy="at-most-once")
LATE = on.Revoked()


def started(event: on.Called, steps: int) -> on.Called:
    """That many steps were started."""
    return replace(event, batch=event.batch._replace(taken=steps))


def ready(*log: Attempt) -> tuple[World, Task]:
    """A world with these records, and its task after the recovery."""
    world = World(SPEC, log=list(log))
    task, effect = world.begin()
    assert effect == do.Await()
    return world, task


def taken(world: World, task: Task, end: int, steps: int) -> Task:
    """The task while a batch is called."""
    task, effect = world.run(task, on.Polled(at(end), steps))
    assert effect == do.Call(at(end), steps, (), 0)
    return task


def test_a_batch_is_taken_before_it_is_called_and_settled_by_the_next_one() -> None:
    """W1, I16: the record behind which user code runs has the positions behind the batch, and none of its outcomes."""
    world, task = ready()
    assert task.snapshot_due
    assert not task.pipelined

    task = taken(world, task, 4, 4)
    assert (world.log[-1].positions, world.log[-1].batch) == (at(4), Totals(taken=4))
    task, effect = world.run(task, started(called(at(4), 2, 1, 1), 4))
    assert effect == do.Await()
    assert task.snapshot_due
    assert len(world.log) == 2

    task = taken(world, task, 7, 3)
    assert world.log[-1].batch == Totals(4, 2, 1, 1, 2, taken=3)
    assert [type(record) for record in world.log] == [Start, Attempt, Attempt]
    assert in_flight(world.log[-1]) == 3


@pytest.mark.parametrize("batch", [Totals(3, 3, taken=2), Totals(3, 3, taken=5)], ids=["ended", "started"])
def test_a_call_that_counts_more_than_was_taken_is_refused(batch: Totals) -> None:
    """Nothing of it is committed."""
    world, task = ready()
    task = taken(world, task, 4, 4)
    with pytest.raises(on.IllegalEvent, match="of 4 steps"):
        handle(task, replace(called(at(4), 3), batch=batch))


def test_what_waits_is_committed_where_nothing_is_there_to_take() -> None:
    """W1: an attempt without steps."""
    world, task = ready()
    task = taken(world, task, 4, 4)
    task, _ = world.run(task, started(called(at(4), 4), 4))
    assert task.carried is not None
    assert task.carried.due

    task, effect = world.run(task, on.Idle(at(4)))

    assert effect == do.Await()
    assert world.log[-1].batch == Totals(4, 4, 0, 0, 4)
    assert (world.log[-1].step, in_flight(world.log[-1])) == (4, 0)


def test_steps_that_were_not_started_are_taken_again() -> None:
    """W2: the batch ended early, by its time or on request."""
    world, task = ready()
    task = taken(world, task, 10, 10)
    task, _ = world.run(task, started(called(at(4), 4), 4))
    task = taken(world, task, 6, 2)

    assert (world.log[-1].positions, world.log[-1].batch.taken, world.log[-1].step) == (at(6), 2 - 6, 6)
    assert in_flight(world.log[-1]) == 2


def test_a_revoked_task_stands_behind_the_last_step_that_was_started() -> None:
    """W2: 3 of 10 steps have ended, the fourth is under way and dropped, 6 are given back."""
    world, task = ready()
    task = taken(world, task, 10, 10)

    task, effect = world.run(task, on.Revoked(started(called(at(4), 3), 4)))

    assert effect == do.Release()
    last = world.log[-1]
    assert (last.positions, last.step) == (at(4), 4)
    assert last.batch == Totals(3, 3, 0, 0, 3, taken=-6, dropped=1)
    assert in_flight(last) == 0


def test_a_task_that_is_revoked_between_two_batches_commits_what_waits() -> None:
    """W2: also where the next take was about to begin."""
    world, task = ready()
    task = taken(world, task, 4, 4)
    task, _ = world.run(task, started(called(at(4), 4), 4))
    beginning, effect = handle(task, on.Polled(at(9), 5))
    assert (beginning.state, effect) == (Doing.BEGINNING, do.Begin())

    for state in (task, beginning):
        other = World(SPEC, log=list(world.log), high=world.high)
        _, effect = other.run(state, LATE)
        assert effect == do.Release()
        assert (other.log[-1].positions, other.log[-1].batch) == (at(4), Totals(4, 4, 0, 0, 4))


def test_a_task_that_is_revoked_while_it_recovers_commits_what_waits() -> None:
    """W2: a rebalance refused its commit, and takes the task away before it has recovered."""
    world, task = ready()
    task = taken(world, task, 4, 4)
    task, _ = world.run(task, started(called(at(4), 4), 4))
    world.answers[do.SendOffsets] = [world.failed()]
    world.answers[do.AssignReader] = [LATE]

    task, effect = world.run(task, on.Polled(at(9), 5))

    assert effect == do.Release()
    assert (world.log[-1].positions, world.log[-1].batch) == (at(4), Totals(4, 4, 0, 0, 4))
    assert in_flight(world.log[-1]) == 0


def test_a_task_that_is_revoked_in_doubt_gives_back_what_it_took() -> None:
    """W3: the take has no answer, so its batch was never called, and the next owner may call it."""
    world, task = ready()
    world.answers[do.Commit] = [on.Committed("took 61 s")]
    world.answers[do.Discard] = [LATE]
    lost, _ = handle(task, on.Polled(at(9), 9))
    assert lost.pending
    world.log.append(lost.pending)  # the answer says suspect, and the record is there

    _, effect = world.run(task, on.Polled(at(9), 9))

    assert effect == do.Release()
    assert (world.log[-1].positions, world.log[-1].batch) == (at(0), Totals(taken=-9))
    assert in_flight(world.log[-1]) == 0


def test_a_task_whose_commit_fails_again_while_it_leaves_is_released() -> None:
    """W2: a revocation waits for one more try, and not for an outage; the next owner counts what is dropped."""
    world, task = ready()
    task = taken(world, task, 4, 4)
    task, _ = world.run(task, started(called(at(4), 4), 4))
    world.answers[do.SendOffsets] = [world.failed(), world.failed()]
    world.answers[do.AssignReader] = [LATE]

    _, effect = world.run(task, on.Polled(at(9), 5))

    assert effect == do.Release()
    assert in_flight(world.log[-1]) == 4


def test_a_task_with_nothing_to_say_leaves_at_once() -> None:
    """No record is written for nothing."""
    world, task = ready()
    _, effect = world.run(task, LATE)

    assert effect == do.Release()
    assert [type(record) for record in world.log] == [Start]


@pytest.mark.parametrize("kind", ["interrupt", "unhandled"])
def test_a_step_that_stops_its_task_is_dropped_and_those_behind_it_are_given_back(kind: str) -> None:
    """W2: it was started, so it is never called again."""
    world, task = ready()
    task = taken(world, task, 10, 10)
    halt = on.Halt(kind, "it failed", "fix it")

    task, effect = world.run(task, started(called(at(3), 2, halt=halt), 3))

    assert effect == do.Stop(halt)
    assert (world.log[-1].positions, world.log[-1].batch) == (at(3), Totals(2, 2, 0, 0, 2, taken=-7, dropped=1))
    task, effect = world.run(task, on.Assigned())
    assert effect == do.Await()
    assert task.positions == at(3)


def test_a_stop_is_not_forgotten_where_its_commit_fails() -> None:
    """W3: the step is not called again, so nothing else would stop the task."""
    world, task = ready()
    task = taken(world, task, 10, 10)
    halt = on.Halt("unhandled", "it failed", "fix it")
    world.answers[do.Commit] = [world.failed()]

    task, effect = world.run(task, started(called(at(3), 2, halt=halt), 3))

    assert effect == do.Stop(halt)
    assert world.log[-1].batch == Totals(2, 2, 0, 0, 2, taken=-7, dropped=1)


def test_a_take_that_did_not_happen_is_made_again_with_the_same_outcomes() -> None:
    """W3: R4 finds the record over which it was made."""
    world, task = ready()
    task = taken(world, task, 4, 4)
    task, _ = world.run(task, started(called(at(4), 4), 4))
    world.answers[do.Commit] = [world.failed()]

    task, effect = world.run(task, on.Polled(at(9), 5))
    assert effect == do.Await()
    assert do.AssignReader(at(4)) in world.effects
    task = taken(world, task, 6, 2)

    assert world.log[-1].batch == Totals(4, 4, 0, 0, 4, taken=2)
    assert world.log[-1].totals.dropped == 0


def test_a_take_that_happened_without_an_answer_is_called_from_its_starts() -> None:
    """W3: the outcomes of the batch before are committed, and the batch was never called."""
    world, task = ready()
    task = taken(world, task, 4, 4)
    task, _ = world.run(task, started(called(at(4), 4), 4))
    world.answers[do.Commit] = [on.Committed("took 61 s")]
    lost, _ = handle(task, on.Polled(at(9), 5))
    assert lost.pending
    world.log.append(lost.pending)  # the answer says suspect, and the record is there

    task, effect = world.run(task, on.Polled(at(9), 5))

    assert effect == do.Await()
    assert world.effects[-2] == do.AssignReader(at(4))
    task = taken(world, task, 9, 5)
    assert world.log[-1].batch == Totals(taken=0)
    assert world.log[-1].totals == Totals(4, 4, 0, 0, 4, taken=9)
    assert in_flight(world.log[-1]) == 5


def test_a_record_that_was_refused_where_it_landed_is_not_taken_for_an_own_one() -> None:
    """W3, I15: no commit was asked for, so the record is of a lane that may have called its batch."""
    world, task = ready()
    task = taken(world, task, 4, 4)
    task, _ = world.run(task, started(called(at(4), 4), 4))
    other = replace(
        world.log[-1], sequence=2, positions=at(8), totals=Totals(4, 4, taken=8), batch=Totals(4, 4, taken=4)
    )
    world.answers[do.Flush] = [on.Flushed(1, 1, world.high + 2)]
    world.log.append(other)  # by the same process: its lane before this one

    task, _ = world.run(task, on.Polled(at(9), 5))

    assert task.carried is not None
    assert task.carried.ends == at(8)
    assert task.carried.batch == Totals(dropped=4)


def test_an_older_record_sends_the_task_back_to_r1() -> None:
    """W3: a leader that is cut off may have answered; what waits is not lost by that."""
    world, task = ready()
    task = taken(world, task, 4, 4)
    task, _ = world.run(task, started(called(at(4), 4), 4))
    world.answers[do.SendOffsets] = [world.failed()]
    world.answers[do.ReadNewest] = [on.NewestRead(world.log[0])]
    world.answers[do.FetchOffsets] = [on.OffsetsFetched({"in": 0})]

    task, effect = world.run(task, on.Polled(at(9), 5))

    assert effect == do.Await()
    assert "an older record was read than before" in [e.text for e in world.effects if isinstance(e, do.Discard)]
    assert task.carried is not None
    assert task.carried.batch == Totals(4, 4, 0, 0, 4)


def test_a_successor_drops_what_is_in_flight_and_says_so_at_once() -> None:
    """W4: none of the messages is called again."""
    flying = attempt(SPEC, 9, strategy="at-most-once", totals=Totals(4, 4, 0, 0, 4, taken=9), step=9)
    world, task = ready(flying)

    assert do.AssignReader(at(9)) in world.effects
    assert task.carried is not None
    assert task.carried.due
    task, _ = world.run(task, on.Idle(at(9)))

    assert world.log[-1].batch == Totals(dropped=5)
    assert world.log[-1].totals == Totals(4, 4, 0, 0, 4, taken=9, dropped=5)
    assert in_flight(world.log[-1]) == 0


def test_a_stopped_task_takes_what_waits_along_into_its_next_start() -> None:
    """W3: an outage that used up the rounds drops nothing."""
    world, task = ready()
    task = taken(world, task, 4, 4)
    task, _ = world.run(task, started(called(at(4), 4), 4))
    world.answers[do.SendOffsets] = [world.failed() for _ in range(1)]
    world.answers[do.Init] = [world.failed() for _ in range(5)]

    task, effect = world.run(task, on.Polled(at(9), 5))
    assert isinstance(effect, do.Stop)
    task, effect = world.run(task, on.Assigned())

    assert effect == do.Await()
    assert task.carried is not None
    assert task.carried.batch == Totals(4, 4, 0, 0, 4)


def test_a_tool_counts_what_is_in_flight_where_it_moves_a_task() -> None:
    """W4, X2: a reset ends the batch that a process that died has left."""
    flying = attempt(SPEC, 9, strategy="at-most-once", totals=Totals(4, 4, 0, 0, 4, taken=9), step=9)
    spec = replace(SPEC, move=Move(after=flying.sequence, positions=at(0)))
    world = World(spec, log=[flying])

    _, effect = world.begin()

    assert isinstance(effect, do.Stop)
    assert world.log[-1].batch == Totals(dropped=5)
    assert world.log[-1].writer != BEFORE
    assert in_flight(world.log[-1]) == 0
