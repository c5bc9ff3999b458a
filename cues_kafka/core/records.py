"""What the backing topic holds: `Start`, `Snapshot` and `Attempt` (PROTOCOL 1)."""

from __future__ import annotations

import json
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


class Extent(NamedTuple):
    """What a staged batch takes of one source of its query, as Spark's offset log has it (T2).

    Attributes:
        source: the input's binding; where there is no graph, the source's number in the query.
        topic_id: of the topic that it is; of a source of any number of topics their ids as JSON; empty: it is none.
        start, end: Spark's offsets as canonical JSON; empty: none yet, or not known: Spark logs no start of batch 0.
    """

    source: str
    topic_id: bytes
    start: str
    end: str

    @property
    def ids(self) -> dict[str, str]:
        """By topic, where it may have several; else the one."""
        return dict(json.loads(self.topic_id)) if len(self.topic_id) > 16 else {"": self.topic_id.hex()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Which staged batch a record is about, and which part of it (T2, T3).

    Attributes:
        query: Spark's id of the query; the same after each restart from its checkpoint.
        batch: number of the micro-batch.
        attempt: the directory of the staged files, one for each attempt at the batch.
        checksum: of the manifest, which names the files.
        number: of the publication: the sequence of the snapshot that announced it; -1: not announced yet.
        part: which of the parts; 0 has the announcement too.
        parts: how many there are, the same since the processor's first record.
        extents: what the batch takes of each source; part 0 alone has them.
    """

    query: str
    batch: int
    attempt: str
    checksum: bytes
    number: int = -1
    part: int = 0
    parts: int
    extents: tuple[Extent, ...] = ()


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
        staged: the staged batch that it is about; None: the processor is not written staged.
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
    staged: Staged | None = None
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
