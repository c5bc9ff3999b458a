"""Which tasks would stop because keys are not in the partitions where the declared partitioner puts them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from cues_kafka.brokers.partitioners import place_of
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.placed import keyed_topics
from cues_kafka.plan.processors import PlannedStop
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.scanning import read_range
from cues_kafka.task.calling.placements import placement_of

SAMPLE: Final = 100
"""The number of offsets that are read at each end of a partition: a topic may have changed its writers."""

PARTITIONS: Final = 16
"""At most this number of partitions of a topic, evenly spread: writers place keys by one rule in all of them."""


def misplaced(graph: Graph, broker: Broker, facts: ClusterFacts, names: Collection[str]) -> Iterator[PlannedStop]:
    """
    Read some messages of each partition of the topics whose keys these processors count on.

    Raises:
        BrokerError: the cluster does not answer, or this user may not read a topic.
    """
    for name, processor in graph.processors.items():
        keyed = keyed_topics(processor) if name in names else {}
        for topic in keyed:
            known = facts.topics.get(topic)
            if known is None or known.partitions < 2 or place_of(graph.topic(topic).partitioner) is None:
                continue
            for partition in range(0, known.partitions, -(-known.partitions // PARTITIONS)):
                placement = placement_of(graph, processor, topic, facts, partition)
                for start, end in _samples(broker, TopicPartition(topic, partition)):
                    placement.look([*read_range(broker, TopicPartition(topic, partition), start, end)])
                if (found := placement.found) is not None:
                    yield PlannedStop((f"{name}/{partition}",), found.text, found.remedy)
                    break  # the others would say the same of this topic


def _samples(broker: Broker, place: TopicPartition) -> Collection[tuple[int, int]]:
    low, stable, _ = broker.watermarks([place])[place]
    if stable - low <= 2 * SAMPLE:
        return [(low, stable)] if stable > low else []
    return [(low, low + SAMPLE), (stable - SAMPLE, stable)]
