"""Threads for the effects of tasks: as many as there is work for, and none for long that has nothing to do.

A worker with 256 tasks recovers them side by side, and commits with a handful of threads from then on.
`ThreadPoolExecutor` keeps each thread that it has once started.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final, ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

IDLE_S: Final = 5.0
"""A thread that has had nothing to do for so long ends."""


class _Submitted:
    """A call, and where its result goes."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.future: Future[Any] = Future()
        self._call = call

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self._call()
        except BaseException as error:  # noqa: BLE001 - it is for the caller, as in every executor
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class TaskPool(Executor):
    """
    Daemon threads, started when they are needed; may be shared by threads.

    A job belongs to a thread from the moment in which it is submitted: to one that waits, else to a new one, else to
    the next one that has done its own. So no job waits for another one while fewer than `most` threads are busy.
    """

    def __init__(self, most: int, *, name: str, idle_s: float = IDLE_S) -> None:
        """
        Args:
            most: how many threads it has at one time.
            name: what their names begin with.
            idle_s: after how long without work a thread ends, in seconds.
        """
        self._most, self._name, self._idle_s = most, name, idle_s
        self._jobs: queue.SimpleQueue[_Submitted | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards what follows; innermost
        self._threads = 0
        self._free = 0  # threads that wait, and to which no job belongs
        self._left = 0  # jobs that belong to no thread yet
        self._numbers = itertools.count(1)
        self._closed = False

    def submit(self, fn: Callable[_Given, _Result], /, *args: _Given.args, **kwargs: _Given.kwargs) -> Future[_Result]:
        """
        Run it on one of the threads.

        Raises:
            RuntimeError: the pool is shut down.
        """
        job = _Submitted(lambda: fn(*args, **kwargs))
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is shut down")
            if self._free:
                self._free -= 1
            elif self._threads < self._most:
                name = f"{self._name}_{next(self._numbers)}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
                self._threads += 1
            else:
                self._left += 1
            self._jobs.put(job)
        return job.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more. The threads end behind what was submitted; nothing waits for them."""
        with self._lock:
            self._closed = True
            for _ in range(self._free):
                self._jobs.put(None)
            self._free = 0

    @property
    def threads(self) -> int:
        """How many there are now."""
        with self._lock:
            return self._threads

    def _work(self) -> None:
        job = self._jobs.get()
        while job is not None:
            job.run()
            del job  # a thread that waits keeps nothing alive
            job = self._next()
        with self._lock:
            self._threads -= 1

    def _next(self) -> _Submitted | None:
        """The next job; None: this thread ends."""
        with self._lock:
            if self._left:
                self._left -= 1
                belongs = True
            elif self._closed:
                return None
            else:
                self._free += 1
                belongs = False
        try:
            return self._jobs.get(timeout=None if belongs else self._idle_s)
        except queue.Empty:
            with self._lock:
                if self._free:
                    self._free -= 1
                    return None
            return self._jobs.get()  # a job, or the end, came for the last one that waited
