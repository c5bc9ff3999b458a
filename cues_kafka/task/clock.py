"""The machine's clock."""

from __future__ import annotations

import time


class SystemClock:
    """The time of this machine, see `ports.clock.Clock`."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return time.monotonic()

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait; a negative time counts as 0."""
        time.sleep(max(0.0, seconds))
