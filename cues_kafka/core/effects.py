"""Effects: what a task may ask for. The interpreter does it through a port and reports what happened.

Before and after each effect is a crash point, named like the class. The shell around the interpreter answers `Await`,
`Call` and `Quarantine`, because it alone has messages and calls user code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cues_kafka.core.events import Halt
from cues_kafka.core.records import Choice, Extent, Record
from cues_kafka.ports.log import Positions


@dataclass(frozen=True, slots=True)
class Init:
    """R1: make a new session with the task's transactional id and initialise it."""


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """R2: fetch the group's committed offsets, stable ones only."""


@dataclass(frozen=True, slots=True)
class FetchWatermark:
    """R3: fetch the high watermark of the backing partition, never the last stable offset."""


@dataclass(frozen=True, slots=True)
class ReadNewest:
    """R4: read the newest committed task record below `high`."""

    high: int


@dataclass(frozen=True, slots=True)
class FetchInputs:
    """R5: fetch topic ids and watermarks of the inputs."""


@dataclass(frozen=True, slots=True)
class AskTarget:
    """
    E1: ask the target for the newest attempt that it has committed; it waits for one that is being committed.

    In the same transaction a row that stands at this step, is the attempt behind it, or is not there at step 0, gets
    the owner's number, if its own is smaller: from then on it refuses the batches of former owners, and the parts of
    them. Another row is left as it is.

    Attributes:
        owner: sequence of the first record of this start.
        step: step number of the newest record.
    """

    owner: int
    step: int


@dataclass(frozen=True, slots=True)
class FetchSibling:
    """R5, fresh: read the newest record of any other backing partition."""


@dataclass(frozen=True, slots=True)
class FetchParts:
    """T2: read the newest records of the other parts: do all of them have publication `number`?"""

    number: int
    parts: int


@dataclass(frozen=True, slots=True)
class AssignReader:
    """Read the inputs from these positions. R5 is their only source (R6)."""

    positions: Positions


@dataclass(frozen=True, slots=True)
class Begin:
    """P5: begin a transaction, unless the task was revoked meanwhile."""


@dataclass(frozen=True, slots=True)
class SendOffsets:
    """
    P5: send offsets, so that the broker refuses the transaction of a worker that has left the group.

    The records are on their way by then: the client writes them while the coordinators answer.

    At-least-once the group's member commits them, with a start first, else behind the record (W5, W6).

    Attributes:
        positions: those of the record.
        extents: what an announced batch takes; everything below their starts is published (T4).
    """

    positions: Positions
    extents: tuple[Extent, ...] = ()


@dataclass(frozen=True, slots=True)
class Emit:
    """W5: produce the outputs of this attempt's batch, without the record, and wait for every delivery report."""

    record: Record


@dataclass(frozen=True, slots=True)
class Produce:
    """
    P6: produce the task's record first; with an attempt, then the outputs of its batch.

    At-least-once the outputs are there already, and the record comes alone (W5).
    """

    record: Record


@dataclass(frozen=True, slots=True)
class Flush:
    """P6: wait for every delivery report."""


@dataclass(frozen=True, slots=True)
class Commit:
    """
    P7: commit the transaction.

    Attributes:
        unmarked: the marker of the transaction before it is missing, and this one commits that one too (P6b).
    """

    unmarked: bool = False


@dataclass(frozen=True, slots=True)
class Discard:
    """P8: discard the session, wait `delay_s` and return to R1. `text` says why, for the log."""

    text: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class Await:
    """Wait for messages, then report `Polled` or `Called` (see `Task.snapshot_due`)."""


@dataclass(frozen=True, slots=True)
class Call:
    """
    P4: call user code for exactly the ranges that were polled, in this order of bindings.

    Or fire timers (F3), or deliver a request of the replay topic (Y1).

    Tailers show no message at or beyond `tail_ends` (S5); those that are not named there show all.
    """

    ends: Positions
    steps: int
    choice: Choice
    starts: int
    timers: bool = False
    tail_ends: Positions = ()
    replay: bool = False


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Q3: make one error message of this step, from its undecoded bytes, or of this timer (F3) or replay (Y1)."""

    ends: Positions
    choice: Choice
    starts: int
    timers: bool = False
    replay: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """The task stops until its cause is removed: release the session and keep the partition paused."""

    halt: Halt


@dataclass(frozen=True, slots=True)
class Release:
    """The task has ended in this process: release the session."""


Effect: TypeAlias = (
    Init | FetchOffsets | FetchWatermark | ReadNewest | FetchInputs | AskTarget | FetchSibling | FetchParts
    | AssignReader | Begin | SendOffsets | Emit | Produce | Flush | Commit | Discard | Await | Call | Quarantine | Stop
    | Release
)  # fmt: skip
