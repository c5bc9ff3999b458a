"""Something between a client and a broker that loses an answer: the broker has acted, and the client cannot know."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

CHUNK = 65_536


class Asked(NamedTuple):
    """
    What is asked in a protocol, and how the answer looks.

    Attributes:
        asks: bytes that only such a request has.
        answers: bytes that only its answer has, among those that come after it.
    """

    asks: bytes
    answers: bytes


COMMIT_BY_STOMP = Asked(b"COMMIT\n", b"RECEIPT\n")
ACK_BY_STOMP = Asked(b"ACK\n", b"RECEIPT\n")
DISCHARGE_BY_AMQP = Asked(b"amqp:discharge:list", b"\x00\x53\x15")
"""The end of a transaction (AMQP 1.0, 4.5), and a disposition (2.7.6)."""
PUBLISH_TO_EXCHANGE = Asked(b"\x00\x3c\x00\x28", b"\x00\x3c\x00\x50")
"""The methods `basic.publish` and `basic.ack`."""
PUBLISH_TO_STREAM = Asked(b"\x00\x02\x00\x01", b"\x00\x03\x00\x01")
"""The keys of Publish and PublishConfirm, and the version 1."""


class Losing:
    """
    Passes everything on, but for one answer: that to the `nth` request of a kind. The connection ends with it.

    The answer has come from the broker, so the broker has done what it was asked for.
    """

    def __init__(self, port: int, kind: Asked, nth: int) -> None:
        self._to, self._kind, self._nth = port, kind, nth
        self._lock = threading.Lock()
        self._seen = 0
        self._sockets: list[socket.socket] = []
        self.lost = threading.Event()
        """Whether the answer was lost; a test in which it was not shows nothing."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._server.close()
        for one in self._sockets:
            _end(one)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._server.accept()
                there = socket.create_connection(("127.0.0.1", self._to))
                self._sockets += (here, there)
                armed = threading.Event()  # the request has passed on this connection
                threading.Thread(target=self._ask, args=(here, there, armed), daemon=True).start()
                threading.Thread(target=self._answer, args=(there, here, armed), daemon=True).start()

    def _ask(self, one: socket.socket, other: socket.socket, armed: threading.Event) -> None:
        asks, before = self._kind.asks, b""
        with suppress(OSError):
            while data := one.recv(CHUNK):
                found = (before + data).count(asks)
                with self._lock:
                    due = self._seen < self._nth <= self._seen + found
                    self._seen += found
                if due:
                    armed.set()  # before the broker has it
                other.sendall(data)
                before = data[1 - len(asks) :]  # shorter than what is looked for, so nothing is counted twice
        _end(one, other)

    def _answer(self, one: socket.socket, other: socket.socket, armed: threading.Event) -> None:
        answers, before = self._kind.answers, b""
        with suppress(OSError):
            while data := one.recv(CHUNK):
                if armed.is_set() and not self.lost.is_set() and answers in before + data:
                    self.lost.set()
                    break
                other.sendall(data)
                before = data[1 - len(answers) :]
        _end(one, other)


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
