"""The tasks of a process commit to a table one after the other.

Each commit takes the next version of the table's log. Of many that try at once, all but one try again, so sixteen tasks
took fourteen times as long as one after the other. Nothing depends on the turn but that: the log decides. So a task
that hangs while it has the turn loses it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

HELD_S: float = 5.0
"""For how long a task has the turn, in seconds, before others pass it."""

_LOOK_S: Final = 0.05

_TURNS: Final[dict[str, _Turn]] = {}
_GUARD: Final = threading.Lock()


class _Turn:
    """The turn at one table."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.since = monotonic()


@contextmanager
def turn_at(url: str) -> Iterator[None]:
    """Wait for the turn at the table at an address, and have it."""
    turn = _newest(url, None)
    while not turn.lock.acquire(timeout=_LOOK_S):
        if monotonic() - turn.since > HELD_S:
            turn = _newest(url, turn)
    turn.since = monotonic()
    try:
        yield
    finally:
        turn.lock.release()


def _newest(url: str, passed: _Turn | None) -> _Turn:
    """The turn at a table; another one than that which is passed."""
    with _GUARD:
        found = _TURNS.get(url)
        if found is None or found is passed:
            found = _TURNS[url] = _Turn()
        return found
