"""The books of a driver: what slots told it about their tasks, and the status that follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from cues_kafka.core.events import Halt
from cues_kafka.core.records import Totals
from cues_kafka.errors import BrokerError
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.on_spark.query.run import Run
from cues_kafka.on_spark.query.slots import standing
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.task.status import TaskStatus
from cues_kafka.task.workers import Stopped

log = get_logger("cues_kafka.spark")

LOOK_S: Final = 2.0
"""How often the records of tasks are read at most, where no slot tells the driver where it stands."""

RIVAL_S: Final = 60.0
"""For how long the status names another process that runs a task too, after it was met last."""


class DriverBooks:
    """
    One for each worker. Several threads write, one partition at a time; readers copy.

    Args:
        name: of the processor.
        run: its query.
        broker: for the records of tasks, where no slot tells.
        clock: time.
        changed: called when another process is met, or the processor stops as a whole.

    Attributes:
        stops: tasks that stopped, or the processor, until the next query has gone on with them.
    """

    def __init__(self, name: str, run: Run, broker: Broker, clock: Clock, changed: Callable[[], None]) -> None:
        self.stops: list[Stopped] = []
        self._name, self._run, self._broker, self._clock, self._changed = name, run, broker, clock, changed
        self._outcomes: dict[int, Outcome] = {}
        self._fenced: Counter[int] = Counter()  # by partition, what slots have told
        self._rivals: dict[int, tuple[str, float]] = {}  # by partition: another process, and when it was met
        self._looked_s = float("-inf")

    @property
    def delivered(self) -> int:
        """Deliveries of all tasks, since they began."""
        return sum(outcome.totals.deliveries for outcome in self._outcomes.copy().values())

    def take(self, outcomes: list[Outcome]) -> None:
        """Take what the slots of a batch told."""
        for outcome in outcomes:
            self.keep(outcome, stands=bool(outcome.positions) or not outcome.kind)
        halts = [Stopped(o.task, Halt(o.kind, o.text, o.remedy)) for o in outcomes if o.kind]
        if halts or all(not outcome.kind for outcome in outcomes):
            self.stops = halts
        for one in halts:
            log.error("stopped", task=one.task, why=one.halt.text, remedy=one.halt.remedy)

    def keep(self, outcome: Outcome, *, stands: bool) -> None:
        """Keep what a slot told, and where its task stands if the slot says so, in one: they are read together."""
        before = self._outcomes.get(outcome.partition)
        if stands:
            self._outcomes[outcome.partition] = outcome.behind(before)
        elif before is not None:
            self._outcomes[outcome.partition] = replace(before, tally=outcome.behind(before).tally)

    def note(self, stopped: Stopped) -> None:
        """The processor stopped as a whole."""
        self.stops = [stopped]
        log.error("stopped", processor=self._name, why=stopped.halt.text, remedy=stopped.halt.remedy)
        self._changed()

    def count_fences(self, outcomes: list[Outcome]) -> None:
        """Count the slots that another one, or another process, took the id from."""
        for outcome in outcomes:
            self._fenced[outcome.partition] += outcome.fenced or outcome.kind == "fenced"
            if outcome.rival:
                self.meet(outcome.partition, outcome.rival)

    def meet(self, partition: int, name: str) -> None:
        """Note that another process works on a task."""
        if not self._rival(partition):
            log.warning("two processes", task=replace(self._run.first, partition=partition).name, other=name)
        self._rivals[partition] = (name, self._clock.monotonic())
        self._changed()

    def _rival(self, partition: int) -> str:
        name, met_s = self._rivals.get(partition, ("", 0.0))
        lately = name and self._clock.monotonic() - met_s < RIVAL_S
        return f"{name!r} runs this task too: stop one of the two" if lately else ""

    def look(self) -> None:
        """Read the records of all tasks, because no slot tells; not more often than `LOOK_S`."""
        now_s = self._clock.monotonic()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        for partition in range(self._run.first.width):
            spec = replace(self._run.first, partition=partition)
            try:
                self._outcomes[partition] = standing(spec, self._broker, self._clock)
            except BrokerError as error:
                log.info("record not looked at", task=spec.name, error=str(error))

    def status(self, state: str, held: dict[str, Any], *, tallied: bool) -> list[TaskStatus]:
        """
        Every task as its last slot left it, and the processor itself if it stopped as a whole.

        Args:
            state: of a task that has not stopped.
            held: what each status says of a pause.
            tallied: whether slots tell what they told observers.
        """
        stopped = {one.task: one.halt for one in self.stops}
        found = []
        for partition, outcome in sorted(self._outcomes.copy().items()):
            halt = stopped.pop(outcome.task, None)
            found.append(
                TaskStatus(
                    outcome.task,
                    "stopped" if halt else state,
                    self._run.positions(outcome),
                    outcome.totals,
                    halt.text if halt else "",
                    halt.remedy if halt else "",
                    fenced=self._fenced[partition],
                    tally=outcome.tally if tallied else None,
                    rival=self._rival(partition),
                    **held,
                )
            )
        found += [TaskStatus(t, "stopped", (), Totals(), halt.text, halt.remedy, **held) for t, halt in stopped.items()]
        return found
