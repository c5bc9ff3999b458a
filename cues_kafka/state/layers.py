"""The entries of one store: the committed ones, and on top of them changes that are not committed yet.

A function sees the newest change: of its step, of the steps before it in the batch, of a batch whose commit is under
way (P7), and then what is committed. A step that fails drops its changes, a batch that is void drops all of its steps.
Entries are bytes, so that a value that a function changes in place is no change of the store.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final

from cues_kafka.errors import StoreFull
from cues_kafka.state.entries import Changes, Entries, EntriesPlace, InMemory, merged

MARK: Final = b"m"
"""Key of the mark with which each transaction of a task ends in the changelog: the task's step number (R4b)."""

TOPIC: Final = b"i"
"""Key of the id of the topic that the writer read its entries from: in another topic of this name they are missing."""

ENTRY: Final = b"k"
"""Stands in the changelog before the key of an entry."""

_ABSENT: Final = object()


class Layers:
    """
    Entries and changes of one store of one task.

    One thread calls the function and changes entries. A commit is reported, and a batch is made void, on any thread.

    Args:
        most: bytes that the entries may take, about; None: no limit. A batch whose commit is under way is not counted,
            so at most one batch is held above it.
        entries: where the committed ones are; None: in memory.
        name: of the store, for the error that it is full.
    """

    entry: ClassVar[bytes] = ENTRY
    __slots__ = (
        *("_batch", "_below", "_committed", "_each", "_found", "_grown", "_lock", "_most", "_name", "_sealed", "_undo"),
    )

    def __init__(self, most: int | None = None, entries: Entries | None = None, *, name: str = "the store") -> None:
        self._most = most
        self._name = name
        self._grown = 0  # by the open batch
        self._lock = threading.Lock()
        self._committed: Entries = InMemory() if entries is None else entries
        self._each = self._committed.each
        self._sealed: dict[int, Changes] = {}
        self._below: tuple[Changes, ...] = ()  # the sealed ones, the newest first
        self._batch: Changes | None = None
        # The last key that was looked up below the open batch, and what was there: most steps set what they have read.
        self._found: tuple[bytes | None, bytes | None] = (None, None)
        self._undo: list[tuple[bytes, Any, int]] = []  # what the step found in the batch, change by change

    # What a function does

    def newest(self, key: bytes) -> bytes | None:
        """The newest value as it is kept; None: there is no such entry."""
        batch = self._batch
        if batch is not None and (found := batch.get(key, _ABSENT)) is not _ABSENT:
            return found  # type: ignore[return-value]
        for changes in self._below:
            if key in changes:
                return changes[key]
        value = self._committed.get(key)
        self._found = key, value
        return value

    get = newest
    """The newest value as a function sees it."""

    def change(self, key: bytes, value: bytes | None) -> bytes | None:
        """
        Change an entry in the present step; None deletes it.

        Returns:
            The value before, as it is kept.

        Raises:
            RuntimeError: no batch is open, or it became void meanwhile.
            StoreFull: the entries would take too much memory.
        """
        batch = self._batch
        if batch is None:
            raise RuntimeError("a store is changed while its function is called, and not later")
        was: Any = batch.get(key, _ABSENT)
        before: bytes | None = was
        if was is _ABSENT:
            last, found = self._found
            before = found if last == key else self.newest(key)
        more, each = 0, self._each
        if value is not None:  # `size_of`, without its calls
            more = len(key) + len(value) + each
        if before is not None:
            more -= len(key) + len(before) + each
        if more > 0 and self._most is not None and self._committed.size + self._grown + more > self._most:
            raise StoreFull(f"the entries of {self._name} need more than max_bytes={self._most}")
        self._undo.append((key, was, more))
        batch[key] = value
        self._grown += more
        return before

    _keep = change
    """For `change` of a class that keeps something with the value."""

    def entries(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All entries whose keys begin with this, in the order of their bytes, as they are now."""
        with self._lock:
            return merged(self._committed.scan(prefix), self._changes(prefix))

    def count(self) -> int:
        """How many entries there are, as they are now."""
        with self._lock:
            kept = self._committed
            return len(kept) + sum(
                (value is not None) - (kept.get(key) is not None) for key, value in self._changes().items()
            )

    def _changes(self, prefix: bytes = b"") -> Changes:
        """What is not committed yet of the keys that begin with this."""
        changes: Changes = {}
        for layer in (*self._sealed.values(), self._batch or {}):
            changes |= {key: value for key, value in layer.items() if key.startswith(prefix)}
        return changes

    def committed_entries(self) -> dict[bytes, bytes]:
        """All committed entries as they are now, for other threads."""
        with self._lock:
            return dict(self._committed.scan(b""))

    def committed(self, key: bytes) -> bytes | None:
        """The committed value of a key, for other threads; None: there is no such entry."""
        with self._lock:
            return self._committed.get(key)

    # What the lane says

    def begin_batch(self) -> None:
        """Steps of a new batch come next."""
        self._batch, self._undo, self._grown, self._found = {}, [], 0, (None, None)

    def begin_step(self) -> None:
        """The function is called next; the step before it keeps its changes."""
        self._undo.clear()

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
        self._below = (batch, *self._below)
        return batch

    def sealed(self, sequence: int) -> int | None:
        """How many changes a sealed batch has; None: it is committed, or became void."""
        with self._lock:
            batch = self._sealed.get(sequence)
            return None if batch is None else len(batch)

    def commit(self, sequence: int, place: EntriesPlace | None = None) -> None:
        """
        The transaction of a sealed batch is committed; `place` is behind it in the changelog.

        Raises:
            RetriableError: the changes cannot be kept. Then the batch stays as it is.
        """
        with self._lock:
            self._commit(sequence, place)

    def _commit(self, sequence: int, place: EntriesPlace | None) -> None:
        batch = self._sealed.get(sequence)
        if batch is not None:
            self._committed.apply(batch.items(), place)
            del self._sealed[sequence]
            self._below = tuple(reversed(self._sealed.values()))

    def discard(self) -> None:
        """Drop what is not committed. A call that still runs changes nothing any more: its batch is gone."""
        with self._lock:
            self._sealed.clear()
            self._below, self._batch = (), None

    # What restoring does

    @property
    def durable(self) -> bool:
        """Whether the committed entries outlive the process."""
        return self._committed.durable

    def open(self) -> EntriesPlace | None:
        """Open the committed entries if they are not open; gives where they stood, None: they were open."""
        with self._lock:
            return self._committed.open()

    def load(self, entries: Iterable[tuple[bytes, bytes | None]], place: EntriesPlace | None = None) -> None:
        """
        Take committed changes from the changelog, in its order; taking them twice is harmless.

        Raises:
            RetriableError: the changes cannot be kept. None of them was taken.
        """
        with self._lock:
            self._committed.apply(entries, place)

    def kept(self) -> Iterator[tuple[bytes, bytes]]:
        """The committed entries as the changelog has them, in the order of keys; nothing is committed meanwhile."""
        return self._committed.scan(b"")

    def clear(self, why: str = "") -> None:
        """Forget all committed entries."""
        with self._lock:
            self._committed.clear(why)

    def close(self, *, orderly: bool = True) -> None:
        """Let go of the committed entries; see `Entries`."""
        self._committed.close(orderly=orderly)
