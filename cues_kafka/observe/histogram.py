"""Counts of durations by their length, as Prometheus keeps them."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds in seconds. The last count of a `Histogram` has what is longer. A commit takes 5 ms to 100 ms; a
batch up to a second, unless a call is slow."""


class Histogram(NamedTuple):
    """
    How many durations fell between two bounds, and their sum.

    Attributes:
        counts: for each of `BOUNDS_S`, durations up to it and above the one before; then the longer ones.
        total_s: all durations together, in seconds.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    total_s: float = 0.0

    def plus(self, seconds: float) -> Histogram:
        """One duration more."""
        counts = list(self.counts)
        counts[bisect_left(BOUNDS_S, seconds)] += 1
        return Histogram(tuple(counts), self.total_s + seconds)

    def and_those(self, others: Histogram) -> Histogram:
        """The durations of both."""
        counts = tuple(a + b for a, b in zip(self.counts, others.counts, strict=True))
        return Histogram(counts, self.total_s + others.total_s)


NONE: Final = Histogram()
"""The histogram without a duration."""
