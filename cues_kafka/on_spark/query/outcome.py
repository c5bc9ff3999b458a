"""Outcomes of slots in every form in which they travel, and why a query ended."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from cues_kafka.core import events as on
from cues_kafka.core.records import Record, Totals
from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Task
from cues_kafka.errors import AbortableError, BrokerError, CuesError, RetriableError
from cues_kafka.observe.tally import TaskTally, tally_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    The outcome of a slot.

    Attributes:
        task: `check/3`.
        partition: number of the partition.
        positions: the next offset of each input, by topic, committed; empty: the slot has no record, or no inputs.
        counts: counts of this slot's own steps.
        totals: counts since the beginning of the task.
        kind: why it stopped (`Halt.kind`, or `claimed`); empty: the range is delivered.
        text: the cause.
        remedy: what to do next.
        asked: of a slot that delivers requests to replay errors: the next offset of the replay topic; else 0.
        fenced: whether another slot or process took the id from it, whatever became of the range.
        rival: the name of a process that took it, if it wrote a record and is no part of the slot's own query.
        incarnation: of a slot that was fenced: its own.
        found: of a slot of a plain processor: the incarnation of the slot that had written the newest record when this
            one began; empty: no slot had.
        found_name: the name of that slot's driver.
        tally: of a direct slot: what it told observers; in the books of the driver: what all of the task's slots told
            since the driver began. None: nothing is known.
    """

    task: str
    partition: int
    positions: Mapping[str, int] = field(default_factory=dict)
    counts: Totals = Totals()
    totals: Totals = Totals()
    kind: str = ""
    text: str = ""
    remedy: str = ""
    asked: int = 0
    fenced: bool = False
    rival: str = ""
    incarnation: str = ""
    found: str = ""
    found_name: str = ""
    tally: TaskTally | None = None

    @property
    def as_text(self) -> str:
        """The outcome as JSON, for `outcome_of_row`."""
        return json.dumps(asdict(self))

    def behind(self, before: Outcome | None) -> Outcome:
        """This outcome in the books of a driver, where the one before of the same task was `before`."""
        was = before.tally if before else None
        return replace(self, tally=was.and_then(self.tally) if was and self.tally else self.tally or was)


def fenced_outcome(outcome: Outcome, newest: Record | None, spec: Spec) -> Outcome:
    """The same outcome of a slot that was fenced, with who did it, by the newest record."""
    writer = newest.writer if newest else None
    other = writer is not None and writer.runtime != "tool" and writer.name != spec.writer.name
    rival = writer.name if writer and other else ""
    return replace(outcome, fenced=True, rival=rival, incarnation=spec.writer.incarnation)


def outcome_of(task: Task, before: Totals, halt: on.Halt | None) -> Outcome:
    """The outcome of a task, with the counts since `before`."""
    record, spec = task.record, task.spec
    totals = record.totals if record else Totals()
    counts = Totals(*(b - a for a, b in zip(before, totals, strict=True)))
    positions = {p.topic: p.offset for p in record.positions} if record else {}
    outcome = Outcome(spec.name, spec.partition, positions, counts, totals)
    return replace(outcome, kind=halt.kind, text=halt.text, remedy=halt.remedy) if halt else outcome


def outcome_of_row(row: dict[str, Any]) -> Outcome:
    """Read an outcome from the JSON that a Spark task sent."""
    tally = tally_of(row["tally"]) if row["tally"] else None
    return Outcome(**{**row, "counts": Totals(*row["counts"]), "totals": Totals(*row["totals"]), "tally": tally})


STOPPED_MARK: Final = "cues-kafka-stopped:"


class SlotsStopped(Exception):
    """
    Tasks of a batch stopped. The text carries their outcomes to the process that started the query.

    Attributes:
        stops: the same outcomes as values.
    """

    def __init__(self, text: str, stops: Sequence[Outcome] = ()) -> None:
        super().__init__(text)
        self.stops = stops


def raise_stops(outcomes: list[Outcome], number: int) -> None:
    """
    Fail a batch if one of its tasks stopped, so that Spark runs it again.

    Raises:
        SlotsStopped: with everything that the worker needs to name the tasks.
    """
    if stops := [outcome for outcome in outcomes if outcome.kind]:
        # The driver has their tallies by now; the text comes to it, too, and nothing may count twice.
        texts = ", ".join(replace(stop, tally=None).as_text for stop in stops)
        raise SlotsStopped(f"batch {number}: {STOPPED_MARK}[{texts}]{STOPPED_MARK}", stops)


_PASSING: Final = re.compile(
    r"ExecutorLostFailure|FetchFailed|Python worker (exited|failed)|(Retriable|Abortable)Error: "
    r"|java\.net\.\w*(Timeout|Connect|UnknownHost|Socket)\w*Exception"
)
"""
Texts of Spark after it lost a process or a connection.

A message that kills its process is tried until it is quarantined.
"""

_UNSTARTED: Final = "Python worker failed to connect back"


def unstarted(error: Exception) -> bool:
    """Whether Spark gave a Python process up that was still starting; it waits 10 s, and has no setting for that."""
    return _UNSTARTED in str(error)


def passes(error: Exception) -> bool:
    """Whether the same query may succeed a moment later, with the same code and settings."""
    if isinstance(error, CuesError):
        return isinstance(error, RetriableError | AbortableError) or (isinstance(error, BrokerError) and error.fenced)
    return _PASSING.search(str(error)) is not None


_CAUSE: Final = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Failed|Stopped|Interrupt)\b: .+)$", re.MULTILINE)
"""A line that names an exception by the end of its name."""

_RAISED: Final = re.compile(r"^ {2}(?: {2}|File ).*\n(?:\w+\.)*([A-Z]\w*(?:: .+)?)$", re.MULTILINE)
"""The last line of a Python traceback, behind its frames: an exception may have any name."""


def brief(text: str) -> str:
    """The cause of a failure, found in the long texts of Spark and its bridge: the last one that they name."""
    told = text.partition("JVM stacktrace")[0].partition("Driver stacktrace")[0]
    named = {found.start(1): found.group(1) for pattern in (_CAUSE, _RAISED) for found in pattern.finditer(told)}
    causes = [named[place] for place in sorted(named) if "Py4J" not in named[place]]
    lines = [line for line in told.strip().splitlines() if line.strip() and "Py4JJavaError" not in line]
    return (causes[-1] if causes else lines[0] if lines else "no reason given")[:1_000]
