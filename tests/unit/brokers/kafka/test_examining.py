"""The requests that a broker takes, asked by hand."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cues_kafka.brokers.kafka import examining
from cues_kafka.brokers.kafka.examining import apis_of
from cues_kafka.brokers.local import probe
from cues_kafka.brokers.local.detached import RecordedNode, RunningBroker

PLAIN = {"security.protocol": "plaintext"}


@contextmanager
def answering(answer: bytes, *, silent: int = 0, connections: int = 2) -> Iterator[int]:
    """A listener that gives this answer to each request but the first `silent` ones, and hangs up; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            left = silent
            for _ in range(connections):
                connection, _ = server.accept()
                with connection:
                    if not connection.recv(1_000):
                        continue
                    if left:
                        left -= 1
                        connection.recv(1_000)  # until the other side hangs up
                    else:
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


def test_broker_that_is_slow_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there: `doctor` does not call it away, nor does it pass over which requests it takes."""
    monkeypatch.setattr("cues_kafka.brokers.kafka.probe.TIMEOUT_S", 0.2)
    body = struct.pack(">ihihhh", 1, 0, 1, 3, 0, 13)

    with answering(struct.pack(">i", len(body)) + body, silent=1, connections=4) as port:
        assert apis_of("127.0.0.1", port, PLAIN) == {3: 13}


def test_broker_that_never_answers_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections, as a paused process does."""
    monkeypatch.setattr("cues_kafka.brokers.kafka.probe.TIMEOUT_S", 0.1)

    with answering(b"", silent=9, connections=2 * examining.ASKED) as port:
        assert apis_of("127.0.0.1", port, PLAIN) is None


def test_status_of_a_local_broker_asks_a_slow_node_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node answers at the third time."""
    times = iter([None, None, probe.View(frozenset({1}), 1)])
    monkeypatch.setattr(probe, "look", lambda *_: next(times))

    assert RunningBroker("b", "127.0.0.1:1", 1, "/nowhere", (RecordedNode(1, 1, 1),)).serving() == (1,)
