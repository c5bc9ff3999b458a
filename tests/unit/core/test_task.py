"""The machine of one task: snapshots, deaths, careful mode, quarantine, commits, failures, endings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.events import IllegalEvent
from cues_kafka.core.machine import handle
from cues_kafka.core.records import Attempt, Choice, Record, Snapshot, Start, Totals, Writer
from cues_kafka.core.states.ending import FENCED_WITHIN_S
from cues_kafka.core.states.recovery import STALE_FOR_S
from cues_kafka.core.states.transitions import MAX_ROUNDS
from cues_kafka.core.task import Doing, Task
from cues_kafka.core.turns import drop, take
from tests.unit.core.world import (
    BEFORE,
    ME,
    TWO,
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

SPEC = make_spec()
HANDLED = make_spec(errors=True)
ALTS = make_spec(TWO, pairing="alts", effects=True, errors=True)

RECOVERY = ["Init", "FetchOffsets", "FetchWatermark", "ReadNewest", "FetchInputs"]
TRANSACTION = ["Begin", "Produce", "SendOffsets", "Flush", "Commit"]


def again(world: World, run: str) -> World:
    """A new process over the same logs, after the former one was killed."""
    return World(replace(world.spec, writer=Writer("g.p.1", "native", run, run)), log=world.log, high=world.high)


# Recovery


def test_a_fresh_task_commits_its_start_before_anything_else() -> None:
    """R1 to R5 in this order, then a zero-step record with the first positions; then the reader is pointed."""
    world = World(SPEC, inputs=facts(SPEC, low=3))
    task, effect = world.begin()

    assert effect == do.Await()
    assert world.names() == [*RECOVERY, "FetchSibling", *TRANSACTION, "AssignReader", "Await"]
    [record] = world.log
    assert isinstance(record, Start)
    assert (record.sequence, record.step, record.positions, record.born) == (0, 0, at(3), 4)
    assert record.totals == record.batch == Totals()
    assert task.snapshot_due
    assert not task.pipelined


def test_a_partition_that_was_added_later_keeps_the_birth_of_its_processor() -> None:
    """`born` is what `latest` is measured by; it must not grow with the topic."""
    world = World(make_spec(start="latest", width=8, partition=5), born=4)
    world.begin()

    assert world.log[0].born == 4
    assert world.log[0].positions == at(0)


def test_a_delivered_task_goes_on_where_its_record_says() -> None:
    """Nothing is written; the reader is pointed to the record's positions and nowhere else (R6)."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    task, _ = world.begin()

    assert world.effects[-2:] == [do.AssignReader(at(5)), do.Await()]
    assert world.names() == [*RECOVERY, "AssignReader", "Await"]
    assert task.positions == at(5)


def test_a_refused_recovery_writes_nothing() -> None:
    """I12: no transaction was begun."""
    world = World(SPEC, log=[attempt(SPEC, 5)], inputs={})
    task, effect = world.begin()

    assert isinstance(effect, do.Stop)
    assert task.state is Doing.STOPPED
    assert world.names() == [*RECOVERY, "Stop"]


def test_a_record_that_cannot_be_read_stops_the_task() -> None:
    """I14: another program wrote here."""
    world = World(SPEC, answers={do.ReadNewest: [on.NewestRead(None, "offset 3: not Avro")]})
    _, effect = world.begin()

    assert effect == do.Stop(
        on.Halt(
            "refused",
            "offset 3: not Avro",
            ("find who else writes the backing topic: only this task may, under its transactional id"),
        )
    )


def test_a_stopped_task_can_be_tried_again() -> None:
    """The back-off is the shell's; the task forgets everything and comes back by R1."""
    world = World(SPEC, inputs={})
    task, _ = world.begin()
    world.inputs = None
    world.names()
    task, effect = world.run(task, on.Assigned())

    assert effect == do.Await()
    assert world.names()[:5] == RECOVERY


@pytest.mark.parametrize(
    ("record", "offsets", "high"),
    [(attempt(SPEC, 5), {"in": 4}, 100), (None, {"in": 4}, 100), (attempt(SPEC, 5), {"in": 5}, 4)],
    ids=["offsets differ", "empty backing topic", "past the end"],
)
def test_what_a_stale_answer_may_cause_is_asked_again_for_15_s(
    record: Record | None, offsets: dict[str, int | None], high: int
) -> None:
    """R5: with a new session each time, and nothing written meanwhile."""
    world = World(
        SPEC, log=[record] if record else [], offsets=offsets, inputs=facts(SPEC, stable=min(high, 100), high=high)
    )
    began = world.now_s
    task, effect = world.begin()

    assert isinstance(effect, do.Stop)
    assert world.now_s - began == STALE_FOR_S
    names = world.names()
    assert names.count("Init") == names.count("Discard") + 1 == STALE_FOR_S + 1
    assert "Begin" not in names
    assert task.halt is not None


