"""Which records of one delivery were seen, in room that goes by their number and not by what a header says."""

from __future__ import annotations

from typing import Final

_BITS: Final = 10
"""A mask has `2 ** _BITS` bits."""


class SeenParts:
    """
    Numbers of records, each noted once.

    Attributes:
        count: how many were noted.
    """

    __slots__ = ("_masks", "count")

    def __init__(self) -> None:
        self._masks: dict[int, int] = {}
        self.count = 0

    def note(self, index: int) -> bool:
        """Note a record by its number, from 0 on; False: it was noted before."""
        block, bit = index >> _BITS, 1 << (index & (1 << _BITS) - 1)
        mask = self._masks.get(block, 0)
        if mask & bit:
            return False
        self._masks[block] = mask | bit
        self.count += 1
        return True
