"""
One connection to a RabbitMQ by its stream protocol, for one task that publishes.

It has no thread: it reads while it waits for an answer, and while it writes. A connection that is lost stays lost, and
publishes nothing again by itself. Nothing is said while the task is idle: heart-beats are turned off, and the system
keeps the connection alive.
"""

from __future__ import annotations

import itertools
import selectors
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from cues_kafka.bridges.rabbitmq import stream_wire as wire
from cues_kafka.bridges.rabbitmq.address import RabbitMqAddress
from cues_kafka.bridges.tls import early_end, tls_refusal
from cues_kafka.errors import RecoveryError

PORT, TLS_PORT = 5552, 5551

READ_BYTES: Final = 256 * 1024
GOODBYE_S: Final = 0.2
MOST_FRAME: Final = 1024 * 1024
"""Bytes of a frame, where the broker sets no limit."""

CHUNKS: Final = 8
"""Chunks that the broker sends of a subscription before it is asked for more."""

_BLOCKED: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True, slots=True)
class StreamLogin:
    """
    What a client needs to connect.

    Attributes:
        address: where, by AMQP: host, user, password and virtual host are those of streams, too.
        port: of the stream protocol.
        timeout_s: how long connecting, and each answer of the broker, may take, in seconds.
        tls: how the connection is encrypted; None: it is not.
    """

    address: RabbitMqAddress
    port: int
    timeout_s: float
    tls: ssl.SSLContext | None