def test_a_stale_answer_that_becomes_fresh_is_forgotten() -> None:
    """The second coordinator knows better: the task goes on, and the next doubt has its own 15 s."""
    world = World(
        SPEC, log=[attempt(SPEC, 5)],
        answers={do.FetchOffsets: [on.OffsetsFetched({"in": 2}), on.OffsetsFetched({"in": 2})]},
    )  # fmt: skip
    task, effect = world.begin()

    assert effect == do.Await()
    assert task.stale_since_s is None
    assert world.names().count("Init") == 3


def test_a_failure_between_stale_answers_does_not_extend_the_15_s() -> None:
    """R5 and R7 together end."""
    world = World(SPEC, log=[attempt(SPEC, 5)], offsets={"in": 4})
    world.answers = {do.FetchWatermark: [on.WatermarkFetched(10), world.failed()]}
    began = world.now_s
    _, effect = world.begin()

    assert isinstance(effect, do.Stop)
    assert world.now_s - began == STALE_FOR_S


# P2, S1, S2


def test_the_first_batch_of_every_start_gets_a_snapshot() -> None:
    """S1: user code is not called before it is committed; the second batch needs none."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    world.names()
    task, effect = world.run(task, on.Polled(at(9), 4))

    assert effect == do.Call(at(9), 4, (), 0)
    assert world.names() == [*TRANSACTION, "Call"]
    assert isinstance(world.log[-1], Snapshot)
    assert (world.log[-1].positions, world.log[-1].ends, world.log[-1].steps) == (at(5), at(9), 4)
    task, effect = world.run(task, called(at(9), outputs=3, nils=1))
    assert effect == do.Await()
    assert world.names() == [*TRANSACTION, "Await"]
    assert not task.snapshot_due
    assert task.pipelined
    task, effect = world.run(task, called(at(20), outputs=10, errors=1))
    assert [type(r) for r in world.log] == [Attempt, Snapshot, Attempt, Attempt]


def test_sequence_steps_and_totals_have_no_gap() -> None:
    """I13, over snapshots, attempts and idle records."""
    world = World(SPEC)
    task, _ = world.begin()
    task, _ = deliver(world, task, at(4), 4, errors=1, nils=1)
    task, _ = deliver(world, task, at(9), 5)
    task, _ = world.run(task, on.Idle(at(11)))

    assert [type(r).__name__ for r in world.log] == ["Start", "Snapshot", "Attempt", "Attempt", "Attempt"]
    assert [r.sequence for r in world.log] == [0, 1, 2, 3, 4]
    assert [r.step for r in world.log] == [0, 0, 4, 9, 9]
    assert [r.totals for r in world.log] == [
        Totals(), Totals(), Totals(4, 2, 1, 1, 2, 4), Totals(9, 7, 1, 1, 7, 9), Totals(9, 7, 1, 1, 7, 9),
    ]  # fmt: skip
    assert world.log[-1].batch == Totals()
    assert [r.positions for r in world.log] == [at(0), at(0), at(4), at(9), at(11)]
    assert task.next_sequence == 5


def test_every_transaction_commits_exactly_the_positions_of_its_record() -> None:
    """P5, for start, snapshot, attempt, idle attempt and `left` alike, and always behind the record."""
    world = World(SPEC)
    task, _ = world.begin()
    task, _ = deliver(world, task, at(4), 4)
    task, _ = world.run(task, on.Idle(at(6)))
    world.run(task, on.Revoked())
    world = again(world, "second")
    task, _ = world.begin()
    task, _ = world.run(task, on.Polled(at(9), 3))
    world.run(task, on.Revoked())

    sent = [e for e in world.effects if isinstance(e, do.SendOffsets | do.Produce)]
    pairs = list(zip(sent[::2], sent[1::2], strict=True))
    assert pairs
    for produced, offsets in pairs:
        assert isinstance(produced, do.Produce)
        assert isinstance(offsets, do.SendOffsets)
        assert offsets.positions == produced.record.positions


def test_every_batch_of_alts_with_effects_keeps_its_choice() -> None:
    """S2: not the first batch only; without effects the first only (S1)."""
    world = World(ALTS)
    task, _ = world.begin()
    for end in (3, 6):
        task, effect = world.run(task, on.Polled(at(end, 0, spec=ALTS), 3, (("left", 3),)))
        assert effect == do.Call(at(end, 0, spec=ALTS), 3, (("left", 3),), 0)
        task, _ = world.run(task, called(at(end, 0, spec=ALTS), nils=3))
    assert [type(r).__name__ for r in world.log] == ["Start", "Snapshot", "Attempt", "Snapshot", "Attempt"]

    world = World(replace(ALTS, effects=False))
    task, _ = world.begin()
    task, _ = deliver(world, task, at(3, 0, spec=ALTS), 3)
    assert not task.snapshot_due


def test_the_owner_is_the_first_record_of_this_start() -> None:
    """E1: a smaller owner is refused by targets of effects; it must not change within a start."""
    world = World(SPEC)
    task, _ = world.begin()
    task, _ = deliver(world, task, at(4), 4)
    deliver(world, task, at(8), 4)
    assert [r.owner for r in world.log[1:]] == [0, 0, 0]

    world = again(world, "second")
    task, _ = world.begin()
    task, _ = deliver(world, task, at(9), 1)
    deliver(world, task, at(12), 3)
    assert [r.owner for r in world.log[4:]] == [4, 4, 4]


# Q1: deaths


def test_deaths_in_user_code_are_counted_in_the_next_snapshot() -> None:
    """Q1: only these ranges; a death in the next batch begins at 0."""
    world = World(SPEC, log=[snapshot(SPEC, (5,), (9,), 4, starts=0)])
    task, _ = world.begin()
    assert task.due is not None
    assert task.due.starts == 1
    task, effect = world.run(task, on.Polled(at(9), 4))
    assert effect == do.Call(at(9), 4, (), 1)
    assert world.log[-1].starts == 1
    task, _ = world.run(task, called(at(9), outputs=4))
    assert world.log[-1].starts == 0


def test_a_retried_batch_must_be_polled_as_it_was() -> None:
    """Other ends than the snapshot's are a fault of the shell, and change nothing."""
    world = World(SPEC, log=[snapshot(SPEC, (5,), (9,), 4)])
    task, _ = world.begin()

    with pytest.raises(IllegalEvent, match="due up to"):
        handle(task, on.Polled(at(8), 3))


