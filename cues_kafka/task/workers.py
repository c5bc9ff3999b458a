"""The workers and engines of a running graph, as its handle sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cues_kafka.brokers.options import Options
from cues_kafka.core.events import Halt
from cues_kafka.core.spec import Spec
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.processor import Processor
from cues_kafka.plan.plan import Plan
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.log import TopicPartition
from cues_kafka.task.heart import Loop
from cues_kafka.task.lane import Lane
from cues_kafka.task.status import TaskStatus


@dataclass(frozen=True, slots=True)
class Stopped:
    """A task that stopped, and the exception behind it where this process has it."""

    task: str
    halt: Halt
    cause: BaseException | None = None


class Worker(Protocol):
    """
    One processor at work.

    Attributes:
        name: the processor's.
        clock: time.
        first: the spec of partition 0; the specs of the other tasks differ only in the partition.
        lanes: the tasks that live in this process, by partition.
        failed: why the worker ended although nothing stopped it; None: it works, or was stopped.
    """

    name: str
    clock: Clock
    first: Spec
    lanes: dict[int, Lane]
    failed: BaseException | None

    @property
    def over(self) -> bool:
        """Whether the worker has ended by itself, because it has delivered what was there when it started."""
        return False

    @property
    def loop(self) -> Loop | None:
        """The thread that must not stand still; None: there is none, or it has ended."""
        return None

    @property
    def generation(self) -> int:
        """Negative until the worker has a place among those that run the processor."""
        ...

    @property
    def unreachable_s(self) -> float:
        """How long the cluster has not answered the worker; 0: it answers, or the worker does not ask."""
        return 0.0

    @property
    def positions_in_group(self) -> bool:
        """Whether the group's offsets say how far the inputs are delivered; else only the worker knows."""
        return True

    @property
    def reached(self) -> Mapping[TopicPartition, int]:
        """How far the inputs are delivered, where the group's offsets do not say it."""
        return {}

    @property
    def busy(self) -> bool:
        """Whether the worker has something to do that the inputs do not show."""
        return False

    def start(self) -> None:
        """Begin."""
        ...

    def look(self) -> None:
        """Look again at what the worker would otherwise see a moment later, such as the source of a feed."""
        ...

    def stop(self, *, leave: bool) -> None:
        """Ask the worker to stop; `leave`: for good, else a successor comes at once."""
        ...

    def join(self) -> None:
        """Wait until everything is released."""
        ...

    def status(self) -> Sequence[TaskStatus]:
        """The status of each task, by partition."""
        ...

    def stopped(self) -> Sequence[Stopped]:
        """The tasks that stopped."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """
    One processor that an engine is asked to run.

    Attributes:
        graph: the graph.
        processor: the processor's name.
        options: the cluster.
        planned: the graph's names on the cluster.
        facts: what the cluster says of all topics of the graph.
        broker: for questions; its owner closes it.
        changed: call it whenever a task's state may have changed; it never blocks.
        held: why the tasks of a processor are held back now; empty: they are not.
    """

    graph: Graph
    processor: str
    options: Options
    planned: Plan
    facts: ClusterFacts
    broker: Broker
    changed: Callable[[], None]
    held: Callable[[str], str] = lambda _: ""


class Engine(Protocol):
    """Where processors run, if not in this process."""

    @property
    def runtime(self) -> str:
        """The engine's name in records and logs."""
        ...

    def refuses(self, graph: Graph, processor: Processor | DataFrameProcessor) -> str:
        """Why the engine cannot run this processor, and what to do instead; empty: it can."""
        ...

    def check(self, graph: Graph, names: Sequence[str]) -> None:
        """
        Check that these processors may run, before anything is asked of the cluster or written to it.

        Raises:
            ConfigError: the engine's settings do not allow it, or the engine already runs one of them.
        """
        ...

    def worker(self, job: Job) -> Worker:
        """A worker that is not started yet."""
        ...
