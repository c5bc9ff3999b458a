"""The machine's clock."""

from __future__ import annotations

import time


class SystemClock:
    """See `ports.Clock`."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return time.monotonic()

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait, if there is time to wait for."""
        time.sleep(max(0.0, seconds))