@pytest.mark.parametrize("state", ["ready", "calling"])
def test_who_leaves_in_order_is_not_counted_as_dead(state: str) -> None:
    """Q1: the newest record is still the snapshot, so it is committed again with `left` before the release."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    task, _ = world.run(task, on.Polled(at(9), 4))
    if state == "ready":
        task, _ = world.run(task, called((), halt=on.Halt("retry", "busy")))
    assert task.state.value == state
    world.names()
    task, effect = world.run(task, on.Revoked())

    assert effect == do.Release()
    assert world.names() == [*TRANSACTION, "Release"]
    newest = world.log[-1]
    assert isinstance(newest, Snapshot)
    assert newest == replace(world.log[-2], sequence=9, left=True)
    task, _ = again(world, "second").begin()
    assert task.due is not None
    assert task.due.starts == 0


@pytest.mark.parametrize("record", [attempt(SPEC, 5), start(SPEC, 5), snapshot(SPEC, (5,), (9,), 4)])
def test_who_has_begun_nothing_leaves_without_a_word(record: Record) -> None:
    """Nothing is written over an attempt, nor over the snapshot of a worker that did die."""
    world = World(SPEC, log=[record])
    task, _ = world.begin()
    world.names()
    task, _ = world.run(task, on.Revoked())

    assert task.state is Doing.RELEASED
    assert world.names() == ["Release"]


def test_a_snapshot_is_left_only_once() -> None:
    """After `left` was committed the release follows; the newest record says it."""
    world = World(SPEC, log=[snapshot(SPEC, (5,), (9,), 4, writer=ME, left=True)])
    task, _ = world.begin()
    world.names()
    world.run(task, on.Revoked())

    assert world.names() == ["Release"]


def test_a_revocation_before_the_transaction_began_leaves_the_called_batch_behind() -> None:
    """A3: no new P5 passes; what was called is thrown away, and under an own snapshot `left` is said."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    task, _ = world.run(task, on.Polled(at(9), 4))
    task, effect = handle(task, called(at(9), outputs=4))
    assert effect == do.Begin()
    task, effect = world.run(task, on.Revoked())

    assert effect == do.Release()
    assert [type(r).__name__ for r in world.log] == ["Attempt", "Snapshot", "Snapshot"]


def test_a_lost_partition_writes_nothing() -> None:
    """A3: another worker has it already."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    task, _ = world.run(task, on.Polled(at(9), 4))
    world.names()
    _, effect = world.run(task, on.Lost())

    assert effect == do.Release()
    assert world.names() == ["Release"]


def test_a_failed_commit_is_no_death() -> None:
    """P8: same incarnation, so the same ranges come again with the same count."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    task, _ = world.run(task, on.Polled(at(9), 4))
    world.answers = {do.Commit: [world.failed()]}
    task, effect = world.run(task, called(at(9), outputs=4))

    assert effect == do.Await()
    assert task.due is not None
    assert (task.due.ends, task.due.starts) == (at(9), 0)


# Q2: careful mode


def test_after_two_deaths_each_step_is_alone_in_its_transaction() -> None:
    """Q2, up to the end of those ranges and no further; other ranges begin at 0 deaths."""
    world = World(SPEC, log=[snapshot(SPEC, (5,), (8,), 3, starts=1)])
    task, _ = world.begin()
    assert task.due is None
    assert task.careful
    assert task.careful_until == at(8)
    task, effect = world.run(task, on.Polled(at(6), 1))
    assert effect == do.Call(at(6), 1, (), 0)
    assert (world.log[-1].starts, world.log[-1].careful_until) == (0, at(8))
    task, _ = world.run(task, called(at(6), outputs=1))
    assert world.log[-1].careful_until == at(8)
    assert task.careful
    assert not task.snapshot_due
    task, _ = world.run(task, called(at(7), outputs=1))
    assert task.careful
    task, _ = world.run(task, called(at(8), outputs=1))
    assert not task.careful
    assert world.log[-1].careful_until == ()
    assert task.pipelined


