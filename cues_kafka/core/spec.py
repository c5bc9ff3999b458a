"""What never changes in the life of a task: names, inputs, and the rules that its declaration chose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cues_kafka.core.records import Extent, Kept, Record, Staged, Writer
from cues_kafka.core.staged import Role
from cues_kafka.core.strategies import STRATEGIES, TOOL, Strategy
from cues_kafka.ports.log import Positions

REPLAY = ".replay"
"""Stands in the place of a binding for the replay topic; no binding has a dot."""


class Input(NamedTuple):
    """One input binding and its topic."""

    binding: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """
    Where an operator wants a task to stand (`moves`).

    Attributes:
        after: sequence of the record that the operator was shown; -1: there was none.
        above: the target's owner (E1); the record gets a greater sequence, so that later starts are no former owners.
        positions: next offsets; empty for a slot of a staged processor.
        staged: a staged processor: what its record says; its slots have no positions.
        begins: slot 0 of a staged processor: where the group's offsets shall stand, which lag tools read.
        stores: what the record says of the task's stores (R4b); empty: the same as the record before it.
        tails: where its tailers shall stand (L2); None: where they stood.
        strategy: the one that the operator wants for the task (W7); empty: the record's stays.
        moving_from: the former name of the processor, whose task goes on as this one (X5); empty: it keeps its name.
        moved_to: the new name of the processor, under which this task goes on; empty: it keeps its name.
        complete: the last record under the former name, with which this task goes on; None: it is not there yet.
    """

    after: int
    positions: Positions
    staged: Staged | None = None
    begins: tuple[Extent, ...] = ()
    stores: Kept = ()
    tails: Positions | None = None
    strategy: str = ""
    above: int = -1
    moving_from: str = ""
    moved_to: str = ""
    complete: Record | None = None

    @property
    def renames(self) -> bool:
        """Whether this is one of the three records of `renaming`."""
        return bool(self.moving_from or self.moved_to)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """
    One processor at one partition.

    Attributes:
        graph: name of the graph.
        processor: name of the processor.
        partition: number; the task reads this partition of every input.
        inputs: in the order of declaration; the first is the lead.
        pairing: `single`, `join` (the k-th message of each input) or `alts` (one message of any input).
        effects: user code acts outside Kafka, so no call is made ahead, but for those of a target (P7), and choices of
            alts are kept (S2).
        errors: the processor has an errors topic.
        transactional_id: the lock of the task.
        group: holds the offsets, for lag tools and as a cross-check.
        backing: name of the backing topic.
        start: `earliest`, `latest`, or the offset at which Spark began (DataFrames).
        strategy: a name in `strategies.STRATEGIES`.
        quarantine_after: deaths on a single message before it is quarantined (Q3); None: it never is.
        compacted: compaction may take messages of the only input while their retry is due; the task goes on without.
        width: partition count of the lead input.
        slot: the task lives for one Spark task, outside the group; when it is fenced it never takes its id again (D5).
        staged: the role of a slot of a staged processor; such a slot has no inputs (T2, T3).
        move: what a tool does to the task (X2); None if the task is run to deliver.
        stores: each with its changelog.
        tailers: topics that user code reads by itself (L1), by binding; the same topic may stand here twice.
        fixed_views: what tailers show to a step is the same at each call, because calls are seen outside of Kafka, or
            are made again (S5).
        timers: the last store holds the task's timers, which user code sets (F1).
        feed: the task reads a source that is no topic; its only input is its own backing topic (G1).
        replay: name of the replay topic, whose requests the task delivers (Y1), if it is no slot; empty: it has none.
        target: what user code writes outside of Kafka is committed there in one transaction with the attempt (E1).
        writer: what this process signs records with.
    """

    graph: str
    processor: str
    partition: int
    inputs: tuple[Input, ...]
    pairing: str = "single"
    effects: bool = False
    errors: bool = False
    transactional_id: str
    group: str
    backing: str
    start: str | int = "earliest"
    strategy: str = "exactly-once"
    quarantine_after: int | None = 2
    compacted: bool = False
    width: int
    slot: bool = False
    staged: Role | None = None
    move: Move | None = None
    stores: tuple[tuple[str, str], ...] = ()
    tailers: tuple[Input, ...] = ()
    fixed_views: bool = False
    timers: bool = False
    feed: bool = False
    target: bool = False
    replay: str = ""
    writer: Writer

    @property
    def rules(self) -> Strategy:
        """What holds for tasks of this strategy; a tool owns a task of any strategy by the lock."""
        return TOOL if self.move else STRATEGIES[self.strategy]

    @property
    def replays(self) -> bool:
        """Whether the task delivers requests of its replay topic (Y1)."""
        return bool(self.replay) and not self.slot

    @property
    def name(self) -> str:
        """The name in logs: `enrich/3`."""
        return f"{self.processor}/{self.partition}"

    @property
    def full_name(self) -> str:
        """The name in provenance headers: `shop.enrich/3`."""
        return f"{self.graph}.{self.processor}/{self.partition}"
