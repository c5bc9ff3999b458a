"""The records of a batch, in order, kept as columns.

A batch holds up to ten thousand records. With one tuple and one list of headers each, the garbage collector would walk
through twenty thousand containers again and again. That took longer than the calls of the function. Columns are six
lists of strings and numbers, which the collector does not look into. A session that takes columns gets `columns`, any
other one gets rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import Any

from cues_kafka.core.delivery import HEADER
from cues_kafka.graph.message import EARLIEST_MS, written_ms
from cues_kafka.ports.log import Headers

BY_KEY = -1
"""Stands in the column of partitions where the key decides."""


class Outbox:
    """Records to produce. Iterating makes tuples shaped like `ports.log.Outgoing`, one at a time."""

    __slots__ = ("_alone", "_headers", "_keys", "_partitions", "_timestamps", "_topics", "_values")

    def __init__(self) -> None:
        self._topics: list[str] = []
        self._partitions: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[bytes | Headers | None] = []  # bytes: a provenance header alone
        self._timestamps: list[int] = []
        self._alone = 0  # these records, from the first one on, have bytes as headers

    def add(
        self, topic: str, partition: int | None, key: bytes | None, value: bytes | None, headers: Any, timestamp_ms: int
    ) -> None:
        """Add one record, of any kind."""
        self._topics.append(topic)
        self._partitions.append(BY_KEY if partition is None else partition)
        self._keys.append(key)
        self._values.append(value)
        self._headers.append(headers)
        self._timestamps.append(timestamp_ms)

    def extend_rows(self, rows: Sequence[tuple[str, int | None, bytes | None, bytes | None, Any, int]]) -> None:
        """Add records of any kind, each with what `add` takes."""
        if not rows:
            return
        topics, partitions, keys, values, headers, times_ms = zip(*rows, strict=True)
        self._topics += topics
        self._partitions += [BY_KEY if one is None else one for one in partitions]
        self._keys += keys
        self._values += values
        self._headers += headers
        self._timestamps += times_ms

    def extend_alike(
        self, topic: str, partition: int, keys: Collection[bytes], values: Collection[bytes | None], timestamp_ms: int
    ) -> None:
        """
        Add records without headers for one partition.

        Args:
            topic: the topic.
            partition: the partition.
            keys: of the records.
            values: of the records, as many.
            timestamp_ms: of all of them.
        """
        count = len(values)
        self._topics += [topic] * count
        self._partitions += [partition] * count
        self._keys += keys
        self._values += values
        self._headers += [None] * count
        self._timestamps += [timestamp_ms] * count

    def extend(
        self,
        topic: str,
        keyless: int,
        keys: Sequence[bytes | None],
        values: Sequence[bytes],
        headers: Sequence[bytes | Headers],
        timestamps_ms: Sequence[int],
        *,
        alone: bool = False,
    ) -> None:
        """
        Add records for one topic.

        Args:
            topic: the topic.
            keyless: the partition of records without a key.
            keys, values: columns.
            timestamps_ms: those of the inputs, a column; see `written_ms`.
            headers: a column, too; bytes stand for a provenance header alone.
            alone: whether all headers are bytes.
        """
        if alone and self._alone == len(self._topics):
            self._alone += len(values)
        self._topics += [topic] * len(values)
        if all(keys) or None not in keys:  # the first question is the quicker one
            self._partitions += [BY_KEY] * len(values)
        else:
            self._partitions += [keyless if key is None else BY_KEY for key in keys]
        self._keys += keys
        self._values += values
        self._headers += headers
        early = min(timestamps_ms, default=EARLIEST_MS) < EARLIEST_MS
        self._timestamps += map(written_ms, timestamps_ms) if early else timestamps_ms

    def cut(self, length: int) -> None:
        """Drop all records but the first ones."""
        for column in (self._topics, self._partitions, self._keys, self._values, self._headers, self._timestamps):
            del column[length:]
        self._alone = min(self._alone, length)

    def columns(self) -> tuple[Any, ...]:
        """
        Topics, partitions (-1: by key), keys, values, headers (made one at a time), timestamps.

        Raises:
            ValueError: the columns differ in length, so that a reader would lose records.
        """
        return (*self.lists()[:4], self._each_header(), self._timestamps)

    def lists(self) -> tuple[list[Any], ...]:
        """
        The same as `columns`, with headers as they are kept: bytes stand for a provenance header alone.

        Raises:
            ValueError: as there.
        """
        made: tuple[list[Any], ...] = (
            self._topics,
            self._partitions,
            self._keys,
            self._values,
            self._headers,
            self._timestamps,
        )
        if len({len(column) for column in made}) > 1:
            raise ValueError(f"columns of {[len(column) for column in made]} records")
        return made

    def _each_header(self) -> Iterable[Headers | None]:
        first, rest = islice(self._headers, self._alone), islice(self._headers, self._alone, None)
        return chain(
            map(list, zip(zip(repeat(HEADER), first), strict=False)),  # type: ignore[arg-type]
            ([(HEADER, h)] if type(h) is bytes else h for h in rest),  # type: ignore[misc]
        )

    def __len__(self) -> int:
        return len(self._topics)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        header, partition = self._headers[index], self._partitions[index]
        return (
            self._topics[index],
            None if partition == BY_KEY else partition,
            self._keys[index],
            self._values[index],
            [(HEADER, header)] if type(header) is bytes else header,
            self._timestamps[index],
        )

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return map(self.__getitem__, range(len(self._topics)))
