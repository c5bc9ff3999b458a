"""The report of `verify`: frozen values with every number, their sums, and sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from typing import Any

from cues_kafka.core.records import Totals

ANOMALIES = ("lost", "torn", "duplicated", "out_of_order", "unfounded", "ahead", "diverging")
"""Anomalies that are counted. If one is not zero, the promise is broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """
    The findings on one task.

    For a part of a staged processor, a step is a row, `torn` counts publications of which some rows are missing, and
    `lost` the rows of publications without any row.

    Attributes:
        task: `processor/partition`.
        steps: steps that the input holds below the positions, those of timers, and replays.
        replays: steps among these that are replays. They come out of order by nature, so they have no order here (Y3).
        totals: the task's own counts up to there.
        outputs: deliveries with an output that was seen.
        errors: deliveries with an error that was seen.
        messages: output records seen.
        lost: steps without an outcome that are no nils.
        torn: deliveries of which some records are there and some are not.
        duplicated: records of a delivery that has another outcome already.
        out_of_order: outcomes that stand behind one of a later message, in the same partition.
        unfounded: outcomes of messages that the input does not hold.
        ahead: outcomes above the position, of no committed batch.
        allowed: names of counts that the strategy of the task allows, so that they are no anomalies.
        dropped: steps that were taken and not settled, those in flight with them; only at-most-once has any.
        accepted: messages that the task passed over on purpose, because the client refuses to read them
            (`cues-kafka accept-loss`).
        behind: offsets between the positions and the inputs' last stable offsets, markers included; 0 where no message
            is among them. Of a staged processor part 0 has them; 1 more where the part of an announced batch is due.
        entries: entries of its stores that were recomputed from its messages, and compared; only with `state=True`.
        diverging: keys of its stores whose entries differ from the recomputed ones.
        not_recomputed: its stores that could not be recomputed.
        problems: what is wrong with the backing records and their totals.
        limits: what cannot be seen, and why.
        details: which messages the counts are about, the first of each.
    """

    task: str
    steps: int = 0
    replays: int = 0
    totals: Totals
    outputs: int = 0
    errors: int = 0
    messages: int = 0
    lost: int = 0
    torn: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    unfounded: int = 0
    ahead: int = 0
    allowed: tuple[str, ...] = ()
    dropped: int = 0
    accepted: int = 0
    behind: int = 0
    entries: int = 0
    diverging: int = 0
    not_recomputed: int = 0
    problems: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    details: tuple[str, ...] = ()

    @property
    def anomalies(self) -> int:
        """All that is wrong."""
        wrong = (name for name in ANOMALIES if name not in self.allowed)
        return sum(int(getattr(self, name)) for name in wrong) + len(self.problems)

    @property
    def verdict(self) -> str:
        """`ok`, `WRONG` or `not verifiable`."""
        return _verdict(self.anomalies, self.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorReport:
    """
    The findings on one processor: the sums over its tasks.

    Attributes:
        name: of the processor.
        kind: pipe, fork, sink, join, alts and so on.
        tasks: one report for each partition.
    """

    name: str
    kind: str
    tasks: tuple[TaskReport, ...]

    def __getattr__(self, name: str) -> int:
        """The sum of a count of the tasks: `steps`, `lost`, `outputs` and the other numbers of `TaskReport`."""
        if name not in _COUNTS:
            raise AttributeError(name)
        return sum(int(getattr(task, name)) for task in self.tasks)

    @property
    def totals(self) -> Totals:
        """The tasks' own counts."""
        total = Totals()
        for task in self.tasks:
            total = total.plus(task.totals)
        return total

    @property
    def verdict(self) -> str:
        """`ok`, `WRONG` or `not verifiable`."""
        return _verdict(self.anomalies, [limit for task in self.tasks for limit in task.limits])


_COUNTS = frozenset({field.name for field in fields(TaskReport) if field.type == "int"} | {"anomalies"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """
    The findings on a graph.

    Attributes:
        graph: name of the graph.
        processors: processors that were checked, in the order of declaration.
        limits: what could not be checked at all.
        notes: what is worth knowing and changes nothing.
        scanned: messages read.
        seconds: how long it took.
    """

    graph: str
    processors: tuple[ProcessorReport, ...]
    limits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    scanned: int = 0
    seconds: float = 0.0

    def __getitem__(self, processor: str) -> ProcessorReport:
        """
        Return the report on one processor.

        Raises:
            KeyError: the processor was not checked.
        """
        for one in self.processors:
            if one.name == processor:
                return one
        raise KeyError(processor)

    @property
    def anomalies(self) -> int:
        """All that is wrong."""
        return sum(one.anomalies for one in self.processors)

    @property
    def verdict(self) -> str:
        """`ok`: everything was verified and nothing is wrong. `WRONG`, or `not verifiable`: nothing wrong was seen."""
        limits = [*self.limits, *(one.verdict for one in self.processors if one.verdict == "not verifiable")]
        return _verdict(self.anomalies, limits)

    @property
    def ok(self) -> bool:
        """Whether everything was verified and nothing is wrong."""
        return self.verdict == "ok"

    @property
    def behind(self) -> int:
        """Offsets that are not delivered yet, of all tasks."""
        return sum(one.behind for one in self.processors)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Tasks that have something to deliver: under way, or stopped."""
        return tuple(task.task for one in self.processors for task in one.tasks if task.behind)

    @property
    def complete(self) -> bool:
        """Whether everything that the inputs held is delivered."""
        return not self.behind

    @property
    def lines(self) -> Iterator[str]:
        """All texts: problems and details, then limits, then notes. Tasks with the same limit share a line."""
        tasks = [task for one in self.processors for task in one.tasks]
        yield from (f"{task.task}: {text}" for task in tasks for text in (*task.problems, *task.details))
        together: dict[str, list[str]] = {}  # a graph that never started says the same of each task
        for one in self.processors:
            limits = [set(task.limits) for task in one.tasks]
            for text in dict.fromkeys(text for task in one.tasks for text in task.limits):
                everywhere = len(one.tasks) > 1 and all(text in own for own in limits)
                names = [one.name] if everywhere else [task.task for task in one.tasks if text in task.limits]
                together.setdefault(text, []).extend(names)
        yield from (f"{', '.join(names)}: cannot be verified: {text}" for text, names in together.items())
        yield from (f"cannot be verified: {text}" for text in self.limits)
        yield from (f"note: {text}" for text in self.notes)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, for JSON."""
        return {
            "graph": self.graph,
            "verdict": self.verdict,
            "anomalies": self.anomalies,
            "behind": self.behind,
            "scanned": self.scanned,
            "seconds": round(self.seconds, 3),
            "limits": list(self.limits),
            "notes": list(self.notes),
            "processors": [
                {"name": one.name, "kind": one.kind, "verdict": one.verdict, "totals": one.totals._asdict()}
                | {name: getattr(one, name) for name in sorted(_COUNTS)}
                | {"tasks": [_task_data(task) for task in one.tasks]}
                for one in self.processors
            ],
        }


def _task_data(task: TaskReport) -> dict[str, Any]:
    plain = {field.name: getattr(task, field.name) for field in fields(task)}
    return plain | {"totals": task.totals._asdict(), "anomalies": task.anomalies, "verdict": task.verdict}


def _verdict(anomalies: int, limits: Collection[str]) -> str:
    return "WRONG" if anomalies else "not verifiable" if limits else "ok"
