"""Tables of files: the rows of a batch become files that are named by the place of their messages."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from cues_kafka.errors import ConfigError, OutputError
from cues_kafka.extras import PYARROW, missing
from cues_kafka.graph.blobs import PARQUET, FileTable
from cues_kafka.sinks.blobs.entries import FileEntry


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
                f"a message without a value (a tombstone) is no row of table {self.table!r}. Leave tombstones out, "
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
            raise OutputError(f"table {self._table!r}: a value is no JSON: {error}") from error
        return data, len(data)

    def file(self, made: Sequence[bytes]) -> bytes:
        return b"".join(made)


class Parquet:
    """Parquet files: compressed columns."""

    def __init__(self, declared: FileTable) -> None:
        self._table = declared.table
        self._arrow = library()
        from cues_kafka.sinks.blobs import fit  # noqa: PLC0415  it needs pyarrow

        self._schema = schema_of(declared)
        self._loses = fit.loses
        self._exact = [fit.exact(field.type) for field in self._schema]

    def made(self, values: Sequence[Any]) -> tuple[Any, int]:
        names = self._schema.names
        rows = [_fields(self._table, names, value) for value in values]
        try:
            batch = self._arrow.RecordBatch.from_pylist(rows, schema=self._schema)
            self._check(rows, batch)
        except (self._arrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise OutputError(f"table {self._table!r}: a value does not fit the schema: {error}") from error
        return batch, batch.nbytes

    def _check(self, rows: Sequence[Mapping[str, Any]], batch: Any) -> None:
        """Refuse values that pyarrow has cut, such as 70.99 in a column of whole numbers."""
        for field, exact, made in zip(self._schema, self._exact, batch.columns, strict=True):
            values = [row[field.name] for row in rows]
            if not exact.issuperset(map(type, values)) and self._loses(values, made):
                raise ValueError(f"a part of field {field.name!r} would be lost as {field.type}")

    def file(self, made: Sequence[Any]) -> bytes:
        from pyarrow import parquet  # noqa: PLC0415

        sink = io.BytesIO()
        parquet.write_table(self._arrow.Table.from_batches(made, self._schema), sink)
        return sink.getvalue()


def library() -> Any:
    """
    Load pyarrow.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415
    except ImportError as error:
        raise missing("A table of Parquet files", PYARROW, error=error) from None
    return pa


def schema_of(declared: FileTable) -> Any:
    """
    The schema of a Parquet table.

    Raises:
        ConfigError: pyarrow does not know a type.
    """
    arrow = library()
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


def _fields(table: str, names: Sequence[str], value: Any) -> dict[str, Any]:
    try:
        if isinstance(value, Mapping):
            return {name: value[name] for name in names}
        return {name: getattr(value, name) for name in names}
    except (KeyError, AttributeError) as error:
        name = error.args[0] if isinstance(error, KeyError) else error.name
        raise OutputError(f"the value lacks the field {name!r} of table {table!r}") from None
