"""Finds the transaction that holds the offsets of a group, and the command of Kafka's tools that ends it.

A worker ends the transaction of a former owner when it takes the transactional id (R1). Where the coordinator has lost
the id, nothing ends it: neither its time-out nor a new owner. Clients of librdkafka cannot write the markers either.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cues_kafka.errors import BrokerError
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import TopicPartition
from cues_kafka.words import SERVER

OFFSETS: Final = "__consumer_offsets"
"""The topic of brokers with the offsets of groups."""


class HeldOffsets(NamedTuple):
    """
    An open transaction that holds offsets of a group.

    Attributes:
        place: the partition of the brokers' topic that has the offsets of the group; None: this user may not see it.
        start: where the oldest open transaction there begins; None: that may not be asked.
    """

    place: TopicPartition | None = None
    start: int | None = None

    @property
    def command(self) -> str:
        """What ends it, or finds it; with `words.SERVER`."""
        if self.place is None:
            return f"`kafka-transactions {SERVER} find-hanging --topic {OFFSETS}` finds it, and its `abort` ends it"
        at = f"--topic {OFFSETS} --partition {self.place.partition}"
        if self.start is None:
            return f"`kafka-transactions {SERVER} find-hanging {at}` finds it, and its `abort` ends it"
        return f"`kafka-transactions {SERVER} abort {at} --start-offset {self.start}`"


def where_held(broker: Broker, group: str) -> HeldOffsets:
    """
    The transaction that holds offsets of a group, if one does, which the broker says as `UnstableOffsets`.

    Raises:
        BrokerError: the cluster does not answer.
    """
    place = None
    try:
        if width := broker.partitions([OFFSETS]).get(OFFSETS, 0):
            place = TopicPartition(OFFSETS, offsets_partition(group, width))
            marks = broker.watermarks([place])[place]
            return HeldOffsets(place, marks.stable if marks.stable < marks.high else None)
    except BrokerError as error:
        if not error.forbidden:
            raise
    return HeldOffsets(place)


def offsets_partition(group: str, width: int) -> int:
    """The partition of the brokers' topic that has the offsets of a group: its Java hash decides."""
    units = group.encode("utf-16-be")
    number = 0
    for at in range(0, len(units), 2):
        number = (31 * number + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    signed = number - (1 << 32) if number >> 31 else number
    return (0 if signed == -(1 << 31) else abs(signed)) % width
