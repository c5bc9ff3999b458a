"""Everything that a process knows of its tasks at one moment: what status and metrics are made of.

A `Collector` joins three things: `Worker.status()`, which says where a task stands, the `Tally`, which has added up
what the task told observers, and the rate, which follows from the totals. It asks the cluster nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cues_kafka.observe.tally import Tally, TaskTally
from cues_kafka.ports.clock import Clock
from cues_kafka.task.status import RECOVERING, STARTING, TaskStatus
from cues_kafka.task.workers import Worker

RATE_S: Final = 10.0
"""A rate is the mean of this time, or of the time since the first look."""

LEAST_S: Final = 1.0
"""Over less time than this a rate says nothing, because a batch may take a second."""


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """
    One task of this process.

    Attributes:
        processor: its name.
        partition: of the task; None: a processor that stopped as a whole, see `records.status`.
        status: where the task stands; `status.totals` count since the task began, in whatever process.
        tally: what the task told observers in this process; on Spark what its slots did, where they tell the driver.
        rate: deliveries per second over the last `RATE_S`.
    """

    processor: str
    partition: int | None
    status: TaskStatus
    tally: TaskTally
    rate: float

    @property
    def task(self) -> str:
        """The name of the task: `processor/partition`."""
        return self.status.task


class Collector:
    """
    Collects the facts of all tasks of a process; threads may share it.

    Args:
        clock: time.

    Attributes:
        tally: the observer that hears the tasks.
    """

    def __init__(self, clock: Clock) -> None:
        self.tally: Tally = Tally(clock.time)
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, deque[tuple[float, int]]] = {}  # by task: when, deliveries since its beginning

    def collect(self, workers: Iterable[Worker]) -> list[TaskFacts]:
        """The facts of the tasks that live in these workers, processor by processor."""
        statuses = [status for worker in workers for status in worker.status()]
        with self._lock:
            for gone in self._seen.keys() - {status.task for status in statuses}:
                del self._seen[gone]
            return [self._facts(status) for status in statuses]

    def _facts(self, status: TaskStatus) -> TaskFacts:
        processor, _, partition = status.task.rpartition("/")
        number = int(partition) if processor else None
        tally = status.tally or self.tally[status.task]
        return TaskFacts(processor or status.task, number, status, tally, self._rate(status))

    def _rate(self, status: TaskStatus) -> float:
        now_s, done = self._clock.monotonic(), status.totals.deliveries
        seen = self._seen.setdefault(status.task, deque())
        if not seen and (status.stopped or status.state in STARTING or status.state in RECOVERING):
            return 0.0  # without its record, all that it ever delivered would count as delivered now
        if seen and done < seen[-1][1]:  # the task is being recovered, and has no record for a moment
            done = seen[-1][1]
        if not seen or now_s - seen[-1][0] >= LEAST_S:
            seen.append((now_s, done))
        while len(seen) > 2 and now_s - seen[1][0] >= RATE_S:
            seen.popleft()
        since_s, before = seen[0]
        return (done - before) / (now_s - since_s) if now_s - since_s >= LEAST_S else 0.0
