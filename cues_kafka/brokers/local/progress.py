"""Tells how far a step is that takes a minute, and that a program would otherwise spend in silence."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_S = 5.0
"""Time between two lines; a step that takes less says nothing but its first line."""


@contextmanager
def progress(say: Callable[[str], None], line: Callable[[float], str]) -> Iterator[None]:
    """
    Say a line every `EVERY_S`, until the step inside has ended.

    Args:
        say: takes a line.
        line: makes a line of the seconds since the step began; it runs in a thread of its own.
    """
    ended, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not ended.wait(EVERY_S):
            say(line(time.monotonic() - began))

    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
