"""When things happened, in a bounded number of parts of equal length: what a sparkline shows."""

from __future__ import annotations

from collections import Counter
from typing import Final

MOST: Final = 64
"""Parts that are counted. Where the times are farther apart, parts become twice as long."""


class Spread:
    """Counts times in milliseconds since 1970. It keeps `MOST` numbers at most, however many there are."""

    def __init__(self) -> None:
        self._long_ms = 1
        self._counts: Counter[int] = Counter()

    def add(self, at_ms: int) -> None:
        """Count what happened at this time."""
        self._counts[at_ms // self._long_ms] += 1
        while max(self._counts) - min(self._counts) >= MOST:
            self._long_ms *= 2
            longer: Counter[int] = Counter()
            for part, number in self._counts.items():
                longer[part // 2] += number
            self._counts = longer

    def bars(self) -> list[int]:
        """How many there are in each part, from the first to the last."""
        if not self._counts:
            return []
        return [self._counts[part] for part in range(min(self._counts), max(self._counts) + 1)]
