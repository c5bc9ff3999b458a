"""A small STOMP 1.2 broker on loopback: queues with redelivery and transactions, and the faults of networks."""

from __future__ import annotations

import itertools
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from cues_kafka.bridges.stomp.frames import Frame, Parser
from cues_kafka.bridges.stomp.session import NOTHING


@dataclass
class Stored:
    """A message of a queue: its number, how often it was delivered, its headers and its body."""

    number: int
    headers: dict[str, str]
    body: bytes
    deliveries: int = 0


@dataclass(eq=False)
class Link:
    """One connection: its socket, the queue that it gets, and what was delivered without an acknowledgement."""

    sock: socket.socket
    queue: str = ""
    version: str = "1.2"
    unacked: dict[str, Stored] = field(default_factory=dict)
    open_transactions: dict[str, list[Frame]] = field(default_factory=dict)

    def named(self, message: str) -> str:
        """The tag of a delivery that STOMP 1.1 names by the id of the message."""
        number = message.rpartition(":")[2].rpartition(",")[2]
        return next((tag for tag, one in self.unacked.items() if str(one.number) == number), "")

    def send(self, frame: Frame) -> None:
        """To the client; a connection that is gone is noticed where it is read."""
        with suppress(OSError):
            self.sock.sendall(frame.encode())


