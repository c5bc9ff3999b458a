"""Timers of one task: entries by the time at which they are due, and which of them comes first (F1, F2)."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from cues_kafka.errors import CodecError
from cues_kafka.state.entries import TIME_BYTES, EntriesPlace
from cues_kafka.state.expiring import MILLISECONDS, Expiring

DUE_BYTES: Final = 8
"""In front of a key: when the timer is due, so that keys are in the order in which timers fire."""


ROOM: Final = 10_000
"""Keys of timers that are gone, about, which are kept until their time comes."""


class Set(NamedTuple):
    """
    A timer that is set.

    Attributes:
        due_ms: when it is due, in milliseconds since the epoch.
        key: what it was scheduled under.
        origin: the messages whose step set it, as `core.delivery.show_origin` writes them.
    """

    due_ms: int
    key: str
    origin: bytes


class Scheduled(Expiring):
    """
    See `Expiring`. Entries do not end by themselves: their time is only there to tell which of them are due.

    A recovery on another thread asks for the first timer while a call of a void batch still runs.

    Attributes:
        clock: whether timers are due by the time of day, and not by that of messages.
        late: messages that came too late for what a timer has ended, as the function counts them.

    Args:
        most: see `Layers`.
        ttl: see `Expiring`.
        limit: bytes of the largest entry.
        clock: see above.
        name: of the store, for errors.
    """

    __slots__ = ("_heap", "_limit", "_now_ms", "_order", "_room", "_stale", "clock", "late")

    def __init__(self, most: int | None, ttl: int, limit: int, *, clock: bool, name: str = "the store") -> None:
        super().__init__(most, ttl, MILLISECONDS, name=name)
        self.clock: bool = clock
        self.late: int = 0
        self._limit = limit
        self._now_ms = 0
        self._order = threading.Lock()  # held while the heap changes
        self._heap: list[bytes] = []  # each key that may be there, some of them more than once
        self._stale = False  # keys may be missing in it
        self._room = ROOM  # keys that it may have before those that are gone are dropped

    # What a function does

    def schedule(self, key: str, due_ms: int, origin: bytes) -> None:
        """
        Set a timer; where it is set already, it stays as it is.

        Raises:
            CodecError: its key is larger than a message of the changelog may be.
        """
        at = key_of(key, due_ms)
        if len(at) + len(origin) > self._limit:
            raise CodecError(f"a timer under a key of {len(at)} bytes: its changelog takes {self._limit}. Store less")
        if self.newest(at) is None:
            self.change(at, origin)

    def unschedule(self, key: str, due_ms: int) -> bool:
        """Remove a timer; whether it was set."""
        at = key_of(key, due_ms)
        if self.newest(at) is None:
            return False
        self.change(at, None)
        return True

    # What the caller and the lane ask

    def end(self, timer: Set) -> bool:
        """Remove a timer with its step (F4); whether it could: its batch may have become void."""
        try:
            self.unschedule(timer.key, timer.due_ms)
        except RuntimeError:  # of `change`
            return False
        return True

    def tell(self, clock_s: float) -> None:
        """Tell the time of day; where it is set back, the newest one counts."""
        self._now_ms = max(self._now_ms, int(clock_s * 1000))

    @property
    def now_ms(self) -> int:
        """The time by which timers are due."""
        return self._now_ms if self.clock else self.time

    @property
    def first(self) -> Set | None:
        """The timer that comes first, due or not; None: none is set."""
        with self._order:
            heap = self._keys()
            while heap:
                value = self.newest(heap[0])
                if value is not None:
                    return _set_of(heap[0], value)
                heappop(heap)
            return None

    @property
    def due(self) -> Set | None:
        """The timer that must fire next; None: none is due."""
        first = self.first
        return first if first is not None and first.due_ms <= self.now_ms else None

    def count_due(self, most: int) -> int:
        """How many timers are due; counts up to `most`."""
        with self._order:
            heap, now = self._keys(), self.now_ms
            seen: dict[bytes, None] = {}
            while heap and len(seen) < most and _due_of(heap[0]) <= now:
                key = heappop(heap)
                if self.newest(key) is not None:
                    seen[key] = None
            for key in seen:
                heappush(heap, key)
            return len(seen)

    # See `Layers`

    def undo_step(self) -> None:
        keys = [key for key, _, _ in self._undo]
        super().undo_step()
        with self._order:
            for key in keys:
                heappush(self._heap, key)

    def discard(self) -> None:
        super().discard()
        self._stale = True  # what a void batch removed is there again

    def load(self, entries: Iterable[tuple[bytes, bytes | None]], place: EntriesPlace | None = None) -> None:
        super().load(entries, place)
        self._stale = True

    def clear(self, why: str = "") -> None:
        super().clear(why)
        self._stale = True

    def _keys(self) -> list[bytes]:
        if self._stale:
            self._stale = False
            self._heap = [key for key, _ in self.entries()]
            heapify(self._heap)
            self._room = max(ROOM, 2 * len(self._heap))
        return self._heap

    def _file(self, key: bytes, time: int, before: bytes | None) -> None:
        """No entry ends, so there are no buckets; each one has its place among those that fire."""
        with self._order:
            if self._stale:
                return
            heappush(self._heap, key)
            if len(self._heap) > self._room:  # a session that each message prolongs leaves a key behind for each
                self._stale = True

    def _sweep(self, batch: object) -> dict[int, object]:  # type: ignore[override]
        """No entry ends by itself."""
        return {}


def key_of(key: str, due_ms: int) -> bytes:
    """The key of a timer's entry."""
    return due_ms.to_bytes(DUE_BYTES, "big") + key.encode()


def _due_of(key: bytes) -> int:
    return int.from_bytes(key[:DUE_BYTES], "big")


def timer_of(entry: bytes) -> tuple[str, int]:
    """Key and due time of a timer, from the key of its entry."""
    return entry[DUE_BYTES:].decode(), _due_of(entry)


def _set_of(entry: bytes, value: bytes) -> Set:
    return Set(_due_of(entry), entry[DUE_BYTES:].decode(), value[TIME_BYTES:])
