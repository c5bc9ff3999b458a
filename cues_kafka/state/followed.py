"""The entries of one partition of a changelog, as another process than the task's reads them."""

from __future__ import annotations

from collections import deque

from cues_kafka.ports.log import Positions
from cues_kafka.state.entries import Changes, size_of
from cues_kafka.state.expiring import MILLISECONDS, Expiring, alive
from cues_kafka.state.layers import ENTRY, MARK
from cues_kafka.state.marks import NO_MARK, mark_in, order

_NONE = NO_MARK
"""Also that of a record of a task that has not written to the store."""


class Followed:
    """
    Entries as of whole transactions, and up to where in the inputs they are true.

    Changes are held back until the mark behind them is read, so a reader never sees half of a transaction. The task's
    record of the same transaction names the step of that mark (R4b). So the positions of a record count as soon as the
    changelog is read up to its step, whichever of the two is read first.

    Args:
        ttl: how long entries live, in units of the task's time; None: until they are deleted.
        unit: of the time, see `Expiring`.

    Attributes:
        positions: of the newest record whose changes are all in the entries; empty before the first such record.
        size: of what is held in memory, about.
    """

    __slots__ = ("_coming", "_held", "_kept", "_mark", "_now", "_records", "_ttl", "_unit", "positions", "size")

    def __init__(self, ttl: int | None = None, unit: bytes = MILLISECONDS) -> None:
        self._ttl = ttl
        self._unit = unit
        self._now = self._coming = 0  # the task's time; that of the transaction whose mark comes next
        self._kept: dict[bytes, bytes] = {}
        self.positions: Positions = ()
        self.size = 0
        self._held: Changes = {}
        self._mark = _NONE
        self._records: deque[tuple[int, Positions]] = deque()

    @property
    def entries(self) -> dict[bytes, bytes]:
        """Values by key, as bytes; not to be changed."""
        if self._ttl is None:
            return self._kept
        found = ((key, alive(value, self._ttl, self._now)) for key, value in self._kept.items())
        return {key: value for key, value in found if value is not None}

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None: there is no such entry."""
        value = self._kept.get(key)
        return value if self._ttl is None else alive(value, self._ttl, self._now)

    def change(self, key: bytes, value: bytes | None) -> None:
        """Take the next committed message of the changelog."""
        if key == MARK:
            self._apply()
            self._mark = mark_in(value, _NONE)
            self._advance()
        elif key[:1] == (ENTRY if self._ttl is None else Expiring.entry):
            at = key[1:]
            self.size += size_of(at, value) - size_of(at, self._held.get(at))
            self._held[at] = value
        elif key == self._unit:
            self._coming = max(0, mark_in(value, 0))

    def record(self, step: int | None, positions: Positions) -> None:
        """
        Take the next record of the task.

        Args:
            step: with which it says that the changelog ends; None: it says nothing of this store.
            positions: up to where it has delivered the inputs.
        """
        self._records.append((_NONE if step is None else step, positions))
        self._advance()

    def _apply(self) -> None:
        for key, value in self._held.items():
            self.size -= size_of(key, self._kept.get(key))
            if value is None:
                self._kept.pop(key, None)
            else:
                self._kept[key] = value
        self._held, self._now = {}, self._coming

    def _advance(self) -> None:
        while self._records and order(self._records[0][0]) <= order(self._mark):
            _, self.positions = self._records.popleft()