def test_careful_mode_outlives_the_process() -> None:
    """Both a snapshot and an attempt of it carry where it ends."""
    world = World(SPEC, log=[attempt(SPEC, 6, careful_until=at(8))])
    task, _ = world.begin()
    assert task.careful

    world = World(SPEC, log=[snapshot(SPEC, (6,), (7,), 1, careful_until=at(8))])
    task, _ = world.begin()
    assert task.careful
    assert task.due is not None
    assert (task.due.ends, task.due.starts) == (at(7), 1)


def test_a_single_step_that_kills_is_not_split_but_counted_on() -> None:
    """One step is careful enough already: its ranges stay the same, so the deaths on them add up."""
    world = World(HANDLED, log=[snapshot(SPEC, (5,), (6,), 1, starts=1)])
    task, _ = world.begin()

    assert task.due is not None
    assert (task.due.ends, task.due.starts) == (at(6), 2)
    assert task.careful_until == at(6)
    assert not task.quarantined


def test_careful_mode_of_alts_takes_the_recorded_choice_step_by_step() -> None:
    """I7: the order that was chosen before the first death, through further deaths, until it is used up."""
    choice: Choice = (("right", 2), ("left", 2))
    world = World(ALTS, log=[snapshot(ALTS, (5, 6), (7, 8), 4, starts=1, choice=choice)])
    task, _ = world.begin()
    assert task.careful
    assert task.choice == choice
    one, two, three, end = (at(*places, spec=ALTS) for places in ((5, 7), (5, 8), (6, 8), (7, 8)))

    task, effect = world.run(task, on.Polled(one, 1, (("right", 1),)))
    assert effect == do.Call(one, 1, (("right", 1),), 0)
    assert world.log[-1].choice == choice  # all that remains: a death here forgets nothing
    task, _ = world.run(task, called(one, nils=1))
    assert world.log[-1].choice == (("right", 1), ("left", 2))

    task, _ = world.run(task, on.Polled(two, 1, (("right", 1),)))
    world = again(world, "second")  # killed in the second step
    task, _ = world.begin()
    assert task.due is not None
    assert (task.due.ends, task.due.choice, task.due.starts) == (two, (("right", 1),), 1)
    task, effect = world.run(task, on.Polled(two, 1, (("right", 1),)))
    assert effect == do.Call(two, 1, (("right", 1),), 1)
    task, _ = world.run(task, called(two, nils=1))
    assert task.choice == (("left", 2),)

    for place in (three, end):
        task, _ = world.run(task, on.Polled(place, 1, (("left", 1),)))
        task, _ = world.run(task, called(place, nils=1))
    assert not task.careful
    assert task.choice == world.log[-1].choice == ()


# Q3: quarantine


def test_a_message_that_kills_three_times_alone_is_quarantined() -> None:
    """Q3: starts > 2 on a single step; user code and codecs do not see it again, and no new snapshot is written."""
    world = World(HANDLED, log=[snapshot(HANDLED, (5,), (6,), 1, starts=2)])
    task, _ = world.begin()
    world.names()
    task, effect = world.run(task, on.Polled(at(6), 1))

    assert effect == do.Quarantine(at(6), (), 3)
    assert world.names() == ["Quarantine"]
    task, effect = world.run(task, called(at(6), errors=1))
    assert effect == do.Await()
    assert isinstance(world.log[-1], Attempt)
    assert world.log[-1].batch == Totals(1, 0, 1, 0).settled


@pytest.mark.parametrize(("deaths", "after"), [(2, 2), (1, 1), (9, None), (0, 0)])
def test_one_death_less_is_not_enough(deaths: int, after: int | None) -> None:
    """I11: after the stated number of deaths on that very message, and `None` means never."""
    spec = replace(HANDLED, quarantine_after=after)
    world = World(spec, log=[snapshot(spec, (5,), (6,), 1, starts=deaths, left=True)])
    task, _ = world.begin()
    _, effect = world.run(task, on.Polled(at(6), 1))

    assert isinstance(effect, do.Call)


def test_several_steps_are_never_quarantined() -> None:
    """However often they died: they are taken apart first."""
    world = World(HANDLED, log=[snapshot(HANDLED, (5,), (8,), 3, starts=9)])
    task, _ = world.begin()
    _, effect = world.run(task, on.Polled(at(6), 1))

    assert effect == do.Call(at(6), 1, (), 0)


def test_without_an_errors_topic_the_task_stops_and_names_the_message() -> None:
    """Q3: skipping it would be losing it."""
    world = World(SPEC, log=[snapshot(SPEC, (5,), (6,), 1, starts=2)])
    _, effect = world.begin()

    assert isinstance(effect, do.Stop)
    assert "alpha/1 at 5 killed its process at least 3 times" in effect.halt.text
    assert "errors topic" in effect.halt.remedy
    assert world.names() == [*RECOVERY, "Stop"]


