"""The crash point of a process that kills itself there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


def killing(point: tuple[str, str, int] | None) -> Callable[[str, str], None]:
    """A hook that kills the process before or after the nth effect of a name; None: it never does."""
    seen = 0

    def hook(moment: str, effect: str) -> None:
        nonlocal seen
        if point is not None and (moment, effect) == point[:2]:
            seen += 1
            if seen == point[2]:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook
