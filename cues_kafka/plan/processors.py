"""What each processor of a graph is on a cluster: its tasks and its names there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.graph.processor_fields import Strategy

Pairs: TypeAlias = tuple[tuple[str, str], ...]
"""(Binding, topic) in the order of declaration."""


class PlannedTask(NamedTuple):
    """One processor at one partition; printed ``enrich/3``."""

    processor: str
    partition: int

    def __str__(self) -> str:
        return f"{self.processor}/{self.partition}"


class PlannedStop(NamedTuple):
    """
    Tasks that would stop when the graph is deployed, by their newest records.

    Attributes:
        tasks: their names, such as ``enrich/3``.
        why: the cause, as the stopped task would give it.
        remedy: what to do, with the command.
    """

    tasks: tuple[str, ...]
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class PartPlan:
    """
    What plain processors and processors of DataFrames have in common on a cluster.

    Attributes:
        name: the processor's name.
        inputs: (binding, topic) of each input.
        outputs: (binding, topic) of each output.
        errors: its errors topic, or None.
        group: its consumer group, where lag tools see its position.
        transactional_prefix: the beginning of its transactional ids.
        backing: its backing topic.
    """

    name: str
    inputs: Pairs
    outputs: Pairs
    errors: str | None
    group: str
    transactional_prefix: str
    backing: str


@dataclass(frozen=True, slots=True)
class ProcessorPlan(PartPlan):
    """
    One plain processor on the cluster.

    Attributes:
        kind: its kind, for people.
        strategy: its strategy.
        replay: its replay topic, or None where it has no errors topic.
        changelogs: (store, topic) of each store.
        journal: the topic of the answers to its calls (E4), or None.
        tables: (name, topic) of each table.
        tailers: (name, topic) of each tailer; appenders are among the outputs.
        partitions: partitions of its inputs, so its number of tasks; None: not known offline.
        backing_partitions: partitions that the backing topic has, or will have when it is created.
        fingerprint: the plan fingerprint (O7); None where the topics' ids are not known yet.
        unchecked: output bindings that the function's annotation does not name, so that a misspelt one shows only when
            the function returns it.
        compacted: topics of its inputs that Kafka compacts.
        commit: when its batches are committed at the latest; None: as the run says.
        columnar: whether its function gets columns, `batch="arrow"`.
    """

    kind: str
    strategy: Strategy
    replay: str | None
    changelogs: Pairs
    journal: str | None
    tables: Pairs
    tailers: Pairs
    partitions: int | None
    backing_partitions: int | None
    fingerprint: bytes | None
    unchecked: tuple[str, ...]
    compacted: tuple[str, ...]
    commit: CommitPolicy | None
    columnar: bool = False

    @property
    def tasks(self) -> tuple[PlannedTask, ...]:
        """All tasks; none while the number of partitions is not known."""
        return tuple(PlannedTask(self.name, partition) for partition in range(self.partitions or 0))

    @property
    def stopped(self) -> tuple[PlannedTask, ...]:
        """Tasks of added partitions, which must wait until the backing topic has a partition for them (O9)."""
        return () if self.backing_partitions is None else self.tasks[self.backing_partitions :]

    def transactional_id(self, partition: int) -> str:
        """The lock of one task."""
        return f"{self.transactional_prefix}{partition}"


@dataclass(frozen=True, slots=True)
class FeedPlan(PartPlan):
    """
    One feed on the cluster.

    Attributes:
        source: the class of its source; what it is told, such as an address, is not shown.
        parts: its number of tasks.
        level: what it guarantees.
    """

    source: str
    parts: int
    level: str


@dataclass(frozen=True, slots=True)
class FramePlan(PartPlan):
    """
    One processor of DataFrames on the cluster.

    Attributes:
        staged: it is written staged whatever its function does, because it has several inputs or outputs, or writes
            files. Otherwise Spark's plan decides.
        slots: transactions side by side. A staged processor has one for each part, which its first record fixes; any
            other has one for each partition of the input. None: not known offline.
        into: the table of files that its rows go to; empty: they go to its outputs.
        replay: its replay topic, which it reads if it is staged; None: it has no errors topic.
        replay_partitions: those of the widest input, whose numbers requests have; None: not known offline.
    """

    staged: bool
    slots: int | None
    into: str = ""
    replay: str | None = None
    replay_partitions: int | None = None
