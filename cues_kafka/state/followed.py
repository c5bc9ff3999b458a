"""The entries of one partition of a changelog, as another process than the task's reads them."""

from __future__ import annotations

from collections import deque

from cues_kafka.ports import Positions
from cues_kafka.state.layers import ENTRY, MARK, Changes

_NONE = -1
"""The step of a changelog without a mark, and of a record of a task that has not written to the store."""


class Followed:
    """
    Entries as of whole transactions, and up to where in the inputs they are true.

    Changes are held back until the mark behind them is read, so a reader never sees half of a transaction. The task's
    record of the same transaction names the step of that mark (R4b). So the positions of a record count as soon as the
    changelog is read up to its step, whichever of the two is read first.

    Attributes:
        entries: values by key, as bytes.
        positions: of the newest record whose changes are all in `entries`; empty: there is none.
    """

    __slots__ = ("_held", "_mark", "_records", "entries", "positions")

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.positions: Positions = ()
        self._held: Changes = {}
        self._mark = _NONE
        self._records: deque[tuple[int, Positions]] = deque()

    def change(self, key: bytes, value: bytes | None) -> None:
        """Take the next committed message of the changelog."""
        if key == MARK:
            self._apply()
            self._mark = int(value or _NONE)
            self._advance()
        elif key[:1] == ENTRY:
            self._held[key[1:]] = value

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
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = value
        self._held = {}

    def _advance(self) -> None:
        while self._records and self._records[0][0] <= self._mark:
            _, self.positions = self._records.popleft()
