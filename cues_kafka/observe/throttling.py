"""How long brokers have held back this process, because a quota of its user or client id is used up."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from cues_kafka.observe.log import get_logger

log = get_logger("cues_kafka.broker")

REPEAT_S: Final = 60.0
"""How often the process logs that a broker holds it back."""

RECENT_S: Final = 60.0
"""What counts as held back now: status tells of the last minute."""

REMEDY: Final = (
    "raise the quota of this user or client id (`kafka-configs --bootstrap-server BOOTSTRAP --describe --entity-type "
    "users --entity-type clients` shows it), or send less"
)
"""Where the address of the cluster is known, it takes the place of BOOTSTRAP."""


class Throttling:
    """
    Adds up what brokers have held back; the clients of a process share one, and threads may share it.

    Args:
        clock: seconds.

    Attributes:
        total_s: seconds of all answers that were held back, over all brokers.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.total_s: float = 0.0
        self._clock = clock
        self._lock = threading.Lock()
        self._recent: deque[tuple[int, float]] = deque()  # by whole second: what was held back
        self._said_s: dict[str, float] = {}
        self._unsaid_s: dict[str, float] = {}

    def held_back(self, client: str, broker: str, seconds: float) -> None:
        """
        A broker has held back a client; 0 seconds: it does so no longer.

        Args:
            client: of this process.
            broker: its name.
            seconds: how long.
        """
        if seconds <= 0:
            return
        with self._lock:
            self.total_s += seconds
            self._note(seconds)
            unsaid_s = self._unsaid_s[broker] = self._unsaid_s.get(broker, 0.0) + seconds
            now_s = self._clock()
            if now_s - self._said_s.get(broker, -REPEAT_S) < REPEAT_S:
                return
            self._said_s[broker], self._unsaid_s[broker] = now_s, 0.0
        log.warning("throttled by a quota", client=client, broker=broker, for_s=round(unsaid_s, 3), remedy=REMEDY)

    @property
    def recent_s(self) -> float:
        """Seconds that were held back in the last minute, over all clients and brokers, so it may be more than 60."""
        if not self._recent:
            return 0.0
        with self._lock:
            self._forget()
            return sum(seconds for _, seconds in self._recent)

    def _note(self, seconds: float) -> None:
        now = int(self._clock())
        before = self._recent.pop()[1] if self._recent and self._recent[-1][0] == now else 0.0
        self._recent.append((now, before + seconds))
        self._forget()

    def _forget(self) -> None:
        while self._recent and self._clock() - self._recent[0][0] > RECENT_S:
            self._recent.popleft()


THROTTLING: Final = Throttling()
"""What all clients of this process add to."""
