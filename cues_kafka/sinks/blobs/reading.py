"""What readers of files may read: exactly the files that are committed (E3, E5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cues_kafka.errors import ConfigError
from cues_kafka.graph.names import hint, quoted
from cues_kafka.sinks.blobs.entries import CommitLog
from cues_kafka.sinks.blobs.marker import MARKER, TABLES, is_store, logs_in
from cues_kafka.sinks.blobs.store import LOGS, BlobStore, open_store


@dataclass(frozen=True, slots=True)
class DataFile:
    """
    A file that is committed.

    Attributes:
        url: its address.
        table: which table it is a part of; empty: a function put it.
        rows: its number of rows; None: it has none, because a function put it.
        bytes: its size.
        topic: of the messages that it has; empty: a function put it, or Spark made its rows of several messages.
        partition: of these messages.
        first: offset of the first one.
        last: offset of the last one.
        step: step number of its task behind the batch that committed it; of Spark, the batch's publication number.
    """

    url: str
    table: str
    rows: int | None
    bytes: int
    topic: str
    partition: int | None
    first: int | None
    last: int | None
    step: int


def read_files(store: BlobStore, table: str | None = None) -> Iterator[DataFile]:
    """The committed files of a store, task by task, each in the order of commits; see `files`."""
    if not is_store(store):
        raise ConfigError(
            f"there is no store of files at {store.url('').rstrip('/')}: it lacks {MARKER}. Give the address that was "
            "given to Blobs, mount the directory, or start the graph, which makes the store"
        )
    known = set(store.names(TABLES))
    for processor in logs_in(store):
        for task in store.names(f"{LOGS}/{processor}"):
            for entry in CommitLog(store, f"{processor}/{task}").after(0):
                for one in entry.files:
                    known.add(one.table)
                    if table is None or one.table == table:
                        yield DataFile(
                            *(store.url(one.path), one.table, one.rows, one.bytes, one.topic, one.partition),
                            *(one.first, one.last, entry.step),
                        )
    if table and table not in known:
        raise ConfigError(
            f"the store has no table {table!r}{hint(table, known - {''})}. Its tables: {quoted(sorted(known - {''}))}"
        )


def missing_files(store: BlobStore, table: str | None = None) -> Iterator[DataFile]:
    """The committed files that are not in the store any more, or not with their size. Raises what `files` raises."""
    root = store.url("")
    return (one for one in read_files(store, table) if store.size(one.url.removeprefix(root)) != one.bytes)


def files(url: str, table: str | None = None, *, options: Mapping[str, Any] | None = None) -> Iterator[DataFile]:
    """
    The files that processors have committed under an address: a manifest that can be trusted.

    A file that a worker has written, but whose batch is not committed, is not among them. Read these files, and no
    others that a directory may list.

    Args:
        url: the address that was given to `Blobs`.
        table: the table; None: the files of all tables, and those that functions have put.
        options: as for `Blobs`.

    Yields:
        The files of one task after the other, each in the order of its input.

    Raises:
        ConfigError: there is no store at the address, or no such table in it; a package is missing, or the options do
            not fit.
        RecoveryError: an entry of a log is lost, so files would be missing. The message names it, and the remedy.
        RetriableError: the store does not answer.
        CodecError: a log was written by another release.
    """
    return read_files(open_store(url, options), table)
