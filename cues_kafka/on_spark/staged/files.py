"""The files of a staged batch (T1): messages in checksummed chunks, and a manifest that names them.

`<stage>/<batch>/<attempt>/` belongs to one attempt at one batch, and no other attempt writes there. The messages of a
Spark task go to one part, chunk by chunk, so their order is kept. A chunk is one row: Arrow's bytes and their checksum.
The manifest is written last. It lists every file and chunk that the job committed, and the announcement has its
checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.on_spark.in_arrow import map_in_arrow
from cues_kafka.on_spark.query.files import Place, delete, lengths, local, names, read_bytes, size, write_bytes
from cues_kafka.on_spark.staged.chunks import CHUNKS, INDEX, Packing
from cues_kafka.on_spark.staged.manifest import GONE, RESTORE, Manifest, checksum, listed, parsed
from cues_kafka.on_spark.staged.topics import StagedTarget

SMALL_BYTES: Final = 1024 * 1024
SMALL_ROWS: Final = 20_000
"""A batch of at most this size is small: the driver publishes it sooner than Spark begins a job."""

_FORMAT_OF_STATE: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"

MANIFEST: Final = "manifest.json"
_ROWS: Final = "rows"

_GROUP: Final = 16
"""Chunks of a file of the driver that its reader has in memory at once."""

_FORMAT: Final = {
    "compression": "uncompressed",  # chunks are compressed
    # No reader needs a mark of success, and chunks have checksums of their own. On a local disk Java starts a process
    # for each further file, to set its rights.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}


class Staging:
    """
    The staged files of one query.

    Attributes:
        kept: chunks that the driver wrote in the last attempt, (number of the first row, bytes) by part; None: they are
            too many, or Spark wrote them, or another driver made the attempt.
        computed_twice: the last batch was expected to be small, and was not.
    """

    def __init__(self, session: Any, directory: str, *, small_bytes: int = SMALL_BYTES) -> None:
        """
        Args:
            session: of Spark.
            directory: of this query alone, on a file system that driver and executors share.
            small_bytes: limit of a small batch.
        """
        self.kept: dict[int, list[tuple[int, bytes]]] | None = None
        self.computed_twice = False
        self.session = session
        self._directory = directory.rstrip("/")
        self._small_bytes = small_bytes

    def write(
        self,
        messages: Any,
        batch: int,
        attempt: str,
        pack: Packing,
        topics: StagedTarget,
        *,
        small: bool = False,
        log_at: int = -1,
        more: Callable[[int], Any] = lambda _: None,
    ) -> Manifest:
        """
        Job 1: compute the batch, with all its state, and keep its messages.

        The rows of a small batch come to the driver, which writes one file. Spark's own writer makes directories and
        files for each task, and renames them, which takes longer than such a batch. If the batch turns out to be
        larger, its rows are dropped, and Spark computes it once more, as it does when a task fails.

        `messages` has the columns of `columns.as_outputs`, or of `file_columns.file_columns`; `small`: the batch is
        expected to be small, or its rows go to files, so that only references and error messages are kept here;
        `log_at`: see `Manifest`; `more` is called when the batch is computed, with how often it was, and gives a
        DataFrame of further chunks, or None.

        Raises:
            ConfigError: files are missing, because driver and executors do not share the directory.
        """
        gathered = self._gather(messages, pack) if small and self._state_may_be_computed_twice else None
        found = (
            self._by_spark(map_in_arrow(messages, pack, CHUNKS), batch, attempt)
            if gathered is None
            else self._by_driver(gathered, batch, attempt)
        )
        further = more(1 + self.computed_twice)
        if further is not None:
            found = [*found, *self._by_spark(further, batch, attempt, {row["file_name"] for row in found})]
        errors = topics.errors.topic if topics.errors else ""
        manifest = listed(batch, attempt, found, topics.names, errors, log_at=log_at)
        if gathered is not None and further is None and manifest.rows <= SMALL_ROWS:
            self._keep(_with_messages(gathered))
        write_bytes(self.session, self._at(batch, attempt, MANIFEST), manifest.text.encode())
        return manifest

    def _keep(self, chunks: pa.Table) -> None:
        self.kept = {}
        columns = [chunks.column(name).to_pylist() for name in ("part", "row", "payload")]
        for part, row, payload in sorted(zip(*columns, strict=True)):
            self.kept.setdefault(part, []).append((row, payload))

    def is_small(self, manifest: Manifest) -> bool:
        """Whether a batch is small; one without rows does not show whether executors write where the driver looks."""
        return 0 < manifest.rows <= SMALL_ROWS and manifest.bytes <= self._small_bytes

    @property
    def _state_may_be_computed_twice(self) -> bool:
        """In the second format each computation of a batch's state has a name, and Spark takes one of them."""
        return str(self.session.conf.get(_FORMAT_OF_STATE, "1")) == "1"

    def _gather(self, messages: Any, pack: Packing) -> pa.Table | None:
        """All chunks; None: a Spark task has more than a quarter of the limit, so that the sum stays small."""
        found = map_in_arrow(messages, replace(pack, most=self._small_bytes // 4), CHUNKS).toArrow()
        self.computed_twice = found.column("payload").null_count > 0
        return None if self.computed_twice else found

    def _by_driver(self, chunks: pa.Table, batch: int, attempt: str) -> list[dict[str, Any]]:
        if not len(chunks):
            return []
        name, sink = "few.parquet", pa.BufferOutputStream()
        if len(few := _with_messages(chunks)):
            parquet.write_table(few, sink, compression="none", use_dictionary=False, row_group_size=_GROUP)
        data = sink.getvalue()
        if data.size:
            write_bytes(self.session, self._at(batch, attempt, _ROWS, name), memoryview(data))
        return [row | {"file_name": name, "file_size": data.size} for row in chunks.select(INDEX).to_pylist()]

    def _by_spark(self, made: Any, batch: int, attempt: str, known: Collection[str] = ()) -> list[Any]:
        """Have Spark write chunks beside files that are known; return the chunks that it wrote."""
        from pyspark.sql import Observation  # noqa: PLC0415 - only the driver needs it
        from pyspark.sql import functions as f  # noqa: PLC0415

        # Spark counts rows as it writes them: a driver that looks into another directory of that name finds fewer.
        seen = Observation()
        chunks = made.observe(seen, f.count(f.lit(1)).alias("chunks"))
        rows = self._name(batch, attempt, _ROWS)
        chunks.write.mode("append").options(**_FORMAT).parquet(rows)
        found = [row for row in self._index(batch, attempt) if row["file_name"] not in known]
        if len(found) != (written := seen.get["chunks"]):
            raise ConfigError(
                f"{rows} has {len(found)} of the {written} chunks that Spark's tasks wrote there: the driver and the "
                "executors do not share that directory. Give a checkpoint on a file system that all of them see"
            )
        return found

    def _index(self, batch: int, attempt: str) -> Iterable[Any]:
        """All chunks of an attempt without their bytes, each with its file."""
        here = self._at(batch, attempt, _ROWS)
        if not isinstance(here, Path):
            read = self.session.read.schema(CHUNKS).parquet(here)
            return read.select(*INDEX, "_metadata.file_name", "_metadata.file_size").collect()  # type: ignore[no-any-return]
        found = lengths(self.session, here)
        return [
            row | {"file_name": name, "file_size": length}
            for name, length in found.items()
            if not name.startswith(("_", "."))  # files that file systems add themselves
            for row in parquet.read_table(here / name, columns=list(INDEX), partitioning=None).to_pylist()
        ]

    def read(self, batch: int, attempt: str, expected: bytes) -> Manifest:
        """Read the manifest of an announced attempt; a RecoveryError says that it is missing or was changed."""
        self.kept = None
        path = self._at(batch, attempt, MANIFEST)
        try:
            data = read_bytes(self.session, path)
        except FileNotFoundError:
            raise RecoveryError(
                f"{path} is gone: batch {batch} was announced with it, and is not published yet. {GONE}"
            ) from None
        if checksum(data) != expected:
            raise RecoveryError(f"{path} is not as it was announced (its checksum differs). {RESTORE}")
        return parsed(data.decode())

    def check(self, manifest: Manifest) -> None:
        """Look for the files of an announced batch; a RecoveryError names one that is missing or was cut."""
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
        """
        The files of a batch on the local disk, where Spark's tasks can read them.

        None: they are elsewhere, or the session is one of Spark Connect, whose tasks get nothing but rows.
        """
        here = self._at(manifest.batch, manifest.attempt, _ROWS)
        if not isinstance(here, Path) or not hasattr(self.session, "sparkContext"):
            return None
        return [here / name for name, _ in manifest.files]

    def chunks(self, manifest: Manifest) -> Any:
        """The chunks of a batch as a DataFrame, from the files that the manifest names."""
        place = self._name(manifest.batch, manifest.attempt, _ROWS)
        return self.session.read.schema(CHUNKS).parquet(*[f"{place}/{name}" for name, _ in manifest.files])

    def drop(self, batch: int, attempt: str) -> None:
        """Delete an attempt that lost or failed."""
        delete(self.session, self._at(batch, attempt))

    def clean(self, batch: int, attempt: str) -> None:
        """T4: delete older batches and the attempts at this one that lost, never a newer batch."""
        for older in names(self.session, self._at()):
            if older.isdigit() and int(older) < batch:
                delete(self.session, self._at(older))
        for other in names(self.session, self._at(batch)):
            if other != attempt:
                delete(self.session, self._at(batch, other))

    @property
    def size(self) -> int:
        """Bytes of the query's staged files on disk."""
        return size(self.session, self._at())

    @cached_property
    def _here(self) -> Path | None:
        return local(self.session, self._directory)

    def _at(self, *names: str | int) -> Place:
        return self._here.joinpath(*map(str, names)) if self._here else self._name(*names)

    def _name(self, *names: str | int) -> str:
        """Add the scheme `file:`, because Spark may take a plain path for one of another file system."""
        return "/".join([self._directory, *map(str, names)])


def _with_messages(chunks: pa.Table) -> pa.Table:
    """The chunks of a batch that have messages."""
    return chunks.filter(pc.is_null(chunks.column("data")))
