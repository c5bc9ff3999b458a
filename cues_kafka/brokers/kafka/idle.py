"""Serves the clients of idle tasks: what a client reports is kept until it is polled, and an idle task calls nothing.

A session reports its statistics every 5 s, 7 kB each: 128 MB in a day (measured).
"""

from __future__ import annotations

import os
import threading
from typing import Final, Protocol
from weakref import WeakSet

EVERY_S: Final = 10.0
"""How often idle clients are served."""


class IdleClient(Protocol):
    """What may be idle."""

    def serve(self) -> None:
        """Take what the client has reported, if it is idle; never wait. Called on a thread of its own."""
        ...


class IdleServer:
    """Serves what was added and is still there, on one thread of this process; may be shared by threads."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        """
        Args:
            every_s: how often.
        """
        self._every_s = every_s
        self._lock = threading.Lock()  # guards all below; no other lock is taken under it
        self._served: WeakSet[IdleClient] = WeakSet()
        self._pid = 0  # of the process that has the thread: a forked one has none
        self._over = threading.Event()  # the end of the thread

    def add(self, client: IdleClient) -> None:
        """Serve it until it is removed, or gone."""
        with self._lock:
            if self._pid != os.getpid() or self._over.is_set():
                self._pid, self._served, self._over = os.getpid(), WeakSet(), threading.Event()
                threading.Thread(target=self._run, args=(self._over,), name="cues-kafka-idle", daemon=True).start()
            self._served.add(client)

    def remove(self, client: IdleClient) -> None:
        """Serve it no more; the thread ends with the last one."""
        with self._lock:
            self._served.discard(client)
            if not self._served:
                self._over.set()

    def _run(self, over: threading.Event) -> None:
        # `over` is of this thread: `add` may have begun a successor with another event since.
        while not over.wait(self._every_s):
            with self._lock:
                served = list(self._served)
            # Outside of the lock, because `serve` takes that of its session. Popped, so that no closed session is kept.
            while served:
                served.pop().serve()


IDLE: Final = IdleServer()
"""The one server of this process."""
