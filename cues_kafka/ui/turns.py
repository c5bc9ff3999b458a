"""Questions of one kind take turns: one is answered, a few wait, and more are refused."""

from __future__ import annotations

import threading
from typing import Final

from cues_kafka.errors import CuesError

WAITING: Final = 3
"""Questions of a kind that wait. Each one holds a place of the server, and there are five kinds, so 12 of its 32 places
are always left for those that ask how the graph is."""


class TooMany(CuesError):
    """A question that is refused, because too many of its kind wait."""


class Turns:
    """
    Lets one thread in at a time. Use it in a `with`.

    Args:
        waiting: how many may wait.

    Raises:
        TooMany: by the `with`: that number waits already.
    """

    def __init__(self, waiting: int = WAITING) -> None:
        self._waiting = waiting
        self._places = threading.BoundedSemaphore(1 + waiting)
        self._alone = threading.Lock()

    def __enter__(self) -> None:
        if not self._places.acquire(blocking=False):
            raise TooMany(
                f"{self._waiting + 1} questions of this kind are being answered. Wait some seconds, and ask again."
            )
        self._alone.acquire()

    def __exit__(self, *_: object) -> None:
        self._alone.release()
        self._places.release()
