"""Tables of files: the rows of a batch become files that are named by the place of their messages."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from cues_kafka.errors import ConfigError, OutputError
from cues_kafka.graph.blobs import PARQUET, FileTable
from cues_kafka.sinks.blobs.entries import FileEntry
from cues_kafka.sinks.columns import ArrowRows, library

_PARQUET: Final = "A table of Parquet files"


class RowsMade(NamedTuple):
    """Rows of messages that follow each other, ready to be written."""

    made: Any
    rows: int
    bytes: int
    topic: str
    partition: int
    first: int
    last: int


class FileFormat(Protocol):
    """A format of files."""

    def made(self, values: Sequence[Any]) -> tuple[Any, int]:
        """
        Values as they are kept until the file is written, and their size in bytes.

        Raises:
            OutputError: one of them does not fit.
        """
        ...

    def file(self, made: Sequence[Any]) -> bytes:
        """The bytes of a file."""
        ...


class TableFiles:
    """What a `Sink` gets of a table of files: it writes the values of messages. Valid only during the call."""

    def __init__(self, target: Any, declared: FileTable) -> None:
        self._target = target
        self._declared = declared
        self.table = declared.table
        self._format: FileFormat | None = None
        self._rows: list[RowsMade] = []
        self._mark = 0

    def write(self, values: Sequence[Any], messages: Sequence[Any]) -> None:
        """
        Write a row for each of the values of these messages, which are in order.

        Raises:
            OutputError: a value does not fit.
            RuntimeError: the call is over.
        """
        self._target.in_use  # noqa: B018  it raises when the call is over
        if any(value is None for value in values):
            raise OutputError(
                f"a message without a value (a tombstone) is not a row of table {self.table!r}. Leave tombstones out, "
                "with filter="
            )
        if not values:
            return
        if self._format is None:
            self._format = _format(self._declared)
        made, size = self._format.made(values)
        first, last = messages[0], messages[-1]
        self._rows.append(RowsMade(made, len(values), size, first.topic, first.partition, first.offset, last.offset))

    def mark(self) -> None:
        """What is written from now on can be taken back."""
        self._mark = len(self._rows)

    def back(self) -> None:
        """Take back what was written since the mark."""
        del self._rows[self._mark :]

    def drop(self) -> None:
        """Forget all rows."""
        self._rows = []

    def made(self, directory: str) -> Iterator[tuple[FileEntry, bytes]]:
        """The files of the rows, each with what the log says about it."""
        rows: list[RowsMade] = []
        size = 0
        for row in self._rows:
            if rows and size + row.bytes > self._declared.max_file_bytes:
                yield self._file(directory, rows)
                rows, size = [], 0
            rows.append(row)
            size += row.bytes
        if rows:
            yield self._file(directory, rows)

    def _file(self, directory: str, rows: Sequence[RowsMade]) -> tuple[FileEntry, bytes]:
        assert self._format is not None
        data = self._format.file([one.made for one in rows])
        first, last = rows[0].first, rows[-1].last
        name = f"{rows[0].topic}-{rows[0].partition}-{first:020d}-{last:020d}.{self._declared.format}"
        count = sum(one.rows for one in rows)
        path = f"{directory}/{self.table}/{name}"
        return FileEntry(path, self.table, count, len(data), rows[0].topic, rows[0].partition, first, last), data


def _format(declared: FileTable) -> FileFormat:
    return Parquet(declared) if declared.format == PARQUET else JsonLines(declared)


class JsonLines:
    """One JSON text a line."""

    def __init__(self, declared: FileTable) -> None:
        self._table = declared.table
        self._encode = msgspec.json.Encoder().encode_lines

    def made(self, values: Sequence[Any]) -> tuple[bytes, int]:
        try:
            data = self._encode(values)
        except (TypeError, ValueError, OverflowError, UnicodeError) as error:
            raise OutputError(f"table {self._table!r}: a value is not JSON: {error}") from error
        return data, len(data)

    def file(self, made: Sequence[bytes]) -> bytes:
        return b"".join(made)


class Parquet:
    """Parquet files: compressed columns."""

    def __init__(self, declared: FileTable) -> None:
        self._arrow = library(_PARQUET)
        self._schema = schema_of(declared)
        self._rows = ArrowRows(declared.table, self._schema)

    def made(self, values: Sequence[Any]) -> tuple[Any, int]:
        batch = self._rows.made(values)
        return batch, batch.nbytes

    def file(self, made: Sequence[Any]) -> bytes:
        from pyarrow import parquet  # noqa: PLC0415

        sink = io.BytesIO()
        parquet.write_table(self._arrow.Table.from_batches(made, self._schema), sink)
        return sink.getvalue()


def schema_of(declared: FileTable) -> Any:
    """
    The schema of a Parquet table.

    Raises:
        ConfigError: pyarrow does not know a type.
    """
    arrow = library(_PARQUET)
    fields = []
    for name, kind in declared.schema.items():
        try:
            fields.append(arrow.field(name, arrow.type_for_alias(kind)))
        except ValueError as error:
            raise ConfigError(
                f"table {declared.table!r}: pyarrow knows no type {kind!r} of field {name!r}. Write one such as "
                "'int64', 'double', 'string', 'bool', 'timestamp[us]' or 'date32'"
            ) from error
    return arrow.schema(fields)
