"""A worker process that dies with its supervisor."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from typing import Final

PARENT_POLL_S: Final = 1.0

_PR_SET_PDEATHSIG: Final = 1


def die_with(parent: int) -> None:
    """
    Have this worker killed when its supervisor dies, in whatever way. That loses nothing: its successor recovers.

    Args:
        parent: the supervisor's process id.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), name="parent-watch", daemon=True).start()
    if os.getppid() != parent:  # it died before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)
