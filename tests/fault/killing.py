"""Processes that kill themselves, and the crash point where they do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.context import ForkServerContext

Point = tuple[str, str, int]
"""Where a process dies: `before`, `inside` or `after`; the name of an effect; and at which time, counted from 1."""

WORLDS = ("arrow", "call", "database", "delta", "feed", "file", "kill", "replay", "sender", "strategy", "tail")


def forked() -> ForkServerContext:
    """
    Make processes that have imported everything already.

    A tester has one server that forks them, and the first one who asks decides what it imports: so it is all.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*(f"tests.fault.{world}_world" for world in WORLDS), "tests.fault.s3_session"])
    return context


class Killing:
    """
    A hook that kills the process before or after the nth effect of a name.

    With the moment `inside` that is while Kafka's commit is under way; a world says what it is of another effect.
    """

    def __init__(self, point: Point | None) -> None:
        self._point = point
        self._seen = 0

    def at(self, moment: str, effect: str) -> bool:
        """Whether this is where the process shall die; each call counts."""
        if self._point is None or (moment, effect) != self._point[:2]:
            return False
        self._seen += 1
        return self._seen == self._point[2]

    def __call__(self, moment: str, effect: str) -> None:
        """What the interpreter calls."""
        if self.at(moment, effect):
            die()
        if effect == "Commit" and moment == "before" and self.at("inside", effect):
            threading.Timer(0.001, die).start()


def die() -> None:
    """SIGKILL of this process."""
    os.kill(os.getpid(), signal.SIGKILL)
