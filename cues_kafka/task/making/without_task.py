"""Partitions of inputs that others have added, and that have no task yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cues_kafka.plan.wellness import waiting_in
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import TopicPartition
from cues_kafka.task.workers import Worker


class WithoutTask(NamedTuple):
    """
    A partition without a task.

    Attributes:
        processor: whose first input it is of.
        place: topic and partition.
        tasks: how many tasks the processor has.
        lag: how many offsets wait there.
    """

    processor: str
    place: TopicPartition
    tasks: int
    lag: int


def partitions_without_task(broker: Broker, workers: Iterable[Worker]) -> list[WithoutTask]:
    """
    Find the partitions of first inputs for which the backing topics have no partition.

    Args:
        broker: the cluster.
        workers: of the processors to look at; those without a group are left out.

    Raises:
        BrokerError: the cluster does not answer.
    """
    specs = [worker.first for worker in workers if worker.positions_in_group and worker.first.inputs]
    if not specs:
        return []
    widths = broker.partitions(sorted({topic for one in specs for topic in (one.inputs[0].topic, one.backing)}))
    missing = [
        (one.processor, TopicPartition(topic, p), widths[one.backing])
        for one in specs
        if (topic := one.inputs[0].topic) in widths and one.backing in widths
        for p in range(widths[one.backing], widths[topic])
    ]
    marks = broker.watermarks([place for _, place, _ in missing]) if missing else {}
    return [WithoutTask(name, place, tasks, waiting_in(marks[place])) for name, place, tasks in missing]
