"""What a task is, fixed for its life: names, inputs, and the rules that its declaration chose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cues_kafka.core.records import Extent, Staged, Writer
from cues_kafka.core.staged import Role
from cues_kafka.ports import Positions


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
        positions: next offsets; empty for a slot of a staged processor.
        staged: of a staged processor: what its record says; its slots have no positions.
        begins: of its slot 0: where the group's offsets are to stand, which lag tools read.
    """

    after: int
    positions: Positions
    staged: Staged | None = None
    begins: tuple[Extent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """
    One processor at one partition.

    Attributes:
        graph: name of the graph.
        processor: name of the processor.
        partition: number; the task reads this partition of every input.
        inputs: in the order of declaration; the first is the lead.
        pairing: `single`, `join` (the k-th of each) or `alts` (one of any).
        effects: user code acts outside Kafka, so calls are not made ahead (P7) and alts choices are kept (S2).
        errors: an errors topic takes what cannot be delivered.
        transactional_id: the lock of the task.
        group: holds the offsets, for lag tools and as a cross-check.
        backing: name of the backing topic.
        start: `earliest`, `latest`, or the offset where whoever feeds the task began (DataFrames).
        strategy: `exactly-once`, `at-least-once` or `at-most-once`.
        quarantine_after: deaths on a single message before it is taken out (Q3); None: never.
        compacted: compaction may take messages of the only input while a retry of them is due; it goes on without them.
        width: partition count of the lead input.
        slot: it lives for one Spark task, outside the group, and never takes its id again when it is fenced (D5).
        staged: what a slot of a staged processor is there for; it has no inputs of its own (T2, T3).
        move: what a tool is there for (X2); None: it is no tool, and delivers.
        writer: who we are.
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
    writer: Writer

    @property
    def name(self) -> str:
        """As printed in logs: `enrich/3`."""
        return f"{self.processor}/{self.partition}"

    @property
    def full_name(self) -> str:
        """As written into provenance headers: `shop.enrich/3`."""
        return f"{self.graph}.{self.processor}/{self.partition}"
