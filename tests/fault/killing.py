"""Processes that kill themselves, and the crash point where they do."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.context import ForkServerContext

WORLDS = ("call", "database", "feed", "file", "kill", "sender", "strategy", "tail")


def forked() -> ForkServerContext:
    """
    Make processes that have imported everything already.

    A tester has one server that forks them, and the first one who asks decides what it imports: so it is all.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*(f"tests.fault.{world}_world" for world in WORLDS), "tests.fault.s3_session"])
    return context


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
