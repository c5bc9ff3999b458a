"""The prepared files of a staged batch: chunks of messages, and the manifest that names them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from cues_kafka.errors import ConfigError, RecoveryError

_VERSION: Final = 1


class Chunk(NamedTuple):
    """
    Some messages of one part.

    Attributes:
        part: number of the part.
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


@dataclass(frozen=True, slots=True)
class Manifest:
    """
    The files and chunks that one attempt at a batch has prepared.

    Attributes:
        batch, attempt: number of the batch, name of the attempt.
        files: (name, bytes) of each.
        chunks: of all parts, in the order of publication.
        outputs: topics by the numbers in the messages; a program that was changed since may have others.
        errors: topic of error messages; empty if there is none.
    """

    batch: int
    attempt: str
    files: tuple[tuple[str, int], ...]
    chunks: tuple[Chunk, ...]
    outputs: tuple[str, ...]
    errors: str

    @property
    def text(self) -> str:
        """The manifest as text."""
        plain = {
            "version": _VERSION,
            "batch": self.batch,
            "attempt": self.attempt,
            "files": self.files,
            "chunks": self.chunks,
            "outputs": self.outputs,
            "errors": self.errors,
        }
        return json.dumps(plain, separators=(",", ":"))

    @property
    def checksum(self) -> bytes:
        """Checksum of the text."""
        return checksum(self.text.encode())

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(chunk.rows for chunk in self.chunks)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(length for _, length in self.files)

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
        """The chunks of one part."""
        return tuple(chunk for chunk in self.chunks if chunk.part == number)


def checksum(data: bytes) -> bytes:
    """BLAKE2b, 128 bits."""
    return blake2b(data, digest_size=16).digest()


def parsed(text: str) -> Manifest:
    """
    Read a manifest from its text.

    Raises:
        RecoveryError: another version of this package wrote it.
    """
    plain = json.loads(text)
    if (version := plain.get("version")) != _VERSION:
        raise RecoveryError(
            f"the manifest of an announced batch has version {version}; this program knows {_VERSION}. Publish the "
            "batch with the version of cues-kafka that announced it, then update"
        )
    files = tuple((name, length) for name, length in plain["files"])
    chunks = tuple(Chunk(*one) for one in plain["chunks"])
    return Manifest(plain["batch"], plain["attempt"], files, chunks, tuple(plain["outputs"]), plain["errors"])


RESTORE: Final = (
    "Restore the directory of staged files; or run `cues-kafka reset` (where there is no graph: take another name and "
    "checkpoint), after which the outputs of that batch repeat."
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
