"""What recoveries look up in the cluster (R2 to R5), each task by itself unless a worker gives something better."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import TopicFacts, Watermarks
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.records.reading import newest


class Lookups(Protocol):
    """
    Each answer is newer than its question: a recovery asks behind R1, and no earlier answer would be enough.

    All methods raise what those of `ports.broker.Broker` do. May be called on any thread.
    """

    def committed(self, group: str, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """The stable committed offsets of a group (R2)."""
        ...

    def watermarks(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        """The ends of partitions of the cluster's topics (R3, R5)."""
        ...

    def facts(self, topics: Collection[str]) -> Mapping[str, TopicFacts]:
        """Ids and widths of the cluster's topics; one that does not exist is left out."""
        ...

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        """Widths of the cluster's topics; one that does not exist is left out."""
        ...

    def newest(self, place: TopicPartition, low: int, high: int, *, group: str) -> WireMessage | None:
        """The newest record of a task (R4), see `records.reading.newest`."""
        ...


class LookupsAlone:
    """Asks the cluster at once, see `Lookups`."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker, self._clock = broker, clock

    def committed(self, group: str, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        return self._broker.committed(group, places)

    def watermarks(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        return self._broker.watermarks(places)

    def facts(self, topics: Collection[str]) -> Mapping[str, TopicFacts]:
        return self._broker.facts(topics).topics

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        return self._broker.partitions(topics)

    def newest(self, place: TopicPartition, low: int, high: int, *, group: str) -> WireMessage | None:
        return newest(self._broker, place, low, high, self._clock, group=group)
