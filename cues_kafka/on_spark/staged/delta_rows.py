"""A table of Delta Lake as a `FrameTarget` (E5, E6): Spark's tasks write its files, and the driver commits them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from cues_kafka.core.records import Staged
from cues_kafka.errors import ConfigError, GraphError, RetriableError
from cues_kafka.graph.names import quoted
from cues_kafka.on_spark.file_columns import chosen_columns, refuse_casts
from cues_kafka.on_spark.staged.chunks import Packing
from cues_kafka.on_spark.staged.error_rows import Refusing
from cues_kafka.on_spark.staged.manifest import Manifest, StagedFile
from cues_kafka.on_spark.staged.row_files import FileWriter, RowFiles, WriteRows
from cues_kafka.on_spark.staged.target import FrameCommits, FrameTarget
from cues_kafka.sinks.delta.batches import BatchCommits, DeltaBatch
from cues_kafka.sinks.delta.columns import delta_type, schema_of
from cues_kafka.sinks.delta.declare import Delta, DeltaTarget
from cues_kafka.sinks.delta.table import OpenedTable, TableFile
from cues_kafka.sinks.standing import StandsAt

MAX_FILE_BYTES: Final = 256 * 1024 * 1024
"""Bytes of rows, before compression, after which a Spark task begins another file."""

DIVIDING: Final = ("string", "long", "integer", "short", "byte", "boolean", "date")
"""Types of columns that a table may be divided by here: those whose texts Delta and Python write alike."""


def delta_target(frame: Any, table: DeltaTarget, label: str, processor: str) -> tuple[Any, DeltaInto]:
    """Make the target of a table of Delta Lake; see `Maker`."""
    rows, given = chosen_columns(frame, list(table.columns), label, f"columns= of {table.title('')}")
    typed = _typed(table, given, label)
    refuse_casts(given, schema_of(typed.columns), label, f"columns= of {table.title('')}")
    if wrong := [name for name in typed.partition_by if typed.columns[name] not in DIVIDING]:
        raise ConfigError(
            f"{label}: {table.title('')} is divided by {quoted(wrong)}, whose type is none of {quoted(DIVIDING)}. Add "
            "a column of one of these types, such as the date of a time, and name it in partition_by="
        )
    with suppress(RetriableError):  # the query asks it again, and waits for it
        if reasons := [*typed.inspect()]:
            raise ConfigError(f"{label}: {'; '.join(reasons)}")
    # Spark's tasks may run where the environment variable is not set.
    return rows, DeltaInto(replace(typed, delta=Delta(table.delta.address(), options=table.options)), processor)


def _typed(table: DeltaTarget, given: pa.Schema, label: str) -> DeltaTarget:
    if not table.untyped:
        return table
    kinds = {field.name: delta_type(field.type) for field in given}
    if wrong := [name for name, kind in kinds.items() if not kind]:
        raise ConfigError(
            f"{label}: a table of Delta Lake gets no columns of the types of {quoted(wrong)}. Drop or cast them; a "
            "map can be written as text, with to_json()"
        )
    try:
        return table.typed({name: kind for name, kind in kinds.items() if kind})
    except GraphError as error:
        raise ConfigError(f"{label}: {error}") from error


@dataclass(frozen=True)
class DeltaInto(FrameTarget):
    """
    The table that the rows of a processor go to.

    Attributes:
        table: as it is declared, with its columns and its address.
        processor: `<graph>.<processor>`.
    """

    table: DeltaTarget
    processor: str

    def packing(self, parts: int, refusing: Refusing, mine: Staged) -> Packing:
        return WriteDelta(parts, refusing, self.table.name, schema_of(self.table.columns), self.table, mine.attempt)

    def open(self) -> DeltaCommits:
        return DeltaCommits(self.table, BatchCommits(self.table, self.processor))


class DeltaCommits(FrameCommits):
    """The driver's side: the log of the table."""

    def __init__(self, table: DeltaTarget, commits: BatchCommits) -> None:
        self._table, self._commits = table, commits
        self._prepared: tuple[str, tuple[TableFile, ...]] = "", ()

    def compare(self, asked: Callable[[], StandsAt | None]) -> None:
        self._commits.compare(asked)

    @property
    def top(self) -> int:
        return self._commits.top

    def prepared(self, mine: Staged, manifest: Manifest) -> None:
        batch = self._batch(mine, manifest)
        self._prepared = mine.attempt, batch.files
        self._commits.check_shared(batch)

    def commit(self, announced: Staged, manifest: Manifest, *, staged_here: bool) -> None:
        self._commits.commit(self._batch(announced, manifest), look=not staged_here)
        self._prepared = "", ()

    def _batch(self, batch: Staged, manifest: Manifest) -> DeltaBatch:
        files = tuple(TableFile(one.path, one.rows, one.bytes, *json.loads(one.more)) for one in manifest.data)
        tables = tuple(sorted({one.table for one in manifest.data} - {self._table.name}))
        return DeltaBatch(batch.number, batch.batch, batch.attempt, files, manifest.log_at, tables)

    def clean(self) -> None:
        """See `FrameCommits`. Files that no commit names are deleted by `vacuum`."""

    def drop(self, mine: Staged) -> None:
        """See `FrameCommits`. Files that the driver was not told of are deleted by Spark's tasks, or by `vacuum`."""
        attempt, files = self._prepared
        if attempt == mine.attempt:
            self._commits.drop(files)
            self._prepared = "", ()


