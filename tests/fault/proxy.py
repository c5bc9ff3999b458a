"""A TCP proxy between Kafka clients and one broker that understands the framing of requests, and hurts chosen ones.

Every Kafka request is a size, an api key, a version, a correlation id and the client's id; every response a size and
the correlation id. That is enough to hold, drop, duplicate or cut exactly the EndTxn of a commit and to leave
everything else alone: no byte of a frame is changed. The broker must advertise the proxy's address, else clients go
round it.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, Self, TypeAlias

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
SYNC_GROUP: Final = 14
API_VERSIONS: Final = 18
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS: Final = 24
ADD_OFFSETS: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28

ANY: Final = -1
"""Requests of all kinds."""

Side: TypeAlias = Literal["request", "response"]
Deed: TypeAlias = Literal["hold", "drop", "duplicate", "cut"]

ANSWER_S: Final = 5.0
"""How long a connection whose client is gone stays open for the answer to a request that was held."""

KEPT: Final = 50_000
"""How many requests a proxy remembers."""


@dataclass(eq=False)
class Fault:
    """What to do to requests of one kind.

    Attributes:
        api_key: the kind, or `ANY`.
        side: hurt the request on its way to the broker, or the response on its way back (the broker has acted then).
        deed: ``hold`` it for `hold_s` or until `release` (what follows on the connection waits), ``drop`` it in
            silence, send it twice (``duplicate``), or ``cut`` the connection instead of forwarding it.
        hold_s: seconds; 0: until `release`.
        times: how often; then it is over.
        client: of this client id alone; None: of every client.
        nth: begin with the nth that fits, from 1.
        bites: how often it has been done.
        bit: set when it has been done at least once; a fault that never bit proves nothing.
        answered: set when the broker has answered a request that was held.
        answer: the frame of that answer.
    """

    api_key: int
    side: Side
    deed: Deed
    hold_s: float = 0.0
    times: float = 1
    client: str | None = None
    nth: int = 1
    bites: int = 0
    seen: int = 0
    bit: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    answered: threading.Event = field(default_factory=threading.Event)
    answer: bytes = b""

    def release(self) -> None:
        """Let go what is held, and hold nothing more."""
        self.times = self.bites
        self.released.set()

    def fits(self, request: Request, side: Side) -> bool:
        """Count a frame, and say whether it is to be hurt."""
        if side != self.side or self.api_key not in (ANY, request.api_key) or self.bites >= self.times:
            return False
        if self.client not in (None, request.client):
            return False
        self.seen += 1
        if self.seen < self.nth:
            return False
        self.bites += 1
        return True


@dataclass(eq=False)
class Request:
    """One request, as the proxy saw it.

    Attributes:
        api_key: its kind.
        version: of its format.
        client: its client's id.
        connection: the number of its connection.
        came_s: when it came from the client, of the monotonic clock.
        answered_s: when the broker's answer came; None: not yet.
        answer: that answer, of the kinds in `Proxy.keep_answers`.
        held: the fault that holds the request.
        copies: answers that the broker has still to give.
    """

    api_key: int
    version: int
    client: str | None
    connection: int
    came_s: float
    answered_s: float | None = None
    answer: bytes = b""
    held: Fault | None = None
    copies: int = 1


class Proxy:
    """Listens on 127.0.0.1 and forwards to one broker; a context manager."""

    def __init__(self, port: int, broker_port: int) -> None:
        self.port = port
        self.broker_port = broker_port
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._connections: dict[int, _Connection] = {}
        self._numbers = itertools.count(1)
        self.seen: dict[int, int] = {}
        """Requests by api key that came from clients."""
        self.requests: deque[Request] = deque(maxlen=KEPT)
        """The newest requests, in the order in which they came."""
        self.keep_answers: frozenset[int] = frozenset()
        """Kinds whose answers are kept in `requests`."""
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        _close(self._listener)
        self.heal()
        with self._lock:
            connections = list(self._connections.values())
        for one in connections:
            one.close()

    def inject(
        self,
        api_key: int,
        side: Side,
        deed: Deed,
        *,
        hold_s: float = 0.0,
        times: float = 1,
        client: str | None = None,
        nth: int = 1,
    ) -> Fault:
        """From now on, do this to the next `times` requests of this kind, from the nth on."""
        fault = Fault(api_key, side, deed, hold_s, times, client, nth)
        with self._lock:
            self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """End all faults; what is held for a time is still held for it, and the rest is let go."""
        with self._lock:
            ended, self._faults[:] = self._faults[:], []
        for fault in ended:
            if not fault.hold_s:
                fault.release()

    @contextlib.contextmanager
    def severed(self, side: Side) -> Iterator[Fault]:
        """A one-way partition: nothing gets through on this side. Then the connections that lost a frame are cut."""
        fault = self.inject(ANY, side, "drop", times=float("inf"))
        try:
            yield fault
        finally:
            with self._lock:
                self._faults.remove(fault)
                torn = [one for one in self._connections.values() if fault in one.lost]
            for one in torn:
                one.close()

    def of(self, *api_keys: int, client: str | None = None) -> list[Request]:
        """The requests of these kinds; of one client, where it is given."""
        with self._lock:
            found = list(self.requests)
        return [one for one in found if one.api_key in api_keys and client in (None, one.client)]

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self.broker_port))
            except OSError:
                _close(client)
                continue
            connection = _Connection(next(self._numbers), client, broker)
            with self._lock:
                self._connections[connection.number] = connection
            for pump in (self._ask, self._answer):
                threading.Thread(target=pump, args=(connection,), daemon=True).start()

    def _ask(self, connection: _Connection) -> None:
        """Forward requests until the client is gone; then wait for the answers to those that were held."""
        with contextlib.suppress(OSError):
            while (frame := _read_frame(connection.client)) is not None:
                api_key, version, correlation, size = struct.unpack_from(">hhih", frame, 4)
                client = frame[14 : 14 + size].decode() if size >= 0 else None
                request = Request(api_key, version, client, connection.number, time.monotonic())
                connection.waiting[correlation] = request
                with self._lock:
                    self.seen[api_key] = self.seen.get(api_key, 0) + 1
                    self.requests.append(request)
                if not self._forward(connection, request, "request", frame):
                    break
            for request in [*connection.waiting.values()]:
                if request.held is not None:
                    request.held.answered.wait(ANSWER_S)
        self._end(connection)

    def _answer(self, connection: _Connection) -> None:
        """Forward answers until the broker is gone. That the client is gone does not end it."""
        with contextlib.suppress(OSError):
            while (frame := _read_frame(connection.broker)) is not None:
                [correlation] = struct.unpack_from(">i", frame, 4)
                request = connection.waiting[correlation]
                request.copies -= 1
                if request.copies == 0:
                    del connection.waiting[correlation]
                if request.answered_s is not None:
                    continue  # of a copy of the proxy's own
                request.answered_s = time.monotonic()
                if request.api_key in self.keep_answers:
                    request.answer = frame
                if request.held is not None:
                    request.held.answer = frame
                    request.held.answered.set()
                if not self._forward(connection, request, "response", frame):
                    break
        self._end(connection)

    def _forward(self, connection: _Connection, request: Request, side: Side, frame: bytes) -> bool:
        """Send a frame on, or do what a fault says; False: the connection is over."""
        target = connection.broker if side == "request" else connection.client
        with self._lock:
            fault = next((one for one in self._faults if one.fits(request, side)), None)
            if fault is not None and fault.deed == "drop":
                connection.lost.append(fault)
        if fault is None:
            target.sendall(frame)
            return True
        if fault.deed == "hold" and side == "request":
            request.held = fault
        elif fault.deed == "duplicate" and side == "request":
            request.copies += 1
        fault.bit.set()
        if fault.deed == "hold":
            fault.released.wait(fault.hold_s or None)
        if fault.deed in ("hold", "duplicate"):
            target.sendall(frame * (2 if fault.deed == "duplicate" else 1))
        return fault.deed != "cut"

    def _end(self, connection: _Connection) -> None:
        connection.close()
        with self._lock:
            self._connections.pop(connection.number, None)


@dataclass(eq=False)
class _Connection:
    """A client's connection, and the one to the broker behind it."""

    number: int
    client: socket.socket
    broker: socket.socket
    waiting: dict[int, Request] = field(default_factory=dict)
    """Requests without an answer, by correlation id."""
    lost: list[Fault] = field(default_factory=list)
    """Faults that took a frame."""

    def close(self) -> None:
        _close(self.client)
        _close(self.broker)


def _read_frame(source: socket.socket) -> bytes | None:
    head = _read_exactly(source, 4)
    if head is None:
        return None
    body = _read_exactly(source, int(struct.unpack(">i", head)[0]))
    return None if body is None else head + body


def _read_exactly(source: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = source.recv(min(65_536, size - len(parts)))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