class FakeBroker:
    """
    It listens on loopback until it is closed.

    Attributes:
        ids: `classic`, where a message has one id; `artemis`, where the number of the consumer is before it.
        connected: the headers of its answer to CONNECT.
        answer: what it answers to CONNECT in place of that; None: nothing else.
        deaf: commands that it does not answer, and does not do.
        refused: bodies of messages that it refuses by an ERROR. It goes on as if they had not come, as Classic does.
        ends_at: the number of a frame, from 1, at which the connection ends; and whether the frame is done before that.
        seen: all frames that came, in order.
        loses_first: whether it keeps the first message that was not acknowledged on a connection that ends, as Artemis
            does at times.
        kept: those messages. A restart of Artemis puts them back.
        left_by: set when a client said goodbye.
    """

    def __init__(self, ids: str = "classic", window: int = 1_000) -> None:
        self.ids, self.window = ids, window
        self.connected = {"version": "1.2", "server": "Fake/1", "heart-beat": "0,0"}
        self.answer: bytes | None = None
        self.deaf: set[str] = set()
        self.refused: set[bytes] = set()
        self.ends_at: tuple[int, bool] | None = None
        self.seen: list[Frame] = []
        self.queues: dict[str, deque[Stored]] = {}
        self.links: list[Link] = []
        self.loses_first = False
        self.kept: list[Stored] = []
        self.left_by = threading.Event()
        self.lock = threading.RLock()
        self.news = threading.Condition(self.lock)  # notified of each frame
        self._numbers = itertools.count(1)
        self._tags = itertools.count(1)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def put(self, queue: str, *bodies: bytes, **headers: str) -> None:
        """Send messages to a queue."""
        with self.lock:
            for body in bodies:
                self._add(self.queues.setdefault(queue, deque()), Stored(next(self._numbers), headers, body))
            self._deliver()

    def _add(self, queue: deque[Stored], one: Stored) -> None:
        """Behind all that have its priority or a higher one."""
        before = sum(_priority(other) >= _priority(one) for other in queue)
        queue.insert(before, one)

    def drop(self) -> None:
        """End all connections; what was not acknowledged comes first again."""
        for link in [*self.links]:
            self._gone(link)

    def left(self, queue: str) -> int:
        """How many messages of a queue are not acknowledged."""
        with self.lock:
            return len(self.queues.get(queue, ())) + sum(len(one.unacked) for one in self.links if one.queue == queue)

    def wait_until_left(self, queue: str, count: int) -> None:
        """Wait until this number of messages of a queue is not acknowledged."""
        with self.news:
            assert self.news.wait_for(lambda: self.left(queue) == count, 20.0), self.left(queue)

    def close(self) -> None:
        """Listen no more."""
        self._server.close()
        self.drop()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(Link(sock),), daemon=True).start()

    def _serve(self, link: Link) -> None:
        parser = Parser(10_000_000)
        with self.lock:
            self.links.append(link)
        with suppress(OSError):
            while data := link.sock.recv(65_536):
                for frame in parser.feed(data):
                    with self.news:
                        self._do(link, frame)
                        self.news.notify_all()
        self._gone(link)

    def _gone(self, link: Link) -> None:
        with self.lock:
            if link not in self.links:
                return
            self.links.remove(link)
            with suppress(OSError):
                link.sock.shutdown(socket.SHUT_RDWR)
            link.sock.close()
            back = [*link.unacked.values()]
            if self.loses_first:
                self.kept += back[:1]
                back = back[1:]
            self.queues.setdefault(link.queue, deque()).extendleft(reversed(back))
            self._deliver()

    def _do(self, link: Link, frame: Frame) -> None:
        self.seen.append(frame)
        ends, done = self.ends_at or (0, False)
        if link not in self.links:
            return
        if len(self.seen) == ends:
            if done:
                deaf = socket.socket()
                deaf.close()
                self._answer(replace(link, sock=deaf), frame)
            self._gone(link)
        elif frame.body in self.refused:
            link.send(Frame("ERROR", {"message": "not this one"}))
        elif frame.command not in self.deaf:
            self._answer(link, frame)

    def _answer(self, link: Link, frame: Frame) -> None:
        name = frame.headers.get("transaction")
        match frame.command:
            case "CONNECT":
                if self.answer is not None:
                    link.sock.sendall(self.answer)
                else:
                    link.version = frame.headers["accept-version"]
                    asked = {"version": link.version} if link.version != "1.2" else {}
                    link.send(Frame("CONNECTED", self.connected | asked))
            case "SUBSCRIBE":
                link.queue = "" if frame.headers.get("selector") == NOTHING else frame.headers["destination"]
            case "DISCONNECT":
                self.left_by.set()
            case "BEGIN" if name in link.open_transactions:
                link.send(Frame("ERROR", {"message": "the transaction has begun already"}))
            case "BEGIN":
                link.open_transactions[str(name)] = []
            case "COMMIT":
                for one in link.open_transactions.pop(str(name)):
                    self._now(link, one)
            case "ABORT":
                del link.open_transactions[str(name)]
            case "SEND" | "ACK" if name is not None:
                link.open_transactions[name].append(frame)
            case _:
                self._now(link, frame)
        if "receipt" in frame.headers:
            link.send(Frame("RECEIPT", {"receipt-id": frame.headers["receipt"]}))
        self._deliver()

    def _now(self, link: Link, frame: Frame) -> None:
        match frame.command:
            case "ACK":
                link.unacked.pop(frame.headers.get("id") or link.named(frame.headers["message-id"]), None)
            case "SEND":
                headers = {k: v for k, v in frame.headers.items() if k not in {"destination", "receipt", "transaction"}}
                self.put(frame.headers["destination"], frame.body, **headers)

    def _deliver(self) -> None:
        for link in self.links:
            queue = self.queues.get(link.queue)
            while link.queue and queue and len(link.unacked) < self.window:
                one = queue.popleft()
                one.deliveries += 1
                tag = str(next(self._tags))
                link.unacked[tag] = one
                consumer = id(link) % 1000
                name = f"{consumer},{one.number}" if self.ids == "artemis" else f"ID:fake-1:1:{one.number}"
                own = {"message-id": name, "subscription": "cues", "destination": link.queue}
                own |= {"ack": tag} if link.version == "1.2" else {}
                again = {"redelivered": "true"} if one.deliveries > 1 else {}
                link.send(Frame("MESSAGE", {**own, **again, **one.headers}, one.body))


def _priority(one: Stored) -> int:
    return int(one.headers.get("priority", "4"))


@contextmanager
def fake_broker(**given: Any) -> Iterator[FakeBroker]:
    """One, closed at the end."""
    broker = FakeBroker(**given)
    try:
        yield broker
    finally:
        broker.close()
