"""What a backing topic holds: `Start`, `Snapshot` and `Attempt` (O6)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from cues_kafka.ports.log import Positions

VERSION = 1
"""The version of what records mean. A task refuses a record of another version (R5)."""

KEY = b"t"
"""The key of all of a task's records: compaction keeps the newest, and the newest committed one decides."""

Choice: TypeAlias = tuple[tuple[str, int], ...]
"""For alts: which binding each step takes, run-length coded, in order: `(("a", 3), ("b", 1))`."""


Kept: TypeAlias = tuple[tuple[str, int], ...]
"""For each store of a task, the step number with which its changelog ends."""


class Totals(NamedTuple):
    """
    Counts of deliveries and of their outcomes. Each delivery has exactly one of the three outcomes (I8).

    Attributes:
        deliveries: steps that are settled: their outcome is committed.
        outputs: steps that ended with at least one output message.
        errors: steps that ended with an error message.
        nils: steps that ended with nothing.
        messages: output messages; a fork counts each of its messages.
        taken: steps that the positions went past. Under exactly-once they are settled in the same transaction. Negative
            in the batch of an attempt that gives back more than it takes (W2).
        dropped: steps that were taken and never settled, which only at-most-once allows (W4).
        drained: output messages of no step: what a state handler gives when its region is drained.
        timers: steps of `deliveries` that no message began but a timer (F1).
        replays: steps of `deliveries` that a request to replay an error message began (Y1).
    """

    deliveries: int = 0
    outputs: int = 0
    errors: int = 0
    nils: int = 0
    messages: int = 0
    taken: int = 0
    dropped: int = 0
    drained: int = 0
    timers: int = 0
    replays: int = 0

    @property
    def settled(self) -> Totals:
        """The same counts for steps that are taken and settled in one transaction."""
        return self._replace(taken=self.deliveries)

    def plus(self, other: Totals) -> Totals:
        """Field by field."""
        return Totals(*(a + b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wrote a record. People read it, and it tells a death from a discarded transaction (Q1).

    Attributes:
        transactional_id: of the session that wrote it.
        runtime: `native`, `memory` or `spark`; `tool` where an operator moved the task.
        name: the worker instance, as people know it.
        incarnation: a random text that each process draws when it starts.
    """

    transactional_id: str
    runtime: str
    name: str
    incarnation: str


class Extent(NamedTuple):
    """What a staged batch takes of one source of its query, as Spark's offset log has it (T2).

    Attributes:
        source: the input's binding; without a graph, the number of the source in the query.
        topic_id: id of the source's topic; ids as JSON if it has several topics; empty if it is no topic.
        start, end: Spark's offsets as canonical JSON; empty if there are none yet. Spark logs no start of batch 0.
    """

    source: str
    topic_id: bytes
    start: str
    end: str

    @property
    def ids(self) -> dict[str, str]:
        """The topic ids by topic name; a source of one topic has the name ''."""
        return dict(json.loads(self.topic_id)) if len(self.topic_id) > 16 else {"": self.topic_id.hex()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Which staged batch a record is about, and which part of it (T2, T3).

    Attributes:
        query: Spark's id of the query; it stays the same after each restart from its checkpoint.
        batch: number of the micro-batch.
        attempt: the directory of the staged files; each attempt at the batch has its own.
        checksum: of the manifest, which names the files.
        number: publication number: the sequence of the snapshot that announced the batch; -1: not announced yet.
        part: number of the part; part 0 also holds the announcement.
        parts: number of parts; it never changes after the processor's first record.
        extents: what the batch takes of each source; only part 0 has them.
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
    """
    What all three kinds carry.

    The fields are final. What nothing writes yet has its default, which a task carries on unchanged.

    Attributes:
        sequence: one more than the record before it (I13); the first is 0.
        step: steps that the task has taken since its beginning; an attempt counts those of its batch.
        positions: the next offset of each input; in a snapshot the starts of its ranges.
        tails: the next offset of each tailer of an imperative processor (L2).
        tail_ends: up to where tailers show messages to the steps that are announced, or put off (S5); empty: up to the
            end of their logs.
        place: where the source of a feed stands, as that source writes it; empty for partitions of Kafka.
        ledger: ids of the newest messages of a feed; the task drops a message that it has already.
        totals: counts since the beginning of the task.
        batch: counts of this record's batch.
        starts: deaths in user code of exactly these ranges and this choice (Q1).
        left: the writer stopped cleanly while this snapshot was its newest record (Q1).
        careful_until: one step per transaction up to here (Q2); empty: careful mode is off.
        careful_timers: timers that are due and must fire one per transaction (F3); 0: none must.
        choice: alts only. In a snapshot, the order of bindings; in an attempt, what remains of that order, which is
            kept with effects and in careful mode.
        owner: sequence of the first record of this start of the task; effects are fenced by it (E1).
        epoch: rises when steps are counted from 0 again or keys move between tasks; guards of upserts compare it first.
        journal_from: offset of the first snapshot of these ranges in the backing partition, where their journaled
            responses begin; -1: there are none.
        born: partition count of the lead input at the processor's first `Start`.
        writer: who wrote the record.
        strategy: `exactly-once`, `at-least-once` or `at-most-once`.
        fingerprint: of the plan, see `hashing.fingerprint`.
        moved_to: the name that the processor moved to: this task delivers nothing more under its old name (R5).
        moving_from: the name that the processor is moving from: this task waits until the move is complete (R5).
        staged: the staged batch that the record is about; None if the processor is not staged.
        stores: for each store, the step number of the newest attempt that wrote to its changelog (R4b). The changelog
            ends with the same number.
        replays: the next offset to read of the replay topic (Y1); empty: it was never read.
        version: of what the record means.
    """

    sequence: int
    step: int
    positions: Positions
    tails: Positions = ()
    tail_ends: Positions = ()
    place: str = ""
    ledger: tuple[str, ...] = ()
    totals: Totals = Totals()
    batch: Totals = Totals()
    starts: int = 0
    left: bool = False
    careful_until: Positions = ()
    careful_timers: int = 0
    choice: Choice = ()
    owner: int = 0
    epoch: int = 0
    journal_from: int = -1
    born: int
    writer: Writer
    strategy: str = "exactly-once"
    fingerprint: bytes = b""
    moved_to: str = ""
    moving_from: str = ""
    staged: Staged | None = None
    stores: Kept = ()
    replays: Positions = ()
    version: int = VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Record):
    """No steps. It makes the first positions durable, so that `start=latest` means one moment (R5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Record):
    """
    The task is about to deliver the ranges from `positions` up to `ends`, which hold `steps` deliveries.

    With `timers` it is about to fire its first `steps` timers instead (F3), with `replay` to deliver the next request
    of its replay topic (Y1); then the ranges are empty.
    """

    ends: Positions
    steps: int
    timers: bool = False
    replay: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Record):
    """The task has delivered up to these positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow:
    """
    The newest attempt of a task that its target has committed.

    Attributes:
        base: step number of the record that the attempt was made over.
        step: step number behind the attempt.
        owner: sequence of the first record of the start that made it; a smaller owner is a former one.
        ends: positions behind it, with the ids of the topics.
        batch: what it counts.
        choice: what remains of a recorded choice of alts.
        tails: where the tailers stand behind it (L2).
        tail_ends: see `Record`.
        replays: the place in the replay topic behind it; empty: it was not moved.
    """

    base: int
    step: int
    owner: int = 0
    ends: Positions = ()
    batch: Totals = Totals()
    choice: Choice = ()
    tails: Positions = ()
    tail_ends: Positions = ()
    replays: Positions = ()
