"""Events: answers to the effects of a task, and what the world does to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from cues_kafka.core.records import Choice, Record, TargetRow, Totals
from cues_kafka.ports.log import Positions


class IllegalEvent(AssertionError):
    """The shell reported an event that cannot happen in the task's state."""


class InputFacts(NamedTuple):
    """What the cluster says about one input partition: topic id, log start, last stable offset, high watermark."""

    topic_id: bytes
    low: int
    stable: int
    high: int


@dataclass(frozen=True, slots=True)
class Halt:
    """Why a batch ended before its last step, or a task stopped.

    Attributes:
        kind: `retry` (call again later), `interrupt`, `unhandled`, `fenced`, `moved` or `refused`.
        text: the cause.
        remedy: what to do next.
    """

    kind: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        """The cause and the remedy in two sentences."""
        cause = self.text if self.text.endswith((".", "?", "!")) else f"{self.text}."
        return f"{cause} Remedy: {self.remedy}"


# What the world does


@dataclass(frozen=True, slots=True)
class Assigned:
    """
    This worker owns the partition now, or tries a stopped task again.

    Attributes:
        first: the next batch of steps gets a snapshot (S1). A slot leaves the snapshot out if nothing shows that a
            predecessor died (D3); careful mode and a retry need it again.
    """

    first: bool = True


@dataclass(frozen=True, slots=True)
class Revoked:
    """
    The worker must give up the partition, or shuts down (A3, Q1).

    Attributes:
        called: at-most-once, while user code is called: how far it came, and nothing starts any more (W2).
    """

    called: Called | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker has lost the partition already (A3)."""


@dataclass(frozen=True, slots=True)
class Polled:
    """
    A batch is fetched and not decoded: `steps` deliveries up to `ends`, in this order of bindings.

    `tail_ends` are the last stable offsets of the tailers' logs, if what tailers show must be fixed (S5). With `timers`
    that many timers are due instead (F3), with `replay` the next request of the replay topic (Y1); then `ends` are the
    positions of the task.
    """

    ends: Positions
    steps: int
    choice: Choice = ()
    timers: bool = False
    tail_ends: Positions = ()
    replay: bool = False


@dataclass(frozen=True, slots=True)
class Called:
    """
    User code ended `batch.deliveries` steps, which reach up to `ends`; `halt` says why it ended no more.

    At-most-once `batch.taken` counts the steps that were started, and these reach up to `ends` (W2).

    Of a feed they reach up to `place` in its source, and `ends` is empty (G1). `tails` is where the tailers stand
    behind these steps, copied when the batch was closed: later calls may have moved them on (L2). `replays` is where
    the task stands in its replay topic behind a request (Y1); empty: where it stood.
    """

    ends: Positions
    batch: Totals
    halt: Halt | None = None
    place: str = ""
    tails: Positions = ()
    replays: Positions = ()


@dataclass(frozen=True, slots=True)
class Idle:
    """
    Everything is delivered, and the reader has passed markers since the last record (P1).

    With `replays` an announced request is gone from the replay topic, which the task reads on from there (Y1).
    """

    positions: Positions
    replays: Positions = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """
    An effect failed, or the input broke the rule of readers (A2).

    Attributes:
        text: what happened.
        at_s: monotonic time.
        fenced: another session has taken the transactional id.
        remedy: what to do if it happens each time; empty if the task's general remedy helps.
    """

    text: str
    at_s: float
    fenced: bool = False
    remedy: str = ""


# Answers


@dataclass(frozen=True, slots=True)
class Initialised:
    """R1: the session is initialised."""


@dataclass(frozen=True, slots=True)
class OffsetsFetched:
    """R2: the group's next offset for each binding, or None."""

    offsets: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class WatermarkFetched:
    """R3: the high watermark of the backing partition."""

    high: int


@dataclass(frozen=True, slots=True)
class NewestRead:
    """R4: the newest committed record below the high watermark, or None; `unreadable` says why it cannot be read."""

    record: Record | None
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class InputsFetched:
    """
    R5: what the cluster says about the partition of each binding, without bindings whose topic is gone.

    `tails` are those of tailers, and that of the replay topic.
    """

    inputs: Mapping[str, InputFacts]
    at_s: float
    tails: Mapping[str, InputFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TargetAsked:
    """E1: the newest attempt that the target has committed, or None."""

    row: TargetRow | None


@dataclass(frozen=True, slots=True)
class SiblingRead:
    """R5, X5: `born` and `moving_from` in the newest record of any other backing partition; None and empty: none."""

    born: int | None
    moving_from: str = ""


@dataclass(frozen=True, slots=True)
class PartsRead:
    """T2: whether every other part has this publication."""

    settled: bool


@dataclass(frozen=True, slots=True)
class Done:
    """An effect is done that has no answer of its own."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """P6: delivery reports that say success, records produced, and the offset of the first one, the task's record."""

    delivered: int
    produced: int
    first_offset: int | None

    @property
    def text(self) -> str:
        """What is wrong where the two differ."""
        return f"{self.delivered} of {self.produced} records were acknowledged"


@dataclass(frozen=True, slots=True)
class Committed:
    """P7: the commit succeeded; `suspect` says why the task must not rely on it (P8)."""

    suspect: str | None = None


Event: TypeAlias = (
    Assigned | Revoked | Lost | Polled | Called | Idle | Failed | Initialised | OffsetsFetched | WatermarkFetched
    | NewestRead | InputsFetched | TargetAsked | SiblingRead | PartsRead | Done | Flushed | Committed
)  # fmt: skip
