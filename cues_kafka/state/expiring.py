"""Entries that end: each carries the time at which it was set, and is gone when the task's time has passed it by.

The time is the task's own: the newest timestamp of the messages whose steps it keeps, or a count of these steps. So the
same messages give the same entries, whenever they are processed. It is rolled back like the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Final

from cues_kafka.state.entries import TIME_BYTES, Changes, EntriesPlace, TimedEntries
from cues_kafka.state.layers import Layers

MILLISECONDS, MESSAGES = b"t", b"n"
"""Keys of the task's time in the changelog: in which it counts."""

BUCKETS: Final = 100
"""Parts of a lifetime. Entries that were set in the same part are deleted together."""


class Expiring(Layers):
    """
    See `Layers`. An entry is seen until its time is over; its deletion is committed up to a hundredth of that later.

    Args:
        most: see `Layers`.
        ttl: how long an entry lives, in units of the task's time.
        unit: of the time: `MILLISECONDS` or `MESSAGES`.
        entries: see `Layers`; they know themselves which keys were set when.
    """

    entry: ClassVar[bytes] = b"e"
    __slots__ = (
        *("_before", "_buckets", "_committed_time", "_sealing", "_timed", "_ttl", "_width", "time", "unit"),
        *("_first_alive", "_now", "_part"),
    )

    def __init__(
        self,
        most: int | None,
        ttl: int,
        unit: bytes = MILLISECONDS,
        entries: TimedEntries | None = None,
        *,
        name: str = "the store",
    ) -> None:
        super().__init__(most, entries, name=name)
        self._timed = entries
        self.unit = unit
        self._ttl = ttl
        self._width = part_of(ttl)
        self._buckets: dict[int, _Bucket] = {}  # by the time at which keys were set; empty with `_timed`
        self._sealing: dict[int, tuple[int, dict[int, _Bucket]]] = {}  # times and swept buckets of sealed batches
        self._turn_to(0)
        self._before = self._committed_time = 0

    def _turn_to(self, time: int) -> None:
        """Set the task's time, and what changes and look-ups make of it: most steps have that of the one before."""
        self.time = time
        self._now = time.to_bytes(TIME_BYTES, "big")
        self._first_alive = max(0, time - self._ttl + 1).to_bytes(TIME_BYTES, "big")
        part = time - time % self._width
        self._part = part.to_bytes(TIME_BYTES, "big")

    def advance(self, time: int) -> None:
        """The step's time; the task's time never goes back."""
        if time > self.time:
            self._turn_to(time)

    def is_over(self, time: int) -> bool:
        """Whether an entry that was set then is gone."""
        return time + self._ttl <= self.time

    def get(self, key: bytes) -> bytes | None:
        value = self.newest(key)
        if value is None or value < self._first_alive:  # `alive`: values begin with their times
            return None
        return value[TIME_BYTES:]

    def change(self, key: bytes, value: bytes | None) -> bytes | None:
        if value is None:
            return self._keep(key, None)
        before = self._keep(key, self._now + value)
        if before is None or before < self._part:  # else it is filed already
            self._file(key, self.time, before)
        return before

    def entries(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        found = ((key, self._alive(value, self.time)) for key, value in super().entries(prefix))
        return ((key, value) for key, value in found if value is not None)

    def count(self) -> int:
        """See `Layers`. It looks at all entries, because some may have ended."""
        return sum(1 for _ in self.entries())

    def committed(self, key: bytes) -> bytes | None:
        return self._alive(super().committed(key), self._committed_time)

    def committed_entries(self) -> dict[bytes, bytes]:
        now = self._committed_time
        found = ((key, self._alive(value, now)) for key, value in super().committed_entries().items())
        return {key: value for key, value in found if value is not None}

    def begin_batch(self) -> None:
        super().begin_batch()
        with self._lock:  # the batch before this one may be committed at the same time
            self._before = max([time for time, _ in self._sealing.values()], default=self._committed_time)
            self._turn_to(self._before)

    def begin_step(self) -> None:
        self._undo.clear()
        self._before = self.time

    def undo_step(self) -> None:
        """See `Layers`. The step's message has not moved the time either."""
        super().undo_step()
        self._turn_to(self._before)

    def seal(self, sequence: int) -> Changes:
        """See `Layers`; also deletes what has ended."""
        with self._lock:
            if self._batch is not None:
                self._sealing[sequence] = (self.time, self._sweep(self._batch))
            return self._seal(sequence)

    def _commit(self, sequence: int, place: EntriesPlace | None) -> None:
        super()._commit(sequence, place)
        self._committed_time, _ = self._sealing.pop(sequence, (self._committed_time, {}))

    def discard(self) -> None:
        super().discard()
        with self._lock:
            for _, swept in self._sealing.values():
                for bucket, keys in swept.items():
                    self._buckets.setdefault(bucket, _Bucket()).extend(keys)
            self._sealing.clear()
            self._before = self._committed_time
            self._turn_to(self._before)

    def time_behind(self, sequence: int) -> int:
        """The task's time when a batch, which is sealed, was over."""
        time, _ = self._sealing.get(sequence, (self._committed_time, {}))
        return time

    def load(self, entries: Iterable[tuple[bytes, bytes | None]], place: EntriesPlace | None = None) -> None:
        found = [*entries]
        for key, value in found if self._timed is None else ():
            if value is not None:
                self._file(key, _time_of(value), self._committed.get(key))
        super().load(found, place)

    def load_time(self, time: int) -> None:
        """Take the task's time from the changelog."""
        self._before = self._committed_time = time
        self._turn_to(time)

    def clear(self, why: str = "") -> None:
        super().clear(why)
        self._buckets.clear()
        self._sealing.clear()
        self.load_time(0)

    def _alive(self, value: bytes | None, now: int) -> bytes | None:
        """The value without its time; None if the entry is absent or has ended."""
        return alive(value, self._ttl, now)

    def _file(self, key: bytes, time: int, before: bytes | None) -> None:
        """Each value that is seen, or may be seen again, has its key in the bucket of its time."""
        if self._timed is not None:
            return
        bucket = time // self._width
        if before is None or _time_of(before) // self._width != bucket:
            self._buckets.setdefault(bucket, _Bucket()).add(key)

    def _sweep(self, batch: Changes) -> dict[int, _Bucket]:
        """Delete the entries of all buckets that have ended as a whole."""
        end = (self.time - self._ttl) // self._width
        if self._timed is not None:
            self._sweep_timed(self._timed, batch, end * self._width)
            return {}
        swept = {bucket: self._buckets.pop(bucket) for bucket in [*self._buckets] if bucket < end}
        for keys in swept.values():
            for key in keys:
                value = self.newest(key)
                if value is not None and self._alive(value, self.time) is None:
                    batch[key] = None
        return swept

    def _sweep_timed(self, entries: TimedEntries, batch: Changes, end: int) -> None:
        """The same, where the entries know their times. Those of layers above them are as young as the layers."""
        found = [*entries.ended(end)]
        if self._committed_time < end:
            found += [key for layer in (*self._sealed.values(), batch) for key in layer]
        for key in found:
            value = self.newest(key)
            if value is not None and _time_of(value) < end:
                batch[key] = None


def part_of(ttl: int) -> int:
    """The length of the parts of a lifetime."""
    return max(1, ttl // BUCKETS)


class _Bucket(list[bytes]):
    """Keys, some of them more than once; but at most about half of them."""

    __slots__ = ("_room",)

    def __init__(self) -> None:
        self._room = 1_000

    def add(self, key: bytes) -> None:
        """Add a key."""
        self.append(key)
        if len(self) > self._room:
            self[:] = dict.fromkeys(self)
            self._room = max(self._room, 2 * len(self))


def alive(value: bytes | None, ttl: int, now: int) -> bytes | None:
    """The value without the time at which it was set; None if the entry is absent or has ended."""
    return None if value is None or _time_of(value) + ttl <= now else value[TIME_BYTES:]


def _time_of(value: bytes) -> int:
    return int.from_bytes(value[:TIME_BYTES], "big")
