"""The files of a staged batch (T1): messages in checksummed chunks, and a manifest that names them.

`<stage>/<batch>/<attempt>/` belongs to one attempt at one batch; nobody else ever writes there. What a Spark task has
made goes to one part, chunk by chunk, so its order is kept; a chunk is one row: Arrow's bytes and their checksum. The
manifest is written last and lists every file and chunk that the job committed; its own checksum is in the announcement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.runtime.spark.query.files import Place, delete, lengths, local, names, read_text, size, write_bytes
from cues_kafka.runtime.spark.staged.chunks import CHUNKS, INDEX, Pack
from cues_kafka.runtime.spark.staged.manifest import GONE, RESTORE, Chunk, Manifest, checksum, parsed

HELD_BYTES: Final = 1024 * 1024
HELD_ROWS: Final = 20_000
"""A batch of so much, which is *few* here, is kept and published by the driver sooner than Spark would begin a job."""

_FORMAT_OF_STATE: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"

MANIFEST: Final = "manifest.json"
_ROWS: Final = "rows"

_GROUP: Final = 16
"""Chunks that whoever reads a file of the driver has in memory at once."""

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
        session: of Spark.
        held: chunks as the file of the last attempt has them, (number of the first row, bytes) by part; None: they are
            too many, or Spark wrote them, or it is another one's attempt.
        twice: the last batch was computed twice: its rows were not few.
    """

    def __init__(self, session: Any, directory: str, *, held_bytes: int = HELD_BYTES) -> None:
        """
        Args:
            session: of Spark.
            directory: of the query's own; on a file system that driver and executors share.
            held_bytes: of a batch that is few.
        """
        self.held: dict[int, list[tuple[int, bytes]]] | None = None
        self.twice = False
        self.session = session
        self._directory = directory.rstrip("/")
        self._held_bytes = held_bytes

    def write(
        self,
        messages: Any,
        batch: int,
        attempt: str,
        pack: Pack,
        *,
        outputs: tuple[str, ...],
        errors: str,
        few: bool = False,
    ) -> Manifest:
        """
        Job 1: compute the batch, with all its state, and keep what it gives.

        A few rows come to the driver, which writes one file: Spark's own writer makes directories, files and renames of
        each task, which take longer than such a batch does. Where they are not few after all, they are dropped, and
        Spark computes the batch once more, as it does when a task fails.

        Args:
            messages: the columns of `columns.as_outputs`.
            batch: number of the micro-batch.
            attempt: a name that nobody else has.
            pack: makes chunks of them.
            outputs: topics, see `Manifest`.
            errors: topic, see `Manifest`.
            few: they are expected to be.

        Raises:
            ConfigError: not all that was written is found: the directory is not one that driver and executors share.
        """
        gathered = self._gather(messages, pack) if few and self._state_may_be_computed_twice else None
        found = (
            self._by_spark(messages, pack, batch, attempt)
            if gathered is None
            else self._by_driver(gathered, batch, attempt)
        )
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
        if gathered is not None and manifest.rows <= HELD_ROWS:
            self.held = {}
            columns = [gathered.column(name).to_pylist() for name in ("part", "row", "payload")]
            for part, row, payload in sorted(zip(*columns, strict=True)):
                self.held.setdefault(part, []).append((row, payload))
        write_bytes(self.session, self._at(batch, attempt, MANIFEST), manifest.text.encode())
        return manifest

    def is_few(self, manifest: Manifest) -> bool:
        """Whether a batch is; of one without rows nobody knows whether executors write where the driver looks."""
        return 0 < manifest.rows <= HELD_ROWS and manifest.bytes <= self._held_bytes

    @property
    def _state_may_be_computed_twice(self) -> bool:
        """In the second format each computation of a batch's state has a name, and Spark takes one of them."""
        return str(self.session.conf.get(_FORMAT_OF_STATE, "1")) == "1"

    def _gather(self, messages: Any, pack: Pack) -> pa.Table | None:
        """All chunks; None: a Spark task has more than the quarter of what is few, so that many have not too much."""
        found = messages.mapInArrow(replace(pack, most=self._held_bytes // 4), CHUNKS).toArrow()
        self.twice = found.column("payload").null_count > 0
        return None if self.twice else found

    def _by_driver(self, chunks: pa.Table, batch: int, attempt: str) -> list[dict[str, Any]]:
        if not len(chunks):
            return []
        name, sink = "few.parquet", pa.BufferOutputStream()
        parquet.write_table(chunks, sink, compression="none", use_dictionary=False, row_group_size=_GROUP)
        data = sink.getvalue()
        write_bytes(self.session, self._at(batch, attempt, _ROWS, name), memoryview(data))
        return [row | {"file_name": name, "file_size": data.size} for row in chunks.select(INDEX).to_pylist()]

    def _by_spark(self, messages: Any, pack: Pack, batch: int, attempt: str) -> list[Any]:
        from pyspark.sql import Observation  # noqa: PLC0415 - only the driver needs it
        from pyspark.sql import functions as f  # noqa: PLC0415

        # Counted where they are written: a driver that looks into another directory of that name would find fewer.
        seen = Observation()
        chunks = messages.mapInArrow(pack, CHUNKS).observe(seen, f.count(f.lit(1)).alias("chunks"))
        rows = self._name(batch, attempt, _ROWS)
        chunks.write.options(**_FORMAT).parquet(rows)
        found = list(self._index(batch, attempt))
        if len(found) != (written := seen.get["chunks"]):
            raise ConfigError(
                f"{rows} has {len(found)} of the {written} chunks that Spark's tasks wrote there: the driver and the "
                "executors do not share that directory. Give a checkpoint on a file system that all of them see"
            )
        return found

    def _index(self, batch: int, attempt: str) -> Iterable[Any]:
        """All chunks of an attempt, without their bytes, and the file that each is in."""
        here = self._at(batch, attempt, _ROWS)
        if not isinstance(here, Path):
            read = self.session.read.schema(CHUNKS).parquet(here)
            return read.select(*INDEX, "_metadata.file_name", "_metadata.file_size").collect()  # type: ignore[no-any-return]
        found = lengths(self.session, here)
        return [
            row | {"file_name": name, "file_size": length}
            for name, length in found.items()
            if not name.startswith(("_", "."))  # what file systems keep beside files
            for row in parquet.read_table(here / name, columns=list(INDEX), partitioning=None).to_pylist()
        ]

    def read(self, batch: int, attempt: str, expected: bytes) -> Manifest:
        """
        The manifest of an attempt that was announced.

        Raises:
            RecoveryError: it is not there, or not as it was.
        """
        self.held = None
        path = self._at(batch, attempt, MANIFEST)
        try:
            text = read_text(self.session, path)
        except FileNotFoundError:
            raise RecoveryError(
                f"{path} is gone: batch {batch} was announced with it, and is not published yet. {GONE}"
            ) from None
        if checksum(text.encode()) != expected:
            raise RecoveryError(f"{path} is not as it was announced (its checksum differs). {RESTORE}")
        return parsed(text)

    def check(self, manifest: Manifest) -> None:
        """
        Look for the files of an announced batch.

        Raises:
            RecoveryError: one of them is not there, or not as long as it was: Spark would not say what to do.
        """
        place = self._at(manifest.batch, manifest.attempt, _ROWS)
        found = lengths(self.session, place)
        for name, length in manifest.files:
            if found.get(name) != length:
                why = f"has {found[name]} bytes, not {length}" if name in found else "is gone"
                raise RecoveryError(
                    f"{place}/{name} {why}: batch {manifest.batch} was announced with it, and is not published "
                    f"yet. {RESTORE if name in found else GONE}"
                )

    def files(self, manifest: Manifest) -> list[Path] | None:
        """The files of a batch on the local disk, where Spark's tasks read them; None: they are elsewhere."""
        here = self._at(manifest.batch, manifest.attempt, _ROWS)
        return [here / name for name, _ in manifest.files] if isinstance(here, Path) else None

    def chunks(self, manifest: Manifest) -> Any:
        """The chunks of a batch as a DataFrame; only files that the manifest names are looked at."""
        place = self._name(manifest.batch, manifest.attempt, _ROWS)
        return self.session.read.schema(CHUNKS).parquet(*[f"{place}/{name}" for name, _ in manifest.files])

    def drop(self, batch: int, attempt: str) -> None:
        """An attempt that lost, or that failed."""
        delete(self.session, self._at(batch, attempt))

    def clean(self, batch: int, attempt: str) -> None:
        """T4: everything but this attempt: older batches, and losers of this one. Never a newer batch."""
        for older in names(self.session, self._at()):
            if older.isdigit() and int(older) < batch:
                delete(self.session, self._at(older))
        for other in names(self.session, self._at(batch)):
            if other != attempt:
                delete(self.session, self._at(batch, other))

    @property
    def size(self) -> int:
        """Bytes on disk now."""
        return size(self.session, self._at())

    @cached_property
    def _here(self) -> Path | None:
        return local(self.session, self._directory)

    def _at(self, *names: str | int) -> Place:
        return self._here.joinpath(*map(str, names)) if self._here else self._name(*names)

    def _name(self, *names: str | int) -> str:
        """For Spark, which may take a name without a scheme for another file system."""
        return "/".join([self._directory, *map(str, names)])
