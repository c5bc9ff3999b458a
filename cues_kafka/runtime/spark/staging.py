"""The files of a staged batch (T1): messages in checksummed chunks, written by Spark, and a manifest that names them.

`<stage>/<batch>/<attempt>/` belongs to one attempt at one batch; nobody else ever writes there. What a Spark task has
made goes to one part, chunk by chunk, so its order is kept; a chunk is one row: Arrow's bytes and their checksum. The
manifest is written last and lists every file and chunk that the job committed; its own checksum is in the announcement.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import parquet
from pyspark import TaskContext

from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.runtime.spark.files import delete, lengths, local, names, read_bytes, read_text, size, write_text

CHUNKS: Final = "part INT, row BIGINT, rows INT, errors INT, checksum BINARY, payload BINARY"

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""A chunk is in memory as a whole, in the task that writes it and in the one that publishes it."""

HELD_BYTES: Final = 4 * 1024 * 1024
HELD_ROWS: Final = 20_000
"""Up to so much of a batch stays in the driver, which publishes it sooner than a job of Spark's would begin to."""

MANIFEST: Final = "manifest.json"

_VERSION: Final = 1
_ROW_BITS: Final = 33
"""Of the number of a row within its Spark task, as in Spark's `monotonically_increasing_id`."""


class Chunk(NamedTuple):
    """
    Some messages of one part.

    Attributes:
        part: which.
        row: number of its first row; chunks of a part are published in this order.
        rows, errors: how many, and how many of them are error messages.
        checksum: of its bytes, in hexadecimal digits.
        file: which of the manifest's files.
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
    What one attempt at a batch has prepared.

    Attributes:
        batch, attempt: which.
        files: (name, bytes) of each.
        chunks: of all parts, in the order of publication.
        outputs: topics, by the numbers that messages have; a program that is changed since may have others.
        errors: topic of error messages; empty: there is none.
    """

    batch: int
    attempt: str
    files: tuple[tuple[str, int], ...]
    chunks: tuple[Chunk, ...]
    outputs: tuple[str, ...]
    errors: str

    @property
    def text(self) -> str:
        """As it is written."""
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
        """Of the text."""
        return checksum(self.text.encode())

    @property
    def rows(self) -> int:
        """Of all parts."""
        return sum(chunk.rows for chunk in self.chunks)

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(length for _, length in self.files)

    @property
    def largest(self) -> tuple[int, int]:
        """Rows and bytes of the parts that have most of them; a file is of one Spark task, and so of one part."""
        rows, files = Counter[int](), {chunk.file: chunk.part for chunk in self.chunks}
        for chunk in self.chunks:
            rows[chunk.part] += chunk.rows
        size = Counter[int]()
        for file, part in files.items():
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
    A manifest from its text.

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


@dataclass(frozen=True)
class Pack:
    """
    The last function of job 1: Arrow batches of messages in, chunks out.

    Attributes:
        parts: how many there are.
        check: makes error messages of rows that cannot be sent.
    """

    parts: int
    check: Callable[[pa.RecordBatch, int], pa.RecordBatch]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pack this Spark task's messages; all of them go to one part."""
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        row = task << _ROW_BITS
        for batch in batches:
            for given in sliced(batch):
                piece = self.check(given, row)
                payload = packed(piece)
                errors = piece.column("error").true_count
                columns = [[task % self.parts], [row], [piece.num_rows], [errors], [checksum(payload)], [payload]]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(column, kind) for column, kind in zip(columns, _TYPES, strict=True)], names=_NAMES
                )
                row += piece.num_rows


_NAMES: Final = ["part", "row", "rows", "errors", "checksum", "payload"]
_TYPES: Final = [pa.int32(), pa.int64(), pa.int32(), pa.int32(), pa.binary(), pa.binary()]


def sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Pieces of about `CHUNK_BYTES` at the most; a single row may have more."""
    if not batch.num_rows:
        return
    step = max(1, batch.num_rows * CHUNK_BYTES // max(batch.nbytes, CHUNK_BYTES))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def packed(piece: pa.RecordBatch) -> bytes:
    """Arrow's stream format, compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, piece.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(piece)
    return bytes(sink.getvalue())


def unpacked(payload: bytes) -> pa.Table:
    """What `packed` was given."""
    return pa.ipc.open_stream(payload).read_all()


_FORMAT: Final = {
    "compression": "uncompressed",  # chunks are compressed
    # Nobody asks for a mark of success, and chunks have checksums of their own. On a local disk each further file costs
    # Java a process that sets its rights.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}


class Staging:
    """
    The staged files of one query.

    Attributes:
        held: chunks as the files of the last attempt have them, (number of the first row, bytes) by part; None: they
            are too many, or it is another one's attempt.
    """

    def __init__(self, session: Any, directory: str, *, held_bytes: int = HELD_BYTES) -> None:
        """
        Args:
            session: of Spark.
            directory: of the query's own; on a file system that driver and executors share.
            held_bytes: of a batch that is held at the most.
        """
        self.held: dict[int, list[tuple[int, bytes]]] | None = None
        self._session = session
        self._directory = directory.rstrip("/")
        self._held_bytes = held_bytes

    def write(
        self, messages: Any, batch: int, attempt: str, pack: Pack, *, outputs: tuple[str, ...], errors: str
    ) -> Manifest:
        """
        Job 1: compute the batch once, with all its state, and keep what it gives.

        Args:
            messages: the columns of `columns.as_outputs`.
            batch: number of the micro-batch.
            attempt: a name that nobody else has.
            pack: makes chunks of them.
            outputs: topics, see `Manifest`.
            errors: topic, see `Manifest`.

        Raises:
            ConfigError: not all that was written is found: the directory is not one that driver and executors share.
        """
        from pyspark.sql import Observation  # noqa: PLC0415 - only the driver needs it
        from pyspark.sql import functions as f  # noqa: PLC0415

        place, seen = self._place(batch, attempt), Observation()
        # Counted where they are written: a driver that looks into another directory of that name would find fewer.
        sums = [f.sum("rows").alias("rows"), f.sum(f.length("payload")).alias("bytes")]
        chunks = messages.mapInArrow(pack, CHUNKS).observe(seen, f.count(f.lit(1)).alias("chunks"), *sums)
        chunks.write.options(**_FORMAT).parquet(f"{place}/rows")
        few = (seen.get["rows"] or 0) <= HELD_ROWS and (seen.get["bytes"] or 0) <= self._held_bytes
        near = few or local(self._session, f"{place}/rows")
        found = list(self._read_here(f"{place}/rows", few=few) if near else self._read_index(f"{place}/rows"))
        if len(found) != (written := seen.get["chunks"]):
            raise ConfigError(
                f"{place} has {len(found)} of the {written} chunks that Spark's tasks wrote there: the driver and the "
                "executors do not share that directory. Give a checkpoint on a file system that all of them see"
            )
        if few:
            self.held = {}
            for row in sorted(found, key=itemgetter("row")):
                self.held.setdefault(row["part"], []).append((row["row"], row["payload"]))
        files = sorted({(row["file_name"], row["file_size"]) for row in found})
        numbers = {name: number for number, (name, _) in enumerate(files)}
        manifest = Manifest(
            batch,
            attempt,
            tuple(files),
            tuple(
                sorted(
                    Chunk(
                        row["part"],
                        row["row"],
                        row["rows"],
                        row["errors"],
                        row["checksum"].hex(),
                        numbers[row["file_name"]],
                    )
                    for row in found
                )
            ),
            outputs,
            errors,
        )
        write_text(self._session, f"{place}/{MANIFEST}", manifest.text)
        return manifest

    def _read_index(self, rows: str) -> Iterable[Any]:
        """All chunks in a directory, without their bytes, and the file that each is in; by a job of Spark's."""
        read = self._session.read.schema(CHUNKS).parquet(rows)
        return read.select(*_NAMES[:-1], "_metadata.file_name", "_metadata.file_size").collect()  # type: ignore[no-any-return]

    def _read_here(self, rows: str, *, few: bool) -> Iterator[dict[str, Any]]:
        """All chunks in a directory, with their bytes if they are few; sooner done here than a job is begun."""
        near, columns = local(self._session, rows), _NAMES if few else _NAMES[:-1]
        for name, length in lengths(self._session, rows).items():
            if name.startswith(("_", ".")):  # what jobs and file systems keep beside files
                continue
            file = near / name if near else pa.BufferReader(read_bytes(self._session, f"{rows}/{name}"))
            for row in parquet.read_table(file, columns=columns, partitioning=None).to_pylist():
                yield row | {"file_name": name, "file_size": length}

    def read(self, batch: int, attempt: str, expected: bytes) -> Manifest:
        """
        The manifest of an attempt that was announced.

        Raises:
            RecoveryError: it is not there, or not as it was.
        """
        self.held = None
        path = f"{self._place(batch, attempt)}/{MANIFEST}"
        try:
            text = read_text(self._session, path)
        except FileNotFoundError:
            raise RecoveryError(
                f"{path} is gone: batch {batch} was announced with it, and is not published yet. {_GONE}"
            ) from None
        if checksum(text.encode()) != expected:
            raise RecoveryError(f"{path} is not as it was announced (its checksum differs). {_RESTORE}")
        return parsed(text)

    def chunks(self, manifest: Manifest) -> Any:
        """
        The announced chunks as a DataFrame; only files that the manifest names are looked at.

        Raises:
            RecoveryError: one of them is not there, or not as long as it was: Spark would not say what to do.
        """
        place = self._place(manifest.batch, manifest.attempt)
        found = lengths(self._session, f"{place}/rows")
        for name, length in manifest.files:
            if found.get(name) != length:
                why = f"has {found[name]} bytes, not {length}" if name in found else "is gone"
                raise RecoveryError(
                    f"{place}/rows/{name} {why}: batch {manifest.batch} was announced with it, and is not published "
                    f"yet. {_RESTORE if name in found else _GONE}"
                )
        return self._session.read.schema(CHUNKS).parquet(*[f"{place}/rows/{name}" for name, _ in manifest.files])

    def drop(self, batch: int, attempt: str) -> None:
        """An attempt that lost, or that failed."""
        delete(self._session, self._place(batch, attempt))

    def clean(self, batch: int, attempt: str) -> None:
        """T4: everything but this attempt: older batches, and losers of this one. Never a newer batch."""
        for older in names(self._session, self._directory):
            if older.isdigit() and int(older) < batch:
                delete(self._session, f"{self._directory}/{older}")
        for other in names(self._session, f"{self._directory}/{batch}"):
            if other != attempt:
                delete(self._session, self._place(batch, other))

    @property
    def size(self) -> int:
        """Bytes on disk now."""
        return size(self._session, self._directory)

    def _place(self, batch: int, attempt: str) -> str:
        return f"{self._directory}/{batch}/{attempt}"


_RESTORE: Final = (
    "Restore the directory of staged files; or run `cues-kafka reset` (where there is no graph: take another name and "
    "checkpoint), after which the outputs of that batch repeat."
)

_GONE: Final = (
    "Give the checkpoint directory of the first run, if this is another one; if another driver runs this query, stop "
    f"one of the two. {_RESTORE}"
)
"""A copy of a checkpoint has not what is announced from the other one."""


def altered(place: str, why: str) -> ConfigError:
    """Staged bytes that are not what was announced; nothing of their part is published."""
    return ConfigError(
        f"staged rows of {place} {why}: the files were altered or cut after they were announced. {_RESTORE}"
    )
