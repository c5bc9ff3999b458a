"""The entries of one store: the committed ones, and on top of them changes that are not committed yet.

A function sees the newest change: of its step, of the steps before it in the batch, of a batch whose commit is under
way (P7), and then what is committed. A step that fails drops its changes, a batch that is void drops all of its steps.
Entries are bytes, so that a value that a function changes in place is no change of the store.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final, TypeAlias

from cues_kafka.errors import StoreFull

MARK: Final = b"m"
"""Key of the mark with which each transaction of a task ends in the changelog: the task's step number (R4b)."""

ENTRY: Final = b"k"
"""Stands in the changelog before the key of an entry."""

Changes: TypeAlias = dict[bytes, bytes | None]
"""New values by key; None: the entry is deleted."""


_ABSENT: Final = object()


class Layers:
    """
    Entries and changes of one store of one task.

    One thread calls the function and changes entries. A commit is reported, and a batch is made void, on any thread.

    Args:
        most: bytes that the entries may take, about; None: no limit. A batch whose commit is under way is not counted,
            so at most one batch is held above it.
    """

    entry: ClassVar[bytes] = ENTRY
    __slots__ = ("_batch", "_committed", "_grown", "_lock", "_most", "_sealed", "_size", "_undo")

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._size = 0  # of the committed entries
        self._grown = 0  # by the open batch
        self._lock = threading.Lock()
        self._committed: dict[bytes, bytes] = {}
        self._sealed: dict[int, Changes] = {}
        self._batch: Changes | None = None
        self._undo: list[tuple[bytes, Any, int]] = []  # what the step found in the batch, change by change

    # What a function does

    def get(self, key: bytes) -> bytes | None:
        """The newest value; None: there is no such entry."""
        return self.newest(key)

    def newest(self, key: bytes) -> bytes | None:
        """The newest value as it is kept."""
        if self._batch is not None and (found := self._batch.get(key, _ABSENT)) is not _ABSENT:
            return found  # type: ignore[return-value]
        for changes in reversed([*self._sealed.values()]):
            if key in changes:
                return changes[key]
        return self._committed.get(key)

    def change(self, key: bytes, value: bytes | None) -> None:
        """
        Change an entry in the present step; None deletes it.

        Raises:
            RuntimeError: no batch is open, or it became void meanwhile.
            StoreFull: the entries would take too much memory.
        """
        batch = self._batch
        if batch is None:
            raise RuntimeError("a store is changed while its function is called, and not later")
        more = 0
        if self._most is not None:
            more = size_of(key, value) - size_of(key, self.newest(key))
            if more > 0 and self._size + self._grown + more > self._most:
                raise StoreFull(f"the entries need more than max_bytes={self._most}")
        self._undo.append((key, batch.get(key, _ABSENT), more))
        batch[key] = value
        self._grown += more

    def entries(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All entries whose keys begin with this, in the order of their bytes, as they are now."""
        with self._lock:
            found: Changes = {key: value for key, value in self._committed.items() if key.startswith(prefix)}
            for layer in (*self._sealed.values(), self._batch or {}):
                found |= {key: value for key, value in layer.items() if key.startswith(prefix)}
        return ((key, value) for key, value in sorted(found.items()) if value is not None)

    def committed_entries(self) -> dict[bytes, bytes]:
        """All committed entries as they are now, for other threads."""
        with self._lock:
            return dict(self._committed)

    def committed(self, key: bytes) -> bytes | None:
        """The committed value of a key, for other threads; None: there is no such entry."""
        with self._lock:
            return self._committed.get(key)

    # What the lane says

    def begin_batch(self) -> None:
        """Steps of a new batch come next."""
        self._batch, self._undo, self._grown = {}, [], 0

    def begin_step(self) -> None:
        """The function is called next; the step before it keeps its changes."""
        if self._undo:
            self._undo = []

    def undo_step(self) -> None:
        """Drop the changes of the step."""
        batch, undo, self._undo = self._batch or {}, self._undo, []
        for key, before, more in reversed(undo):
            self._grown -= more
            if before is _ABSENT:
                batch.pop(key, None)
            else:
                batch[key] = before

    def seal(self, sequence: int) -> Changes:
        """All steps of the batch have ended; gives the last change of each key, for the transaction."""
        with self._lock:
            return self._seal(sequence)

    def _seal(self, sequence: int) -> Changes:
        batch, self._batch = self._batch, None
        if batch is None:
            return {}  # it became void
        self._sealed[sequence] = batch
        return batch

    def commit(self, sequence: int) -> None:
        """The transaction of a sealed batch is committed."""
        with self._lock:
            for key, value in self._sealed.get(sequence, {}).items():
                self._apply(key, value)
            self._sealed.pop(sequence, None)

    def discard(self) -> None:
        """Drop what is not committed. A call that still runs changes nothing any more: its batch is gone."""
        with self._lock:
            self._sealed.clear()
            self._batch = None

    def load(self, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Take committed changes from the changelog, in its order; taking them twice is harmless."""
        with self._lock:
            for key, value in entries:
                self._apply(key, value)

    def clear(self) -> None:
        """Forget all committed entries."""
        with self._lock:
            self._committed.clear()
            self._size = 0

    def _apply(self, key: bytes, value: bytes | None) -> None:
        self._size += size_of(key, value) - size_of(key, self._committed.get(key))
        if value is None:
            self._committed.pop(key, None)
        else:
            self._committed[key] = value


ENTRY_BYTES: Final = 160
"""What Python needs for an entry besides its bytes: two objects and a place in a dict."""


def size_of(key: bytes, value: bytes | None) -> int:
    """About how many bytes an entry takes in memory; a deleted one (None) takes none."""
    return 0 if value is None else len(key) + len(value) + ENTRY_BYTES
