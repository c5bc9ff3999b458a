"""Ask a node in Kafka's wire protocol for its cluster, which shows that the node serves.

Two requests in old versions of the protocol that Kafka still supports are enough, so this needs no Kafka client.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

METADATA, FIND_COORDINATOR = 3, 10
GROUP, TRANSACTION = 0, 1


@dataclass(frozen=True, slots=True)
class View:
    """The cluster as one node sees it: ids of the living nodes, and of the controller; -1 without a controller."""

    nodes: frozenset[int]
    controller: int


def look(port: int, *, timeout_s: float = 2.0) -> View | None:
    """The view of the node at this port; None if it does not answer, or if it is not Kafka that answers."""
    try:
        # In version 4 of the request, an empty list of topics asks for no topic and creates none.
        return _view(_ask(port, METADATA, 4, struct.pack(">i?", 0, False), timeout_s))
    except (OSError, struct.error, IndexError, UnicodeDecodeError):
        return None


def has_coordinator(port: int, kind: int, *, timeout_s: float = 2.0) -> bool:
    """
    Whether groups or transactions have a coordinator.

    The first request makes Kafka create the internal topic, which takes about a second. Sent here, it saves the first
    user of a transaction the wait.
    """
    key = b"cues-kafka"
    body = struct.pack(f">h{len(key)}sb", len(key), key, kind)
    try:
        answer = _ask(port, FIND_COORDINATOR, 2, body, timeout_s)
        (error,) = struct.unpack_from(">h", answer, 4)  # after 4 bytes of throttle time
    except (OSError, struct.error):
        return False
    return bool(error == 0)


def _ask(port: int, api: int, version: int, body: bytes, timeout_s: float) -> bytes:
    """Send a request and return the answer, both without header."""
    client = b"cues-kafka-probe"
    request = struct.pack(f">hhih{len(client)}s", api, version, 1, len(client), client) + body
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        if not 4 <= size <= 1_000_000:
            raise ConnectionError("not Kafka")
        return _exactly(connection, size)[4:]


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("closed")
        data += more
    return data


def _view(answer: bytes) -> View:
    """Parse throttle time, nodes (id, host, port, rack), cluster id, controller id."""
    place = 4
    (count,) = struct.unpack_from(">i", answer, place)
    place += 4
    nodes = set()
    for _ in range(count):
        (node,) = struct.unpack_from(">i", answer, place)
        nodes.add(node)
        place = _skip_text(answer, place + 4)  # host
        place = _skip_text(answer, place + 4)  # port, rack
    place = _skip_text(answer, place)  # cluster id
    (controller,) = struct.unpack_from(">i", answer, place)
    return View(frozenset(nodes), controller)


def _skip_text(answer: bytes, place: int) -> int:
    length: int = struct.unpack_from(">h", answer, place)[0]
    return place + 2 + max(length, 0)
