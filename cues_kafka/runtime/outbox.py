"""The records of a batch, in order, kept as columns.

A batch holds up to ten thousand records. As one tuple and one list of headers each they would be twenty thousand
containers that the garbage collector walks through again and again, which cost more than calling the function did; as
columns they are six lists of strings and numbers, which it does not look into.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cues_kafka.core.delivery import HEADER
from cues_kafka.ports import Headers


class Outbox:
    """Records to produce; iterating gives tuples shaped like `ports.Outgoing`, made one at a time."""

    __slots__ = ("_headers", "_keys", "_partitions", "_timestamps", "_topics", "_values")

    def __init__(self) -> None:
        self._topics: list[str] = []
        self._partitions: list[int | None] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[bytes | Headers | None] = []  # bytes: a provenance header alone
        self._timestamps: list[int] = []

    def add(
        self, topic: str, partition: int | None, key: bytes | None, value: bytes | None, headers: Any, timestamp_ms: int
    ) -> None:
        """Add one record, of any kind."""
        self._topics.append(topic)
        self._partitions.append(partition)
        self._keys.append(key)
        self._values.append(value)
        self._headers.append(headers)
        self._timestamps.append(timestamp_ms)

    def extend(
        self,
        topic: str,
        keyless: int,
        keys: Sequence[bytes | None],
        values: Sequence[bytes],
        headers: Sequence[bytes | Headers],
        timestamps_ms: Sequence[int],
    ) -> None:
        """
        Add records for one topic.

        Args:
            topic: the topic.
            keyless: partition of those without a key.
            keys, values, timestamps_ms: columns.
            headers: column; bytes stand for a provenance header alone.
        """
        self._topics += [topic] * len(values)
        if None in keys:
            self._partitions += [keyless if key is None else None for key in keys]
        else:
            self._partitions += [None] * len(values)
        self._keys += keys
        self._values += values
        self._headers += headers
        self._timestamps += timestamps_ms

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        headers = ([(HEADER, h)] if type(h) is bytes else h for h in self._headers)
        return zip(
            self._topics, self._partitions, self._keys, self._values, headers, self._timestamps, strict=True
        )  # fmt: skip
