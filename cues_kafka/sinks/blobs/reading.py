"""What readers of files may read: exactly the files that are committed (E3, E5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cues_kafka.sinks.blobs.entries import LOGS, CommitLog
from cues_kafka.sinks.blobs.store import BlobStore, open_store


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
    for processor in store.names(LOGS):
        for task in store.names(f"{LOGS}/{processor}"):
            for entry in CommitLog(store, f"{processor}/{task}").after(0):
                for one in entry.files:
                    if table is None or one.table == table:
                        yield DataFile(
                            *(store.url(one.path), one.table, one.rows, one.bytes, one.topic, one.partition),
                            *(one.first, one.last, entry.step),
                        )


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
        ConfigError: a package is missing, or the options do not fit.
        RetriableError: the store does not answer.
        CodecError: a log was written by another release.
    """
    return read_files(open_store(url, options), table)
