"""The health and the metrics of a graph in this process, from the facts of its tasks.

Everything but the lag is known here without a question. A thread asks the cluster for the ends of the inputs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from cues_kafka.errors import BrokerError
from cues_kafka.observe.histogram import Histogram
from cues_kafka.observe.http import Health
from cues_kafka.observe.log import get_logger
from cues_kafka.observe.metrics import KINDS, STATES, Sample
from cues_kafka.observe.refused import REFUSED
from cues_kafka.observe.tally import UNNAMED, TaskTally
from cues_kafka.observe.throttling import THROTTLING
from cues_kafka.plan.wellness import TaskCondition, Unwell, verdict, without_task
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Positions, TopicPartition
from cues_kafka.running.collector import TaskFacts
from cues_kafka.running.status_writer import state_of
from cues_kafka.task.calling.failures import ended_by
from cues_kafka.task.making.without_task import WithoutTask, partitions_without_task
from cues_kafka.task.status import TaskStatus
from cues_kafka.task.workers import Worker
from cues_kafka.workers.worker import ProcessorWorker

log = get_logger("cues_kafka.health")

LAG_S: Final = 10.0
"""How often the ends of the inputs are asked for."""

UNREACHABLE_S: Final = 10.0
"""A process is not ready when the cluster has been silent for so long."""

STANDS_S: Final = 120.0
"""A process is ill when a thread that serves the group has not come round for so long. A rebalance may hold it up for
90 s, which is 0.3 of `max.poll.interval.ms`."""

END_S: Final = 2.0
"""How long the end of a process waits for a question."""

ALONE: Final = "1"
"""The label `worker` of a process without a supervisor."""


class HealthLook:
    """
    Looks at a graph in this process.

    Args:
        graph: its name.
        broker: asked for the ends of inputs.
        clock: time.
        workers: the workers of now.
        collect: the facts of their tasks.
        told: whether tasks tell the observers of this process what they do. Those on Spark do not: of them the totals
            are known, and of direct processors what their slots told at their ends.
    """

    def __init__(
        self,
        graph: str,
        broker: Broker,
        clock: Clock,
        workers: Callable[[], Sequence[Worker]],
        collect: Callable[[], Sequence[TaskFacts]],
        *,
        told: bool,
    ) -> None:
        self._graph, self._broker, self._clock = graph, broker, clock
        self._workers, self._collect, self._told = workers, collect, told
        self._ends: dict[TopicPartition, int] = {}
        self._missing: list[WithoutTask] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)

    def start(self) -> None:
        """Begin to ask for ends."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more. A question under way is not waited for longer than `END_S`."""
        self._ending.set()
        self._thread.join(END_S)

    def __call__(self) -> Health:
        """The health and the metrics of now."""
        workers, tasks = self._workers(), self._collect()
        unready = tuple(self._unready(workers, tasks))
        silent_s = max([0.0, *(one.status.unreachable_s for one in tasks), *(one.unreachable_s for one in workers)])
        labels = {"graph": self._graph, "worker": ALONE}
        rows = [
            Sample("cues_kafka_ready", labels, float(not unready)),
            Sample("cues_kafka_cluster_unreachable_seconds", labels, silent_s),
            Sample("cues_kafka_throttled_seconds_total", labels, THROTTLING.total_s),
            Sample("cues_kafka_refused_records_total", labels, REFUSED.total),
            *(row for one in tasks for row in self._rows(one)),
            *self._lags_without_task(),
        ]
        return Health(tuple(_ill(workers)), unready, tuple(rows))

    def _unready(self, workers: Sequence[Worker], tasks: Sequence[TaskFacts]) -> Iterator[str]:
        if not workers:
            yield "the graph is starting"
        for worker in workers:
            if worker.generation < 0 and not worker.over:
                yield f"{worker.name} waits for its place in the group"
            # Its tasks say it, too, until the group's session is over: then it has none.
            if worker.unreachable_s >= UNREACHABLE_S and all(one.processor != worker.name for one in tasks):
                yield f"{worker.name}: the cluster has not answered for {worker.unreachable_s:.0f} s"
        for one in tasks:
            state = state_of(one)
            if state == "stopped":
                continue  # the verdict has it
            if state in ("starting", "recovering"):
                yield f"{one.task} is {state}"
            if one.status.unreachable_s >= UNREACHABLE_S:
                yield f"{one.task}: the cluster has not answered for {one.status.unreachable_s:.0f} s"
        yield from (f"{one.name} {one.kind}: {one.what}; remedy: {one.remedy}" for one in self._unwell(tasks))

    def _unwell(self, tasks: Sequence[TaskFacts]) -> tuple[Unwell, ...]:
        """The verdict on what this process knows."""
        known = [_condition(one) for one in tasks]
        missing = [without_task(name, place.topic, place.partition, tasks) for name, place, tasks, _ in self._missing]
        return verdict(self._graph, [*known, *missing])

    def _rows(self, one: TaskFacts) -> Iterator[Sample]:
        tally, status = one.tally, one.status
        labels = {
            "graph": self._graph,
            "processor": one.processor,
            "partition": "" if one.partition is None else str(one.partition),
            "worker": ALONE,
        }
        for name, value in _counts(tally) if self._told else _on_spark(status):
            yield Sample(f"cues_kafka_{name}", labels, value)
        errors = tally.kinds if self._told else _kinds(status)
        for kind in dict.fromkeys((*KINDS, *errors)):
            yield Sample("cues_kafka_errors_total", {**labels, "kind": kind}, errors.get(kind, 0))
        if self._told:
            yield Sample("cues_kafka_call_seconds", labels, status.calling_s)
            yield Sample("cues_kafka_late_total", labels, status.late)
            yield Sample("cues_kafka_table_waits_missed_total", labels, status.missed)
        if tally.committed_s:
            yield Sample("cues_kafka_last_commit_timestamp_seconds", labels, tally.committed_s)
        now = state_of(one)
        for state in STATES:
            yield Sample("cues_kafka_task_state", {**labels, "state": state}, float(state == now))
        lags = dict(self._lags(status.positions, one.partition))
        for topic, lag in lags.items():
            yield Sample("cues_kafka_lag_messages", {**labels, "topic": topic}, lag)
        if status.oldest_s is not None:
            yield Sample("cues_kafka_lag_seconds", labels, max(0.0, self._clock.time() - status.oldest_s))
        elif lags and not any(lags.values()):
            yield Sample("cues_kafka_lag_seconds", labels, 0.0)

    def _lags(self, positions: Positions, partition: int | None) -> Iterator[tuple[str, int]]:
        for position in positions if partition is not None else ():
            end = self._ends.get(TopicPartition(position.topic, partition or 0))
            if end is not None:
                yield position.topic, max(0, end - position.offset)

    def _lags_without_task(self) -> Iterator[Sample]:
        for name, place, _, lag in self._missing:
            labels = {"graph": self._graph, "processor": name, "partition": str(place.partition), "worker": ALONE}
            yield Sample("cues_kafka_lag_messages", {**labels, "topic": place.topic}, lag)

    # The thread.

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self.look_at_ends()
                self._ending.wait(LAG_S if self._ends else 1.0)
        except Exception as error:  # noqa: BLE001 - the tasks go on; the lag is missing in the metrics then
            self._ends = {}
            if not self._ending.is_set():  # else the broker is closed by now
                log.error("lag not measured", error=f"{type(error).__name__}: {error}")

    def look_at_ends(self) -> None:
        """Ask the cluster for the ends of the inputs; what it does not tell is missing until it does."""
        places = [
            TopicPartition(position.topic, one.partition)
            for one in self._collect()
            if one.partition is not None
            for position in one.status.positions
        ]
        try:
            self._ends = {place: mark.stable for place, mark in self._broker.watermarks(places).items()}
            self._missing = partitions_without_task(self._broker, self._workers())
        except BrokerError as error:
            self._ends = {}
            log.debug("lag not measured", why=str(error))


def _condition(one: TaskFacts) -> TaskCondition:
    """Why a task stopped; or what it has lost, and goes on without until it needs it."""
    status = one.status
    why, remedy = (status.stopped, status.remedy) if status.stopped else (status.lost, status.lost_remedy)
    return TaskCondition(one.task, state_of(one), why, remedy)


def _ill(workers: Iterable[Worker]) -> Iterator[str]:
    for worker in workers:
        if worker.failed is not None:
            yield f"{worker.name} failed: {ended_by(worker.failed)}"
        elif isinstance(worker, ProcessorWorker) and worker.stands_for_s >= STANDS_S:
            yield f"{worker.name} has not served its group for {worker.stands_for_s:.0f} s"


def _counts(tally: TaskTally) -> Iterator[tuple[str, float | Histogram]]:
    yield "deliveries_total", tally.deliveries
    yield "outputs_total", tally.outputs
    yield "output_messages_total", tally.messages
    yield "dropped_total", tally.dropped
    yield "fenced_total", tally.fenced
    yield "recovery_seconds", tally.recovery_s
    yield from _told_anywhere(tally)


def _told_anywhere(tally: TaskTally) -> Iterator[tuple[str, float | Histogram]]:
    """What native tasks and slots of Spark tell alike."""
    yield "output_bytes_total", tally.size
    yield "retries_total", tally.retries
    yield "failures_total", tally.failures
    yield "stops_total", tally.stops
    yield "batch_seconds", tally.batch_s
    yield "commit_seconds", tally.commit_s


def _on_spark(status: TaskStatus) -> Iterator[tuple[str, float | Histogram]]:
    """Totals of the task's record, and what its slots told. What is not known is missing, and not 0."""
    totals, tally = status.totals, status.tally
    yield "deliveries_total", totals.deliveries
    yield "outputs_total", totals.outputs
    yield "output_messages_total", totals.messages
    yield "dropped_total", totals.dropped
    yield "fenced_total", status.fenced
    if tally is not None:
        yield from _told_anywhere(tally)


def _kinds(status: TaskStatus) -> Mapping[str, int]:
    """Errors of a task on Spark: those that no slot has told the driver are `UNNAMED`."""
    told = status.tally.kinds if status.tally else {}
    named = sum(count for kind, count in told.items() if kind != UNNAMED)
    return {**told, UNNAMED: max(0, status.totals.errors - named)}
