"""What the backing topic holds: `Start`, `Snapshot` and `Attempt` (PROTOCOL 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from cues_kafka.ports import Positions

VERSION = 1
"""Of the records' meaning. A record of another version is refused (R5)."""

KEY = b"t"
"""The key of all of a task's records: compaction keeps the newest, and the newest committed one decides."""

Choice: TypeAlias = tuple[tuple[str, int], ...]
"""For alts: which binding each step takes, run-length coded, in order: `(("a", 3), ("b", 1))`."""


class Totals(NamedTuple):
    """Counts of deliveries and of what became of them; every delivery is in exactly one of the last three (I8).

    Attributes:
        deliveries: steps.
        outputs: steps that ended with at least one output message.
        errors: steps that ended with an error message.
        nils: steps that ended with nothing.
        messages: output messages (a fork counts each of its own).
    """

    deliveries: int = 0
    outputs: int = 0
    errors: int = 0
    nils: int = 0
    messages: int = 0

    def plus(self, other: Totals) -> Totals:
        """Field by field."""
        return Totals(*(a + b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wrote a record: shown to people, and what tells a death from a discard (Q1).

    Attributes:
        transactional_id: of the session that it was written with.
        runtime: `native`, `memory` or `spark`; `tool` where an operator moved the task.
        name: of the worker instance, as people know it.
        incarnation: drawn anew by each process.
    """

    transactional_id: str
    runtime: str
    name: str
    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What all three kinds carry.

    Attributes:
        sequence: one more than the record before it (I13); the first is 0.
        step: steps of this task since its beginning, this record's batch included when it is an attempt.
        positions: where the task stands: the next offset of each input; a snapshot's: the starts of its ranges.
        totals: since the beginning of the task.
        batch: of this record's batch alone.
        starts: deaths in user code of exactly these ranges and this choice (Q1).
        left: the writer left in order while this snapshot was its newest record (Q1).
        careful_until: one step per transaction up to here (Q2); empty: careful mode is off.
        choice: a snapshot's order of bindings; an attempt's: what remains of it, with effects and in careful mode.
            Alts only.
        owner: sequence of the first record of this start of the task; fences effects (E1).
        born: partition count of the lead input at the processor's first `Start`.
        writer: who wrote it.
        strategy: `exactly-once`, `at-least-once` or `at-most-once`.
        fingerprint: of the plan, see `hashing.fingerprint`.
        version: of the record's meaning.
    """

    sequence: int
    step: int
    positions: Positions
    totals: Totals = Totals()
    batch: Totals = Totals()
    starts: int = 0
    left: bool = False
    careful_until: Positions = ()
    choice: Choice = ()
    owner: int = 0
    born: int
    writer: Writer
    strategy: str = "exactly-once"
    fingerprint: bytes = b""
    version: int = VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Record):
    """Zero steps: makes the first positions durable, so that `start=latest` means one moment (R5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Record):
    """About to deliver these ranges, from `positions` up to `ends`, which hold `steps` deliveries."""

    ends: Positions
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Record):
    """Delivered up to these positions, which are the snapshot of what comes next."""
