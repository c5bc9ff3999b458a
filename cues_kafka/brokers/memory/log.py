"""One partition as a log: messages with offsets, and offsets that hold no message.

A commit or abort marker takes an offset and stores nothing. An abort, a compaction and a trim remove messages, and
their offsets are never given out again. So everything below the last stable offset is committed, and a read is a slice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cues_kafka.errors import AbortableError, BrokerError
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import Headers, TopicPartition

CREATE_TIME = 1
LOG_APPEND_TIME = 2

DEFAULTS = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": str((1 << 63) - 1),
    "message.timestamp.type": "CreateTime",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""The settings of a topic that says nothing else."""

Now: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
"""The present as a timestamp of both types, made once for a batch: `(CREATE_TIME, ms), (LOG_APPEND_TIME, ms)`."""


def now_at(seconds: float) -> Now:
    """The present, given in seconds since the epoch."""
    milliseconds = int(seconds * 1000)
    return (CREATE_TIME, milliseconds), (LOG_APPEND_TIME, milliseconds)


@dataclass(slots=True, eq=False, repr=False)
class MemoryMessage:
    """A stored message, with the methods of `WireMessage`. All readers share it, and no broker changes it."""

    _topic: str
    _partition: int
    _offset: int
    _key: bytes | None
    _value: bytes | None
    _headers: Headers | None
    _timestamp: tuple[int, int]
    transaction: int

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers | None:
        return self._headers

    def set_headers(self, value: Headers) -> None:
        self._headers = value

    def timestamp(self) -> tuple[int, int]:
        return self._timestamp

    def __len__(self) -> int:
        return len(self._value or b"")

    def __repr__(self) -> str:
        return f"<{self._topic}/{self._partition}@{self._offset} {self._key!r}: {self._value!r}>"


