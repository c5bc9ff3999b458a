"""
A process that is ready to become the worker as soon as the worker dies; nothing about correctness depends on it.

It is the worker's program with one more variable, `GO`. It makes ready what takes long, touches nothing that the worker
uses, and reads from a pipe. One byte makes it the worker, the end of the pipe ends it. Its supervisor's keeper starts
it, so it dies with the supervisor as a worker does (`die_with`), and it has the pipe for heartbeats from the beginning.

It is started some time after the worker is ready, because both would use the processors. If it dies, the next one
comes after a back-off, and the worker goes on. It has the code and settings of its own start. So an end in order of the
worker, for which the next one has new code and settings, ends the standby, too.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from cues_kafka.observe.log import get_logger
from cues_kafka.workers.deaths import cause
from cues_kafka.workers.process import FIRST_BACKOFF_S, Launched

log = get_logger("cues_kafka.supervisor")

GO: Final = "CUES_KAFKA_GO"
"""The variable that tells a standby the descriptor to wait on. A worker does not have it."""

AFTER_S: Final = 15.0
"""How long a worker that is ready has the machine for itself, for its first batches; at least as long as it took to be
ready, which says how busy the machine is."""

MOST_AFTER_S: Final = 30.0

MAX_AGAIN_S: Final = 60.0
"""The longest back-off. A standby costs seconds of processor time, and is missed only if the worker dies, too."""

END_S: Final = 20.0
"""From SIGTERM to SIGKILL of a standby that is thrown away. It waits up to 15 s for the processes of its session."""

Launch = Callable[[Mapping[str, str], Sequence[int]], Launched]
"""Starts the worker's program with more variables, and with descriptors that it inherits."""


class Standby:
    """The process that stands by. Only the keeper's thread calls it, but for `expire`."""

    def __init__(self, launch: Launch, *, after_s: float = AFTER_S) -> None:
        """
        Args:
            launch: starts the program.
            after_s: see `AFTER_S`.
        """
        self._launch = launch
        self._after_s = after_s
        self._process: subprocess.Popen[bytes] | None = None
        self._heard: int | None = None
        self._go: int | None = None
        self._ending: dict[subprocess.Popen[bytes], float] = {}  # thrown away, and when each is killed
        self._expired = False
        self._due_s: float | None = None
        self._again_s = self._first_again_s

    @property
    def _first_again_s(self) -> float:
        return max(self._after_s, FIRST_BACKOFF_S)

    def expire(self) -> None:
        """Its code is old: it never becomes the worker. Any thread may call it; the keeper throws it away."""
        self._expired = True

    def look(self, now: float, *, took_s: float | None) -> None:
        """
        Collect what has ended, and start one that is due.

        Args:
            now: seconds of a monotonic clock.
            took_s: how long the worker took until it was ready; None: it is not, or does not run.
        """
        self._collect(now)
        if self._expired:
            self.throw_away(now)
            self._expired = False
        if self._process is not None and (code := self._process.poll()) is not None:
            log.warning("standby ended", pid=self._process.pid, cause=cause(code), again_in_s=self._again_s)
            self._forget()
            self._due_s, self._again_s = now + self._again_s, min(self._again_s * 2, MAX_AGAIN_S)
        if self._process is not None or self._ending:
            return
        if took_s is None:
            self._due_s = None
        elif self._due_s is None:
            self._due_s = now + max(self._after_s, min(took_s, MOST_AFTER_S))
        elif self._due_s <= now:
            self._start(now)

    def take(self) -> Launched | None:
        """Make the standby the worker; None: no standby runs, or its code is old."""
        process, heard, go = self._process, self._heard, self._go
        self._due_s, self._again_s = None, self._first_again_s
        if process is None or heard is None or go is None or self._expired or process.poll() is not None:
            return None
        try:
            os.write(go, b"g")
        except BrokenPipeError:  # it ends just now
            return None
        self._process = self._heard = None
        self._forget()
        return Launched(process, heard)

    def throw_away(self, now: float) -> None:
        """Have it end; it has nothing to lose."""
        self._due_s, self._again_s = None, self._first_again_s
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            self._ending[self._process] = now + END_S
        self._forget()

    def processes(self) -> list[subprocess.Popen[bytes]]:
        """Those that may still run."""
        return [*self._ending, *([self._process] if self._process else [])]

    def due(self) -> float | None:
        """When `look` has something to do at the latest; None: when one of `processes` ends, or the worker is ready."""
        return min(self._ending.values(), default=None if self._process else self._due_s)

    def _start(self, now: float) -> None:
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            launched = self._launch({GO: str(read)}, [read])
        except OSError as error:  # no process, memory or descriptor is left
            os.close(write)
            log.warning("standby does not start", error=str(error), again_in_s=self._again_s)
            self._due_s, self._again_s = now + self._again_s, min(self._again_s * 2, MAX_AGAIN_S)
            return
        finally:
            os.close(read)
        self._process, self._heard, self._go = launched.process, launched.heard, write
        log.info("standby started", pid=launched.process.pid)

    def _forget(self) -> None:
        for fd in (self._heard, self._go):
            if fd is not None:
                os.close(fd)
        self._process = self._heard = self._go = None

    def _collect(self, now: float) -> None:
        for process, kill_s in list(self._ending.items()):
            if process.poll() is not None:
                del self._ending[process]
            elif now >= kill_s:
                process.kill()


def end_group(process: subprocess.Popen[bytes]) -> None:
    """
    Kill what a dead worker has left of its process group, such as Spark's JVM, before its successor begins.

    It looks before the worker is collected: until then its id, which is the group's, is not given away.
    """
    if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


class Go:
    """The standby's end of the pipe: it waits here until it is the worker."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def given(cls) -> Go | None:
        """What the variable says, which no process that this one starts may find; None: this one is no standby."""
        fd = os.environ.pop(GO, None)
        return None if fd is None else cls(int(fd))

    def came(self) -> bool:
        """Whether this process is the worker now. Call it when the descriptor is readable; it closes that."""
        said = os.read(self.fd, 1)
        os.close(self.fd)
        return bool(said)


def is_readable(fd: int) -> bool:
    """Whether there is something to read, or the other end is closed."""
    return bool(select.select([fd], [], [], 0)[0])
