"""What a task tells the log: batches with error messages, retries, failures, stops, recoveries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from cues_kafka.observe.log import Sparing, get_logger
from cues_kafka.observe.together import TASKS
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.observer import BatchReport

log = get_logger("cues_kafka.task")


_MOVED: Final = re.compile("the group has rebalanced since|ILLEGAL_GENERATION|UNKNOWN_MEMBER_ID|REBALANCE_IN_PROGRESS")
"""What a task fails of where its group gives partitions to other members: a normal day has that."""

MOST_TOLD = 100
"""How many texts are remembered."""


class TaskLog:
    """
    Observes one task (see `ports.Observer`) and writes what an operator should see.

    A message that became an error is logged when its batch is committed, so a batch that is called again is logged
    once. Of each event at most `observe.log.LINES` lines are written in an interval.

    A task that has stopped is tried again by itself. What fails then as before is logged by the line of the stop alone.
    """

    __slots__ = ("_clock", "_sparing", "_stopped", "_told")

    def __init__(self, task: str, clock: Clock) -> None:
        self._clock = clock
        self._sparing = Sparing(log.bind(task=task))
        self._stopped = False  # and has not recovered since
        self._told: set[str] = set()  # what failed since the last recovery

    def committed(self, task: str, batch: BatchReport) -> None:
        """Log the steps that became error messages, and those that were dropped (W4)."""
        if batch.dropped:
            log.warning("dropped", task=task, steps=batch.dropped)
        if not batch.errors:
            return
        lost = [one for one in batch.notes if one["kind"] == "quarantine"]
        for one in lost:
            log.error("quarantined", task=task, at=one["at"], hash=one["hash"], deaths=batch.deaths)
        if others := batch.errors - len(lost):
            notes = [one for one in batch.notes if one not in lost]
            self._sparing.warning("error message", notes, others, self._clock.monotonic())

    def retried(self, task: str, about: Mapping[str, Any], attempt: int, pause_s: float) -> None:
        """Log that a step is called again after a pause."""
        values = {**about, "attempt": attempt, "again_in_s": round(pause_s, 3)}
        self._sparing.info("retry", values, self._clock.monotonic())

    def failed(self, task: str, why: str, round_: int) -> None:
        """Log what failed, unless it is what made the task stop before."""
        if self._stopped and why in self._told:
            return
        if len(self._told) < MOST_TOLD:
            self._told.add(why)
        if round_ <= 1 and _MOVED.search(why):  # the task recovers at once, or its new owner has it
            log.info("failed", task=task, why=why, round=round_)
        else:
            TASKS.warning(log, "failed", cause=why, task=task, why=why, round=round_)

    def stopped(self, task: str, why: str, remedy: str, about: Mapping[str, Any]) -> None:
        """Log why the task stopped, and what to do."""
        self._stopped = True
        log.error("stopped", task=task, why=why, remedy=remedy, **about)

    def recovered(self, task: str, after_s: float) -> None:
        """Log that the task delivers again."""
        self._stopped = False
        self._told.clear()
        log.info("recovered", task=task, after_s=round(after_s, 3))

    def catch_up(self, *, at_once: bool = False) -> None:
        """Log how many lines were left out, where their interval is over; `at_once`: the task is given up."""
        if self._sparing.held:
            self._sparing.catch_up(self._clock.monotonic(), at_once=at_once)
