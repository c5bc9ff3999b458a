"""Single conditions of the core that hold the guarantee up, each with the shortest history that falls without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.records import Snapshot
from cues_kafka.core.recover import Refuse, recover
from cues_kafka.core.task import Doing, Task
from tests.unit.core.world import ME, TWO, World, at, attempt, called, deliver, facts, make_spec, snapshot

SPEC = make_spec()
SLOT = make_spec(slot=True)
ALTS = make_spec(TWO, pairing="alts", effects=True)
MINE = snapshot(SPEC, (5,), (9,), 4, writer=ME)
"""What this very process was about to deliver."""


# P7: what may be called while a commit is under way


def test_nothing_is_called_ahead_in_careful_mode() -> None:
    """Q2: a message behind the deadly one would be called in its transaction, and the death counted against it too."""
    world = World(SPEC, log=[snapshot(SPEC, (5,), (8,), 3, starts=1)])
    task, _ = world.begin()
    task, _ = world.run(task, on.Polled(at(6), 1))
    task, _ = world.run(task, called(at(6), outputs=1))

    assert task.careful
    assert not task.snapshot_due
    assert not task.pipelined


def test_no_effect_is_called_ahead() -> None:
    """P7: an effect cannot be thrown away like an output, where the commit before it fails."""
    world = World(make_spec(effects=True), log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    task, _ = deliver(world, task, at(9), 4)

    assert not task.snapshot_due
    assert not task.pipelined


@pytest.mark.parametrize(
    ("beside", "ahead"),
    [
        ({}, True),
        ({"stores": (("s", "g.p.s.changelog"),)}, False),
        ({"tailers": SPEC.inputs}, False),
        ({"timers": True}, False),
        ({"strategy": "at-most-once"}, False),
    ],
    ids=["target", "store", "tailer", "timers", "at-most-once"],
)
def test_effects_of_a_target_alone_are_called_ahead(beside: dict[str, Any], ahead: bool) -> None:
    """P7, E1: it rolls them back. A batch ahead begins behind the attempt that is being committed."""
    world = World(make_spec(effects=True), log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    task, _ = deliver(world, task, at(9), 4)
    task = replace(task, spec=make_spec(effects=True, target=True, **beside))

    assert task.pipelined is ahead
    step = task.record.step if task.record else 0
    assert task.next_base == step
    assert replace(task, pending=attempt(SPEC, 12, step=step + 3)).next_base == step + 3


# Q1: deaths, and leaving in order


def test_a_task_that_was_given_back_to_its_process_takes_its_left_back() -> None:
    """Q1: under the old snapshot, which says `left`, the next death in user code would not be counted."""
    world = World(SPEC, log=[replace(MINE, left=True)])
    task, _ = world.begin()
    world.run(task, on.Polled(at(9), 4))

    assert isinstance(world.log[-1], Snapshot)
    assert not world.log[-1].left


def test_a_revocation_while_the_inputs_are_asked_for_is_no_death() -> None:
    """Q1: a few rebalances at this moment would quarantine a message that did nothing."""
    world = World(SPEC, log=[MINE], answers={do.FetchInputs: [on.Revoked()]})
    task, _ = world.begin()

    assert task.state is Doing.RELEASED
    assert world.log[-1].left


def test_a_revocation_while_a_refusal_is_asked_again_is_no_death() -> None:
    """Q1 and R5: the first answer was stale, and the task is taken away before it has the second one."""
    stale = on.OffsetsFetched({"in": 2})
    world = World(SPEC, log=[MINE], answers={do.FetchOffsets: [stale], do.Discard: [on.Revoked()]})
    task, _ = world.begin()

    assert task.state is Doing.RELEASED
    assert world.log[-1].left


def test_a_revocation_after_the_suspect_commit_of_a_snapshot_is_no_death() -> None:
    """Q1 and P8: the snapshot was committed after all, and no record would say that its process left in order."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    world.answers = {
        do.Commit: [on.Committed("slow")],
        do.Discard: [on.Revoked()],
        do.ReadNewest: [on.NewestRead(MINE)],
    }
    task, _ = world.run(task, on.Polled(at(9), 4))

    assert task.state is Doing.RELEASED
    assert world.log[-1].left


# R5, R7: refusals


def test_a_log_that_was_truncated_within_the_ranges_of_a_snapshot_is_refused() -> None:
    """R5: the task would wait without end for messages that the brokers lost, and no operator would be told."""
    decision = recover(SPEC, snapshot(SPEC, (5,), (9,), 4), {}, facts(SPEC, stable=8, high=8))

    assert isinstance(decision, Refuse)
    assert decision.stale
    assert "truncated" in decision.halt.text


def test_another_error_between_two_fences_hides_neither() -> None:
    """R7: two applications that run one task would fence each other in turn, and neither would stop with a name."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    world.answers = {do.Init: [world.failed(), world.failed(fenced=True)]}
    _, effect = world.run(task, world.failed(fenced=True))

    assert isinstance(effect, do.Stop)
    assert effect.halt.text.startswith("fenced twice by 'there'")


# S1, in slots: the driver leaves the first snapshot out where nothing says that a predecessor died (D3)


def test_careful_mode_brings_a_slot_its_snapshots_back() -> None:
    """S1 and Q2: deaths on the message would leave no trace, so that it is never quarantined."""
    world = World(SLOT, log=[attempt(SLOT, 6, careful_until=at(8))])
    task, _ = world.run(Task(SLOT), on.Assigned(first=False))

    assert task.careful
    assert task.snapshot_due


def test_a_slot_that_retries_what_another_process_began_writes_its_own_snapshot() -> None:
    """S1 and Q1: the count of deaths would stand still, and the message kill every attempt of every batch."""
    world = World(SLOT, log=[snapshot(SLOT, (5,), (9,), 4)])
    task, _ = world.run(Task(SLOT), on.Assigned(first=False))
    world.run(task, on.Polled(at(9), 4))

    assert isinstance(world.log[-1], Snapshot)
    assert (world.log[-1].writer, world.log[-1].starts) == (ME, 1)


# I7: the recorded choice


def test_an_idle_record_ends_a_choice_whose_messages_are_gone() -> None:
    """I7: compaction took the message; the order that names it would hold up every later message of the other input."""
    world = World(ALTS, log=[attempt(ALTS, 5, 5, choice=(("left", 1),))])
    task, _ = world.begin()
    task, _ = world.run(task, on.Idle(at(6, 5, spec=ALTS)))

    assert world.log[-1].positions == at(6, 5, spec=ALTS)
    assert world.log[-1].choice == task.choice == ()
