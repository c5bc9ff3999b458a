"""What a task may ask for. The interpreter does it through a port and tells the task what happened.

Before and after each of these stands a crash point, named like the class. The last four are answered by the shell
around the interpreter: it alone has messages and calls user code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cues_kafka.core.events import Halt
from cues_kafka.core.records import Choice, Extent, Record
from cues_kafka.ports import Positions


@dataclass(frozen=True, slots=True)
class Init:
    """R1: new session with the task's id, initialised."""


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """R2: the group's committed offsets, stable."""


@dataclass(frozen=True, slots=True)
class FetchWatermark:
    """R3: the high watermark of the backing partition, never the last stable offset."""


@dataclass(frozen=True, slots=True)
class ReadNewest:
    """R4: the newest committed task record below `high`."""

    high: int


@dataclass(frozen=True, slots=True)
class FetchInputs:
    """R5: topic ids and watermarks of the inputs."""


@dataclass(frozen=True, slots=True)
class FetchSibling:
    """R5, fresh: the newest record of any other backing partition."""


@dataclass(frozen=True, slots=True)
class FetchParts:
    """T2: the newest records of the other parts, as any reader sees them: is publication `number` in all of them?"""

    number: int
    parts: int


@dataclass(frozen=True, slots=True)
class AssignReader:
    """After R5: read the inputs from here. Positions come from nowhere else (R6)."""

    positions: Positions


@dataclass(frozen=True, slots=True)
class Begin:
    """P5: begin a transaction, unless the task was revoked in the meantime."""


@dataclass(frozen=True, slots=True)
class SendOffsets:
    """
    P5: offsets first, so that a worker that has left the group is refused before it has written a record.

    `extents`: of a staged batch that is announced; what lies below their starts is published (T4).
    """

    positions: Positions
    extents: tuple[Extent, ...] = ()


@dataclass(frozen=True, slots=True)
class Produce:
    """P6: the task's record first, then, with an attempt, what its batch produced."""

    record: Record


@dataclass(frozen=True, slots=True)
class Flush:
    """P6: wait for every delivery report."""


@dataclass(frozen=True, slots=True)
class Commit:
    """P7."""


@dataclass(frozen=True, slots=True)
class Discard:
    """P8: throw the session away, wait `delay_s`, come back at R1. `text` says why, for the log."""

    text: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class Await:
    """Nothing to do: tell the task when there are messages (`Polled` or `Called`, see `Task.snapshot_due`)."""


@dataclass(frozen=True, slots=True)
class Call:
    """P4: call user code for exactly the ranges that were polled, in this order of bindings."""

    ends: Positions
    steps: int
    choice: Choice
    starts: int


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Q3: make one error message of the undecoded bytes of this single step."""

    ends: Positions
    choice: Choice
    starts: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The task is over until somebody mends the cause: release the session, keep the partition paused."""

    halt: Halt


@dataclass(frozen=True, slots=True)
class Release:
    """The task is over here: release the session."""


Effect: TypeAlias = (
    Init | FetchOffsets | FetchWatermark | ReadNewest | FetchInputs | FetchSibling | FetchParts | AssignReader | Begin
    | SendOffsets | Produce | Flush | Commit | Discard | Await | Call | Quarantine | Stop | Release
)  # fmt: skip
