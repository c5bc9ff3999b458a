"""What `cues-kafka status` and `status(...)` give: a graph, its tasks and their inputs, as values seen from outside."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from cues_kafka.plan.wellness import TaskCondition, Unwell, is_well, verdict
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.status import TaskState

SeenState: TypeAlias = TaskState | Literal["running", "not heard of", "no worker", "not told", "never started"]
"""
The state of a task, seen from outside. Beside those that a process tells:

- ``running``: a worker has it, and has not told its state.
- ``not heard of``: its process has told nothing for three periods.
- ``no worker``: no worker runs the processor.
- ``not told``: it may run; the cluster does not show it, and no status is written. So it is on Spark without status.
- ``never started``: it has no record.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLag:
    """
    One input of a task.

    Attributes:
        topic, partition: which one.
        position: the next offset that the task delivers; None: not known.
        end: the high watermark.
        lag: how many messages are behind the position; of more than `waiting.COUNTED` offsets, and of what is in open
            transactions, how many offsets, with the markers among them. None: not known.
        waiting_s: age of the oldest message that waits, by its timestamp; None: none waits, or it is not known.
        open_s: for how long the oldest open transaction has written to it; readers wait there. None: none is open.
    """

    topic: str
    partition: int
    position: int | None
    end: int
    lag: int | None = None
    waiting_s: float | None = None
    open_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTask:
    """
    A task. Times are seconds since the epoch; 0 means never.

    Attributes:
        processor, partition: which one; the partition is None for a staged processor on Spark, which moves as a whole.
        state: see `SeenState`.
        owner: the process that has it, or had it last.
        runtime: native, memory or spark; empty: not known.
        inputs: where it stands in its inputs; empty for a feed.
        place: how far a feed has read its source.
        lag: messages that wait, over all inputs; None: not known.
        waiting_s: age of the oldest message that waits, in seconds; None: none waits, or it is not known.
        rate: deliveries per second; None: not known.
        deliveries, outputs, errors, nils, dropped: counts since the task began.
        committed_s: the newest commit, by the broker's clock.
        retries, failures: counts since its process has it; None: not told.
        error, error_s: the newest step that became an error message.
        stopped, remedy, stopped_s: why it stands still, what to do, and since when.
        at, hash: the message that it stopped at, and its delivery hash.
        held: why nothing is called, such as an operator's pause.
        silent, silent_s: why the source of a feed does not answer, and for how long; empty: it answers.
        notes: other things that its process told: a call that takes long, a source or a cluster that does not answer,
            another process that runs the task too.
        throttled_s: for how long brokers held back answers to its process in the last minute, because a quota is used
            up; over all clients of the process, so it may be more than 60. 0: not, or it is not told.
        late: messages that came too late for a window or a bound, since its process has it.
        quarantined: messages that killed their process and became error messages, since its process has it.
        told_s: when its process told its state last.
        open_s: for how long its own transaction has been open; None: it is not.
        missing, missing_remedy: why there is no such task, or no record of it although it ran, and what to do; empty:
            there is.
    """

    processor: str
    partition: int | None
    state: SeenState
    owner: str = ""
    runtime: str = ""
    inputs: tuple[InputLag, ...] = ()
    place: str = ""
    lag: int | None = None
    waiting_s: float | None = None
    rate: float | None = None
    deliveries: int = 0
    outputs: int = 0
    errors: int = 0
    nils: int = 0
    dropped: int = 0
    committed_s: float = 0.0
    retries: int | None = None
    failures: int | None = None
    error: str = ""
    error_s: float = 0.0
    stopped: str = ""
    remedy: str = ""
    stopped_s: float = 0.0
    at: str = ""
    hash: str = ""
    held: str = ""
    silent: str = ""
    silent_s: float = 0.0
    notes: tuple[str, ...] = ()
    throttled_s: float = 0.0
    late: int = 0
    quarantined: int = 0
    told_s: float = 0.0
    open_s: float | None = None
    missing: str = ""
    missing_remedy: str = ""

    @property
    def task(self) -> str:
        """`processor/partition`; without a partition the processor."""
        return self.processor if self.partition is None else f"{self.processor}/{self.partition}"

    @property
    def facts(self) -> TaskCondition:
        """What the verdict on the graph needs to know of it."""
        blocked = {TopicPartition(at.topic, at.partition): at.open_s for at in self.inputs if at.open_s is not None}
        why, remedy = (self.stopped, self.remedy) if self.state == "stopped" else (self.missing, self.missing_remedy)
        silent = (self.silent, self.silent_s)
        return TaskCondition(self.task, self.state, why, remedy, blocked, self.late, self.quarantined, *silent)

    @property
    def ok(self) -> bool:
        """Whether a process works on it, or an operator has paused it, and no transaction of others blocks it."""
        return is_well(verdict("", [self.facts]))


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStatus:
    """
    A graph at one moment.

    Attributes:
        graph: its name.
        at_s: when it was looked at, in seconds since the epoch.
        tasks: all tasks, in the order of declaration.
        unseen: what could not be seen, in full sentences.
        unreachable: why the cluster cannot be reached; then there are no tasks. Empty: it answers.
        refusals: why the graph must not run, as its plan says, in full sentences.
    """

    graph: str
    at_s: float
    tasks: tuple[SeenTask, ...] = ()
    unseen: tuple[str, ...] = ()
    unreachable: str = ""
    refusals: tuple[str, ...] = ()

    @property
    def unwell(self) -> tuple[Unwell, ...]:
        """All that is unwell, with remedies; empty: the graph is well."""
        facts = [task.facts for task in self.tasks]
        return verdict(self.graph, facts, refusals=self.refusals, unreachable=self.unreachable)

    @property
    def ok(self) -> bool:
        """Whether the cluster answers, and all is well with every task."""
        return is_well(self.unwell)

    @property
    def lag(self) -> int:
        """Messages that wait, over all tasks, as far as it is known."""
        return sum(task.lag or 0 for task in self.tasks)

    def __getitem__(self, task: str) -> SeenTask:
        """
        One task, such as ``status["check/0"]``.

        Raises:
            KeyError: the graph has no such task.
        """
        return {one.task: one for one in self.tasks}[task]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: all attributes, with `ok` and `task`."""
        plain = asdict(self)
        tasks = [{"task": one.task, "ok": one.ok, **asdict(one)} for one in self.tasks]
        unwell = [one._asdict() for one in self.unwell]
        return {**plain, "ok": self.ok, "lag": self.lag, "tasks": tasks, "unwell": unwell}
