"""Where named tailers stand: records on the compacted topic `<client>.tailers`, which decide.

One record for each tailer, topic and partition. All records of a tailer are in one partition, which follows from its
name: a transaction that another tailer left open seldom hides them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.errors import CodecError, ConfigError
from cues_kafka.graph.names import tailers_topic
from cues_kafka.plan.topics import backing_config
from cues_kafka.ports import NewTopic, Outgoing, TopicPartition
from cues_kafka.runtime.primitives.access import Access
from cues_kafka.runtime.primitives.asking import ASK_S, read_decided

PARTITIONS: Final = 16
"""How many partitions the topic has. The number is fixed, because a tailer's name decides its partition."""

FIRST_WINDOW: Final = 64
"""Offsets that are read first, from the end: the newest records of a tailer are usually there."""

VERSION: Final = 1


class TailerPlace(NamedTuple):
    """
    Where a named tailer stands in a partition.

    Attributes:
        offset: the next offset to read.
        topic_id: of the topic; a recreated topic has another one.
        transaction: names the transaction that wrote it.
    """

    offset: int
    topic_id: bytes
    transaction: str


class TailerPlaces:
    """Reads and encodes the places of one named tailer in one topic."""

    def __init__(self, access: Access, client: str, tailer: str, topic: str) -> None:
        self._access = access
        self._topic = tailers_topic(client)
        self._tailer = tailer
        self._of = topic
        self._place = TopicPartition(self._topic, partition_for(tailer.encode(), PARTITIONS))

    def prepare(self) -> None:
        """
        Create the topic where it is missing.

        Raises:
            ConfigError: it has another number of partitions.
        """
        broker = self._access.broker
        count = broker.partitions([self._topic]).get(self._topic)
        if count is None:
            brokers = broker.facts([]).brokers
            config = {**backing_config(brokers), "segment.bytes": str(1 << 20)}
            broker.create([NewTopic(self._topic, PARTITIONS, config=config)])
            count = broker.partitions([self._topic]).get(self._topic)
        if count != PARTITIONS:
            raise ConfigError(
                f"topic {self._topic!r} has {count} partitions instead of {PARTITIONS}, so the places of tailers are "
                "not where they were written. Give the client another name"
            )

    def read(self, partitions: Iterable[int]) -> dict[int, TailerPlace]:
        """
        The newest places; a partition without one is left out. Call it with the tailer's id taken.

        Raises:
            Unknown: a transaction of another tailer hides them, and does not end.
            CodecError: a record is none of ours.
        """
        keys = {self._key(partition): partition for partition in partitions}
        broker = self._access.broker
        low, _, high = broker.watermarks([self._place])[self._place]
        found: dict[int, TailerPlace] = {}
        window, end = FIRST_WINDOW, high
        while end > low and len(found) < len(keys):
            start = max(low, high - window)
            group = self._access.group(self._topic)
            newest: dict[int, TailerPlace] = {}
            for message in read_decided(broker, {self._place: (start, end)}, self._access.clock, ASK_S, group=group):
                partition = keys.get(message.key() or b"")
                if partition is not None:
                    newest[partition] = _decoded(message.value(), self._topic)
            found = newest | found  # what was found nearer to the end is newer
            window, end = window * 8, start
        return found

    def records(self, places: Mapping[int, TailerPlace]) -> list[Outgoing]:
        """The records of new places."""
        return [Outgoing(*self._place, self._key(partition), _encoded(place)) for partition, place in places.items()]

    def _key(self, partition: int) -> bytes:
        return json.dumps([self._tailer, self._of, partition], separators=(",", ":")).encode()


def _encoded(place: TailerPlace) -> bytes:
    fields = {
        "version": VERSION,
        "offset": place.offset,
        "topic_id": place.topic_id.hex(),
        "transaction": place.transaction,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def _decoded(data: bytes | None, topic: str) -> TailerPlace:
    try:
        fields = json.loads(data or b"")
        if fields["version"] == VERSION:
            return TailerPlace(int(fields["offset"]), bytes.fromhex(fields["topic_id"]), str(fields["transaction"]))
        why = f"it has version {fields['version']!r}; use the release that wrote it, or a newer one"
    except (ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
    raise CodecError(f"a record of {topic!r} is no place of a tailer: {why}. Only tailers may write there")
