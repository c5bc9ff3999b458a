"""The clients of librdkafka that this process has."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

STEADY_S = 0.02
"""How long a list must stay as it is: a new thread takes less to give itself its name."""


def clients() -> frozenset[int]:
    """
    The main thread of each client, which is named rdk:main. Those of other tests may end at any time.

    That thread starts the client's other threads, and each of them has the name of the thread that started it until it
    sets its own. So they are listed until the list is the same three times in a row.
    """
    lists = [_listed()]
    while len(lists) < 3 or len(set(lists[-3:])) > 1:
        time.sleep(STEADY_S)
        lists.append(_listed())
    return lists[-1]


def _listed() -> frozenset[int]:
    return frozenset(int(thread.name) for thread in Path("/proc/self/task").iterdir() if _name(thread) == "rdk:main")


def _name(thread: Path) -> str | None:
    """None: the thread has ended since it was listed."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return (thread / "comm").read_text().strip()
    return None
