"""Parquet files of a store as a `FrameTarget` (E5), which a log of commits in the store commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cues_kafka.core.records import Staged
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.graph.blobs import FileTable
from cues_kafka.on_spark.file_columns import file_columns
from cues_kafka.on_spark.staged.chunks import Packing
from cues_kafka.on_spark.staged.error_rows import Refusing
from cues_kafka.on_spark.staged.manifest import Manifest
from cues_kafka.on_spark.staged.row_files import FileWriter, WriteRows
from cues_kafka.on_spark.staged.target import FrameCommits, FrameTarget
from cues_kafka.sinks.blobs.batches import BatchFiles, BatchLog, attempt_directory
from cues_kafka.sinks.blobs.entries import FileEntry
from cues_kafka.sinks.lookup import store_of
from cues_kafka.sinks.standing import StandsAt


def parquet_target(frame: Any, table: FileTable, label: str, processor: str) -> tuple[Any, FilesInto]:
    """Make the target of a table of files; see `Maker`."""
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
        return WriteFiles(parts, refusing, self.table.table, self.schema, self.table, self.directory(mine))

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
class WriteFiles(WriteRows):
    """
    Writes rows into files of a store.

    Attributes:
        into: the table.
        directory: of this attempt, in the store.
    """

    into: FileTable
    directory: str

    def _writer(self, task: int) -> FileWriter:
        put = store_of(self.into.blobs).put
        prefix = f"{self.directory}/part-{task:05d}"
        return FileWriter(put, prefix, self.table, self.schema, self.into.max_file_bytes)