class Log:
    """
    The messages of one partition.

    Attributes:
        start: the first offset that may be read.
        end: the next offset to be given out; with one replica this is the high watermark.
        open: number of each open transaction that wrote here -> its first offset here.
        compacted: a message needs a key, as Kafka demands of a compacted topic.
        append_time: timestamps are the broker's.
        older_ms, newer_ms: how far other timestamps may be from the present.
        refused: batches `[start, end)` that readers refuse, as a client does what it cannot unpack.
    """

    def __init__(self, topic: str, partition: int, config: Mapping[str, str]) -> None:
        self.topic = topic
        self.partition = partition
        self.compacted: bool = "compact" in config["cleanup.policy"]
        self.append_time: bool = config["message.timestamp.type"] == "LogAppendTime"
        self.max_bytes: int = int(config["max.message.bytes"])
        self.older_ms: int = int(config["message.timestamp.before.max.ms"])
        self.newer_ms: int = int(config["message.timestamp.after.max.ms"])
        self.start: int = 0
        self.end: int = 0
        self.open: dict[int, int] = {}
        self.refused: list[tuple[int, int]] = []
        self.offsets: list[int] = []
        self.messages: list[MemoryMessage] = []

    @property
    def stable(self) -> int:
        """The last stable offset: the first offset of the oldest open transaction, else the end."""
        return max(self.start, min(self.open.values())) if self.open else self.end

    def readable_end(self) -> int:
        """Where a read_committed reader stops: the last stable offset."""
        return self.stable

    def end_reported(self, position: int) -> int | None:
        """The offset of the end-of-partition event for a reader at `position`, None before the end."""
        return position if position >= self.readable_end() else None

    def start_for(self, position: int) -> int:
        """
        Where a reader at `position` goes on.

        Raises:
            BrokerError: ``_AUTO_OFFSET_RESET``: the offset is out of range; a guess would skip or repeat data.
        """
        if self.start <= position <= self.end:
            return position
        raise BrokerError(
            f"{self.topic}/{self.partition}: offset {position} is out of range [{self.start}, {self.end}]",
            code="_AUTO_OFFSET_RESET",
            at=TopicPartition(self.topic, self.partition),
        )

    def watermarks(self) -> Watermarks:
        """The bounds of this partition."""
        return Watermarks(self.start, self.stable, self.end)

    def offset_at(self, time_ms: int) -> int | None:
        """The first offset at or past a time; None: there is none."""
        return next((m.offset() for m in self.messages if m.timestamp()[1] >= time_ms), None)

    def append(  # noqa: PLR0917 - called once for each message: keywords cost
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        timestamp_ms: int,
        now: Now,
        transaction: int,
    ) -> MemoryMessage:
        """
        Store a message. `transaction` 0 is none, `timestamp_ms` 0 is now.

        Raises:
            AbortableError: the settings of the topic refuse the message.
        """
        timestamp = (CREATE_TIME, timestamp_ms) if timestamp_ms and not self.append_time else now[self.append_time]
        self._check(key, value, age_ms=now[self.append_time][1] - timestamp[1] if timestamp_ms > 0 else 0)
        offset = self.end
        copied = list(headers) if headers else None
        message = MemoryMessage(self.topic, self.partition, offset, key, value, copied, timestamp, transaction)
        self.offsets.append(offset)
        self.messages.append(message)
        self.end = offset + 1
        return message

    def _check(self, key: bytes | None, value: bytes | None, *, age_ms: int) -> None:
        if self.compacted and key is None:
            raise AbortableError(
                f"{self.topic}: a compacted topic takes no message without a key", code="INVALID_RECORD"
            )
        if value is not None and len(value) > self.max_bytes:
            raise AbortableError(
                f"{self.topic}: a value of {len(value)} bytes is over max.message.bytes={self.max_bytes}",
                code="MSG_SIZE_TOO_LARGE",
            )
        if not -self.newer_ms <= age_ms <= self.older_ms:
            raise AbortableError(
                f"{self.topic}: a timestamp {abs(age_ms)} ms {'ago' if age_ms > 0 else 'ahead'} is outside of "
                "message.timestamp.before.max.ms and message.timestamp.after.max.ms",
                code="INVALID_TIMESTAMP",
            )

    def mark(self) -> None:
        """Write a control record (a commit or abort marker): one offset without a message."""
        self.end += 1

    def discard(self, transaction: int, first: int) -> None:
        """Remove the messages of an aborted transaction, which began at `first`."""
        at = bisect_left(self.offsets, first)
        self._keep(at, None, [message for message in self.messages[at:] if message.transaction != transaction])

    def _keep(self, first: int, end: int | None, kept: list[MemoryMessage]) -> None:
        self.messages[first:end] = kept
        self.offsets[first:end] = [message.offset() for message in kept]

    def read(self, position: int, end: int, limit: int) -> tuple[list[MemoryMessage], int]:
        """
        Up to `limit` messages of [position, end), and the position after them.

        When no message is left below `end` the position is `end`: it moves over markers and removed messages.
        """
        first = bisect_left(self.offsets, position)
        last = bisect_left(self.offsets, end, first)
        if last - first <= limit:
            return self.messages[first:last], max(position, end)
        last = first + limit
        return self.messages[first:last], self.offsets[last - 1] + 1

    def trim(self, offset: int) -> None:
        """Remove the messages below `offset`; the start never moves back."""
        self._keep(0, bisect_left(self.offsets, offset), [])
        self.start = max(self.start, offset)

    def compact(self, *, tombstones: bool) -> None:
        """
        Keep only the newest message of each key below the last stable offset; offsets stay.

        Args:
            tombstones: remove newest messages without a value, too (Kafka does, after `delete.retention.ms`).
        """
        bound = bisect_left(self.offsets, self.stable)
        newest = {message.key(): message for message in self.messages[:bound]}
        kept = [message for message in newest.values() if not (tombstones and message.value() is None)]
        self._keep(0, bound, sorted(kept, key=MemoryMessage.offset))
