"""One of the numbered worker processes, as its supervisor knows it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, NamedTuple

from cues_kafka.task.heart import READY
from cues_kafka.workers.deaths import Crashes

FIRST_BACKOFF_S: Final = 0.02
"""A worker that dies once, as one that is killed, is missed for as short a time as can be."""

MAX_BACKOFF_S: Final = 10.0

JITTER: Final = 0.5
"""A restart waits up to this part of its back-off longer, at random, so that workers that died together do not all
connect in the same moment."""


@dataclass(slots=True)
class WorkerProcess:
    """One of the numbered places for worker processes.

    Attributes:
        k: its number, from 1 on.
        process: the newest process; None before the first.
        started_s: when that one was started.
        due_s: when the next one is to be started; None while one runs.
        backoff_s: the next back-off.
        restarts: how often an ended process was replaced.
        code: the exit code of the last one that ended; None: none has ended.
        said: the descriptor that becomes readable when the newest process is ready, and at each heartbeat; None: there
            is none.
        beat_s: when its last heartbeat was seen; None: it is not ready yet.
        ready_s: when its first heartbeat was seen; None: it is not ready yet.
        crashes: its ends in a row.
        over_s: when it was first seen above its memory limit.
        hard: whether it was above `HARD` times the limit when looked at before.
        kill_s: when it is killed, although its heartbeats may come again.
        why: why the supervisor ended it; empty: it did not.
    """

    k: int
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    due_s: float | None = 0.0
    backoff_s: float = FIRST_BACKOFF_S
    restarts: int = 0
    code: int | None = None
    said: int | None = None
    beat_s: float | None = None
    ready_s: float | None = None
    crashes: Crashes = field(default_factory=Crashes)
    over_s: float | None = None
    hard: bool = False
    kill_s: float | None = None
    why: str = ""

    @property
    def running(self) -> subprocess.Popen[bytes] | None:
        """Its process; None: it has ended, and the keeper has seen that."""
        return self.process if self.process is not None and self.process.returncode is None else None

    @property
    def took_s(self) -> float | None:
        """How long the process that runs took until it was ready; None: it is not, or none runs."""
        return self.ready_s - self.started_s if self.running and self.ready_s is not None else None

    def hears(self, said: int | None) -> None:
        """Listen to the newest process, and no more to the one before."""
        if self.said is not None:
            os.close(self.said)
        self.said = said
        self.beat_s = self.ready_s = self.over_s = self.kill_s = None
        self.hard, self.why = False, ""

    def listen(self, now: float) -> None:
        """Take the heartbeats that have come."""
        if self.said is None:
            return
        try:
            came = os.read(self.said, 65_536)
        except BlockingIOError:
            return
        if came:
            self.beat_s = now
            self.ready_s = now if self.ready_s is None else self.ready_s
        else:  # it ended, or a function closed the descriptor: without it, nothing is known of its loops
            os.close(self.said)
            self.said = None

    def due_in(self, now: float) -> float:
        """Seconds until the next one starts."""
        return round((self.due_s or now) - now, 3)

    def forgive(self) -> None:
        """It has lived, or has ended in order: its next end is the first one."""
        self.backoff_s, self.crashes = FIRST_BACKOFF_S, Crashes()

    def back_off(self, now: float, share: float) -> None:
        """Start the next one later, and the one after it later still; `share` of `JITTER` is added."""
        self.due_s = now + self.backoff_s * (1 + JITTER * share)
        self.backoff_s = min(self.backoff_s * 2, MAX_BACKOFF_S)


class Launched(NamedTuple):
    """
    A process that was started.

    Attributes:
        process: the process.
        heard: the descriptor that becomes readable at each of its heartbeats.
    """

    process: subprocess.Popen[bytes]
    heard: int


def launch(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None,
    output: IO[bytes] | int | None,
    fds: Sequence[int] = (),
) -> Launched:
    """
    Start a worker process, which sends heartbeats.

    Args:
        command: its command line.
        env: its environment, but for the variable that tells it the descriptor for heartbeats.
        cwd: its working directory; None: this process's.
        output: where its stdout and stderr go, as `Popen` takes it; None: where this process's go.
        fds: what else it inherits.

    Raises:
        OSError: it cannot be started.
    """
    said, tells = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**env, READY: str(tells)},
            cwd=cwd,
            pass_fds=[tells, *fds],
            start_new_session=True,  # Ctrl-C in a terminal is for the supervisor, which then asks its workers
        )
    except BaseException:
        os.close(said)
        raise
    finally:
        os.close(tells)
    return Launched(process, said)
