"""Free TCP ports of 127.0.0.1."""

from __future__ import annotations

import random
import socket
import threading
from collections import deque
from typing import Final

FIRST, LAST = 20_000, 32_000
"""Below the range of Linux for outgoing connections (32768 and up). While a killed node is down, a client could get the
node's port from that range, even a client that tries to reach this node."""

MOST_RESERVED: Final = 256
"""Ports that a process keeps for itself, the newest ones; each takes a file descriptor."""

_reserved: deque[socket.socket] = deque()
_lock = threading.Lock()  # of `_reserved`


def free_ports(count: int) -> list[int]:
    """
    Ports that are free now, and that no other process gets from this function.

    Tests start servers side by side, and a port is in use only when its server has started. So each port is reserved
    until this process has ended, or has taken `MOST_RESERVED` newer ones. That also keeps the port of a server that was
    killed and is to start again. A program that does not ask here may still take one.

    Raises:
        OSError: there are not as many.
    """
    found: list[int] = []
    for port in random.sample(range(FIRST, LAST), LAST - FIRST):
        if is_free(port) and _reserve(port):
            found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"no {count} free ports from {FIRST} to {LAST} on 127.0.0.1")


def _reserve(port: int) -> bool:
    """Hold the port for this process; False: another one has, or this one."""
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0cues-kafka-port-{port}")  # a name without a file, which the kernel frees when the process ends
    except OSError:
        mark.close()
        return False
    with _lock:
        _reserved.append(mark)
        if len(_reserved) > MOST_RESERVED:
            _reserved.popleft().close()
    return True


def is_free(port: int, *, reuse: bool = False) -> bool:
    """Whether the port can be bound now; with `reuse` also while old connections linger, as Java's sockets can."""
    with socket.socket() as trial:
        if reuse:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