@dataclass(frozen=True)
class WriteDelta(WriteRows):
    """
    Writes rows into files in the directory of the table.

    Attributes:
        into: the table.
        attempt: which the files are of.
    """

    into: DeltaTarget
    attempt: str

    def _writer(self, task: int) -> RowFiles:
        return DividedWriter(self.into, self.schema, f"part-{task:05d}-{self.attempt}")


class DividedWriter(RowFiles):
    """Writes the rows of each partition of the table into files of their own."""

    def __init__(self, into: DeltaTarget, schema: pa.Schema, name: str) -> None:
        self._into, self._name = into, name
        self._table = OpenedTable(into.url(), into.options)
        names = [field for field in schema.names if field not in into.partition_by]
        self._schema = pa.schema([schema.field(field) for field in names])
        self._writers: dict[tuple[Any, ...], FileWriter] = {}
        self._put_paths: list[str] = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._writers.values():
            one.__exit__(kind, error, trace)
        if kind is not None:  # no reference reaches the driver then
            with suppress(RetriableError):
                for path in self._put_paths:
                    self._table.delete(path)

    def write(self, batch: pa.RecordBatch) -> Iterator[StagedFile]:
        for values, rows in divided(batch, self._into.partition_by):
            yield from self._of(values).write(rows)

    def finish(self) -> Iterator[StagedFile]:
        for one in self._writers.values():
            yield from one.finish()

    def _of(self, values: tuple[Any, ...]) -> FileWriter:
        if values not in self._writers:
            texts = {name: text_of(value) for name, value in zip(self._into.partition_by, values, strict=True)}
            self._writers[values] = DeltaFileWriter(self._put, self._name, self._into.name, self._schema, texts)
        return self._writers[values]

    def _put(self, path: str, local: Path) -> None:
        self._put_paths.append(path)
        self._table.put_file(path, local)


class DeltaFileWriter(FileWriter):
    """Writes the rows of one partition of a table; the names of files tell the partition, too, as readers expect."""

    def __init__(
        self,
        put: Callable[[str, Path], None],
        name: str,
        table: str,
        schema: pa.Schema,
        texts: Mapping[str, str | None],
    ) -> None:
        """
        Args:
            put: uploads a local file to a path.
            name: what names begin with.
            table: the name of the table.
            schema: of the files, without the columns that the table is divided by.
            texts: by these columns, the text of the value.
        """
        place = "".join(f"{column}={NULL if text is None else quote(text, safe='')}/" for column, text in texts.items())
        super().__init__(put, place + name, table, schema, MAX_FILE_BYTES)
        self._texts = texts

    def _more(self, local: Path) -> str:
        return json.dumps([self._texts, statistics(local)])


NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def divided(
    batch: pa.RecordBatch, columns: Sequence[str], values: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """The rows of each partition, without the columns that tell it, behind the values of these columns."""
    if not columns:
        yield values, batch
        return
    column = batch.column(columns[0])
    rest = batch.drop_columns([columns[0]])
    for value in pc.unique(column):
        own = pc.equal(column, value) if value.is_valid else pc.is_null(column)
        yield from divided(rest.filter(own), columns[1:], (*values, value.as_py()))


def text_of(value: Any) -> str | None:
    """A value of a column that a table is divided by, as Delta writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date):
        return value.isoformat()
    return None if value is None else str(value)


def statistics(local: Path) -> str:
    """What the log says of the values in a file, so that readers pass over files; taken from the file itself."""
    metadata = parquet.read_metadata(local)
    found: dict[str, Any] = {"numRecords": metadata.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    for at in range(metadata.num_columns):
        column = metadata.schema.column(at)
        name = column.name
        of_groups = [group.column(at).statistics for group in groups]
        # What is within a list or a structure has a path, and no statistics.
        if column.path != name or any(one is None or not one.has_null_count for one in of_groups):
            continue
        found["nullCount"][name] = sum(one.null_count for one in of_groups)
        filled = [one for one, group in zip(of_groups, groups, strict=True) if one.null_count < group.num_rows]
        if not filled or not all(one.has_min_max for one in filled):
            continue
        least, most = min(one.min for one in filled), max(one.max for one in filled)
        if (shown := _shown(least)) is not None:
            found["minValues"][name], found["maxValues"][name] = shown, _shown(most)
    return json.dumps(found)


def _shown(value: Any) -> Any:
    """A value as statistics have it; None: they need none of its type."""
    if isinstance(value, bool | float | bytes) or (isinstance(value, str) and len(value) > LONGEST):
        return None
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, int | str) else None


LONGEST: Final = 64
"""Characters of a text in statistics."""
