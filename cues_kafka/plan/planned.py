"""`PlanFields`: what a plan holds, and what follows from that. `Plan` writes it down, with functions that take this."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from cues_kafka.errors import ConfigError
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.processor import Processor
from cues_kafka.plan.acls import Acl
from cues_kafka.plan.edges import Edges, weakest
from cues_kafka.plan.inspectors import Findings
from cues_kafka.plan.processors import FeedPlan, FramePlan, PlannedStop, PlannedTask, ProcessorPlan
from cues_kafka.plan.topics import Growth, NewSetting
from cues_kafka.plan.wellness import Unwell
from cues_kafka.ports.facts import NewTopic, Watermarks
from cues_kafka.ports.log import TopicPartition
from cues_kafka.words import at_address


@dataclass(frozen=True, slots=True)
class PlanFields:
    """The fields of a `Plan`, which describes them, and questions that they answer."""

    graph: str
    brokers: int | None
    processors: tuple[ProcessorPlan, ...]
    create: tuple[NewTopic, ...]
    grow: tuple[Growth, ...]
    acls: tuple[Acl, ...]
    warnings: tuple[str, ...]
    refusals: tuple[str, ...]
    dataframes: tuple[FramePlan, ...] = ()
    expected: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    begins: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    alter: tuple[NewSetting, ...] = ()
    edges: Edges = ()
    feeds: tuple[FeedPlan, ...] = ()
    stops: tuple[PlannedStop, ...] | None = None
    unwell: tuple[Unwell, ...] = ()
    status: str | None = None
    control: str | None = None

    def __getitem__(self, processor: str) -> ProcessorPlan:
        """
        The plan of one processor.

        Raises:
            KeyError: the plan has no processor of that name.
        """
        return {one.name: one for one in self.processors}[processor]

    @property
    def tasks(self) -> tuple[PlannedTask, ...]:
        """The tasks of all processors."""
        return tuple(task for one in self.processors for task in one.tasks)

    @property
    def would_change(self) -> bool:
        """Whether applying it would change anything, on the cluster or in the systems that inspectors asked."""
        return bool(self.create or self.grow or self.alter or self.changes)

    @property
    def weakest(self) -> Edges:
        """The edges that guarantee least, which is what the whole graph guarantees; none: all are exactly once."""
        return weakest(self.edges)

    def with_findings(self, found: Iterable[Findings]) -> Self:
        """This plan with what inspectors found besides."""
        found = tuple(found)
        return replace(
            self,
            refusals=(*self.refusals, *(text for one in found for text in one.refusals)),
            warnings=(*self.warnings, *(text for one in found for text in one.warnings)),
            changes=(*self.changes, *(text for one in found for text in one.changes)),
            begins={name: begins for one in found for name, begins in one.begins.items()},
        )

    def at(self, address: str) -> Self:
        """This plan with the address of the cluster in the commands of its texts."""
        warnings, refusals = ([at_address(text, address) for text in texts] for texts in (self.warnings, self.refusals))
        return replace(self, warnings=tuple(warnings), refusals=tuple(refusals))

    def start_of(self, processor: Processor, partition: int) -> int | str:
        """Where the task begins if it has no record; a partition that `start=` did not know begins at its first one."""
        if isinstance(processor.start, str):
            return processor.start
        return self.begins.get(processor.name, {}).get(TopicPartition(processor.lead, partition), "earliest")

    def first_of(self, frame: DataFrameProcessor, place: TopicPartition, marks: Watermarks) -> int:
        """The offset at which a processor of DataFrames without a record begins."""
        return self.begins.get(frame.name, {}).get(place, marks.low)

    def refuse(self) -> None:
        """
        Raise if there is a reason not to run.

        Raises:
            ConfigError: with all refusals.
        """
        if self.refusals:
            reasons = "".join(f"\n  - {reason}" for reason in self.refusals)
            raise ConfigError(
                f"Graph {self.graph!r} must not run{'' if self.brokers is None else ' on this cluster'}:{reasons}"
            )
