"""How many clients of librdkafka this process has."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def clients() -> int:
    """Each client has one thread of that name."""
    return sum(_name(thread) == "rdk:main" for thread in Path("/proc/self/task").iterdir())


def _name(thread: Path) -> str | None:
    """None: the thread has ended since it was listed."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return (thread / "comm").read_text().strip()
    return None
