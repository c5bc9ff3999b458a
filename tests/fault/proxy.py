"""A TCP proxy between Kafka clients and one broker that understands the framing of requests, and hurts chosen ones.

Every Kafka request is a size, an api key, an api version and a correlation id; every response a size and the
correlation id. That is enough to hold, drop or cut exactly the EndTxn of a commit and to leave everything else alone.
The broker must advertise the proxy's address, else clients go round it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import Final, Literal, Self, TypeAlias

PRODUCE: Final = 0
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS: Final = 24
ADD_OFFSETS: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28

Side: TypeAlias = Literal["request", "response"]
Deed: TypeAlias = Literal["hold", "drop", "cut"]


@dataclass(eq=False)
class Fault:
    """What to do to requests of one kind.

    Attributes:
        api_key: the kind.
        side: hurt the request on its way to the broker, or the response on its way back (the broker has acted then).
        deed: ``hold`` it for `hold_s` (what follows on the connection waits), ``drop`` it in silence, or ``cut`` the
            connection instead of forwarding it.
        hold_s: seconds.
        times: how often; then it is over.
        bites: set when it has been done at least once; a fault that never bit proves nothing.
    """

    api_key: int
    side: Side
    deed: Deed
    hold_s: float = 0.0
    times: int = 1
    bites: int = 0
    bit: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Listens on 127.0.0.1 and forwards to one broker; a context manager."""

    def __init__(self, port: int, broker_port: int) -> None:
        self.port = port
        self._broker_port = broker_port
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._sockets: set[socket.socket] = set()
        self.seen: dict[int, int] = {}
        """Requests by api key that came from clients."""
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        _close(self._listener)
        with self._lock:
            sockets = list(self._sockets)
        for one in sockets:
            _close(one)

    def inject(self, api_key: int, side: Side, deed: Deed, *, hold_s: float = 0.0, times: int = 1) -> Fault:
        """From now on, do this to the next `times` requests of this kind."""
        fault = Fault(api_key, side, deed, hold_s, times)
        with self._lock:
            self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """End all faults; what is held already is still held for its time."""
        with self._lock:
            self._faults.clear()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
            except OSError:
                if self._closing.is_set():
                    return
                _close(client)
                continue
            with self._lock:
                self._sockets |= {client, broker}
            kinds: dict[int, int] = {}
            for source, target, side in ((client, broker, "request"), (broker, client, "response")):
                thread = threading.Thread(target=self._pump, args=(source, target, side, kinds), daemon=True)
                thread.start()

    def _pump(self, source: socket.socket, target: socket.socket, side: Side, kinds: dict[int, int]) -> None:
        """Forward frames of one direction until a connection ends; `kinds` maps correlation ids to api keys."""
        with contextlib.suppress(OSError):
            while (frame := _read_frame(source)) is not None:
                fault = self._fault(_kind(frame, side, kinds), side)
                if fault is not None and self._hurt(fault):
                    if fault.deed == "cut":
                        break
                    continue
                target.sendall(frame)
        _close(source)
        _close(target)

    def _fault(self, api_key: int, side: Side) -> Fault | None:
        with self._lock:
            if side == "request":
                self.seen[api_key] = self.seen.get(api_key, 0) + 1
            for fault in self._faults:
                if fault.api_key == api_key and fault.side == side and fault.bites < fault.times:
                    fault.bites += 1
                    return fault
        return None

    def _hurt(self, fault: Fault) -> bool:
        """Do it; says whether the frame is gone."""
        fault.bit.set()
        if fault.deed == "hold":
            self._closing.wait(fault.hold_s)
            return False
        return True


def _kind(frame: bytes, side: Side, kinds: dict[int, int]) -> int:
    if side == "response":
        return kinds.pop(int(struct.unpack_from(">i", frame, 4)[0]), -1)
    api_key, _, correlation = struct.unpack_from(">hhi", frame, 4)
    kinds[correlation] = api_key
    return int(api_key)


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
