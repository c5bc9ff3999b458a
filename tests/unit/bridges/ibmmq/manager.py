"""A queue manager in this process: its queues, its connections and its faults; `fake.py` speaks with it."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from typing import Any

NETWORK: dict[tuple[str, int], Manager] = {}
"""The queue managers, by host and port."""

CONNECTIONS: dict[int, Connection] = {}
HANDLES = itertools.count(1)


@dataclass(eq=False)
class Stored:
    """A message of a queue: its fields, and whose unit of work it was put or read in."""

    number: int
    data: bytes
    fields: dict[str, Any]
    backouts: int = 0
    put_in: Connection | None = None
    read_in: Connection | None = None

    @property
    def is_free(self) -> bool:
        """Whether others see it."""
        return self.put_in is None and self.read_in is None

    @property
    def id(self) -> bytes:
        """MsgId."""
        found: bytes = self.fields["MsgId"]
        return found


@dataclass(eq=False)
class Opened:
    """An open queue: its name, how it is open, and where its browse cursor stands."""

    queue: str
    options: int
    cursor: tuple[int, int] = (-1, -1)


@dataclass(eq=False)
class Connection:
    """One connection, at the side of the queue manager."""

    manager: Manager
    handle: int
    facts: dict[str, Any]
    opened: dict[int, Opened] = field(default_factory=dict)
    lost: int = 0
    ended: bool = False


class Manager:
    """
    A queue manager.

    Attributes:
        queues: by name, in order of arrival.
        by_priority: MSGDLVSQ(PRIORITY), as queues are made by default.
        auto: names of queues that begin with one of these are there when they are opened.
        limit: MAXUMSGS.
        most_bytes: MAXMSGL.
        users: user and password of those who may connect; empty: everybody.
        refusals: by verb the reason codes of its next calls; the call is not done.
        unanswered: by verb how many calls are done, and lose the connection before their answer.
        calls: names of all calls, in order.
        gets: the options of each MQGET.
        commits: how many units of work were committed with messages in them.
        connects: what was asked for in each connection.
        down: why no client can connect: a reason code; 0: it is up.
    """

    def __init__(self, name: str = "QM1", channel: str = "APP.SVRCONN") -> None:
        self.name, self.channel = name, channel
        self.news = threading.Condition()
        self.queues: dict[str, list[Stored]] = {}
        self.by_priority = True
        self.auto: tuple[str, ...] = ()
        self.limit = 10_000
        self.most_bytes = 4 << 20
        self.users: dict[str, str] = {}
        self.refusals: dict[str, list[int]] = {}
        self.unanswered: dict[str, int] = {}
        self.calls: list[str] = []
        self.gets: list[int] = []
        self.commits = 0
        self.connects: list[dict[str, Any]] = []
        self.down = 0
        self._numbers = itertools.count(1)

    # What a test does

    def define(self, *names: str) -> None:
        """Make queues."""
        with self.news:
            for name in names:
                self.queues.setdefault(name, [])

    def put(self, queue: str, *bodies: bytes, **fields: Any) -> None:
        """Put messages, each committed at once."""
        with self.news:
            for body in bodies:
                self.queues[queue].append(self.stored(body, {"Format": b"MQSTR   ", **fields}))
            self.news.notify_all()

    def bodies(self, queue: str) -> list[bytes]:
        """What others see in a queue."""
        with self.news:
            return [one.data for one in self.ordered(queue) if one.is_free]

    def left(self, queue: str) -> int:
        """All messages of a queue, those of open units of work included."""
        with self.news:
            return len(self.queues[queue])

    def backouts(self, queue: str) -> list[int]:
        """BackoutCount of each message."""
        with self.news:
            return [one.backouts for one in self.ordered(queue)]

    def drop(self, reason: int = 2009) -> None:
        """Lose all connections: their units of work are taken back, and the next call of each has this reason."""
        with self.news:
            for one in list(CONNECTIONS.values()):
                if one.manager is self:
                    self.lose(one, reason)

    def restart(self) -> None:
        """Stop and start: non-persistent messages are gone."""
        self.drop(2162)
        with self.news:
            for messages in self.queues.values():
                messages[:] = [one for one in messages if one.fields["Persistence"] == 1]

    def connections(self) -> int:
        """How many are open."""
        return sum(one.manager is self and not one.lost and not one.ended for one in CONNECTIONS.values())

    # What connections do; the lock is held

    def stored(self, data: bytes, given: dict[str, Any]) -> Stored:
        number = next(self._numbers)
        own: dict[str, Any] = {
            "MsgId": b"AMQ " + self.name.encode().ljust(12) + number.to_bytes(8, "big"),
            "CorrelId": bytes(24),
            "Format": b"",
            "CodedCharSetId": 1208,
            "Encoding": 0x222,
            "Persistence": 1,
            "Priority": 0,
            "MsgType": 8,
            "PutDate": b"20261129",
            "PutTime": f"{number // 100 % 240000:06}{number % 100:02}".encode(),
            "UserIdentifier": b"app",
            "PutApplName": b"fake",
        }
        return Stored(number, data, {**own, **given})

    def ordered(self, queue: str) -> list[Stored]:
        return sorted(self.queues[queue], key=self.turn)

    def turn(self, one: Stored) -> tuple[int, int]:
        return (-one.fields["Priority"] if self.by_priority else 0, one.number)

    def lose(self, connection: Connection, reason: int) -> None:
        if connection.lost or connection.ended:
            return
        connection.lost = reason
        self.back(connection)
        connection.opened.clear()
        self.news.notify_all()

    def back(self, connection: Connection) -> None:
        for messages in self.queues.values():
            messages[:] = [one for one in messages if one.put_in is not connection]
            for one in messages:
                if one.read_in is connection:
                    one.read_in, one.backouts = None, one.backouts + 1
        self.news.notify_all()

    def commit(self, connection: Connection) -> None:
        if self.in_unit(connection):
            self.commits += 1
        for messages in self.queues.values():
            messages[:] = [one for one in messages if one.read_in is not connection]
            for one in messages:
                if one.put_in is connection:
                    one.put_in = None
        self.news.notify_all()

    def in_unit(self, connection: Connection) -> int:
        return sum(connection in (one.put_in, one.read_in) for all_ in self.queues.values() for one in all_)
