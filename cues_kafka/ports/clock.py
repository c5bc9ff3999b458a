"""The time, which is virtual in simulations."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """A source of the time."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        ...

    def time(self) -> float:
        """Seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        ...