class StreamConnection:
    """
    A connection that is open, for one thread at a time.

    Attributes:
        most: bytes of a frame.
        delivered: messages of the subscription that are not taken yet.
    """

    def __init__(self, login: StreamLogin, name: str) -> None:
        """
        Connect and log in.

        Args:
            login: where and how.
            name: how the broker's own tools name the connection.

        Raises:
            OSError: the broker does not answer.
            RecoveryError: it refuses.
        """
        self._login = login
        self._numbers = itertools.count(1)
        self._incoming = bytearray()
        self._answers: dict[int, bytes] = {}
        self._tuned: tuple[int, int] | None = None
        self._confirmed: dict[int, int] = {}
        self._refused = ""
        self._entered = False
        self._owed = 0  # chunks that the broker is to be asked for, between two frames
        self._from = 0
        self.most = MOST_FRAME
        self.delivered: deque[wire.StreamMessage] = deque()
        try:
            made = socket.create_connection((login.address.host, login.port), login.timeout_s)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            host = login.address.host
            self._socket = made if login.tls is None else login.tls.wrap_socket(made, server_hostname=host)
        except OSError as error:
            raise self._lost(error) from None
        self._socket.setblocking(False)
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._socket, selectors.EVENT_READ)
        try:
            self._enter(name)
            self._entered = True
        except BaseException:
            self.close()
            raise

    # What the owner asks for

    def create(self, stream: str, arguments: dict[str, str]) -> None:
        """
        Make a stream, if it is not there.

        Raises:
            OSError: the connection is lost, or there is no answer.
            RecoveryError: the broker refuses.
        """
        fields = wire.text(stream) + wire.texts(arguments)
        self._ask(wire.CREATE, fields, stream, fine=(wire.OK, wire.ALREADY_THERE))

    def declare(self, publisher: int, reference: str, stream: str) -> None:
        """
        Declare a publisher of a stream; see `create` for what is raised.

        Args:
            publisher: its number on this connection, below 256.
            reference: its name, by which the broker drops what comes again; empty: it drops nothing.
            stream: where it publishes.
        """
        fields = bytes((publisher,)) + wire.text(reference) + wire.text(stream)
        self._ask(wire.DECLARE_PUBLISHER, fields, stream)
        self._confirmed[publisher] = 0

    def sequence(self, reference: str, stream: str) -> int:
        """The greatest number that a stream has taken of a publisher; 0: none. See `create` for what is raised."""
        answer = self._ask(wire.QUERY_SEQUENCE, wire.text(reference) + wire.text(stream), stream)
        return int(struct.unpack_from(">Q", answer)[0])

    def offset(self, reference: str, stream: str) -> int | None:
        """The offset that was stored under a name; None: none is. See `create` for what is raised."""
        fields = wire.text(reference) + wire.text(stream)
        code, answer = self._answer(wire.QUERY_OFFSET, fields, stream, fine=(wire.OK, wire.NO_OFFSET))
        return int(struct.unpack_from(">Q", answer)[0]) if code == wire.OK else None

    def store_offset(self, reference: str, stream: str, offset: int) -> None:
        """Store an offset under a name. The broker does not answer."""
        self._send(wire.frame(wire.STORE_OFFSET, wire.text(reference) + wire.text(stream) + struct.pack(">Q", offset)))

    def subscribe(self, stream: str, offset: int | None) -> None:
        """Have the messages of a stream delivered; None: from the first one on. See `create` for what is raised."""
        self._from = offset or 0
        at = struct.pack(">H", wire.FIRST) if offset is None else struct.pack(">HQ", wire.AT_OFFSET, offset)
        self._ask(wire.SUBSCRIBE, b"\x00" + wire.text(stream) + at + struct.pack(">HI", CHUNKS, 0), stream)

    def next(self, what: str) -> wire.StreamMessage:
        """
        Wait for the next message of the subscription.

        Args:
            what: it is, for the error.

        Raises:
            OSError: the connection is lost, or the message does not come.
        """
        self._wait(lambda: bool(self.delivered), f"has not delivered {what}")
        return self.delivered.popleft()

    def look(self) -> None:
        """
        Take in what has come, without waiting.

        Raises:
            OSError: the connection is lost, or one of its streams was deleted or moves.
        """
        if self._ready.select(0):
            self._receive()

    def publish(self, publisher: int, entries: Iterable[bytes]) -> int:
        """
        Send entries, in this order; the number of confirmations that there are when all are confirmed.

        Raises:
            OSError: the connection is lost.
        """
        sent = list(entries)
        awaited = self._confirmed[publisher] + len(sent)
        for one in wire.publish_frames(publisher, sent, self.most):
            self._send(one)
        return awaited

    def confirmed(self, publisher: int, awaited: int) -> None:
        """
        Wait until the broker has confirmed this number of messages; it confirms those that it drops, too.

        Raises:
            OSError: it did not, or refuses one.
        """
        self._wait(lambda: self._confirmed[publisher] >= awaited, "has not confirmed what was published")

    def close(self) -> None:
        """Close at once. It never raises."""
        with suppress(OSError, ValueError, KeyError):
            self._ready.close()
        with suppress(OSError, ValueError):
            self._socket.settimeout(GOODBYE_S)
            self._socket.sendall(
                wire.frame(wire.CLOSE, struct.pack(">IH", next(self._numbers), wire.OK) + wire.text(""))
            )
        with suppress(OSError):
            self._socket.close()

    # How

    def _enter(self, name: str) -> None:
        address = self._login.address
        self._ask(wire.PEER_PROPERTIES, wire.texts({"connection_name": name, "product": "cues-kafka"}))
        self._ask(wire.SASL_HANDSHAKE, b"")
        login = f"\0{address.user}\0{address.password}".encode()
        self._ask(wire.SASL_AUTHENTICATE, wire.text("PLAIN") + struct.pack(">I", len(login)) + login)
        self._wait(lambda: self._tuned is not None, "has not said how large a frame may be")
        if self._tuned and self._tuned[0]:
            self.most = self._tuned[0]
        self._send(wire.frame(wire.TUNE, struct.pack(">II", self.most, 0)))
        self._ask(wire.OPEN, wire.text(address.virtual_host))

    def _ask(self, key: int, fields: bytes, stream: str = "", *, fine: tuple[int, ...] = (wire.OK,)) -> bytes:
        """Ask, and wait for the answer: the fields behind its code."""
        return self._answer(key, fields, stream, fine=fine)[1]

    def _answer(self, key: int, fields: bytes, stream: str, *, fine: tuple[int, ...]) -> tuple[int, bytes]:
        """See `_ask`; the code, too, where several are fine."""
        number = next(self._numbers)
        self._send(wire.frame(key, struct.pack(">I", number) + fields))
        self._wait(lambda: number in self._answers, "has not answered")
        answer = self._answers.pop(number)
        [code] = struct.unpack_from(">H", answer)
        if code not in fine:
            raise self._refusal(code, stream)
        return code, answer[2:]

    def _send(self, data: bytes) -> None:
        left, end = memoryview(data), time.monotonic() + self._login.timeout_s
        while left:
            try:
                sent = self._socket.send(left)
            except _BLOCKED:  # the broker may wait until we read what it sends
                self._ready.modify(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
                came = self._ready.select(max(0.0, end - time.monotonic()))
                self._ready.modify(self._socket, selectors.EVENT_READ)
                if not came:
                    raise TimeoutError(f"RabbitMQ takes nothing for {self._login.timeout_s:g} s") from None
                self._receive()
            except OSError as error:
                raise self._lost(error) from None
            else:
                left, end = left[sent:], time.monotonic() + self._login.timeout_s

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + self._login.timeout_s
        while not done():
            if self._owed:
                owed, self._owed = self._owed, 0
                self._send(wire.frame(wire.CREDIT, b"\x00" + struct.pack(">H", owed)))
                continue
            if not self._ready.select(max(0.0, end - time.monotonic())):
                raise TimeoutError(f"RabbitMQ {what} for {self._login.timeout_s:g} s")
            if self._receive():
                end = time.monotonic() + self._login.timeout_s

    def _receive(self) -> bool:
        """Take in what is there; whether something came."""
        came = False
        while True:
            try:
                data = self._socket.recv(READ_BYTES)
            except _BLOCKED:
                break
            except OSError as error:
                raise self._lost(error) from None
            if not data:
                raise self._lost("RabbitMQ has closed it")
            self._incoming += data
            came = True
            if len(data) < READ_BYTES and self._login.tls is None:
                break
        self._take_frames()
        return came

    def _take_frames(self) -> None:
        incoming, at = self._incoming, 0
        while len(incoming) - at >= HEAD_OF_SIZE:
            end = at + HEAD_OF_SIZE + int.from_bytes(incoming[at : at + HEAD_OF_SIZE], "big")
            if len(incoming) < end:
                break
            key = int.from_bytes(incoming[at + 4 : at + 6], "big")
            self._take(key, bytes(incoming[at + wire.HEAD : end]))
            at = end
        del incoming[:at]
        if self._refused:
            raise self._lost(self._refused)

    def _take(self, key: int, fields: bytes) -> None:
        """One frame has come."""
        match key:
            case wire.CONFIRMED:
                publisher, count = struct.unpack_from(">BI", fields)
                self._confirmed[publisher] = self._confirmed.get(publisher, 0) + count
            case wire.REFUSED:
                [code] = struct.unpack_from(">H", fields, 5 + 8)
                self._refused = f"RabbitMQ does not take a message: {wire.CODES.get(code, code)}"
            case wire.DELIVER:
                self.delivered += [one for one in wire.chunk(fields[1:]) if one.offset >= self._from]
                self._owed += 1
            case wire.METADATA_UPDATE:
                self._refused = "a stream moves, or was deleted"
            case wire.TUNE:
                self._tuned = struct.unpack_from(">II", fields)
            case wire.CLOSE:
                [size] = struct.unpack_from(">H", fields, 6)
                self._refused = f"RabbitMQ closes it: {fields[8 : 8 + size].decode(errors='replace')}"
            case wire.HEARTBEAT:
                pass
            case _ if key & wire.ANSWER and key != wire.ANSWER | wire.CREDIT:
                self._answers[int.from_bytes(fields[:4], "big")] = fields[4:]
            case _:
                self._refused = f"it has sent a frame with the key {key:#x}"

    def _lost(self, why: object) -> Exception:
        address = self._login.address
        if refused := tls_refusal("RabbitMQ", address, why):
            return refused
        hint = "" if self._entered else f". {early_end(address)}"
        return ConnectionError(f"the connection to RabbitMQ's streams is lost: {address.quiet(str(why))}{hint}")

    def _refusal(self, code: int, stream: str) -> Exception:
        what = (
            f"RabbitMQ refuses{f' the stream {stream!r}' if stream else ''}: {wire.CODES.get(code, f'code {code:#x}')}"
        )
        if code in wire.LOGIN_REFUSED:
            return RecoveryError(what, remedy="correct user and password")
        if code == wire.NO_VIRTUAL_HOST:
            return RecoveryError(what, remedy="create the virtual host, and let the user into it")
        if code == wire.NO_STREAM:
            return RecoveryError(what, remedy="declare it at the broker; the task goes on by itself")
        if code == wire.ACCESS_REFUSED:
            return RecoveryError(what, remedy="give the user the permission; the task goes on by itself")
        return ConnectionError(what)


HEAD_OF_SIZE: Final = 4
