"""Which store this is (E3): a marker with an id, made once, tells a store from an empty directory in its place.

::

    <url>/_cues/store.json          the marker
    <url>/_cues/tables/<table>      an empty object for each table that a start has declared

A mount that is gone leaves an empty directory, in which every path is free. So a process that finds no marker does not
begin a new store: it waits. `plan --apply` and the first start of the processors make the marker; nothing else does.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable
from typing import Any, Final

from cues_kafka.errors import CodecError, RetriableError
from cues_kafka.sinks.blobs.store import LOGS, BlobStore

MARKER: Final = f"{LOGS}/store.json"
"""The path of the marker."""

TABLES: Final = f"{LOGS}/tables"
"""The directory of the names of tables."""

_REMEDY: Final = (
    "mount the directory, or put the store back; the task then resumes by itself. If the store is lost or shall be a "
    "new one: `cues-kafka plan MODULE:GRAPH --apply` makes it"
)


def store_id(store: BlobStore) -> str:
    """
    The id of a store; empty: it has no marker.

    Raises:
        RetriableError: the store does not answer.
        CodecError: the marker is something else.
    """
    data = store.read(MARKER)
    if data is None:
        return ""
    try:
        found: Any = json.loads(data)
        return str(found["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise CodecError(f"{store.url(MARKER)} is not a marker of a store: {data[:100]!r} ({error})") from None


def make_store(store: BlobStore) -> None:
    """
    Make a store where there is none, and its marker. What is there stays.

    Raises:
        RetriableError: the store does not answer.
    """
    store.make()
    if store.read(MARKER) is None:
        store.create(MARKER, json.dumps({"version": 1, "id": secrets.token_hex(16), "made": time.time()}).encode())


def logs_in(store: BlobStore) -> list[str]:
    """The processors that have a log in a store: `<graph>.<processor>`."""
    return [one for one in store.names(LOGS) if "." in one and f"{LOGS}/{one}" != MARKER]


def require_store(store: BlobStore) -> None:
    """
    Refuse an address that has no store, at a start that is not the first. A store of an older release has logs only.

    Raises:
        RetriableError: it has none, or does not answer.
    """
    if not store_id(store):
        if not logs_in(store):
            raise _gone()
        make_store(store)


def is_store(store: BlobStore) -> bool:
    """Whether there is a store at an address."""
    return bool(store_id(store) or logs_in(store))


def _gone() -> RetriableError:
    return RetriableError(f"there is no store at its address: {MARKER} is missing", code="TARGET", remedy=_REMEDY)


def name_tables(store: BlobStore, tables: Iterable[str]) -> None:
    """Write down which tables there are, so that readers tell one that is empty from one that is not there."""
    there = set(store.names(TABLES))
    for one in sorted(set(tables) - there):
        store.create(f"{TABLES}/{one}", b"")


class KnownStore:
    """The store as this process has found it first. All tasks of a processor in a process share it."""

    def __init__(self) -> None:
        self._id = ""
        self._stamp: object = None

    def check(self, store: BlobStore) -> None:
        """
        Read the marker.

        Raises:
            RetriableError: it is missing, or is that of another store.
            CodecError: it is something else.
        """
        stamp = store.stamp(MARKER)
        found = store_id(store)
        if not found:
            raise _gone()
        if self._id and found != self._id:
            raise RetriableError(
                f"another store is at its address: the marker {MARKER} has the id {found}, and had {self._id}",
                code="TARGET",
                remedy="mount the directory that was there, or put the store back; the task then resumes by itself. "
                "If this one shall be used from now on, restart the worker",
            )
        self._id, self._stamp = found, stamp

    def glance(self, store: BlobStore) -> None:
        """Look whether the marker is the same, where that costs no request. Raises what `check` raises."""
        stamp = store.stamp(MARKER)
        if stamp != self._stamp or not self._id:
            self.check(store)
