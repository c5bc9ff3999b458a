"""What every target of a task does the same: any thread may discard or close it, also while a step is called."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from cues_kafka.errors import RetriableError
from cues_kafka.graph.targets import TaskName
from cues_kafka.ports.target import HeldAttempt


class TaskTarget(ABC):
    """
    Takes turns between the thread that calls user code and the threads that discard or close the target.

    The thread that holds the lock works on the open batch. One that does not get it only sets a flag; the holder looks
    at the flags when it is done. While user code runs, the lock is free, and nothing of the batch is touched.
    """

    what: ClassVar[str]
    """How errors call it: `database` or `files`."""

    def __init__(self, task: TaskName) -> None:
        self._task = task
        # Held by the thread that works on the open batch. Locks of the store and of the client come below it.
        self._lock = threading.RLock()
        self._calling = False  # user code may be using what it was given
        self._void = False
        self._closed = False
        self._killed = False  # as when the process is: nothing is cleaned up

    def rest(self) -> None:
        with self._lock:
            self._calling = False
            if self._void:
                self._end_open()
            if self._closed:
                self._stop()

    def discard(self) -> None:
        # The flag before the lock: a thread that has the lock looks at the flag in `rest` at the latest.
        self._void = True
        if self._lock.acquire(blocking=False):
            try:
                if not self._calling:
                    self._end_open()
            finally:
                self._lock.release()

    def close(self, *, orderly: bool = True) -> None:
        self._closed = self._void = True  # before the lock, as in `discard`
        self._killed = not orderly
        if self._lock.acquire(blocking=False):
            try:
                if not (orderly and self._calling):
                    self._stop()
            finally:
                self._lock.release()

    def expect(self) -> None:  # noqa: B027 - nothing to check
        """See `ports.target.TransactionalSink`. Here a row is lost only together with what was written."""

    @abstractmethod
    def commit(self, held: HeldAttempt, records: Iterable[tuple[Any, ...]]) -> None:
        """Commit the open transaction, with the attempt and the records; see `ports.target.TransactionalSink`."""

    def start_commit(self, held: HeldAttempt) -> None:
        """Commit a part of a batch, and wait for the answer; see `ports.target.TransactionalSink`."""
        self.commit(held, ())

    def finish_commit(self) -> None:  # noqa: B027 - nothing is under way
        """Wait for nothing, because no commit is under way; see `ports.target.TransactionalSink`."""

    @abstractmethod
    def _end_open(self) -> None:
        """Take back the open batch, if there is one."""

    @abstractmethod
    def _stop(self) -> None:
        """Give back what is held; where the target is killed, at once, and leave the rest to the next owner."""

    def _renew(self) -> None:
        """
        A batch begins.

        Raises:
            RetriableError: the target is closed.
        """
        self._end_open()
        self._void = False
        if self._closed:
            raise self._retriable("the task was given up")

    def _check_void(self) -> None:
        """
        Raises:
            RetriableError: the batch was discarded meanwhile.
        """
        if self._void:
            self._end_open()
            raise self._retriable("the batch was given up")

    def _retriable(self, why: str) -> RetriableError:
        return RetriableError(f"the {self.what} of {self._task}: {why}", code="TARGET")