def test_a_whole_crash_loop_ends_with_one_error_and_all_others_delivered() -> None:
    """
    Three messages, the second kills: 2 deaths of the batch; 1 behind the first message, where no snapshot is due, so
    that it is not counted; 3 of the message alone. Then all goes on.
    """
    world, deaths = World(HANDLED), 0
    delivered: list[int] = []
    for run in range(20):
        world = again(world, f"run{run}")
        task, effect = world.begin()
        died = False
        while task.positions[0].offset < 3 and not died:
            begin = task.positions[0].offset
            end = task.due.ends[0].offset if task.due else begin + 1 if task.careful else 3
            if task.snapshot_due:
                task, effect = world.run(task, on.Polled(at(end), end - begin))
            if isinstance(effect, do.Quarantine):
                task, effect = world.run(task, called(at(end), errors=1))
            elif begin <= 1 < end:
                deaths, died = deaths + 1, True
            else:
                delivered += range(begin, end)
                task, effect = world.run(task, called(at(end), outputs=end - begin))
        if not died:
            break

    assert deaths == 6
    assert delivered == [0, 2]
    assert world.log[-1].totals == Totals(3, 2, 1, 0, 2, 3)


# P5 to P8


def test_the_record_must_land_where_no_other_program_wrote() -> None:
    """P6a: at R3's high watermark, later at the end of the previous transaction (record and marker)."""
    world = World(SPEC, log=[attempt(SPEC, 5)], high=30)
    task, _ = world.begin()
    assert task.expected == 30
    task, _ = deliver(world, task, at(9), 4)
    assert task.expected == 34
    world.names()
    world.answers = {do.Flush: [on.Flushed(5, 5, 36)]}
    task, effect = world.run(task, called(at(12), outputs=3))

    assert effect == do.Await()
    assert world.names() == ["Begin", "Produce", "SendOffsets", "Flush", "Discard", *RECOVERY, "AssignReader", "Await"]
    assert task.positions == at(9)
    assert task.rounds == 1


def test_record_one_below_its_place_is_committed_with_the_transaction_before_it() -> None:
    """P6b: only a marker of this session's last transaction can be missing; an abort would take that one back."""
    world = World(SPEC, log=[attempt(SPEC, 5)], high=30)
    task, _ = world.begin()
    task, _ = deliver(world, task, at(9), 4)
    assert task.expected == 34
    world.names()
    world.answers = {do.Flush: [on.Flushed(4, 4, 33)]}
    task, _ = world.run(task, called(at(12), outputs=3))

    assert do.Commit(unmarked=True) in world.effects
    assert world.names() == [*TRANSACTION, "Await"]
    assert task.expected == 35
    assert task.positions == at(12)
    world.answers = {do.Flush: [on.Flushed(4, 4, 34)]}
    world.run(task, called(at(15), outputs=3))
    assert world.names() == [*TRANSACTION, "Await"]


@pytest.mark.parametrize("landed", [32, 35, None])
def test_record_at_any_other_place_is_discarded(landed: int | None) -> None:
    """P6a: two below, a record is missing too; above, another program writes here."""
    world = World(SPEC, log=[attempt(SPEC, 5)], high=30)
    task, _ = world.begin()
    task, _ = deliver(world, task, at(9), 4)
    world.answers = {do.Flush: [on.Flushed(4, 4, landed)]}
    world.names()
    world.run(task, called(at(12), outputs=3))

    assert "Discard" in world.names()


def test_first_record_of_a_session_one_below_its_place_is_discarded() -> None:
    """P6b: R3 may have counted the marker of an abort; a commit would commit what it had taken back."""
    world = World(SPEC, log=[attempt(SPEC, 5)], high=30, answers={do.Flush: [on.Flushed(1, 1, 29)]})
    task, _ = world.begin()
    world.run(task, on.Polled(at(9), 4))

    assert "Discard" in world.names()


def test_session_that_recovers_again_follows_nothing() -> None:
    """P6b: what the session before it has committed says nothing of where R3's answer ends."""
    world = World(SPEC, log=[attempt(SPEC, 5)], high=30)
    task, _ = world.begin()
    task, _ = deliver(world, task, at(9), 4)
    assert task.follows
    world.answers = {do.Begin: [world.failed()]}
    task, _ = world.run(task, called(at(12), outputs=3))

    assert "Discard" in world.names()
    assert not task.follows


def test_a_program_that_goes_on_writing_here_stops_the_task() -> None:
    """P6a and R7: five rounds, then it says so."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    world.answers = {do.Flush: [on.Flushed(1, 1, 99)] * (MAX_ROUNDS + 1)}
    task, _ = world.begin()
    for _ in range(MAX_ROUNDS):
        task, effect = world.run(task, on.Polled(at(9), 4))
        assert effect == do.Await()
    task, effect = world.run(task, on.Polled(at(9), 4))

    assert isinstance(effect, do.Stop)
    assert "landed at 99, not at 10: another writer?" in effect.halt.text


@pytest.mark.parametrize("report", [on.Flushed(4, 5, 10), on.Flushed(6, 5, 10)])
def test_an_uncounted_delivery_report_discards_the_transaction(report: on.Flushed) -> None:
    """P6: the successes must equal the produce calls."""
    world = World(SPEC, log=[attempt(SPEC, 5)], answers={do.Flush: [report]})
    task, _ = world.begin()
    task, effect = world.run(task, on.Polled(at(9), 4))

    assert effect == do.Await()
    assert "Discard" in world.names()
    assert len(world.log) == 1


def test_a_suspect_commit_is_decided_by_what_is_read_afterwards() -> None:
    """P8: it succeeded, yet this session is never used again; here the record is there, so it goes on behind it."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    task, _ = deliver(world, task, at(9), 4)
    landed = replace(attempt(SPEC, 12), sequence=10, writer=ME)
    world.answers = {do.Commit: [on.Committed("it took 11 s")]}
    world.names()
    world.log.append(landed)
    task, _ = world.run(task, called(at(12), outputs=3))

    assert world.names() == [*TRANSACTION, "Discard", *RECOVERY, "AssignReader", "Await"]
    assert task.positions == at(12)
    assert task.first
    assert task.owner is None


