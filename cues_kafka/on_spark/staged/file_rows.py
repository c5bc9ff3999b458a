"""Parquet files of a store as a `FrameTarget` (E5), which a log of commits in the store commits."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from cues_kafka.core.records import Staged
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.graph.blobs import FileTable
from cues_kafka.on_spark.file_columns import file_columns
from cues_kafka.on_spark.staged.chunks import Packing, chunk_of, first_row, reference, sliced, this_task
from cues_kafka.on_spark.staged.error_rows import Refusing
from cues_kafka.on_spark.staged.manifest import Manifest, StagedFile
from cues_kafka.on_spark.staged.target import FrameCommits, FrameTarget
from cues_kafka.sinks.blobs.batches import BatchFiles, BatchLog, attempt_directory
from cues_kafka.sinks.blobs.entries import FileEntry
from cues_kafka.sinks.blobs.fit import cast, lost, unfit
from cues_kafka.sinks.blobs.store import BlobStore
from cues_kafka.sinks.lookup import store_of
from cues_kafka.sinks.standing import StandsAt

ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
"""Bytes of rows that a Spark task has in memory before it writes them as a row group."""


def parquet_target(frame: Any, table: FileTable, label: str, processor: str) -> tuple[Any, FilesInto]:
    """See `Maker`."""
    rows, schema = file_columns(frame, table, label)
    return rows, FilesInto(table, schema, processor)


@dataclass(frozen=True)
class FilesInto(FrameTarget):
    """
    The table of files that the rows of a processor go to.

    Attributes:
        table: as it is declared.
        schema: of its files.
        processor: `<graph>.<processor>`.
    """

    table: FileTable
    schema: pa.Schema
    processor: str

    def packing(self, parts: int, refusing: Refusing, mine: Staged) -> Packing:
        return WriteFiles(parts, refusing, self, self.directory(mine))

    def open(self) -> FileCommits:
        return FileCommits(self, BatchLog(store_of(self.table.blobs), self.processor))

    def directory(self, batch: Staged, table: str = "") -> str:
        """The directory of one attempt at a batch, in the store."""
        return attempt_directory(table or self.table.table, self.processor, batch.query, batch.batch, batch.attempt)

    def batch(self, batch: Staged, manifest: Manifest) -> BatchFiles:
        """What the log gets of an attempt. The files are of the table that was declared when they were written."""
        table = manifest.data[0].table if manifest.data else ""
        files = tuple(FileEntry(one.path, one.table, one.rows, one.bytes) for one in manifest.data)
        return BatchFiles(batch.number, batch.attempt, self.directory(batch, table), files, manifest.log_at)


class FileCommits(FrameCommits):
    """The driver's side: the log of commits of a store."""

    def __init__(self, into: FilesInto, files: BatchLog) -> None:
        self._into, self._files = into, files

    def compare(self, asked: Callable[[], StandsAt | None]) -> None:
        self._files.compare(asked)

    @property
    def top(self) -> int:
        return self._files.top

    def prepared(self, mine: Staged, manifest: Manifest) -> None:
        if missing := self._files.missing(self._into.batch(mine, manifest)):
            raise ConfigError(
                f"the driver does not find {missing[0]} in the store of table {self._into.table.table!r} as a Spark "
                "task wrote it: the driver and the executors do not share that directory. Give a store that all of "
                "them see"
            )

    def commit(self, announced: Staged, manifest: Manifest, *, staged_here: bool) -> None:
        batch = self._into.batch(announced, manifest)
        if not staged_here and (missing := self._files.missing(batch)):
            raise RecoveryError(
                f"{missing[0]} is not in the store as it was written: batch {announced.batch} was announced with it, "
                "and is not published yet. Declare the store as it was, or restore the file; or `cues-kafka reset "
                "MODULE:GRAPH PROCESSOR` begins again, after which rows repeat"
            )
        self._files.commit(batch)

    def clean(self) -> None:
        self._files.clean()

    def drop(self, mine: Staged) -> None:
        self._files.drop(self._into.directory(mine))


@dataclass(frozen=True)
class WriteFiles(Packing):
    """
    Writes the rows into files, and packs their names and error messages. A file that no reference names is never read.

    Attributes:
        refusing: makes error messages.
        into: the table.
        directory: of this attempt, in the store.
    """

    refusing: Refusing
    into: FilesInto
    directory: str

    def _chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = this_task()
        row = first_row(task)
        with FileWriter(store_of(self.into.table.blobs), self.into, f"{self.directory}/part-{task:05d}") as writer:
            for batch in batches:
                good, refused = fitting(batch, self.into.schema)
                if refused:
                    numbered = [(row + at, data, why) for at, data, why in refused]
                    messages = self.refusing.messages(numbered, self.into.table.table)
                    done = 0
                    for piece in sliced(messages):
                        yield chunk_of(task % self.parts, numbered[done][0], piece)
                        done += len(piece)
                yield from map(_reference, writer.write(good))
                row += len(batch)
            yield from map(_reference, writer.finish())


def _reference(file: StagedFile) -> pa.RecordBatch:
    return reference(json.dumps(file))


class FileWriter(AbstractContextManager["FileWriter"]):
    """
    Writes batches of rows into files of limited size, each through a file on the local disk.

    Names have a random part, because Spark may run a task several times, also side by side.
    """

    def __init__(self, store: BlobStore, into: FilesInto, prefix: str) -> None:
        self._store = store
        self._into = into
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
        """Take rows; gives the files that are full."""
        if not len(batch):
            return
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self._bytes += batch.nbytes
        full = self._bytes >= self._into.table.max_file_bytes
        if full or self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()
        if full:
            yield self._put()

    def finish(self) -> Iterator[StagedFile]:
        """Gives the last file, if there are rows that no other one has."""
        self._flush()
        if self._rows:
            yield self._put()

    @property
    def _local(self) -> Path:
        return Path(self._directory.name) / "rows.parquet"

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._local, self._into.schema)
        self._writer.write_table(pa.Table.from_batches(self._waiting, self._into.schema))
        self._rows += sum(map(len, self._waiting))
        self._waiting, self._waiting_bytes = [], 0

    def _put(self) -> StagedFile:
        assert self._writer is not None
        self._writer.close()
        path = f"{self._prefix}-{self._count}.parquet"
        made = StagedFile(path, self._into.table.table, self._rows, self._local.stat().st_size)
        self._store.put(path, self._local)
        self._local.unlink()
        self._writer, self._bytes, self._rows = None, 0, 0
        self._count += 1
        return made


def fitting(batch: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, list[tuple[int, bytes, str]]]:
    """
    Rows with the types of a schema, and those that do not fit: (place, the row as JSON, why) of each.

    A value fits if nothing of it is lost: 1.0 is a whole number, and 1.5 is none (see `fit.lost`).
    """
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
