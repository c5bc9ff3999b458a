"""Ask a node in Kafka's wire protocol for its cluster, which shows that the node serves.

Two requests in old versions of the protocol that Kafka still supports are enough, so this needs no Kafka client.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from cues_kafka.brokers.wire import Parts, request

METADATA, FIND_COORDINATOR = 3, 10
GROUP, TRANSACTION = 0, 1

ASKED = 3
"""How often a node is asked that does not answer in time, before it is called silent."""


class Door(NamedTuple):
    """The port of a node on this machine, and how its connections are encrypted; None: they are not."""

    port: int
    tls: ssl.SSLContext | None = None


class View(NamedTuple):
    """The cluster as one node sees it: ids of the living nodes, and of the controller; -1 without a controller."""

    nodes: frozenset[int]
    controller: int


def look(port: int, tls: ssl.SSLContext | None = None, *, timeout_s: float = 2.0) -> View | None:
    """The view of the node at this port; None if it does not answer, or if it is not Kafka that answers."""
    try:
        # In version 4 of the request, an empty list of topics asks for no topic and creates none.
        answer = _ask(Door(port, tls), METADATA, 4, struct.pack(">i?", 0, False), timeout_s)
        return View(frozenset(_node(answer) for _ in range(answer.int32())), _controller(answer))
    except (OSError, struct.error, UnicodeDecodeError):
        return None


def answers(door: Door) -> bool:
    """Whether a node serves; one that is only slow is asked again."""
    return any(look(*door) is not None for _ in range(ASKED))


def has_coordinator(port: int, kind: int, tls: ssl.SSLContext | None = None, *, timeout_s: float = 2.0) -> bool:
    """
    Whether groups or transactions have a coordinator.

    The first request makes Kafka create the internal topic, which takes about a second. Sent here, it saves the first
    user of a transaction the wait.
    """
    key = b"cues-kafka"
    body = struct.pack(f">h{len(key)}sb", len(key), key, kind)
    try:
        return _ask(Door(port, tls), FIND_COORDINATOR, 2, body, timeout_s).int16() == 0
    except (OSError, struct.error):
        return False


def _ask(door: Door, api: int, version: int, body: bytes, timeout_s: float) -> Parts:
    with _connected(door, timeout_s) as connection:
        answer = request(connection, api, version, body)
    answer.int32()  # throttle time
    return answer


@contextmanager
def _connected(door: Door, timeout_s: float) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", door.port), timeout=timeout_s) as plain:
        if door.tls is None:
            yield plain
        else:
            with door.tls.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                yield secure


def _node(answer: Parts) -> int:
    node = answer.int32()
    _host, _port, _rack = answer.text(), answer.int32(), answer.text()
    return node


def _controller(answer: Parts) -> int:
    _cluster = answer.text()
    return answer.int32()
