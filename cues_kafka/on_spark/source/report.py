"""What the source of a direct processor hands to the slot of the same Spark task: messages that make no row.

The rows of good messages go through the user's plan. What becomes of them there cannot be known, so the others cannot
go that way. Both ends are Python processes of one executor, and work for one attempt of a Spark task, whose number no
other attempt has. The source writes a file for it before it passes rows on, so the slot knows all error messages below
the rows that it has. It deletes the file. A slot that finds no file, or one that ends early because the plan did not
read all rows, reads the messages itself.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from cues_kafka.on_spark.staged.chunks import packed, unpacked
from cues_kafka.on_spark.undecoded import ErrorRow, Undecoded

_HEAD: Final = Struct("!QQQ")
"""Partition, next offset, and number of the bytes that follow."""

_DIRECTORIES: Final = "SPARK_LOCAL_DIRS"

_NAME: Final = "cues-kafka-undecoded"

_AT_ONCE: Final = 1_000
"""Error messages in one entry of the file, at most."""


class ReportEntry(NamedTuple):
    """
    How far a range was read.

    Attributes:
        partition: of the input.
        to: the next offset.
        rows: error messages since the entry before.
    """

    partition: int
    to: int
    rows: list[ErrorRow]


_PAIRS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_ROWS: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _PAIRS),
        ("why", pa.string()),
        ("note", pa.string()),
    ]
)


def _packed(rows: Sequence[ErrorRow]) -> bytes:
    if not rows:
        return b""
    columns = [
        row._asdict() | {"headers": [{"key": n, "value": v} for n, v in row.headers], "note": json.dumps(row.note)}
        for row in rows
    ]
    return packed(pa.RecordBatch.from_pylist(columns, schema=_ROWS))


def _unpacked(data: bytes) -> list[ErrorRow]:
    rows = unpacked(data).to_pylist() if data else []
    return [
        ErrorRow(
            **{**row, "headers": [(h["key"], h["value"]) for h in row["headers"]], "note": json.loads(row["note"])}
        )
        for row in rows
    ]


@dataclass(frozen=True)
class UndecodedReport:
    """
    Where source and slots of one run of a query meet, and what makes the error messages. It can be pickled.

    Attributes:
        run: a name that no other run has, and that other users do not know.
        undecoded: makes error messages.
    """

    run: str
    undecoded: Undecoded

    @property
    def path(self) -> Path | None:
        """The file of this attempt of a Spark task; None: this process runs no Spark task."""
        context = TaskContext.get()
        if context is None:
            return None
        # Both ends are told the same directories. Spark deletes them when the executor ends.
        [directory, *_] = os.environ.get(_DIRECTORIES, "").split(",")
        return Path(directory or tempfile.gettempdir(), f"{_NAME}-{self.run}-{context.taskAttemptId()}")


class ReportWriter:
    """The source's end: a file that only this user can read."""

    def __init__(self, path: Path, partition: int) -> None:
        self._partition = partition
        self._file: BinaryIO = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def add(self, rows: Iterable[ErrorRow], to: int) -> None:
        """Add what was found below an offset, before the rows are passed on that were found with it."""
        held: list[ErrorRow] = []
        for row in rows:
            held.append(row)
            if len(held) == _AT_ONCE:
                self._write(held, row.offset + 1)
                held = []
        self._write(held, to)

    def _write(self, rows: Sequence[ErrorRow], to: int) -> None:
        data = _packed(rows)
        self._file.write(_HEAD.pack(self._partition, to, len(data)) + data)
        self._file.flush()

    def close(self) -> None:
        """Close the file, which the slot deletes."""
        self._file.close()


class ReportReader:
    """The slot's end."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._ahead: ReportEntry | None = None

    @property
    def partition(self) -> int | None:
        """The partition of the input that the Spark task reads; None: its source has not written."""
        self._ahead = self._ahead or self.next()
        return None if self._ahead is None else self._ahead.partition

    def next(self) -> ReportEntry | None:
        """The next entry; None: the source has written no other one, or writes it now."""
        ahead, self._ahead = self._ahead, None
        return ahead or self._read()

    def _read(self) -> ReportEntry | None:
        if self._file is None and self._path is not None:
            with suppress(FileNotFoundError):
                self._file = self._path.open("rb")
        if self._file is None:
            return None
        begin = self._file.tell()
        head = self._file.read(_HEAD.size)
        if len(head) == _HEAD.size:
            partition, to, length = _HEAD.unpack(head)
            data = self._file.read(length)
            if len(data) == length:
                return ReportEntry(partition, to, _unpacked(data))
        self._file.seek(begin)
        return None

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            self._file.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
