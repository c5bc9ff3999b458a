"""Where the committed entries of one store of one task are: in memory, or on a disk (`on_disk`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Final, NamedTuple, Protocol, TypeAlias

ENTRY_BYTES: Final = 160
"""What Python needs for an entry besides its bytes: two objects and a place in a dict."""

TIME_BYTES: Final = 8
"""In front of a value, where entries end: when it was set."""

Changes: TypeAlias = dict[bytes, bytes | None]
"""New values by key; None: the entry is deleted."""


class EntriesPlace(NamedTuple):
    """
    Up to where entries are what their changelog says.

    Attributes:
        topic_id: of the changelog; empty: nothing was read.
        offset: the next one to read.
        step: the mark with which the changelog ends before it; None: it has none.
        time: of the task, where entries end.
        proven_ms: when it was last known that nothing came behind, in milliseconds since the epoch.
    """

    topic_id: bytes = b""
    offset: int = 0
    step: int | None = None
    time: int = 0
    proven_ms: int = 0


NOWHERE: Final = EntriesPlace()


class Entries(Protocol):
    """
    Committed entries.

    Attributes:
        durable: whether they outlive the process.
        each: bytes that an entry takes besides its own, about.
        size: of all entries, about.
    """

    durable: ClassVar[bool]
    each: ClassVar[int]

    @property
    def size(self) -> int: ...

    def __len__(self) -> int: ...

    def open(self) -> EntriesPlace | None:
        """
        Open them if they are not open; gives where they stood, None: they were open.

        Raises:
            RetriableError: that does not work at present.
        """
        ...

    def get(self, key: bytes) -> bytes | None:
        """The value; None: there is no such entry."""
        ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries whose keys begin with this, in the order of their bytes, as they are now."""
        ...

    def apply(self, changes: Iterable[tuple[bytes, bytes | None]], place: EntriesPlace | None) -> None:
        """
        Take changes, and the place behind them: all or nothing.

        Raises:
            RetriableError: nothing was taken.
        """
        ...

    def clear(self, why: str) -> None:
        """Forget all entries, and the place."""
        ...

    def close(self, *, orderly: bool = True) -> None:
        """Let go of them; `orderly=False`: as a process that is killed does."""
        ...


class TimedEntries(Entries, Protocol):
    """Entries that know which keys were set when."""

    def ended(self, before: int) -> Iterator[bytes]:
        """Keys whose values begin with a time before this one."""
        ...


class InMemory:
    """Entries in a dict. They end with the process, so the place is not kept."""

    durable: ClassVar = False
    each: ClassVar = ENTRY_BYTES
    __slots__ = ("_entries", "get", "size")

    def __init__(self) -> None:
        self.size = 0
        self._entries: dict[bytes, bytes] = {}
        self.get = self._entries.get

    def open(self) -> None: ...

    def __len__(self) -> int:
        return len(self._entries)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(one for one in self._entries.items() if one[0].startswith(prefix)))

    def apply(self, changes: Iterable[tuple[bytes, bytes | None]], _: EntriesPlace | None) -> None:
        entries, size = self._entries, self.size
        for key, value in changes:
            before = entries.get(key)
            if before is not None:  # `size_of`, without its calls
                size -= len(key) + len(before) + ENTRY_BYTES
            if value is None:
                entries.pop(key, None)
            else:
                size += len(key) + len(value) + ENTRY_BYTES
                entries[key] = value
        self.size = size

    def clear(self, why: str) -> None:
        self._entries.clear()
        self.size = 0

    def close(self, *, orderly: bool = True) -> None: ...


def size_of(key: bytes, value: bytes | None, each: int = ENTRY_BYTES) -> int:
    """About how many bytes an entry takes; a deleted one (None) takes none."""
    return 0 if value is None else len(key) + len(value) + each


def merged(found: Iterator[tuple[bytes, bytes]], changes: Changes) -> Iterator[tuple[bytes, bytes]]:
    """Entries in order, with changes on top of them."""
    if not changes:
        yield from found
        return
    waiting = sorted(changes.items(), reverse=True)
    for key, value in found:
        while waiting and waiting[-1][0] < key:
            at, new = waiting.pop()
            if new is not None:
                yield at, new
        if waiting and waiting[-1][0] == key:
            at, new = waiting.pop()
            if new is not None:
                yield at, new
        else:
            yield key, value
    for at, new in reversed(waiting):
        if new is not None:
            yield at, new
