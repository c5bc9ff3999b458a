"""Messages packed into chunks, and unpacked: a chunk is a row with Arrow's bytes and their checksum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import parquet
from pyspark import TaskContext

from cues_kafka.on_spark.staged.manifest import ROW_BITS, checksum

CHUNKS: Final = "part INT, row BIGINT, rows INT, errors INT, checksum BINARY, data STRING, payload BINARY"

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a chunk. It is in memory as a whole in the Spark task that writes it and in the one that publishes it."""


def this_task() -> int:
    """The number of the Spark task that calls."""
    context = TaskContext.get()
    return context.partitionId() if context else 0


def first_row(task: int) -> int:
    """The number of the first row of a Spark task."""
    return task << ROW_BITS


def part_of(row: int, parts: int) -> int:
    """The part of a row, by its number."""
    return (row >> ROW_BITS) % parts


def limited(
    chunks: Iterable[pa.RecordBatch], coming: Iterable[pa.RecordBatch], most: int | None
) -> Iterator[pa.RecordBatch]:
    """Chunks up to a limit of bytes. Above it the input is read to its end, and a chunk without payload says so."""
    size = 0
    for chunk in chunks:
        size += chunk.column("payload").nbytes
        if most is not None and size > most:
            for _ in coming:  # Spark's state is complete after the last row
                pass
            yield _chunk(0, 0, 0, 0, b"", None, None)
            return
        yield chunk


@dataclass(frozen=True)
class Packing(ABC):
    """
    The last function of job 1: Arrow batches of rows in, chunks out.

    Attributes:
        parts: number of parts of a batch.
        most: limit in bytes of a Spark task's chunks; above it the last chunk has no payload. None: no limit.
    """

    parts: int
    most: int | None = field(default=None, kw_only=True)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pack the rows of this Spark task, which all go to one part."""
        coming = iter(batches)
        return limited(self._chunks(coming), coming, self.most)

    @abstractmethod
    def _chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True)
class Pack(Packing):
    """
    Packs messages.

    Attributes:
        check: makes error messages of rows that cannot be sent.
        now_ms: timestamp of rows without one.
    """

    check: Callable[[pa.RecordBatch, int], pa.RecordBatch]
    now_ms: int

    def _chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = this_task()
        row = first_row(task)
        for batch in batches:
            for given in sliced(batch):
                piece = self.check(self._whole(given), row)
                yield chunk_of(task % self.parts, row, piece)
                row += piece.num_rows

    def _whole(self, given: pa.RecordBatch) -> pa.RecordBatch:
        """All columns of messages. Spark does not deliver columns that are the same in every row."""
        count, names = len(given), given.schema.names
        constant = {
            "output": pa.scalar(0, pa.int32()),
            "headers": pa.scalar(None, pa.binary()),
            "timestamp": pa.scalar(self.now_ms, pa.int64()),
            "error": pa.scalar(False),
        }
        columns = {name: given.column(name) if name in names else pa.repeat(constant[name], count) for name in MESSAGES}
        return pa.RecordBatch.from_pydict(columns)


MESSAGES: Final = ("output", "key", "value", "headers", "timestamp", "error")
"""Columns of messages; headers are bytes if no row has any (see `columns`)."""

INDEX: Final = ("part", "row", "rows", "errors", "checksum", "data")
"""Columns of a chunk other than its bytes; `data` names a file of rows (E5), and such a chunk has no messages."""

_TYPES: Final = (pa.int32(), pa.int64(), pa.int32(), pa.int32(), pa.binary(), pa.string(), pa.binary())


def chunk_of(part: int, row: int, piece: pa.RecordBatch) -> pa.RecordBatch:
    """A chunk of messages, of which the first one has this number."""
    payload = packed(piece)
    errors = piece.column("error").true_count
    return _chunk(part, row, piece.num_rows, errors, checksum(payload), None, payload)


def rows_of(part: int, row: int, piece: pa.RecordBatch) -> pa.RecordBatch:
    """A chunk of rows that are no messages, of any columns."""
    payload = packed(piece)
    return _chunk(part, row, piece.num_rows, 0, checksum(payload), None, payload)


def reference(data: str) -> pa.RecordBatch:
    """A chunk that names a file of rows."""
    return _chunk(0, 0, 0, 0, b"", data, b"")


def _chunk(*values: int | str | bytes | None) -> pa.RecordBatch:
    arrays = [pa.array([value], kind) for value, kind in zip(values, _TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[*INDEX, "payload"])


def sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split into pieces of at most about `CHUNK_BYTES`; a single row may have more."""
    if not batch.num_rows:
        return
    step = max(1, batch.num_rows * CHUNK_BYTES // max(batch.nbytes, CHUNK_BYTES))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def packed(piece: pa.RecordBatch) -> bytes:
    """The rows in Arrow's stream format, compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, piece.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(piece)
    return bytes(sink.getvalue())


def unpacked(payload: bytes) -> pa.Table:
    """The rows that `packed` was given."""
    return pa.ipc.open_stream(payload).read_all()


def chunks_in(files: Iterable[Path], part: int) -> Iterator[tuple[int, bytes]]:
    """Read the chunks of one part from this machine's disk, as (number of the first row, bytes), a few at a time."""
    for file in files:
        # Without a buffer all of a row group, some 128 MB, is in memory.
        with parquet.ParquetFile(file, buffer_size=CHUNK_BYTES) as opened:
            for batch in opened.iter_batches(_AT_A_TIME, columns=["part", "row", "payload"]):
                for row in batch.to_pylist():
                    if row["part"] == part:
                        yield row["row"], row["payload"]


_AT_A_TIME: Final = 4
