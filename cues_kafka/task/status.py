"""The status of a running graph and its tasks, as frozen values that print themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cues_kafka.core.records import Totals
from cues_kafka.observe.tally import TaskTally
from cues_kafka.ports.log import Positions
from cues_kafka.task.lane import Lane
from cues_kafka.task.parts.stores import Storing

STARTING: Final = frozenset({"new", "starting"})

RECOVERING: Final = frozenset({
    "initialising", "fetching offsets", "fetching watermark", "reading newest", "fetching inputs", "asking target",
    "fetching sibling", "fetching parts", "assigning", "discarding",
})  # fmt: skip
"""See `core.task.Doing`. In these states, and in those of `STARTING`, the totals of the task may not be known yet."""


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """
    One task of this process.

    Attributes:
        task: `processor/partition`.
        state: what it is doing, see `core.task.Doing`.
        positions: its positions.
        tails: where its tailers stand, by the newest record.
        totals: counts since its beginning.
        stopped: why it stopped; empty while it works.
        remedy: what to do about the stop.
        at: the message that it stopped at, ``orders/0 at 17``; empty: it did not stop at one.
        hash: the delivery hash of that message, in hexadecimal.
        unreachable_s: how long the cluster has not answered; 0: it answers.
        place: how far a feed has read its source, for people; empty: nothing is committed, or it is no feed.
        silent: why the source of a feed does not answer, and for how long; empty: it answers.
        silent_s: for how long it has not answered, in seconds; 0: it answers.
        late: messages that came too late, since the task is here: those that a `Dedupe` passed on because they were
            older than its bound, and those that a `Tumbling` dropped because their window had closed.
        missed: how often a table with `wait=` was not read in time for a call, since the task is here.
        calling: a call of the function that takes longer than a second, ``calling for 75 s: orders/0 at 17``.
        held: why nothing is called at present: an operator paused it, a cut is taken, or a reset is not complete;
            empty: nothing is held back.
        resting: it is held back, and nothing that was called waits for its commit.
        unpausable: why it cannot be held back; empty: it can.
        calling_s: for how long the present call of the function has taken; 0: for less than a second, or there is none.
        fenced: on Spark: how often a slot of the task told the driver that it was fenced.
        lost, lost_remedy: what the task needs and the cluster has lost, and what to do; empty: nothing is known to be.
        rival: who runs the task too, as slots have found, and what to do; empty: no other process was met lately.
        tally: on Spark: what the slots of the task have told the driver since it began; None: they tell nothing, or the
            task is not on Spark.
        oldest_s: the timestamp of the oldest message that was fetched and not yet called, in seconds since the epoch;
            None: there is none.
    """

    task: str
    state: str
    positions: Positions
    totals: Totals
    stopped: str = ""
    remedy: str = ""
    at: str = ""
    hash: str = ""
    calling: str = ""
    unreachable_s: float = 0.0
    held: str = ""
    late: int = 0
    missed: int = 0
    place: str = ""
    silent: str = ""
    silent_s: float = 0.0
    tails: Positions = ()
    resting: bool = False
    unpausable: str = ""
    calling_s: float = 0.0
    oldest_s: float | None = None
    fenced: int = 0
    rival: str = ""
    lost: str = ""
    lost_remedy: str = ""
    tally: TaskTally | None = None

    def __str__(self) -> str:
        places = self.place or ", ".join(f"{p.topic}@{p.offset}" for p in self.positions)
        if self.tails:
            places += "; tailers: " + ", ".join(f"{p.topic}@{p.offset}" for p in self.tails)
        t = self.totals
        line = f"{self.task}  {self.state}  {places}  {t.deliveries} delivered, {t.errors} errors, {t.nils} nil"
        if dropped := t.dropped:
            line = f"{line}, {dropped} dropped"
        if self.late:
            line = f"{line}, {self.late} late"
        if self.missed:
            line = f"{line}, {self.missed} times a table was not read in time"
        if self.calling:
            line = f"{line}  {self.calling}"
        if self.silent:
            line = f"{line}  {self.silent}"
        if self.rival:
            line = f"{line}  {self.rival}"
        if self.lost:
            line = f"{line}  LOST: {self.lost} ({self.lost_remedy})"
        if self.held:
            line = f"{line}  HELD BACK: {self.held}"
        if self.unreachable_s:
            line = f"{line}  cluster unreachable for {self.unreachable_s:.0f} s"
        return f"{line}  STOPPED: {self.stopped} ({self.remedy})" if self.stopped else line


@dataclass(frozen=True, slots=True)
class Status:
    """All tasks of this process."""

    tasks: tuple[TaskStatus, ...]

    @property
    def stopped(self) -> tuple[TaskStatus, ...]:
        """The tasks that stopped."""
        return tuple(task for task in self.tasks if task.stopped)

    def __str__(self) -> str:
        return "\n".join(str(task) for task in self.tasks) or "no tasks in this process"


def task_status(
    lane: Lane,
    *,
    calling: str = "",
    calling_s: float = 0.0,
    unreachable_s: float = 0.0,
    held: str = "",
    resting: bool = False,
) -> TaskStatus:
    """Make the status of one task; its worker knows what of it the lane does not."""
    task, halt, storing = lane.task, lane.stopped, lane.part(Storing)
    where = lane.stopped_at if halt else {}
    return TaskStatus(
        task=lane.spec.name,
        state=task.state.value,
        positions=lane.reached,
        totals=task.record.totals if task.record else Totals(),
        stopped=halt.text if halt else "",
        remedy=halt.remedy if halt else "",
        at=where.get("at", ""),
        hash=where.get("hash", ""),
        calling=calling,
        calling_s=calling_s,
        oldest_s=lane.oldest_s,
        fenced=0,  # observers count it
        tally=None,
        unreachable_s=unreachable_s,
        held=held,
        resting=resting and lane.at_rest,
        tails=task.record.tails if task.record else (),
        late=storing.stores.late if storing else 0,
        missed=lane.missed,
    )