@pytest.mark.parametrize("effect", [do.Begin, do.SendOffsets, do.Produce, do.Flush, do.Commit])
def test_any_failure_in_a_transaction_leads_back_to_r1(effect: type[do.Effect]) -> None:
    """P8: whatever it was, with a new session; what was called is void."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    task, _ = deliver(world, task, at(9), 4)
    world.names()
    world.answers = {effect: [world.failed()]}
    task, after = world.run(task, called(at(12), outputs=3))

    assert after == do.Await()
    assert world.names()[-8:] == ["Discard", *RECOVERY, "AssignReader", "Await"]
    assert task.positions == at(9)
    assert task.rounds == 1
    assert task.pending is None


def test_cause_and_remedy_are_two_sentences() -> None:
    """Whether the user's text ends with a full stop or not."""
    assert str(on.Halt("unhandled", "it fits.", "fix it")) == "it fits. Remedy: fix it"
    assert str(on.Halt("unhandled", "it fits", "fix it")) == "it fits. Remedy: fix it"


# R7


@pytest.mark.parametrize("effect", [do.Init, do.FetchOffsets, do.FetchWatermark, do.ReadNewest, do.FetchInputs])
def test_recovery_goes_round_five_times_and_then_refuses(effect: type[do.Effect]) -> None:
    """R7: with back-off that doubles, the first round at once."""
    world = World(SPEC, log=[attempt(SPEC, 5)], answers={})
    world.answers[effect] = [world.failed("no answer")] * 10
    task, after = world.begin()

    assert isinstance(after, do.Stop)
    assert "5 attempts failed" in after.halt.text
    assert "`cues-kafka plan MODULE:GRAPH --apply`" in after.halt.remedy
    assert "no answer" in after.halt.text
    assert [e.delay_s for e in world.effects if isinstance(e, do.Discard)] == [0.0, 0.2, 0.4, 0.8, 1.6]
    assert task.state is Doing.STOPPED


def test_an_attempt_ends_the_count_of_rounds_and_a_snapshot_does_not() -> None:
    """R7 counts rounds without progress: what fails behind each snapshot would go round without end."""
    world = World(SPEC, log=[attempt(SPEC, 5)], answers={})
    world.answers[do.FetchOffsets] = [world.failed()]
    task, _ = world.begin()
    assert task.rounds == 1
    task, _ = world.run(task, on.Polled(at(9), 4))
    assert task.rounds == 1
    task, _ = world.run(task, called(at(9), outputs=4))
    assert task.rounds == 0


@pytest.mark.parametrize(("pause_s", "stops"), [(1.0, True), (FENCED_WITHIN_S + 1, False)])
def test_fenced_twice_within_a_minute_by_another_program_stops_the_task(pause_s: float, stops: bool) -> None:
    """R7: two applications that fence each other without end would deliver nothing; the record shows whose."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    task, effect = world.run(task, world.failed("fenced", fenced=True))
    assert effect == do.Await()
    world.now_s += pause_s
    world.log.append(replace(attempt(SPEC, 6), sequence=8))
    task, effect = world.run(task, world.failed("fenced", fenced=True))

    if not stops:
        assert effect == do.Await()
        return
    assert isinstance(effect, do.Stop)
    assert f"fenced twice by {BEFORE.name!r} (native, {BEFORE.incarnation})" in effect.halt.text


def test_fenced_twice_by_itself_goes_on() -> None:
    """The newest record is this run's own: no other program works here, a coordinator moved twice."""
    world = World(SPEC, log=[attempt(SPEC, 5, writer=ME)])
    task, _ = world.begin()
    task, _ = world.run(task, world.failed(fenced=True))
    task, effect = world.run(task, world.failed(fenced=True))

    assert effect == do.Await()
    assert task.fenced_twice


# P4: how batches end


def test_an_unhandled_exception_commits_the_steps_before_it_and_stops() -> None:
    """Nothing that was delivered is delivered again after the restart (docs/errors.md)."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    task, _ = world.run(task, on.Polled(at(9), 4))
    halt = on.Halt("unhandled", "boom", "fix it")
    task, effect = world.run(task, called(at(7), outputs=2, halt=halt))

    assert effect == do.Stop(halt)
    assert task.state is Doing.STOPPED
    assert world.log[-1].positions == at(7)


def test_an_exception_at_the_first_step_stops_in_order() -> None:
    """Q1: it is no death, so the snapshot is left."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    task, _ = world.run(task, on.Polled(at(9), 4))
    halt = on.Halt("unhandled", "boom")
    _, effect = world.run(task, called((), halt=halt))

    assert effect == do.Stop(halt)
    newest = world.log[-1]
    assert isinstance(newest, Snapshot)
    assert newest.left


