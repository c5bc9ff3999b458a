"""The rules of a session that many tasks share (J1 to J7); the explorer runs them in whole worlds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from cues_kafka.core.task import Due, Task
from cues_kafka.workers.joint.rounds import (
    BeforeLeaving,
    RecoveryInit,
    Round,
    RoundStage,
    SessionState,
    Tasks,
    commits_by_itself,
    rounds_of,
)
from tests.unit.core.world import at, make_spec

PLAIN = Task(make_spec())
DUE_ONCE = Due(at(1), 1, (), 1)

BY_THEMSELVES = {
    "careful": replace(PLAIN, careful_timers=1),
    "alone": replace(PLAIN, due=DUE_ONCE),
    "in quarantine": replace(PLAIN, spec=make_spec(quarantine_after=2), due=replace(DUE_ONCE, starts=3)),
    "with a target": Task(make_spec(target=True)),
    "behind two failures": replace(PLAIN, rounds=2),
}

LIVE = SessionState(id=3, live=True)
"""A session with the id of task 3."""


def in_round(session: SessionState, tasks: Tasks, stage: RoundStage, asked: Iterable[int] = ()) -> SessionState:
    """The session in a round of these tasks that has come to this stage; `asked` ask for it."""
    session = session.begins(tasks)
    while session.round and session.round.stage is not stage:
        for task in tasks:
            session = session.asks(task)
        session = session.answered()
    for task in asked:
        session = session.asks(task)
    return session


@pytest.mark.parametrize("task", BY_THEMSELVES.values(), ids=[*BY_THEMSELVES])
def test_a_task_that_may_fail_often_or_holds_locks_commits_by_itself(task: Task) -> None:
    """J6."""
    assert commits_by_itself(task)


def test_other_tasks_commit_together() -> None:
    """J6: one failure is no reason yet."""
    assert not commits_by_itself(PLAIN)
    assert not commits_by_itself(replace(PLAIN, rounds=1))


def test_the_round_of_who_has_waited_longest_comes_first() -> None:
    """J3, J6."""
    single = BY_THEMSELVES["careful"]

    assert rounds_of({}) == ()
    assert rounds_of({5: PLAIN, 2: single, 4: PLAIN, 1: single}) == ((5, 4), (2,), (1,))
    assert rounds_of({2: single, 5: PLAIN, 4: PLAIN}) == ((2,), (5, 4))


def test_the_session_waits_at_each_stage_for_all_tasks_of_the_round() -> None:
    """J3: offsets of all in one request, then all records, then one commit."""
    session = LIVE.begins((5, 4))
    stages = []
    while True:
        assert session.round
        session = session.asks(4)
        assert session.round
        assert not session.round.due
        session = session.asks(5)
        assert session.round
        assert session.round.due
        stages.append(session.round.stage)
        if session.round.stage is RoundStage.COMMIT:
            break
        session = session.answered()

    assert stages == [RoundStage.OFFSETS, RoundStage.RECORDS, RoundStage.COMMIT]
    assert session.concluded() == SessionState(3, live=True, last=(5, 4), committed=(4, 5))


def test_a_session_keeps_its_id_as_long_as_the_process_has_the_task() -> None:
    """J1: also when it is discarded."""
    assert SessionState().ids((4, 7)) == (4, 7)
    assert SessionState().takes(4).failed()[0].ids((7,)) == (4,)
    assert LIVE.left(4) == (LIVE, ())
    assert LIVE.left(3) == (SessionState(), ())


@pytest.mark.parametrize(
    ("session", "task", "ending"),
    [
        (SessionState(), 4, RecoveryInit.SESSION),
        (SessionState(3), 4, RecoveryInit.SESSION),
        (LIVE, 4, RecoveryInit.THROWAWAY),
        (LIVE, 3, RecoveryInit.SESSION),
        (LIVE.begins((4,)), 3, RecoveryInit.LATER),
        (LIVE.begins((4,)), 5, RecoveryInit.THROWAWAY),
    ],
)
def test_a_recovery_initialises_the_session_or_the_id_of_its_task(
    session: SessionState, task: int, ending: RecoveryInit
) -> None:
    """J2."""
    assert session.ends(task) is ending


@pytest.mark.parametrize("stage", RoundStage)
def test_any_failure_of_a_round_is_that_of_all_of_its_tasks(stage: RoundStage) -> None:
    """J4: and the session is discarded, but keeps its id."""
    session = in_round(replace(LIVE, last=(7,), committed=(7,)), (5, 3), stage, (5, 3))

    assert session.failed() == (SessionState(3, last=(7,)), (5, 3))
    assert session.discards(5) == (SessionState(3, last=(7,)), (3,))


def test_no_task_recovers_behind_a_suspect_commit() -> None:
    """J4: only the session is initialised again."""
    session = in_round(replace(LIVE, committed=(4, 7)), (5, 3), RoundStage.COMMIT, (5, 3))

    assert session.concluded(suspect=True) == SessionState(3, last=(5, 3))


def test_only_a_commit_of_the_same_session_stands_for_a_missing_marker() -> None:
    """J4, P6b."""
    session = in_round(LIVE, (5, 3), RoundStage.COMMIT, (5, 3)).concluded()

    assert session.knows_marker(5)
    assert not session.knows_marker(4)
    assert not session.initialised().knows_marker(5)
    assert not session.failed()[0].knows_marker(5)


def test_a_session_that_was_discarded_is_initialised_again_without_being_asked() -> None:
    """J4: the tasks of its last round may be gone, and wait elsewhere for its end."""
    session = in_round(LIVE, (5,), RoundStage.OFFSETS, (5,))

    assert not SessionState().renews
    assert not session.renews
    assert session.left(5)[0].renews
    assert not session.left(5)[0].initialised().renews
    assert session.answered().asks(5).answered().asks(5).concluded(suspect=True).renews


def test_a_task_that_is_gone_before_its_offsets_are_sent_is_not_in_the_round() -> None:
    """J3: the others go on."""
    session = in_round(LIVE, (5, 4), RoundStage.OFFSETS, (4,))

    assert session.leaves(5) is BeforeLeaving.NOTHING
    assert session.left(5) == (replace(LIVE, round=Round((4,), asked=(4,))), ())
    assert LIVE.begins((4,)).left(4) == (LIVE, ())


def test_a_task_whose_offsets_are_sent_leaves_behind_the_round() -> None:
    """J5: and so does the one whose id the session has, also if it is not in the round."""
    session = in_round(LIVE, (5, 4), RoundStage.RECORDS)

    assert session.leaves(5) is BeforeLeaving.ROUND
    assert session.leaves(3) is BeforeLeaving.ROUND
    assert session.leaves(7) is BeforeLeaving.NOTHING
    assert session.left(5) == (SessionState(3), (4,))
    assert session.left(3) == (SessionState(), (5, 4))


def test_an_id_is_initialised_once_more_before_it_is_given_up() -> None:
    """J5: its answer says that all markers are written; else the tasks of the last transaction recover."""
    session = in_round(LIVE, (5, 3), RoundStage.COMMIT, (5, 3)).concluded()

    assert LIVE.leaves(3) is BeforeLeaving.NOTHING
    assert session.leaves(5) is BeforeLeaving.NOTHING
    assert session.leaves(3) is BeforeLeaving.SESSION
    assert session.left(3) == (SessionState(), (5,))
    assert session.initialised().leaves(3) is BeforeLeaving.NOTHING
    assert session.initialised().left(3) == (SessionState(), ())


def test_a_task_that_stops_leaves_the_others_alone() -> None:
    """J7: it is in no round, and its id stays."""
    session = in_round(LIVE, (5, 4), RoundStage.RECORDS)

    assert session.discards(3) == (session, ())
