"""What tasks have told observers, added up: counts, the newest commit, the newest error and failure of each task.

Status and metrics both read it, so that they cannot disagree. It hears at most one call for each batch.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, runtime_checkable

from cues_kafka.observe.histogram import NONE, Histogram
from cues_kafka.ports.observer import BatchReport

UNNAMED: Final = "unnamed"
"""The kind of an error that came after the first ones of its batch."""

TEXT_CHARS: Final = 1_000
"""A text is cut here: a status record must stay small."""


@dataclass(frozen=True, slots=True)
class TaskTally:
    """
    What one task has told since it came to this process; every count only grows.

    Attributes:
        batches: committed batches.
        deliveries, outputs, errors, messages, dropped: of all committed batches, see `BatchReport`.
        seconds: from the first call of the function to the commit, over all batches.
        size: bytes of keys and values that were written.
        kinds: errors by kind. The kinds of a batch's first errors are told; those of the rest count as `UNNAMED`.
        batch_s: from the first call of the function to the commit, of each batch with deliveries.
        commit_s: from the end of its last call to the commit.
        retries: calls that were put off because the function raised an exception of `retry=`.
        failures: how often something failed and the task recovered (R7).
        stops: how often the task stopped.
        fenced: how many of the failures were a fence: another process had the task.
        recovery_s: from a failure or stop until the task worked again.
        committed_s: when the newest batch was committed, in seconds since the epoch; 0: none was.
        error: the newest step that became an error message, in words; empty: none did.
        error_s: when its batch was committed, in seconds since the epoch.
        failure: the newest failure; empty: none.
        failure_s: when, in seconds since the epoch.
        stopped_s: since when the task has not worked, in seconds since the epoch; 0: it works.
    """

    batches: int = 0
    deliveries: int = 0
    outputs: int = 0
    errors: int = 0
    messages: int = 0
    dropped: int = 0
    seconds: float = 0.0
    size: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    batch_s: Histogram = NONE
    commit_s: Histogram = NONE
    retries: int = 0
    failures: int = 0
    stops: int = 0
    fenced: int = 0
    recovery_s: Histogram = NONE
    committed_s: float = 0.0
    error: str = ""
    error_s: float = 0.0
    failure: str = ""
    failure_s: float = 0.0
    stopped_s: float = 0.0

    def and_then(self, later: TaskTally) -> TaskTally:
        """What the task has told in a life, and in a later one, as slots on Spark have many."""
        counts = {name: getattr(self, name) + getattr(later, name) for name in _COUNTS}
        durations = {name: getattr(self, name).and_those(getattr(later, name)) for name in _DURATIONS}
        newest = {name: getattr(later if getattr(later, at) else self, name) for name, at in _NEWEST}
        kinds = Counter(self.kinds)
        kinds.update(later.kinds)
        stopped_s = (self.stopped_s or later.stopped_s) if later.stopped_s else 0.0
        return TaskTally(**counts, **durations, **newest, kinds=dict(kinds), stopped_s=stopped_s)


_COUNTS: Final = (
    *("batches", "deliveries", "outputs", "errors", "messages", "dropped", "seconds", "size"),
    *("retries", "failures", "stops", "fenced"),
)
_DURATIONS: Final = ("batch_s", "commit_s", "recovery_s")
_NEWEST: Final = (
    *(("committed_s", "committed_s"), ("error", "error_s"), ("error_s", "error_s")),
    *(("failure", "failure_s"), ("failure_s", "failure_s")),
)
"""What is replaced by what came later, and the time that says whether something came."""


def tally_of(row: Mapping[str, Any]) -> TaskTally:
    """Read a tally from JSON, as `dataclasses.asdict` gives it."""
    durations = {name: Histogram(tuple(row[name][0]), row[name][1]) for name in _DURATIONS}
    return TaskTally(**{**row, **durations})


@runtime_checkable
class CommitMeter(Protocol):
    """An observer that also hears how long commits take and how much they write."""

    def measured(self, task: str, seconds: float, size: int) -> None:
        """
        A batch with calls is committed; `committed` was called for it before.

        Args:
            task: `processor/partition`.
            seconds: from the end of its last call to the commit.
            size: bytes of keys and values that it wrote.
        """
        ...


@runtime_checkable
class FenceMeter(Protocol):
    """An observer that also hears when a task was fenced."""

    def fenced(self, task: str) -> None:
        """
        The brokers refused a request of the task, because another process has it by now; `failed` or `stopped` follows.

        Args:
            task: `processor/partition`.
        """
        ...


class Tally:
    """
    Observes all tasks of a process (see `ports.Observer`).

    Args:
        time: seconds since the epoch.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._lock = threading.Lock()
        self._tasks: dict[str, TaskTally] = {}

    def __getitem__(self, task: str) -> TaskTally:
        """What a task has told; zeros if it has told nothing."""
        return self._tasks.get(task) or TaskTally()

    def committed(self, task: str, batch: BatchReport) -> None:
        """Add a batch."""
        now_s = self._time()
        with self._lock:
            was = self[task]
            found = replace(
                was,
                batches=was.batches + 1,
                deliveries=was.deliveries + batch.deliveries,
                outputs=was.outputs + batch.outputs,
                errors=was.errors + batch.errors,
                messages=was.messages + batch.messages,
                dropped=was.dropped + batch.dropped,
                seconds=was.seconds + batch.seconds,
                batch_s=was.batch_s.plus(batch.seconds) if batch.deliveries else was.batch_s,
                committed_s=now_s,
            )
            if batch.errors:
                found = replace(found, kinds=_added(was.kinds, batch))
            if batch.notes:
                found = replace(found, error=_words(batch.notes[-1]), error_s=now_s)
            self._tasks[task] = found

    def measured(self, task: str, seconds: float, size: int) -> None:
        """Add what a commit took and wrote."""
        with self._lock:
            was = self[task]
            self._tasks[task] = replace(was, size=was.size + size, commit_s=was.commit_s.plus(seconds))

    def retried(self, task: str, about: Mapping[str, Any], attempt: int, pause_s: float) -> None:
        """Count a retry."""
        with self._lock:
            self._tasks[task] = replace(self[task], retries=self[task].retries + 1)

    def failed(self, task: str, why: str, round_: int) -> None:
        """Count a failure, after which the task recovers."""
        now_s = self._time()
        with self._lock:
            was = self[task]
            self._tasks[task] = replace(was, failures=was.failures + 1, failure=why[:TEXT_CHARS], failure_s=now_s)

    def fenced(self, task: str) -> None:
        """Count a fence."""
        with self._lock:
            self._tasks[task] = replace(self[task], fenced=self[task].fenced + 1)

    def stopped(self, task: str, why: str, remedy: str, about: Mapping[str, Any]) -> None:
        """Count a stop. A task that is tried again without success has been stopped since the first time."""
        with self._lock:
            was = self[task]
            self._tasks[task] = replace(was, stops=was.stops + 1, stopped_s=was.stopped_s or self._time())

    def recovered(self, task: str, after_s: float) -> None:
        """Count a recovery: the task works again."""
        with self._lock:
            was = self[task]
            self._tasks[task] = replace(was, stopped_s=0.0, recovery_s=was.recovery_s.plus(after_s))


def _added(kinds: Mapping[str, int], batch: BatchReport) -> Mapping[str, int]:
    found = Counter(kinds)
    found.update(str(note["kind"]) for note in batch.notes)
    if unnamed := batch.errors - len(batch.notes):
        found[UNNAMED] += unnamed
    return dict(found)  # `dataclasses.asdict` makes no copy of a `Counter`


def _words(note: Mapping[str, Any]) -> str:
    at = f"{note['at']}: " if note.get("at") else ""
    return f"{at}{note.get('error') or note.get('kind', '')}"[:TEXT_CHARS]
