"""Tell systemd that a service is ready or stops: the protocol of sd_notify(3), one datagram."""

from __future__ import annotations

import os
import socket
from typing import Final

NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"


def notify(state: str) -> bool:
    """
    Send a state to systemd.

    Args:
        state: such as `READY=1`.

    Returns:
        Whether it was sent; not where systemd does not ask for it (`Type=notify`) or does not listen any more.
    """
    address = os.environ.get(NOTIFY_SOCKET, "")
    if not address:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
    except OSError:
        return False  # a service works without being watched
    return True
