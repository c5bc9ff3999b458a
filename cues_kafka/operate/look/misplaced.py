"""Which tasks would stop because keys are not in the partitions where the declared partitioner puts them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from cues_kafka.brokers.partitioners import place_of
from cues_kafka.core.records import Record
from cues_kafka.graph.placed import keyed_topics
from cues_kafka.operate.look.tasks import TaskReading
from cues_kafka.plan.processors import PlannedStop
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.scanning import read_range
from cues_kafka.task.calling.placements import placement_of

SAMPLE: Final = 100
"""The number of offsets that are read at each end of a partition: a topic may have changed its writers."""

PARTITIONS: Final = 16
"""At most this number of partitions of a topic, evenly spread: writers place keys by one rule in all of them."""


def misplaced(
    reading: TaskReading, names: Collection[str], records: Mapping[tuple[str, int], Record]
) -> Iterator[PlannedStop]:
    """
    Read some messages of each partition of the topics whose keys these processors count on.

    Of inputs these are messages that are not delivered yet: what is delivered stops no task.

    Args:
        reading: of the graph, as it would be deployed.
        names: of the processors.
        records: the newest records of tasks, by processor and partition; a task without one begins.

    Raises:
        BrokerError: the cluster does not answer, or this user may not read a topic.
    """
    graph, facts = reading.graph, reading.facts
    for name, processor in graph.processors.items():
        keyed = keyed_topics(processor) if name in names else {}
        for topic in keyed:
            width = reading.width(topic)
            if width < 2 or place_of(graph.topic(topic).partitioner) is None:
                continue
            for partition in range(0, width, -(-width // PARTITIONS)):
                record = records.get((name, partition))
                placement = placement_of(graph, processor, topic, facts, partition)
                placement.began(record.born if record else None)
                first: int | str = 0
                if topic in processor.input_topics:
                    first = _position(record, topic) if record else reading.plan.start_of(processor, partition)
                for start, end in _samples(reading.broker, TopicPartition(topic, partition), first):
                    placement.look([*read_range(reading.broker, TopicPartition(topic, partition), start, end)])
                if (found := placement.found) is not None:
                    yield PlannedStop((f"{name}/{partition}",), found.text, found.remedy)
                    break  # the others would say the same of this topic


def _position(record: Record, topic: str) -> int:
    """Where a task stands in a topic, which several of its inputs may be; 0: the record does not have the topic."""
    return min((one.offset for one in record.positions if one.topic == topic), default=0)


def _samples(broker: Broker, place: TopicPartition, first: int | str) -> Collection[tuple[int, int]]:
    """Ranges of offsets to read; `first` is the first one that counts, or `earliest` or `latest`."""
    low, stable, _ = broker.watermarks([place])[place]
    if first == "latest":
        return []
    low = max(low, first) if isinstance(first, int) else low
    if stable - low <= 2 * SAMPLE:
        return [(low, stable)] if stable > low else []
    return [(low, low + SAMPLE), (stable - SAMPLE, stable)]
