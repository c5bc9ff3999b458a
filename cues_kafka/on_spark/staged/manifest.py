"""The prepared files of a staged batch: chunks of messages, and the manifest that names them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from cues_kafka.errors import ConfigError, RecoveryError

_VERSION: Final = 1

ROW_BITS: Final = 33
"""Bits for the number of a row within its Spark task, as in Spark's `monotonically_increasing_id`."""

FOUND_FROM: Final = 1 << 29 + ROW_BITS
"""The first row of the job that looks for what cannot be decoded: behind the rows of any Spark task of a batch."""

_SETTLES: Final = 1 << ROW_BITS - 1

SETTLED_FROM: Final = FOUND_FROM + _SETTLES
"""
The first record that settles error messages (Y4), of the first range of that job.

It is in the upper half of its range's numbers, so that a file has its chunks in the order of their numbers.
"""


class StagedFile(NamedTuple):
    """
    A file of rows that lies where `into=` says (E5).

    Attributes:
        path: in the store, or in the directory of the table.
        table: which table it is a part of.
        rows: its number of rows.
        bytes: its size.
        more: what a commit says of it besides, in words of the target.
    """

    path: str
    table: str
    rows: int
    bytes: int
    more: str = ""


class Chunk(NamedTuple):
    """
    Some messages of one part.

    Attributes:
        row: number of its first row; chunks of a part are published in this order.
        rows, errors: number of rows, and of error messages among them.
        checksum: of the bytes, in hexadecimal digits.
        file: index in the manifest's files.
    """

    part: int
    row: int
    rows: int
    errors: int
    checksum: str
    file: int

    @property
    def settles(self) -> bool:
        """Whether its rows are records of the backing topic."""
        return self.row >= FOUND_FROM and bool(self.row & _SETTLES)


@dataclass(frozen=True, slots=True)
class Manifest:
    """
    The files and chunks that one attempt at a batch has prepared.

    Attributes:
        files: (name, bytes) of each.
        chunks: of all parts, in the order of publication.
        outputs: topics by the numbers in the messages; a program that was changed since may have others.
        errors: topic of error messages; empty if there is none.
        data: files of rows. The text of a manifest without any has no such field.
        log_at: publication of the newest entry that the driver had seen in the log of commits (E5); -1: it had seen
            none, and the text has no such field.
    """

    batch: int
    attempt: str
    files: tuple[tuple[str, int], ...]
    chunks: tuple[Chunk, ...]
    outputs: tuple[str, ...]
    errors: str
    data: tuple[StagedFile, ...] = ()
    log_at: int = -1

    @property
    def text(self) -> str:
        """The manifest as JSON, with its fields in their order."""
        plain = {"version": _VERSION} | {field.name: getattr(self, field.name) for field in fields(self)}
        if not self.data:
            del plain["data"]
        if self.log_at < 0:
            del plain["log_at"]
        return json.dumps(plain, separators=(",", ":"))

    @property
    def checksum(self) -> bytes:
        return checksum(self.text.encode())

    @property
    def rows(self) -> int:
        return sum(chunk.rows for chunk in self.chunks)

    @property
    def bytes(self) -> int:
        return sum(length for _, length in self.files)

    @property
    def data_rows(self) -> int:
        return sum(one.rows for one in self.data)

    @property
    def largest(self) -> tuple[int, int]:
        """Most rows and most bytes of a part; a file counts for each part that it has chunks of."""
        rows, size = Counter[int](), Counter[int]()
        for chunk in self.chunks:
            rows[chunk.part] += chunk.rows
        for file, part in {(chunk.file, chunk.part) for chunk in self.chunks}:
            size[part] += self.files[file][1]
        return max(rows.values(), default=0), max(size.values(), default=0)

    def part(self, number: int) -> tuple[Chunk, ...]:
        return tuple(chunk for chunk in self.chunks if chunk.part == number)


def listed(
    batch: int, attempt: str, rows: list[Any], outputs: tuple[str, ...], errors: str, *, log_at: int = -1
) -> Manifest:
    """Make the manifest of an attempt from the rows of its files' index: `chunks.INDEX`, file_name and file_size."""
    data = sorted(StagedFile(*json.loads(row["data"])) for row in rows if row["data"])
    rows = [row for row in rows if not row["data"]]
    files = sorted({(row["file_name"], row["file_size"]) for row in rows})
    numbers = {name: number for number, (name, _) in enumerate(files)}
    chunks = sorted(
        Chunk(row["part"], row["row"], row["rows"], row["errors"], row["checksum"].hex(), numbers[row["file_name"]])
        for row in rows
    )
    return Manifest(batch, attempt, tuple(files), tuple(chunks), outputs, errors, tuple(data), log_at)


def checksum(data: bytes) -> bytes:
    """BLAKE2b, 128 bits."""
    return blake2b(data, digest_size=16).digest()


def parsed(text: str) -> Manifest:
    """Read a manifest from its text; a RecoveryError says that another version of this package wrote it."""
    plain = json.loads(text)
    if (version := plain.get("version")) != _VERSION:
        raise RecoveryError(
            f"the manifest of an announced batch has version {version}; this program knows {_VERSION}. Publish the "
            "batch with the version of cues-kafka that announced it, then update"
        )
    files = tuple((name, length) for name, length in plain["files"])
    chunks = tuple(Chunk(*one) for one in plain["chunks"])
    data = tuple(StagedFile(*one) for one in plain.get("data", ()))
    topics, log_at = (tuple(plain["outputs"]), plain["errors"]), plain.get("log_at", -1)
    return Manifest(plain["batch"], plain["attempt"], files, chunks, *topics, data, log_at)


RESTORE: Final = (
    "Restore the directory of staged files; or run `cues-kafka reset MODULE:GRAPH PROCESSOR` (where there is no graph: "
    "take another name and checkpoint), after which the outputs of that batch repeat."
)

GONE: Final = (
    "Give the checkpoint directory of the first run, if this is another one; if another driver runs this query, stop "
    f"one of the two. {RESTORE}"
)
"""The remedy for a checkpoint that is a copy and lacks the files that the other one announced."""


def altered(place: str, why: str) -> ConfigError:
    """The error for staged bytes that differ from the announcement. Nothing of their part is published."""
    return ConfigError(
        f"staged rows of {place} {why}: the files were altered or cut after they were announced. {RESTORE}"
    )
