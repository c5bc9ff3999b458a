"""Whether Kafka has the places of the records that a target holds, before they are published (E1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cues_kafka.errors import ConfigError
from cues_kafka.ports.broker import Broker
from cues_kafka.words import SERVER, count


def check_places(records: Iterable[tuple[Any, ...]], broker: Broker) -> None:
    """
    Check that each topic exists, and has the partition that its function named.

    A record without a partition goes where its key says among the partitions of today: nothing of its step was seen.

    Raises:
        ConfigError: it does not; the remedy says what to do, and then the task publishes the records by itself.
        BrokerError: the cluster does not answer.
    """
    least: dict[str, int] = {}  # partitions that a topic must have
    for topic, partition, *_ in records:
        least[topic] = max(least.get(topic, 1), 1 if partition is None else partition + 1)
    there = broker.partitions(list(least)) if least else {}
    for topic, partitions in least.items():
        if topic not in there:
            raise ConfigError(
                f"messages of an attempt that is committed in the target go to {topic!r}, which does not exist",
                remedy="`cues-kafka plan MODULE:GRAPH --apply` creates it, and the task publishes them by itself",
            )
        if there[topic] < partitions:
            raise ConfigError(
                "messages of an attempt that is committed in the target go to partition "
                f"{partitions - 1} of {topic!r}, which has {count(there[topic], 'partition')}",
                remedy=f"kafka-topics {SERVER} --alter --topic {topic} --partitions {partitions} adds what is missing, "
                "and the task publishes them by itself",
            )
