"""How many clients of librdkafka this process has."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

STEADY_S = 0.02
"""How long a count must stay as it is: a new thread takes less to give itself its name."""


def clients() -> int:
    """
    Each client has one thread named rdk:main.

    That thread starts the client's other threads, and each of them has the name of the thread that started it until it
    sets its own. So the count is taken until it is the same three times in a row.
    """
    counts = [_count()]
    while len(counts) < 3 or len(set(counts[-3:])) > 1:
        time.sleep(STEADY_S)
        counts.append(_count())
    return counts[-1]


def _count() -> int:
    return sum(_name(thread) == "rdk:main" for thread in Path("/proc/self/task").iterdir())


def _name(thread: Path) -> str | None:
    """None: the thread has ended since it was listed."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return (thread / "comm").read_text().strip()
    return None
