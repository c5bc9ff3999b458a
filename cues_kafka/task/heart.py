"""Heartbeats of a worker process: sent while its loops move, and not sent when one stands still."""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cues_kafka.observe.log import get_logger

log = get_logger("cues_kafka.worker")

READY: Final = "CUES_KAFKA_READY"
"""The variable that tells a worker the descriptor for its heartbeats."""

TELL_S: Final = 30.0
"""A loop that has not moved for so long is logged, once, with its stack."""


@dataclass(frozen=True, slots=True)
class Loop:
    """
    A thread that goes round and round.

    Attributes:
        thread: its name.
        ident: its identifier, for its stack.
        moved_s: when it began its newest round, in seconds of a monotonic clock.
    """

    thread: str
    ident: int
    moved_s: float


class Heart:
    """
    Tells the supervisor of this worker that its tasks are ready, and then that it still works.

    Without a supervisor nothing happens.
    """

    def __init__(self) -> None:
        given = os.environ.pop(READY, None)  # what this process starts must not find it
        self._fd = None if given is None else int(given)

    def beat(self) -> None:
        """Say that the tasks are ready, or that the worker still works."""
        if self._fd is None:
            return
        try:
            os.write(self._fd, b"x")
        except BlockingIOError:
            return  # the supervisor has not looked for hours, and has enough to read
        except OSError as error:  # it does not listen any more, or the variable came from elsewhere
            log.debug("heartbeat not sent", error=str(error))
            self._fd = None


class Loops:
    """Sees whether all loops of this process have moved since the last look."""

    def __init__(
        self, ask: Callable[[], Sequence[Loop]], clock: Callable[[], float] = time.monotonic, tell_s: float = TELL_S
    ) -> None:
        """
        Args:
            ask: gives the loops as they are now; those that have ended are left out.
            clock: gives seconds.
            tell_s: a loop that has not moved for so long is logged.
        """
        self._ask = ask
        self._clock = clock
        self._tell_s = tell_s
        self._seen: dict[int, tuple[float, float]] = {}  # by thread: its newest round, and since when
        self._told: set[int] = set()

    def moved(self) -> bool:
        """Look; whether every loop has gone round since the look before. A loop that is new has."""
        now, before = self._clock(), self._seen
        loops = self._ask()
        self._seen = {one.ident: (one.moved_s, now) for one in loops}
        still = [one for one in loops if before.get(one.ident, (-1.0, 0.0))[0] == one.moved_s]
        for one in still:
            self._seen[one.ident] = before[one.ident]
            since_s = before[one.ident][1]
            if now - since_s >= self._tell_s and one.ident not in self._told:
                self._told.add(one.ident)
                log.warning(
                    "loop does not respond", thread=one.thread, for_s=round(now - since_s), stack=_stack(one.ident)
                )
        self._told &= {one.ident for one in still}
        return not still


def _stack(ident: int) -> str:
    """Where a thread is, in one line, the newest call last."""
    # CPython 3.11 holds a lock of the interpreter while it makes the dict. A garbage collection just then that frees a
    # `threading.local` waits for that lock, and the process stands still (python/cpython#106883).
    collects = gc.isenabled()
    gc.disable()
    try:
        frame = sys._current_frames().get(ident)  # noqa: SLF001 - documented, for exactly this
    finally:
        if collects:
            gc.enable()
    if frame is None:
        return "it has ended"
    found = traceback.extract_stack(frame)
    return " > ".join(f"{Path(one.filename).name}:{one.name}:{one.lineno}" for one in found[-12:])
