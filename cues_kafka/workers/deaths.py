"""Why a worker process ended, in words, and when its ends in a row are called a crash loop."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

CRASH_LOOP: Final = 5
"""When a worker has ended this often in a row, and never lived long, it is in a crash loop. With the back-off that
takes 2 s at least. A message that kills its process is quarantined after at most six deaths by default."""

_LOOK: Final = {
    "SIGKILL": "the kernel's log (dmesg), in case memory ran out; otherwise, which program sends signals to this "
    "worker",
    "SIGTERM": "which program stops processes on this machine",
    "SIGHUP": "whether the signal came while the worker was starting",
}
"""Where the cause of an end by a signal is found, where that is not the worker's own log."""

_OWN_LOG: Final = "the last lines of this worker in the log"


def cause(code: int) -> str:
    """How a process ended: the name of the signal, or its exit code. Takes an exit code as `Popen` has it."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # a real-time signal
        return f"signal {-code}"


@dataclass(slots=True)
class Crashes:
    """
    The ends of one worker in a row that nothing asked for.

    Attributes:
        count: how many; 0: it lives, or lived long enough.
        since_s: when the first one was, in seconds of `time.time`.
        said: at which count the next line is due.
    """

    count: int = 0
    since_s: float = 0.0
    said: int = CRASH_LOOP

    @property
    def loop(self) -> bool:
        """Whether they are called a crash loop."""
        return self.count >= CRASH_LOOP

    def add(self, now_s: float, last: str) -> dict[str, Any] | None:
        """
        Count one more end.

        Args:
            now_s: seconds of `time.time`.
            last: its cause.

        Returns:
            What to log of the crash loop; None: there is none, or the next line is due at twice the last count.
        """
        self.since_s = self.since_s if self.count else now_s
        self.count += 1
        if self.count < self.said:
            return None
        self.said = 2 * self.count
        since = datetime.fromtimestamp(self.since_s, UTC).isoformat(timespec="seconds")
        look = _LOOK.get(last, _OWN_LOG)
        return {"ends": self.count, "since": since, "last": last, "look_at": look}
