"""Reads single messages by their places, for replays: those that a request speaks of, and its error message (Y1)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import methodcaller
from typing import Final

from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.records.scanning import chunk_from

REST_S: Final = 5.0
"""After this time without a request the reader is closed."""

KEPT: Final = 500
"""How many messages of a partition are kept of one read: what failed together stands together."""

KEPT_BYTES: Final = 4 << 20
"""How many bytes of values these may have; else only the message that is asked for is kept."""

_OFFSET: Final = methodcaller("offset")


class ReadsAgain:
    """
    Reads what stands in logs below their ends, in one process.

    Args:
        broker: the cluster.
        clock: time.
        group: a group that this user may describe; the reader does not join it or commit there.
    """

    def __init__(self, broker: Broker, clock: Clock, group: str) -> None:
        self._broker, self._clock, self._group = broker, clock, group
        self._reader: Reader | None = None
        self._kept: dict[TopicPartition, Sequence[WireMessage]] = {}  # committed messages in a row
        self._used_s = 0.0

    @property
    def reader(self) -> Reader:
        """A prompt reader with nothing assigned. Leave it so."""
        self._used_s = self._clock.monotonic()
        if self._reader is None:
            self._reader = self._broker.reader(self._group, prompt=True)
        return self._reader

    def message(self, place: TopicPartition, offset: int) -> WireMessage | None:
        """
        The committed message at an offset; None: none is there.

        Raises:
            BrokerError: the partition does not exist, or cannot be read.
        """
        kept = self._kept.get(place, ())
        if not (kept and kept[0].offset() <= offset <= kept[-1].offset()):
            marks = self._broker.watermarks([place])[place]
            if not marks.low <= offset < marks.stable:
                return None
            kept = chunk_from(self._broker, self.reader, place, offset)[:KEPT]
            self._kept[place] = kept = kept if sum(map(len, kept)) <= KEPT_BYTES else kept[:1]
        found = bisect_left(kept, offset, key=_OFFSET)
        return kept[found] if found < len(kept) and kept[found].offset() == offset else None

    def rest(self, *, always: bool = False) -> None:
        """Close the reader if it was not used for a while."""
        if self._reader is not None and (always or self._clock.monotonic() - self._used_s >= REST_S):
            self._reader.close()
            self._reader = None
            self._kept.clear()
