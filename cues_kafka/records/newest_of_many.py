"""The newest records of many tasks that recover in the same moment (R4), read by one reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from cues_kafka.core.records import KEY
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Fetched, TopicPartition, WireMessage
from cues_kafka.records.reading import FIRST_WINDOW

TOGETHER_S: Final = 1.0
"""How long one reader may take for all. An open transaction may hide one of the records, and the others do not wait."""


class BackingRange(NamedTuple):
    """Where a partition of a backing topic begins, and its high watermark, see `records.reading.newest`."""

    low: int
    high: int

    @property
    def start(self) -> int:
        """The first offset that is read."""
        return max(self.low, self.high - FIRST_WINDOW)


class _PlaceSearch:
    """What was read of one partition."""

    def __init__(self, extent: BackingRange) -> None:
        self.extent = extent
        self.found: WireMessage | None = None

    def take(self, fetched: Fetched) -> bool:
        """Whether everything below the high watermark was seen."""
        high = self.extent.high
        for message in fetched.messages:
            if message.offset() >= high:
                return True
            if message.key() == KEY:
                self.found = message
        last = fetched.messages[-1].offset() if fetched.messages else -1
        return last == high - 1 or (fetched.eof is not None and fetched.eof >= high)


def newest_of_many(
    broker: Broker,
    extents: Mapping[TopicPartition, BackingRange],
    clock: Clock,
    *,
    group: str,
    limit_s: float = TOGETHER_S,
) -> dict[TopicPartition, WireMessage | None]:
    """
    Read the newest committed record of each task, or None.

    Args:
        broker: where to read; one reader is opened and closed.
        extents: the backing partitions of the tasks.
        clock: bounds the wait.
        group: a group that the caller may describe; the reader does not join it or commit there.
        limit_s: how long it may take, in seconds.

    Returns:
        By partition. One is left out if its record was not reached in this time, or stands before the last
        `FIRST_WINDOW` offsets; `records.reading.newest` finds it, or says what hides it.

    Raises:
        BrokerError: a partition cannot be read.
    """
    found: dict[TopicPartition, WireMessage | None] = {p: None for p, (low, high) in extents.items() if high <= low}
    open_ = {place: _PlaceSearch(extent) for place, extent in extents.items() if place not in found}
    if not open_:
        return found
    reader = broker.reader(group, prompt=True)
    try:
        reader.assign({place: search.extent.start for place, search in open_.items()})
        deadline = clock.monotonic() + limit_s
        while open_ and (left_s := deadline - clock.monotonic()) > 0:
            for fetched in reader.poll(min(0.2, left_s)):
                search = open_.get(fetched.partition)
                if search is not None and search.take(fetched):
                    del open_[fetched.partition]
                    if search.found is not None or search.extent.start == search.extent.low:
                        found[fetched.partition] = search.found
    finally:
        reader.close()
    return found
