"""Free TCP ports of 127.0.0.1."""

from __future__ import annotations

import random
import socket

FIRST, LAST = 20_000, 32_000
"""Below the range of Linux for outgoing connections (32768 and up). While a killed node is down, a client could get the
node's port from that range, even a client that tries to reach this node."""


def free_ports(count: int) -> list[int]:
    """Ports that are free now; another process may take them before they are used."""
    found: list[int] = []
    for port in random.sample(range(FIRST, LAST), LAST - FIRST):
        if is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"no {count} free ports from {FIRST} to {LAST} on 127.0.0.1")


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
