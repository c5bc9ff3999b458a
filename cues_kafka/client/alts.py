"""The next message of several tailers."""

from __future__ import annotations

from collections.abc import Iterable

from cues_kafka.client.cursor import SLICE_S
from cues_kafka.client.tailer import ClientTailer, Unblock
from cues_kafka.errors import ConfigError
from cues_kafka.graph.names import quoted
from cues_kafka.task.calling.step import Received


def alts(
    tailers: Iterable[ClientTailer], timeout_s: float | None = None, unblock: Unblock | None = None
) -> tuple[ClientTailer, Received] | None:
    """
    The next message of any of these tailers, with its tailer: of those that are there, the one with the oldest time.

    Args:
        tailers: to read from; only the one that is returned moves.
        timeout_s: how long to wait; 0: not at all; None: until a message comes.
        unblock: ends the wait when it is set. `unblock()` of one of the tailers does it too.

    Returns:
        None: the time is over, or the wait was ended.

    Raises:
        ConfigError: there is no tailer, or one that reads backward.
    """
    waiting = list(tailers)
    if not waiting or any(one.direction == "backward" for one in waiting):
        raise ConfigError(f"alts({quoted(map(repr, waiting))}): give tailers that read forward")
    clock = waiting[0].clock
    deadline = None if timeout_s is None else clock.monotonic() + timeout_s
    wait_s: float | None = None
    while True:
        found = [(head.timestamp()[1], n) for n, one in enumerate(waiting) if (head := one.look(wait_s)) is not None]
        if found:
            chosen = waiting[min(found)[1]]
            if (received := chosen.read()) is None:
                continue  # another thread that has this tailer took it since it was looked at
            return chosen, received
        wait_s = SLICE_S / len(waiting)
        stopped = [one.stopped(unblock) for one in waiting]
        if any(stopped) or (deadline is not None and clock.monotonic() >= deadline):
            return None
