"""Write the rows of a staged batch into Parquet files, and make error messages of those that do not fit (E5)."""

from __future__ import annotations

import json
import secrets
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

import pyarrow as pa
from pyarrow import parquet

from cues_kafka.on_spark.staged.chunks import Packing, chunk_of, first_row, reference, sliced, this_task
from cues_kafka.on_spark.staged.error_rows import Refusing
from cues_kafka.on_spark.staged.manifest import StagedFile
from cues_kafka.sinks.blobs.fit import cast, lost, unfit

ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
"""Bytes of rows that a Spark task has in memory before it writes them as a row group."""


class RowFiles(AbstractContextManager["RowFiles"], ABC):
    """Writes the rows of one Spark task into files."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> Iterator[StagedFile]:
        """Take rows; gives the files that are full."""

    @abstractmethod
    def finish(self) -> Iterator[StagedFile]:
        """Gives the last files, if there are rows that no other one has."""


@dataclass(frozen=True)
class WriteRows(Packing):
    """
    Writes the rows into files, and packs their names and error messages. A file that no reference names is never read.

    Attributes:
        refusing: makes error messages.
        table: its name.
        schema: of the rows.
    """

    refusing: Refusing
    table: str
    schema: pa.Schema

    @abstractmethod
    def _writer(self, task: int) -> RowFiles:
        """Make the writer of a Spark task."""

    def _chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = this_task()
        row = first_row(task)
        with self._writer(task) as writer:
            for batch in batches:
                good, refused = fitting(batch, self.schema)
                if refused:
                    numbered = [(row + at, data, why) for at, data, why in refused]
                    messages = self.refusing.messages(numbered, self.table)
                    done = 0
                    for piece in sliced(messages):
                        yield chunk_of(task % self.parts, numbered[done][0], piece)
                        done += len(piece)
                yield from map(_reference, writer.write(good))
                row += len(batch)
            yield from map(_reference, writer.finish())


def _reference(file: StagedFile) -> pa.RecordBatch:
    return reference(json.dumps(file))


class FileWriter(RowFiles):
    """
    Writes batches of rows into files of limited size, each through a file on the local disk.

    Names have a random part, because Spark may run a task several times, also side by side.
    """

    def __init__(
        self, put: Callable[[str, Path], None], prefix: str, table: str, schema: pa.Schema, max_file_bytes: int
    ) -> None:
        """
        Args:
            put: uploads a local file to a path.
            prefix: what paths begin with.
            table: which the files are of.
            schema: of the files.
            max_file_bytes: after how many bytes of rows another file begins.
        """
        self._put_file, self._table, self._schema, self._max = put, table, schema, max_file_bytes
        self._prefix = f"{prefix}-{secrets.token_hex(8)}"
        self._count = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = self._bytes = self._rows = 0
        self._directory = tempfile.TemporaryDirectory(prefix="cues-kafka-files-")
        self._writer: parquet.ParquetWriter | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()
        self._directory.cleanup()

    def write(self, batch: pa.RecordBatch) -> Iterator[StagedFile]:
        if not len(batch):
            return
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self._bytes += batch.nbytes
        full = self._bytes >= self._max
        if full or self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()
        if full:
            yield self._put()

    def finish(self) -> Iterator[StagedFile]:
        self._flush()
        if self._rows:
            yield self._put()

    def _more(self, local: Path) -> str:
        """What `StagedFile.more` says of a file."""
        del local
        return ""

    @property
    def _local(self) -> Path:
        return Path(self._directory.name) / "rows.parquet"

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._local, self._schema)
        self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._rows += sum(map(len, self._waiting))
        self._waiting, self._waiting_bytes = [], 0

    def _put(self) -> StagedFile:
        assert self._writer is not None
        self._writer.close()
        path = f"{self._prefix}-{self._count}.parquet"
        made = StagedFile(path, self._table, self._rows, self._local.stat().st_size, self._more(self._local))
        self._put_file(path, self._local)
        self._local.unlink()
        self._writer, self._bytes, self._rows = None, 0, 0
        self._count += 1
        return made


def fitting(batch: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, list[tuple[int, bytes, str]]]:
    """
    Rows with the types of a schema, and those that do not fit: (place, the row as JSON, why) of each.

    A value fits if nothing of it is lost: 1.0 is a whole number, and 1.5 is none (see `fit.lost`).
    """
    given = [batch.column(field.name) for field in schema]
    if [one.type for one in given] == schema.types:
        return pa.RecordBatch.from_arrays(given, schema=schema), []
    try:
        made = _cast(batch, schema)
        whole = not any(lost(batch.column(field.name), made.column(at)) for at, field in enumerate(schema))
    except pa.ArrowInvalid:
        whole = False
    if whole:
        return made, []
    why: dict[int, str] = {}
    for field in schema:
        for at in unfit(batch.column(field.name), field.type):
            why.setdefault(at, f"field {field.name!r} is no {field.type}")  # its value may be redacted
    kept = pa.array([at for at in range(len(batch)) if at not in why], pa.int64())
    refused = [(at, _as_json(batch.slice(at, 1)), text) for at, text in sorted(why.items())]
    return _cast(batch.take(kept), schema), refused


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [cast(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_json(row: pa.RecordBatch) -> bytes:
    [values] = row.to_pylist()
    return json.dumps(values, default=str).encode()
