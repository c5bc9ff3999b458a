"""The requests that a broker takes, asked by hand."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cues_kafka.brokers.kafka.examining import apis_of

PLAIN = {"security.protocol": "plaintext"}


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A listener that gives this answer to each request, and hangs up; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    if connection.recv(1_000):
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_the_newest_versions_of_a_broker_are_read() -> None:
    """Of an answer in version 0 of the request."""
    body = struct.pack(">ihihhhhhh", 1, 0, 2, 3, 0, 13, 28, 0, 5)

    with answering(struct.pack(">i", len(body)) + body) as port:
        assert apis_of("127.0.0.1", port, PLAIN) == {3: 13, 28: 5}


def test_a_broker_that_tells_nothing_is_there_and_one_that_is_away_is_not() -> None:
    """TLS on one side only is no reason to call a broker silent."""
    for settings in (PLAIN, {"security.protocol": "ssl"}):
        with answering(b"HTTP/1.1 400 Bad Request") as port:
            assert apis_of("127.0.0.1", port, settings) == {}
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    assert apis_of("127.0.0.1", closed, PLAIN) is None
