"""The last hour of each task, in memory: what its charts show."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cues_kafka.operate.look.seen import GraphStatus, SeenTask
from cues_kafka.ui.moves import Moves, TaskMoved

KEPT_S: Final = 3_600.0
"""How long a point is kept."""

STEP_S: Final = 10.0
"""How far points are apart. So 500 tasks have 180,000 points at most."""

MARKED: Final = {"recovering", "stopped", "not heard of", "no worker", "left", "never started", "paused"}
"""States whose beginning is a mark on the charts."""

MARKS: Final = 200
"""Marks that are kept of a task."""


class Point(NamedTuple):
    """
    A task at one moment; None: not known.

    Attributes:
        at_s: when.
        rate, lag, waiting_s, errors: see `SeenTask`.
        delay_s: see `delay_of`.
    """

    at_s: float
    rate: float | None
    lag: int | None
    waiting_s: float | None
    errors: int
    delay_s: float | None


class TaskMark(NamedTuple):
    """Something that happened to a task."""

    at_s: float
    what: str


@dataclass(slots=True)
class _TaskPast:
    points: deque[Point] = field(default_factory=deque)
    marks: deque[TaskMark | TaskMoved] = field(default_factory=lambda: deque(maxlen=MARKS))
    owner: str = ""
    state: str = ""
    failures: int | None = None


class LastHour:
    """Keeps what looks have seen. One thread calls `take`; others may call `of`."""

    def __init__(self) -> None:
        self._tasks: dict[str, _TaskPast] = {}
        self._moves = Moves()

    def take(self, seen: GraphStatus, left: Collection[str] = ()) -> None:
        """
        Keep a look. One without an answer of the cluster leaves a gap.

        Args:
            seen: the look.
            left: the processes that have told that they leave.
        """
        if seen.unreachable:
            return
        for one in seen.tasks:
            past = self._tasks.setdefault(one.task, _TaskPast())
            self._mark(past, one, seen.at_s)
            if not past.points or seen.at_s - past.points[-1].at_s >= STEP_S:
                past.points.append(Point(seen.at_s, one.rate, one.lag, one.waiting_s, one.errors, delay_of(one)))
            while past.points and seen.at_s - past.points[0].at_s > KEPT_S:
                past.points.popleft()
            while past.marks and seen.at_s - past.marks[0].at_s > KEPT_S:
                past.marks.popleft()
        self._moves.look(seen.tasks, left, seen.at_s)
        gone = self._tasks.keys() - {one.task for one in seen.tasks}
        for task in gone:
            self._tasks.pop(task, None)

    def of(self, task: str) -> dict[str, Any]:
        """The points and the marks of a task; empty lists: it is not known."""
        past = self._tasks.get(task) or _TaskPast()
        marks = [TaskMark(one.at_s, one.text) if isinstance(one, TaskMoved) else one for one in past.marks.copy()]
        return {"task": task, "points": list(past.points.copy()), "marks": marks}

    def _mark(self, past: _TaskPast, one: SeenTask, at_s: float) -> None:
        if past.state and one.owner and past.owner and one.owner != past.owner:
            past.marks.append(self._moves.begin(at_s, past.owner, one))
        if past.state and one.state != past.state and one.state in MARKED:
            past.marks.append(TaskMark(at_s, one.state))
        if one.failures and past.failures is not None and one.owner == past.owner and one.failures > past.failures:
            past.marks.append(TaskMark(at_s, "recovered from a failure"))
        past.failures = one.failures
        past.owner, past.state = one.owner or past.owner, one.state


def delay_of(task: SeenTask) -> float | None:
    """
    About how long a message that arrives now waits until it is delivered, in seconds: the lag divided by the rate.

    A status has no durations of calls and commits. They come on top; the metrics of a worker have them.

    Returns:
        None: messages wait and none is delivered, or it is not known.
    """
    if task.lag is None or (task.lag and not task.rate):
        return None
    return task.lag / task.rate if task.lag and task.rate else 0.0
