"""One partition as a log: messages with offsets, and offsets that hold no message any more.

A commit or abort marker takes an offset and stores nothing. Messages of an aborted transaction are removed at the
abort, compacted and trimmed ones when that happens; their offsets are never given out again. So whatever stands below
the last stable offset is committed, and a read is a slice.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TypeAlias

from cues_kafka.ports import Headers, Watermarks

CREATE_TIME = 1
LOG_APPEND_TIME = 2


Now: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
"""The present as a timestamp of both types, made once for a batch: `(CREATE_TIME, ms), (LOG_APPEND_TIME, ms)`."""


def now_at(seconds: float) -> Now:
    """The present."""
    milliseconds = int(seconds * 1000)
    return (CREATE_TIME, milliseconds), (LOG_APPEND_TIME, milliseconds)


class MemoryMessage:
    """A stored message, with the methods of `WireMessage`. Shared by all who read it, and changed by no broker."""

    __slots__ = ("_headers", "_key", "_offset", "_partition", "_timestamp", "_topic", "_value", "transaction")

    def __init__(  # noqa: PLR0917 - one per message: keywords cost
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        timestamp: tuple[int, int],
        transaction: int,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = headers
        self._timestamp = timestamp
        self.transaction = transaction

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
        start: first offset that may be read.
        end: the next offset to be given out: the high watermark, as there is one replica.
        open: number of each open transaction that wrote here -> its first offset here.
        compacted: messages need a key (as Kafka demands of a compacted topic).
        append_time: timestamps are the broker's.
        older_ms, newer_ms: how far from the present other timestamps may be.
    """

    __slots__ = (
        "append_time",
        "compacted",
        "end",
        "max_bytes",
        "messages",
        "newer_ms",
        "offsets",
        "older_ms",
        "open",
        "partition",
        "start",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        compacted: bool,
        append_time: bool,
        max_bytes: int,
        older_ms: int,
        newer_ms: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.compacted = compacted
        self.append_time = append_time
        self.max_bytes = max_bytes
        self.older_ms = older_ms
        self.newer_ms = newer_ms
        self.start = 0
        self.end = 0
        self.open: dict[int, int] = {}
        self.offsets: list[int] = []
        self.messages: list[MemoryMessage] = []

    @property
    def stable(self) -> int:
        """The last stable offset: the first offset of the oldest open transaction, else the end."""
        return max(self.start, min(self.open.values())) if self.open else self.end

    def watermarks(self) -> Watermarks:
        """The bounds of this partition."""
        return Watermarks(self.start, self.stable, self.end)

    def append(  # noqa: PLR0917 - one per message: keywords cost
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        timestamp_ms: int,
        now: Now,
        transaction: int,
    ) -> MemoryMessage:
        """Store a message; `transaction` 0 is none, `timestamp_ms` 0 is now."""
        offset = self.end
        timestamp = (CREATE_TIME, timestamp_ms) if timestamp_ms and not self.append_time else now[self.append_time]
        copied = list(headers) if headers else None
        message = MemoryMessage(self.topic, self.partition, offset, key, value, copied, timestamp, transaction)
        self.offsets.append(offset)
        self.messages.append(message)
        self.end = offset + 1
        return message

    def mark(self) -> None:
        """Write a control record (a commit or abort marker): one offset without a message."""
        self.end += 1

    def discard(self, transaction: int, first: int) -> None:
        """Remove the messages of an aborted transaction, which began at `first`."""
        at = bisect_left(self.offsets, first)
        kept = [message for message in self.messages[at:] if message.transaction != transaction]
        self.messages[at:] = kept
        self.offsets[at:] = [message.offset() for message in kept]

    def read(self, position: int, end: int, limit: int) -> tuple[list[MemoryMessage], int]:
        """
        Up to `limit` messages of [position, end), and the position after them.

        Where nothing is left below `end` the position is `end`: it moves over markers and removed messages.
        """
        first = bisect_left(self.offsets, position)
        last = bisect_left(self.offsets, end, first)
        if last - first <= limit:
            return self.messages[first:last], max(position, end)
        last = first + limit
        return self.messages[first:last], self.offsets[last - 1] + 1

    def trim(self, offset: int) -> None:
        """Remove what is below `offset`; the log never starts earlier again."""
        at = bisect_left(self.offsets, offset)
        del self.offsets[:at], self.messages[:at]
        self.start = max(self.start, offset)

    def compact(self, *, tombstones: bool) -> None:
        """
        Keep only the newest message of each key below the last stable offset; offsets stay.

        Args:
            tombstones: remove newest messages without a value, too (Kafka does, after `delete.retention.ms`).
        """
        bound = bisect_left(self.offsets, self.stable)
        newest = self.newest_of_each_key(self.messages[:bound])
        kept = [message for message in newest if not (tombstones and message.value() is None)]
        self.messages[:bound] = kept
        self.offsets[:bound] = [message.offset() for message in kept]

    def newest_of_each_key(self, messages: list[MemoryMessage]) -> list[MemoryMessage]:
        """The messages that compaction keeps, in order of offset."""
        newest = {message.key(): message for message in messages}
        return sorted(newest.values(), key=lambda message: message.offset())
