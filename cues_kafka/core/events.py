"""What can happen to a task: answers to its effects, and what the world does to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from cues_kafka.core.records import Choice, Record, Totals
from cues_kafka.ports import Positions


class InputFacts(NamedTuple):
    """What the cluster says of one input partition: the topic's id, log start, last stable offset, high watermark."""

    topic_id: bytes
    low: int
    stable: int
    high: int


@dataclass(frozen=True, slots=True)
class Halt:
    """Why a batch ended before its last step, or a task stopped.

    Attributes:
        kind: `retry` (call again later), `interrupt`, `unhandled`, or `refused`.
        text: the cause, for people.
        remedy: what to do about it.
    """

    kind: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        """Cause and remedy in two sentences; the cause may end with a mark of its own."""
        cause = self.text if self.text.endswith((".", "?", "!")) else f"{self.text}."
        return f"{cause} Remedy: {self.remedy}"


# What the world does


@dataclass(frozen=True, slots=True)
class Assigned:
    """
    The partition is this worker's; or a stopped task is tried again.

    Attributes:
        first: the first batch of steps after it gets a snapshot (S1). A slot leaves it out where nothing says that a
            predecessor died (D3); careful mode and a retry bring it back.
    """

    first: bool = True


@dataclass(frozen=True, slots=True)
class Revoked:
    """The partition must be given up in order, or the worker shuts down (A3, Q1)."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The partition is gone already (A3)."""


@dataclass(frozen=True, slots=True)
class Polled:
    """A batch is there, and nothing of it was decoded: `steps` deliveries up to `ends`, in this order of bindings."""

    ends: Positions
    steps: int
    choice: Choice = ()


@dataclass(frozen=True, slots=True)
class Called:
    """User code was called for `batch.deliveries` steps, which end at `ends`; `halt` says why not for more."""

    ends: Positions
    batch: Totals
    halt: Halt | None = None


@dataclass(frozen=True, slots=True)
class Idle:
    """All is delivered, and the position has moved over markers since the last record (P1)."""

    positions: Positions


@dataclass(frozen=True, slots=True)
class Failed:
    """
    An effect raised, or the input broke the reader's rule (A2).

    Attributes:
        text: what happened.
        at_s: monotonic time.
        fenced: another session has taken the id.
        remedy: what to do if it happens each time; empty: what helps in general.
    """

    text: str
    at_s: float
    fenced: bool = False
    remedy: str = ""


# Answers


@dataclass(frozen=True, slots=True)
class Initialised:
    """R1."""


@dataclass(frozen=True, slots=True)
class OffsetsFetched:
    """R2: the group's next offset for each binding, None where it has none."""

    offsets: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class WatermarkFetched:
    """R3: the high watermark of the backing partition."""

    high: int


@dataclass(frozen=True, slots=True)
class NewestRead:
    """R4: the newest committed record below the high watermark, or None; `unreadable`: why it is no record of ours."""

    record: Record | None
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class InputsFetched:
    """R5: what the cluster says of each binding's partition; a binding whose topic is gone is not there."""

    inputs: Mapping[str, InputFacts]
    at_s: float


@dataclass(frozen=True, slots=True)
class SiblingRead:
    """R5: the `born` of any other backing partition's newest record, None: there is none."""

    born: int | None


@dataclass(frozen=True, slots=True)
class PartsRead:
    """T2: whether every other part has this publication."""

    settled: bool


@dataclass(frozen=True, slots=True)
class Done:
    """An effect without an answer of its own is done."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """P6: successful delivery reports, records that were produced, and the offset of the first, the task's record."""

    delivered: int
    produced: int
    first_offset: int | None


@dataclass(frozen=True, slots=True)
class Committed:
    """P7: `suspect` says why the outcome of the request, although it succeeded, must not be relied upon (P8)."""

    suspect: str | None = None


Event: TypeAlias = (
    Assigned | Revoked | Lost | Polled | Called | Idle | Failed | Initialised | OffsetsFetched | WatermarkFetched
    | NewestRead | InputsFetched | SiblingRead | PartsRead | Done | Flushed | Committed
)  # fmt: skip
