"""What runs processors, as the handle of a running graph sees it: workers, and the engines that make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cues_kafka.brokers.options import Options
from cues_kafka.core.events import Halt
from cues_kafka.core.spec import Spec
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.processor import DataFrameProcessor, Processor
from cues_kafka.plan.plan import Plan
from cues_kafka.ports import Broker, Clock, ClusterFacts, TopicPartition
from cues_kafka.runtime.status import TaskStatus
from cues_kafka.runtime.task.lane import Lane


@dataclass(frozen=True, slots=True)
class Stopped:
    """A task that stopped, and the exception behind it where this process has it."""

    task: str
    halt: Halt
    cause: BaseException | None = None


class Worker(Protocol):
    """One processor at work."""

    @property
    def name(self) -> str:
        """Of the processor."""
        ...

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    @property
    def first(self) -> Spec:
        """The task of partition 0; all others differ in the partition only."""
        ...

    @property
    def lanes(self) -> dict[int, Lane]:
        """By partition, the tasks that live in this process."""
        ...

    @property
    def failed(self) -> BaseException | None:
        """Why the worker is over, although nobody stopped it."""
        ...

    @property
    def over(self) -> bool:
        """Whether it has ended by itself, with nothing left to do: it was to deliver what was there, and has."""
        ...

    @property
    def generation(self) -> int:
        """Negative until the worker has a place among those that run the processor."""
        ...

    @property
    def positions_in_group(self) -> bool:
        """Whether its group's offsets say where its inputs are delivered; else only the worker knows."""
        ...

    @property
    def reached(self) -> Mapping[TopicPartition, int]:
        """Where its inputs are delivered, if the offsets of its group do not say it."""
        ...

    @property
    def busy(self) -> bool:
        """Whether it has something to do that its inputs do not show."""
        ...

    def start(self) -> None:
        """Begin."""
        ...

    def stop(self, *, leave: bool) -> None:
        """Ask to stop; `leave`: for good, else a successor comes at once."""
        ...

    def join(self) -> None:
        """Wait until everything is released."""
        ...

    def status(self) -> Sequence[TaskStatus]:
        """Its tasks, by partition."""
        ...

    def stopped(self) -> Sequence[Stopped]:
        """The tasks that stopped."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """
    What an engine makes a worker of.

    Attributes:
        graph: the graph.
        processor: which of its processors.
        options: the cluster.
        planned: names on the cluster.
        facts: of all its topics.
        broker: for questions; closed by whoever gave it.
        changed: to be called whenever a task's state may have changed; never blocks.
    """

    graph: Graph
    processor: str
    options: Options
    planned: Plan
    facts: ClusterFacts
    broker: Broker
    changed: Callable[[], None]


class Engine(Protocol):
    """Where processors run, if not in this process."""

    @property
    def runtime(self) -> str:
        """As records and logs call it."""
        ...

    def refuses(self, graph: Graph, processor: Processor | DataFrameProcessor) -> str:
        """Why it cannot carry this processor, with what to do instead; empty: it can."""
        ...

    def check(self, graph: Graph, names: Sequence[str]) -> None:
        """
        Look whether these processors may run, before anything is asked of the cluster or written to it.

        Raises:
            ConfigError: they may not, as the engine is set up, or because it runs one of them already.
        """
        ...

    def worker(self, job: Job) -> Worker:
        """A worker that is not started yet."""
        ...
