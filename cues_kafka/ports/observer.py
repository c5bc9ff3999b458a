"""What is notified of what tasks and graphs do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable


class BatchReport(NamedTuple):
    """What an `Observer` hears of a committed batch.

    Attributes:
        deliveries, outputs, errors, messages: counts of this batch, see `core.records.Totals`.
        seconds: from the first call of the function to the commit.
        deaths: of processes on exactly these steps, before.
        notes: `at`, `hash`, `kind`, `error` and `where` of the first steps that became error messages.
        dropped: steps of an earlier batch that were taken and never settled (W4); there may be no others.
    """

    deliveries: int
    outputs: int
    errors: int
    messages: int
    seconds: float
    deaths: int
    notes: Sequence[Mapping[str, Any]]
    dropped: int = 0


class Observer(Protocol):
    """
    Told what tasks commit, fail and recover: once for a batch at most, never for each message.

    Called on the thread where it happens, so a method must neither wait nor raise. `task` is `processor/partition`.
    """

    def committed(self, task: str, batch: BatchReport) -> None:
        """A batch is committed. After a commit of unknown outcome, the task's record has shown it (R4)."""
        ...

    def retried(self, task: str, about: Mapping[str, Any], attempt: int, pause_s: float) -> None:
        """A step raised an exception of `retry=`; the function is called again after a pause."""
        ...

    def failed(self, task: str, why: str, round_: int) -> None:
        """Something failed; the task recovers (R7)."""
        ...

    def stopped(self, task: str, why: str, remedy: str, about: Mapping[str, Any]) -> None:
        """The task stopped; `about` has `at` and `hash` of the message, if it is about one."""
        ...

    def recovered(self, task: str, after_s: float) -> None:
        """The task delivers again; `after_s` is the time since it failed or stopped."""
        ...


class PartFacts(NamedTuple):
    """
    What a `RunObserver` hears of a processor or feed.

    Attributes:
        name, kind: its name in the graph, and pipe, fork and so on.
        about: the first paragraph of its function's docstring; empty: it has none.
        reads: the topics of its inputs, tables and tailers.
        writes: the topics of its outputs and appenders, and its errors topic.
        errors: the errors topic; None: it has none.
    """

    name: str
    kind: str
    about: str
    reads: Sequence[str]
    writes: Sequence[str]
    errors: str | None


class RunFacts(NamedTuple):
    """
    What a `RunObserver` hears of a graph that runs in this process.

    Attributes:
        graph: its name.
        cluster: the address of the first broker, HOST:PORT; empty: the cluster is in memory.
        runtime: where the processors run: native, memory or spark.
        parts: the processors and feeds that run here.
        fields: for each topic whose codec tells them, the names of the values' fields.
    """

    graph: str
    cluster: str
    runtime: str
    parts: Sequence[PartFacts]
    fields: Mapping[str, Sequence[str]]


@runtime_checkable
class RunObserver(Observer, Protocol):
    """An `Observer` that is also notified when a graph starts and stops in this process."""

    def began(self, run: RunFacts) -> None:
        """
        The workers are about to start. May wait.

        Raises:
            ConfigError: the observer cannot observe this run; nothing is started.
        """
        ...

    def ended(self, failures: Mapping[str, str], *, abandoned: bool) -> None:
        """
        The workers have ended. May wait, and must not raise.

        Args:
            failures: by processor, why it did not work when it was stopped.
            abandoned: whether transactions under way were dropped, as after an exception in the program.
        """
        ...
