"""A source that redelivers, and a process that reads it by the code of the shell: `cues_kafka.bridges.acked`.

`Acked` runs here as it is, on a broker that is a value (`Queue`). What a process holds of it between two reads is a
value, too, from which it is made again. So equal questions have equal answers, and each is asked once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from cues_kafka.bridges import ledger
from cues_kafka.bridges.acked import Acked, AckedPart
from cues_kafka.bridges.deliveries import Arrival
from cues_kafka.bridges.ledger import AttemptLedger
from cues_kafka.graph.feed import LatePlace

OPEN, BROKEN, CLOSED = range(3)
"""Of a connection: the broker has lost it, and its process does not know; its process has closed it, or died."""

OWN: Final = frozenset({"_broker", "_number", "_room", "_lock", "_arrived"})
"""What each part of a source is made with."""


class Link(NamedTuple):
    """
    One connection.

    Attributes:
        w, p: process and part that it belongs to.
        state: see `OPEN`.
        unacked: what the broker has delivered on it and not got an acknowledgement of: numbers of deliveries, messages.
        arrived: how many deliveries the process has not taken.
        acks: numbers of deliveries whose acknowledgements are on their way.
        tags: how many deliveries it had; their numbers begin again with each connection.
    """

    w: int
    p: int
    state: int = OPEN
    unacked: tuple[tuple[int, int], ...] = ()
    arrived: int = 0
    acks: tuple[int, ...] = ()
    tags: int = 0


class Queue(NamedTuple):
    """
    The broker.

    Attributes:
        ready: messages that it has and has not delivered, in order.
        links: connections.
        acked: messages that it has forgotten.
        wrong: what a process did that it must not.
    """

    ready: tuple[int, ...]
    links: tuple[Link, ...] = ()
    acked: tuple[int, ...] = ()
    wrong: str = ""

    def link(self, w: int, p: int) -> Link | None:
        """The connection that a process believes in."""
        return next((one for one in self.links if (one.w, one.p) == (w, p) and one.state != CLOSED), None)

    def put(self, link: Link, after: Link | None) -> Queue:
        """Another link in the place of one; None: it is gone."""
        at = self.links.index(link)
        return self._replace(links=(*self.links[:at], *((after,) if after else ()), *self.links[at + 1 :]))

    def lost(self, link: Link) -> Queue:
        """The broker has lost a connection: it delivers again what is not acknowledged, before anything new."""
        back = self.again(tuple(message for _, message in link.unacked))
        after = link._replace(state=BROKEN, unacked=(), arrived=0, acks=()) if link.state == OPEN else None
        return self.put(link, after)._replace(ready=back + self.ready)

    def again(self, messages: tuple[int, ...]) -> tuple[int, ...]:
        """In which order these are delivered again: that of the first deliveries."""
        return tuple(sorted(messages))

    def closed(self, w: int, p: int) -> Queue:
        """A process has closed a connection, which the broker hears of later."""
        link = self.link(w, p)
        if link is None:
            return self
        return self.put(link, link._replace(state=CLOSED, arrived=0) if link.state == OPEN else None)

    def settled(self, link: Link) -> Queue:
        """The first acknowledgement on a connection arrives."""
        tag, *rest = link.acks
        message = dict(link.unacked)[tag]
        unacked = tuple(one for one in link.unacked if one[0] != tag)
        after = self.put(link, link._replace(unacked=unacked, acks=tuple(rest)))
        return after._replace(acked=tuple(sorted((*after.acked, message))))


class Broker:
    """
    One process's access to the broker: the `Acknowledging` and the `Deliveries` of one part.

    Attributes:
        queue: the broker now.
        w, p: see `Link`.
        window: how many deliveries it makes without an acknowledgement.
        selects: whether a part is to get a message.
        sole: whether a part has one consumer.
    """

    def __init__(
        self, queue: Queue, w: int, p: int, window: int, selects: Callable[[int], bool], *, sole: bool = True
    ) -> None:
        self.queue, self.w, self.p = queue, w, p
        self.window, self.selects, self.sole = window, selects, sole

    def connect(self, part: int, arrived: Callable[[], None]) -> Broker:
        """See `Acknowledging`."""
        del part, arrived
        if self.sole and any(one.p == self.p and one.state != BROKEN for one in self.queue.links):
            raise ConnectionRefusedError("the queue has another consumer")
        self.queue = self.queue._replace(links=tuple(sorted((*self.queue.links, Link(self.w, self.p)))))
        return self

    def show(self, message: str) -> str:
        """See `Acknowledging`."""
        return message

    def take(self, limit: int) -> Sequence[Arrival]:
        """See `Deliveries`; what the window has room for has arrived."""
        link, unacked, tags, ready = self._open(), list(self._open().unacked), self._open().tags, []
        for message in self.queue.ready:
            if len(unacked) < self.window and self.selects(message):
                tags += 1
                unacked.append((tags, message))
            else:
                ready.append(message)
        there = unacked[len(link.unacked) - link.arrived :]
        after = link._replace(unacked=tuple(unacked), tags=tags, arrived=max(0, len(there) - limit))
        self.queue = self.queue.put(link, after)._replace(ready=tuple(ready))
        return [Arrival(f"m{message}", True, message, tag) for tag, message in there[:limit]]  # type: ignore[arg-type]

    def ack(self, tokens: Sequence[Any]) -> None:
        """See `Deliveries`; they are on their way."""
        link = self._open()
        acks = (*link.acks, *tokens)
        if len({*acks}) < len(acks) or not {*acks} <= {*dict(link.unacked)}:
            self.queue = self.queue._replace(wrong=f"B4: of deliveries {list(tokens)} some were not made here")
        else:
            self.queue = self.queue.put(link, link._replace(acks=acks))

    def close(self) -> None:
        """See `Deliveries`."""
        self.queue = self.queue.closed(self.w, self.p)

    def _open(self) -> Link:
        link = self.queue.link(self.w, self.p)
        if link is None or link.state != OPEN:
            raise ConnectionResetError("the connection is lost")
        return link


class Former:
    """A connection that is closed, of which something is remembered."""

    def close(self) -> None:
        """Nothing is open."""


class Box(NamedTuple):
    """A container, or an object of the shell, as a value."""

    kind: type
    items: tuple[Any, ...]


CONNECTED, FORMER = "connected", "formerly connected"

Client = Box | None
"""What a process holds of a part; None: it has not read yet."""


def client_of(part: AckedPart) -> Client:
    """What a part of a source holds, as a value."""
    connection = part._connection
    fields = {name: value for name, value in vars(part).items() if name not in OWN}
    return Box(AckedPart, tuple((name, _kept(value, connection)) for name, value in sorted(fields.items())))


def _kept(value: Any, connection: Any) -> Any:
    if isinstance(value, Broker | Former):
        return CONNECTED if value is connection else FORMER
    if isinstance(value, LatePlace):
        return str(value)
    if isinstance(value, deque | list):
        return Box(type(value), tuple(_kept(one, connection) for one in value))
    if isinstance(value, dict):
        return Box(dict, tuple(value.items()))
    if isinstance(value, AttemptLedger):
        fields = vars(value) | {"_order": list(value._counts)}  # without what is forgotten
        return Box(AttemptLedger, tuple((name, _kept(one, connection)) for name, one in sorted(fields.items())))
    if isinstance(value, tuple):
        kept = [_kept(one, connection) for one in value]
        return type(value)(*kept) if hasattr(value, "_fields") else tuple(kept)
    return value


def _made(kept: Any, broker: Broker) -> Any:
    if kept in (CONNECTED, FORMER):
        return broker if kept == CONNECTED else Former()
    if isinstance(kept, Box):
        if kept.kind is AttemptLedger:
            ledger = object.__new__(AttemptLedger)
            vars(ledger).update((name, _made(one, broker)) for name, one in kept.items)
            return ledger
        return kept.kind(_made(one, broker) for one in kept.items) if kept.kind is not dict else dict(kept.items)
    if isinstance(kept, tuple):
        made = [_made(one, broker) for one in kept]
        return type(kept)(*made) if hasattr(kept, "_fields") else tuple(made)
    return kept


def source_of(client: Client, broker: Broker, parts: int) -> Acked:
    """The source of a process, as it was."""
    source = Acked(broker, parts=parts, prefetch=broker.window)
    if client is not None:
        vars(source._parts[broker.p]).update((name, _made(one, broker)) for name, one in client.items)
    return source


class Asked(NamedTuple):
    """
    What a lane does with its source at once.

    Attributes:
        at: the place that it reads behind; None: the beginning.
        committed: the place that it tells the source of first; None: none.
        most: rows that it takes.
        attempt: the name of the attempt that the read may begin.
    """

    at: str | None
    committed: str | None
    most: int
    attempt: str


class Got(NamedTuple):
    """What has become of it: what the process holds, the broker, rows with their places, and what went wrong."""

    client: Client
    queue: Queue
    rows: tuple[tuple[int, str], ...]
    failed: str


def read(client: Client, broker: Broker, parts: int, asked: Asked) -> Got:
    """As `FeedLane` reads: what came before a failure stays read."""
    rows: list[tuple[int, str]] = []
    failed = ""
    with _named(asked.attempt):
        source = source_of(client, broker, parts)
        try:
            if asked.committed is not None:
                source.committed(broker.p, asked.committed)
            for message, place in source.read(broker.p, asked.at, source.most) if asked.most else ():
                rows.append((message, str(place)))  # type: ignore[arg-type]
                if len(rows) >= asked.most:
                    break
        except OSError as error:
            failed = str(error)
    return Got(client_of(source._parts[broker.p]), broker.queue, tuple(rows), failed)


def most_of(window: int) -> int:
    """B5: rows of a batch."""
    return Acked(Broker(Queue(()), 0, 0, window, bool), prefetch=window).most


def released(client: Client, broker: Broker, parts: int) -> Got:
    """B7: as `FeedWorker` does when a task leaves."""
    source = source_of(client, broker, parts)
    source.release(broker.p)
    return Got(client_of(source._parts[broker.p]), broker.queue, (), "")


@contextmanager
def _named(name: str) -> Iterator[None]:
    """The next attempt has this name, where the shell takes a random one."""
    before, ledger.new_attempt = ledger.new_attempt, lambda: name
    try:
        yield
    finally:
        ledger.new_attempt = before
