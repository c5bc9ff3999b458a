"""
The rules of a session that many tasks share (J1 to J6), without I/O.

A *round* is one transaction of the session. It begins with the tasks that wait for a transaction at that moment. Each
of them goes on by itself and asks for offsets, for its records and for the commit; the session does each of these once
all tasks of the round have asked for it, in one go:

1. begin, and the offsets of all tasks in one request;
2. the record and the outputs of each task, and the reports of all of them;
3. one commit.

A task is named by its partition. `SessionState` says what a session is at one moment, and each method what it is behind
an event; methods whose result is `Tasks` say which tasks go back to R1. The explorer runs this code
(`tests/proof/sessions`), so a change here is explored by `make proof-sessions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from cues_kafka.core.task import Task

Tasks: TypeAlias = tuple[int, ...]
"""Partitions of tasks of one processor."""

PATIENT_ROUNDS = 1
"""J6: how often a task goes back to R1, without committing an attempt, before it commits by itself."""


class RoundStage(Enum):
    """What a session asks the brokers for next in a round, in this order (J3)."""

    OFFSETS = "offsets"
    RECORDS = "records"
    COMMIT = "commit"


class RecoveryInit(Enum):
    """What is to be initialised, so that the id of a task that recovers has nothing open (J2)."""

    SESSION = "session"
    """The session itself, with its id. If it has none, it takes one first (`SessionState.ids`)."""

    THROWAWAY = "throwaway"
    """The id of the task, by a producer that is closed at once."""

    LATER = "later"
    """The session itself, once the round under way is over."""


class BeforeLeaving(Enum):
    """What comes before a task leaves its session in order (J5)."""

    NOTHING = "nothing"
    ROUND = "round"
    """The end of the round under way."""

    SESSION = "session"
    """One more init of the session: its answer says that the markers of its last transaction are written."""


@dataclass(frozen=True, slots=True)
class Round:
    """
    One transaction of a session.

    Attributes:
        tasks: those in it.
        stage: what the session asks the brokers for next.
        asked: tasks that have asked for it.
    """

    tasks: Tasks
    stage: RoundStage = RoundStage.OFFSETS
    asked: Tasks = ()

    @property
    def due(self) -> bool:
        """Whether the session may do what `stage` says: every task has asked for it."""
        return {*self.asked} == {*self.tasks}

    @property
    def sent(self) -> bool:
        """Whether the request for offsets was handed to the client: from then on a task does not leave alone."""
        return self.stage is not RoundStage.OFFSETS or self.due

    def asks(self, task: int) -> Round:
        """A task has come to where it asks for `stage`."""
        assert task in self.tasks
        assert task not in self.asked
        return replace(self, asked=(*self.asked, task))

    def answered(self) -> Round:
        """The brokers did what `stage` says."""
        assert self.due
        assert self.stage is not RoundStage.COMMIT
        return Round(self.tasks, RoundStage.RECORDS if self.stage is RoundStage.OFFSETS else RoundStage.COMMIT)

    def without(self, task: int) -> Round | None:
        """J3: a task that is revoked before its offsets are sent is not in the round; None: no other task is."""
        others = tuple(one for one in self.tasks if one != task)
        return Round(others, self.stage, tuple(one for one in self.asked if one != task)) if others else None


def commits_by_itself(task: Task) -> bool:
    """
    J6: whether a transaction has this task only.

    One that has gone back to R1 twice fails alone, and so does not use up the rounds (R7) of all others.
    """
    fails = task.rounds > PATIENT_ROUNDS
    return task.careful or task.alone or task.quarantined or task.spec.target or fails


def rounds_of(waiting: Mapping[int, Task]) -> tuple[Tasks, ...]:
    """
    J3, J6: the rounds that tasks form which wait for a transaction. The session begins the first one.

    Args:
        waiting: by partition; who has waited longest comes first.
    """
    single = {task for task, one in waiting.items() if commits_by_itself(one)}
    together = tuple(task for task in waiting if task not in single)
    firsts = {task: (task,) for task in single} | ({together[0]: together} if together else {})
    return tuple(firsts[task] for task in waiting if task in firsts)


@dataclass(frozen=True, slots=True)
class SessionState:
    """
    What a session of many tasks is at one moment.

    Attributes:
        id: the task whose transactional id it has; None: it has none yet.
        live: initialised, and not discarded since.
        round: its transaction under way.
        last: tasks of the last transaction that was committed under the id, whose markers may not be written yet.
        committed: tasks that have committed since the session was initialised.
    """

    id: int | None = None
    live: bool = False
    round: Round | None = None
    last: Tasks = ()
    committed: Tasks = ()

    # Initialising.

    def ids(self, owned: Iterable[int]) -> Tasks:
        """J1: the ids that an init may take: its own, which is kept; else that of any task of the process."""
        return tuple(owned) if self.id is None else (self.id,)

    def takes(self, task: int) -> SessionState:
        """J1: it has the id of this task from now on, also if the init fails: the request may have come through."""
        assert self.id in (None, task)
        return replace(self, id=task)

    def initialised(self) -> SessionState:
        """The init was answered: what the id had open is over, and all markers of it are written."""
        assert self.id is not None
        assert self.round is None
        return SessionState(self.id, live=True)

    @property
    def renews(self) -> bool:
        """
        J4: whether the session was discarded, and is initialised again at once, also if no task asks for it.

        It may have left a transaction open. If the tasks of that go to other processes, only this init ends it.
        """
        return self.id is not None and not self.live

    def ends(self, task: int) -> RecoveryInit:
        """
        J2: what is initialised next for a task that recovers.

        Ask again behind `SESSION`, unless the session has the id of this task: then that was all.
        """
        if self.live and self.id != task:
            return RecoveryInit.THROWAWAY
        return RecoveryInit.LATER if self.round else RecoveryInit.SESSION

    # A round.

    def begins(self, tasks: Tasks) -> SessionState:
        """J3: a round begins with these tasks, one of `rounds_of`."""
        assert self.live
        assert self.round is None
        return replace(self, round=Round(tasks))

    def asks(self, task: int) -> SessionState:
        """A task of the round has come to where it asks for its stage."""
        assert self.round is not None
        return replace(self, round=self.round.asks(task))

    def answered(self) -> SessionState:
        """The brokers took the offsets, or the records: the round goes on."""
        assert self.round is not None
        return replace(self, round=self.round.answered())

    def knows_marker(self, task: int) -> bool:
        """
        J4: whether a record of this task that lands one below its place may be committed (P6b).

        Only the producer that committed before can write the missing marker. Else it is an error like any other.
        """
        return task in self.committed

    def concluded(self, *, suspect: bool = False) -> SessionState:
        """
        The round was committed, and the answer is there.

        J4: behind a suspect commit the session is initialised again, and no task recovers: what it did is known.
        """
        assert self.round is not None
        tasks = self.round.tasks
        if suspect:
            return SessionState(self.id, last=tasks)
        committed = (*self.committed, *(one for one in tasks if one not in self.committed))
        return SessionState(self.id, live=True, last=tasks, committed=tuple(sorted(committed)))

    # Failures, and tasks that leave.

    def failed(self) -> tuple[SessionState, Tasks]:
        """
        J4: any error of the round: refused or late offsets, a missing report, a record elsewhere, no answer.

        Returns:
            The session, which is discarded, and the tasks that go back to R1: all of the round.
        """
        return SessionState(self.id, last=self.last), self.round.tasks if self.round else ()

    def leaves(self, task: int) -> BeforeLeaving:
        """J5: what comes before a task that is revoked leaves in order."""
        if self.round is not None and (task == self.id or (task in self.round.tasks and self.round.sent)):
            return BeforeLeaving.ROUND
        return BeforeLeaving.SESSION if task == self.id and self.last else BeforeLeaving.NOTHING

    def left(self, task: int) -> tuple[SessionState, Tasks]:
        """
        J4, J5: a task is gone, in order or without: it was lost, it has failed, or patience has ended.

        Returns:
            The session, and the other tasks that go back to R1. If the id was that of the task, the session is over.
            Then these are also the tasks of the last transaction, unless the id was initialised once more.
        """
        session, failed = self._without(task)
        if session.id == task:
            failed += tuple(one for one in session.last if one not in failed)
            failed += tuple(one for one in (session.round.tasks if session.round else ()) if one not in failed)
            session = SessionState()
        return session, tuple(one for one in failed if one != task)

    def discards(self, task: int) -> tuple[SessionState, Tasks]:
        """
        J4, J7: a task of this process discards its session, or stops. If it is in the round, that fails for all.

        Returns:
            The session, and the other tasks that go back to R1.
        """
        session, failed = self._without(task)
        return session, tuple(one for one in failed if one != task)

    def _without(self, task: int) -> tuple[SessionState, Tasks]:
        """The round without a task, if it may still go without."""
        if self.round is None or task not in self.round.tasks:
            return self, ()
        return self.failed() if self.round.sent else (replace(self, round=self.round.without(task)), ())
