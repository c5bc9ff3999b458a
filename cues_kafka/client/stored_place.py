"""The place of a named tailer, which is stored with what a transaction writes (K3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cues_kafka.client.places import HeldPlace, HeldPlaces, place_key
from cues_kafka.errors import RecoveryError
from cues_kafka.ports.log import Outgoing, TopicPartition


class StoredPlace:
    """
    Where a tailer stands in a topic, by partition, on the records of its id.

    Args:
        held: the records of the id.
        group: the transactional id, and the group whose offsets show the place to lag tools.
        name: the tailer's name.
        places: the partitions that it reads, of one topic.
        topic_id: of that topic: a place is one of this topic, also when another one takes its name.
    """

    def __init__(
        self, held: HeldPlaces, group: str, name: str, places: Sequence[TopicPartition], topic_id: bytes
    ) -> None:
        self._held, self._group, self._name = held, group, name
        self._places = places
        self._topic_id = topic_id

    def open(self, *, again: bool) -> dict[TopicPartition, int]:
        """
        Take the id; gives the places that are stored, or none with `again`.

        Raises:
            RecoveryError: the topic was recreated.
        """
        kept = self._held.open(self._key(place.partition) for place in self._places)
        if again:
            return {}
        known = {place: kept[key] for place in self._places if (key := self._key(place.partition)) in kept}
        self._check(known)
        return {place: one.offset for place, one in known.items()}

    def stored(self) -> dict[TopicPartition, int]:
        """The places that are stored now."""
        return {place: self._held.kept[self._key(place.partition)].offset for place in self._places}

    def store(
        self, offsets: Mapping[int, int], records: Sequence[Outgoing] = (), batch_bytes: int | None = None
    ) -> None:
        """
        Store places and write records in one transaction; see `HeldPlaces.store`.

        Raises:
            BrokerError: nothing of it is written.
            Unknown: it cannot be told whether it is.
        """
        topic = self._places[0].topic
        self._held.store(
            {self._key(partition): (offset, self._topic_id) for partition, offset in offsets.items()},
            records,
            batch_bytes=batch_bytes,
            offsets={TopicPartition(topic, partition): offset for partition, offset in offsets.items()},
            group=self._group,
        )

    def close(self) -> None:
        """Release the client. The place stays."""
        self._held.writer.close()

    def _key(self, partition: int) -> bytes:
        return place_key(self._name, self._places[0].topic, partition)

    def _check(self, known: Mapping[TopicPartition, HeldPlace]) -> None:
        for place, kept in known.items():
            if kept.topic_id != self._topic_id:
                raise RecoveryError(
                    f"topic {place.topic!r} was recreated after tailer {self._name!r} had stored its position, "
                    f"offset {kept.offset} of partition {place.partition}. Open it with again=True to begin at start="
                )