def test_an_exception_without_a_snapshot_writes_nothing() -> None:
    """The newest record is an attempt: all is said."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    task, _ = deliver(world, task, at(9), 4)
    world.names()
    _, effect = world.run(task, called((), halt=on.Halt("interrupt", "enough")))

    assert isinstance(effect, do.Stop)
    assert world.names() == ["Stop"]


def test_a_retry_waits_in_ready_and_calls_again_under_the_same_snapshot() -> None:
    """Outside of any transaction; within one start no second snapshot is due for the same ranges."""
    world = World(SPEC, log=[attempt(SPEC, 5)])
    task, _ = world.begin()
    task, _ = world.run(task, on.Polled(at(9), 4))
    world.names()
    task, effect = world.run(task, called((), halt=on.Halt("retry", "busy")))
    assert effect == do.Await()
    assert task.snapshot_due
    task, effect = world.run(task, on.Polled(at(9), 4))
    assert effect == do.Call(at(9), 4, (), 0)
    assert world.names() == ["Await", "Call"]
    task, effect = world.run(task, called(at(7), outputs=2, halt=on.Halt("retry", "busy")))
    assert effect == do.Await()
    assert task.positions == at(7)
    assert task.halt is None


@pytest.mark.parametrize(
    ("choice", "steps", "taken", "rest"),
    [
        ((), 3, (), ()),
        ((("a", 3),), 0, (), (("a", 3),)),
        ((("a", 3),), 2, (("a", 2),), (("a", 1),)),
        ((("a", 3),), 3, (("a", 3),), ()),
        ((("a", 3), ("b", 1), ("a", 2)), 4, (("a", 3), ("b", 1)), (("a", 2),)),
        ((("a", 3), ("b", 1), ("a", 2)), 5, (("a", 3), ("b", 1), ("a", 1)), (("a", 1),)),
        ((("a", 3), ("b", 1)), 9, (("a", 3), ("b", 1)), ()),
    ],
)
def test_a_choice_is_cut_into_what_is_taken_and_what_remains(
    choice: Choice, steps: int, taken: Choice, rest: Choice
) -> None:
    """Together they are the whole."""
    assert take(choice, steps) == taken
    assert drop(choice, steps) == rest


def test_a_released_task_hears_nothing() -> None:
    """Its state has no way out, and nothing of it changes."""
    task = Task(SPEC, state=Doing.RELEASED)

    for event in (on.Assigned(), on.Revoked(), on.Lost(), on.Done(), on.Polled((), 0)):
        with pytest.raises(IllegalEvent, match="p/1 is released"):
            handle(task, event)


def test_a_step_alone_in_its_process_is_put_off_under_no_snapshot() -> None:
    """Q2a: deaths of others during the pause must not count on it; its own come with the next snapshot."""
    spec = make_spec(errors=True)
    world = World(spec, [snapshot(spec, (5,), (6,), 1)])
    task, _ = world.run(Task(spec), on.Assigned())
    assert task.alone
    task, _ = world.run(task, on.Polled(at(6), 1))
    assert not task.settled
    task, effect = world.run(task, called((), halt=on.Halt("retry", "busy")))

    assert isinstance(task.record, Snapshot)
    assert task.record.left
    assert (task.settled, task.alone, effect) == (True, True, do.Await())
    task, effect = world.run(task, on.Polled(at(6), 1))
    assert isinstance(task.record, Snapshot)
    assert (task.record.left, task.record.starts, task.settled) == (False, 1, False)
    assert isinstance(effect, do.Call)


@pytest.mark.parametrize(("after_s", "rounds"), [(59.0, 6), (61.0, 1)])
def test_rounds_are_forgotten_after_a_minute_of_work(after_s: float, rounds: int) -> None:
    """R7: a task that fails once a day does not stop on the sixth day."""
    spec = make_spec()
    task = Task(spec, state=Doing.READY, record=attempt(spec, 5), rounds=5, recovered_at_s=100.0)
    after, _ = handle(task, on.Failed("reading: it broke", 100.0 + after_s))

    assert (after.state, after.rounds) == ((Doing.STOPPED, 5) if rounds == 6 else (Doing.DISCARDING, 1))


@pytest.mark.parametrize("compacted", [True, False])
def test_fewer_steps_are_due_only_where_compaction_may_take_messages(compacted: bool) -> None:
    """A retry never goes on without a message of a topic that is not declared as compacted."""
    spec = make_spec(compacted=compacted)
    world = World(spec, [snapshot(spec, (5,), (8,), 3)])
    task, _ = world.run(Task(spec), on.Assigned())
    if not compacted:
        with pytest.raises(IllegalEvent, match="3 steps"):
            world.run(task, on.Polled(at(8), 2))
        return
    task, effect = world.run(task, on.Polled(at(8), 2))

    assert effect == do.Call(at(8), 2, (), 1)


@pytest.mark.parametrize("compacted", [True, False])
@pytest.mark.parametrize("until", [8, 7])
def test_a_due_range_is_moved_over_only_where_compaction_may_have_taken_all_of_it(compacted: bool, until: int) -> None:
    """Of a topic that is not declared as compacted no message is ever passed over, and never a part of a range."""
    spec = make_spec(compacted=compacted)
    world = World(spec, [snapshot(spec, (5,), (8,), 3)])
    task, _ = world.run(Task(spec), on.Assigned())
    if not compacted or until != 8:
        with pytest.raises(IllegalEvent, match="3 steps; idle at"):
            world.run(task, on.Idle(at(until)))
        return
    task, effect = world.run(task, on.Idle(at(until)))

    assert isinstance(task.record, Attempt)
    assert (task.positions, task.record.batch, task.due, effect) == (at(8), Totals(), None, do.Await())


def test_a_step_that_compaction_has_left_of_several_has_no_deaths_of_its_own() -> None:
    """Q2: a death on several steps is not counted on one of them; careful mode begins at none, too."""
    spec = make_spec(compacted=True)
    world = World(spec, [snapshot(spec, (5,), (8,), 3)])
    task, _ = world.run(Task(spec), on.Assigned())
    task, effect = world.run(task, on.Polled(at(8), 1))

    assert effect == do.Call(at(8), 1, (), 0)
    assert isinstance(task.record, Snapshot)
    assert task.record.starts == 0


def test_a_task_that_gives_up_says_what_helps_against_its_failure() -> None:
    """R7: where the shell knows the remedy, the halt has it in the place of the general one."""
    spec = make_spec()
    task = Task(spec, state=Doing.READY, record=attempt(spec, 5), rounds=5, recovered_at_s=100.0)
    after, _ = handle(task, on.Failed("it is gone", 101.0, remedy="accept it"))

    assert after.halt is not None
    assert after.halt.remedy == "accept it"


def test_a_retry_under_another_order_of_inputs_goes_on_in_that_order() -> None:
    """O7: the snapshot of the earlier declaration, its retry and what follows it all have the declared order."""
    turned = make_spec(TWO[::-1], pairing="alts")
    before = snapshot(make_spec(TWO, pairing="alts"), (5, 6), (7, 8), 4, choice=(("left", 2), ("right", 2)))
    world = World(turned, log=[before], offsets={"left": 5, "right": 6})
    task, _ = world.begin()

    assert task.positions == at(6, 5, spec=turned)
    task, effect = world.run(task, on.Polled(at(8, 7, spec=turned), 4, before.choice))
    assert effect == do.Call(at(8, 7, spec=turned), 4, before.choice, 1)
    world.run(task, called(at(8, 7, spec=turned), outputs=4))
    assert [record.positions for record in world.log[1:]] == [at(6, 5, spec=turned), at(8, 7, spec=turned)]


def test_a_rebalance_that_meets_a_recovery_is_no_death() -> None:
    """P5 was refused under the old generation; revoked on its way back, the task was silent: a death was counted."""
    spec = make_spec()
    mine = snapshot(spec, (0,), (2,), 2, writer=ME)
    task = Task(spec, state=Doing.READY, record=mine, first=False, inputs=tuple(facts(spec).items()))
    task, _ = handle(task, on.Failed("ILLEGAL_GENERATION", 1.0))
    assert task.state is Doing.DISCARDING
    task, effect = handle(task, on.Revoked())
    for event in (
        on.Done(), on.Initialised(), on.OffsetsFetched({"in": None}), on.WatermarkFetched(10), on.NewestRead(mine),
        on.InputsFetched(facts(spec), 1.0), on.Done(),
    ):  # fmt: skip
        task, effect = handle(task, event)
    assert isinstance(effect, do.Produce)
    assert effect.record.left
    assert effect.record.starts == mine.starts
    for answer in (on.Done(), on.Done(), on.Flushed(1, 1, 10), on.Committed()):
        task, effect = handle(task, answer)
    assert isinstance(effect, do.Release)


def test_what_was_fenced_twice_long_ago_is_forgotten_with_the_next_delivery() -> None:
    """R7: a coordinator had moved twice; a week later, one start of another worker stopped the task for good."""
    spec = make_spec()
    task = Task(spec, state=Doing.DISCARDING, rounds=2, fenced_at_s=1.0, fenced_twice=True)
    for event in (
        on.Done(), on.Initialised(), on.OffsetsFetched({"in": None}), on.WatermarkFetched(10),
        on.NewestRead(attempt(spec, 5, writer=ME)), on.InputsFetched(facts(spec), 2.0), on.Done(), on.Idle(at(9)),
        on.Done(), on.Done(), on.Done(), on.Flushed(1, 1, 10),
    ):  # fmt: skip
        task, _ = handle(task, event)
    assert task.fenced_twice
    task, _ = handle(task, on.Committed())
    assert not task.fenced_twice
