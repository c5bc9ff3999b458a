"""What a contract case gets: a broker, unique names, and the same few verbs whatever the broker is."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Member, Reader, Sender, Session
from cues_kafka.ports.facts import NewTopic, Watermarks
from cues_kafka.ports.log import Fetched, Outgoing, TopicPartition, WireMessage


class Backend(Protocol):
    """
    What differs between the brokers under test.

    Attributes:
        patience_s: how long something may take that is going to happen.
        settle_s: how long to look before something that must not happen is taken as not happening.
    """

    patience_s: float
    settle_s: float

    def open(self, *, transaction_timeout_s: float | None = None, eager: bool = False) -> Broker:
        """A broker; few ask for a short transaction timeout, or for members that rebalance eagerly."""
        ...

    def unique(self, name: str) -> str:
        """The name, made this case's own."""
        ...

    def compact(self, broker: Broker, topic: str) -> None:
        """Let compaction happen, now or while the case waits for its effect."""
        ...

    def compaction_config(self) -> dict[str, str]:
        """What a compacted topic needs so that compaction happens soon."""
        ...


@dataclass
class Recorder:
    """A listener that keeps what it was told."""

    held: set[int] = field(default_factory=set)
    told: list[tuple[str, list[int]]] = field(default_factory=list)
    on_revoking: Callable[[list[int]], None] | None = None

    def on_assign(self, partitions: Sequence[int]) -> None:
        self.told.append(("assign", list(partitions)))
        self.held |= set(partitions)

    def on_revoke(self, partitions: Sequence[int]) -> None:
        if self.on_revoking is not None:
            self.on_revoking(list(partitions))
        self.told.append(("revoke", list(partitions)))
        self.held -= set(partitions)

    def on_lost(self, partitions: Sequence[int]) -> None:
        self.told.append(("lost", list(partitions)))
        self.held -= set(partitions)


class World:
    """One case's view of one broker; closes what it opened."""

    def __init__(self, backend: Backend, *, transaction_timeout_s: float | None = None, eager: bool = False) -> None:
        self.backend = backend
        self.broker = backend.open(transaction_timeout_s=transaction_timeout_s, eager=eager)
        self._numbers = itertools.count()
        self._closers: list[Callable[[], None]] = [self.broker.close]

    def with_short_transactions(self, timeout_s: float) -> World:
        """A world whose transactions time out soon."""
        return self._other(World(self.backend, transaction_timeout_s=timeout_s))

    def with_eager_members(self) -> World:
        """A world whose groups rebalance eagerly."""
        return self._other(World(self.backend, eager=True))

    def _other(self, world: World) -> World:
        self._closers.append(world.close)
        return world

    def close(self) -> None:
        """Close everything, the last opened first."""
        while self._closers:
            self._closers.pop()()

    # ---- things

    def name(self, name: str) -> str:
        """A name that is used once."""
        return self.backend.unique(f"{name}-{next(self._numbers)}")

    def topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """A new topic."""
        name = self.name("topic")
        self.broker.create([NewTopic(name, partitions, config=config or {})])
        return name

    def session(self, transactional_id: str | None = None) -> Session:
        """A session that has its transactional id."""
        session = self.broker.session(transactional_id or self.name("id"))
        self._closers.append(session.abandon)
        session.init(timeout_s=30)
        return session

    def loose_session(self, name: str) -> Session:
        """A session without a transactional id."""
        session = self.broker.loose_session(name)
        self._closers.append(session.abandon)
        session.init(timeout_s=30)
        return session

    def reader(self, starts: dict[TopicPartition, int]) -> Reader:
        """A reader of these partitions."""
        reader = self.broker.reader(self.name("reader"))
        self._closers.append(reader.close)
        reader.assign(starts)
        return reader

    def member(self, group: str, topic: str, listener: Recorder, *, instance: str | None = None) -> Member:
        """A member, not polled yet."""
        member = self.broker.member(group, topic, listener, instance=instance)
        self._closers.append(lambda: member.close(leave=True))
        return member

    def joined(self, group: str, topic: str) -> Member:
        """The only member of a group, with its first assignment."""
        listener = Recorder()
        member = self.member(group, topic, listener)
        self.until(lambda: listener.held, members=[member])
        return member

    def sender(self) -> Sender:
        """A sender."""
        sender = self.broker.sender(self.name("sender"))
        self._closers.append(sender.close)
        return sender

    # ---- verbs

    def until(self, condition: Callable[[], Any], *, members: Sequence[Member] = ()) -> None:
        """Poll members until the condition holds; fails when patience is over."""
        deadline = time.monotonic() + self.backend.patience_s
        while True:
            for member in members:
                member.poll()
            if condition():
                return
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.01)

    def watch(self, members: Sequence[Member]) -> None:
        """Poll members for a while in which nothing is expected."""
        deadline = time.monotonic() + self.backend.settle_s
        while time.monotonic() < deadline:
            for member in members:
                member.poll()
            time.sleep(0.01)

    def marks(self, topic: str, partition: int = 0) -> Watermarks:
        """The watermarks of one partition."""
        place = TopicPartition(topic, partition)
        return self.broker.watermarks([place])[place]

    def settled(self, topic: str, partition: int = 0) -> Watermarks:
        """The watermarks once no transaction is open; markers may come a moment after a commit has returned."""
        self.until(lambda: self.marks(topic, partition).stable == self.marks(topic, partition).high)
        return self.marks(topic, partition)

    def read(self, topic: str, partition: int = 0, start: int = 0) -> tuple[list[WireMessage], int]:
        """
        All committed messages of a partition and the offset at which its end was reported.

        Kafka answers a commit before its markers are written, so a reader may come too early. What stays open longer
        than markers ever take is open on purpose.
        """
        deadline = time.monotonic() + self.backend.settle_s
        while (marks := self.marks(topic, partition)).stable < marks.high and time.monotonic() < deadline:
            time.sleep(0.02)
        reader = self.reader({TopicPartition(topic, partition): start})
        try:
            return self.drain(reader)
        finally:
            reader.close()

    def drain(self, reader: Reader) -> tuple[list[WireMessage], int]:
        """Poll a reader of one partition until it reports the end."""
        messages: list[WireMessage] = []
        deadline = time.monotonic() + self.backend.patience_s
        while time.monotonic() < deadline:
            for fetched in reader.poll(0.1):
                messages += fetched.messages
                if fetched.eof is not None:
                    return messages, fetched.eof
        raise AssertionError(f"no end of the partition was reported; {len(messages)} messages came")

    def quiet(self, reader: Reader) -> list[Fetched]:
        """What comes while nothing should."""
        deadline = time.monotonic() + self.backend.settle_s
        found: list[Fetched] = []
        while time.monotonic() < deadline:
            found += reader.poll(0.05)
        return found


def record(topic: str, value: bytes | None, key: bytes | None = b"k", partition: int | None = 0) -> Outgoing:
    """A record for partition 0, unless it is said otherwise."""
    return Outgoing(topic, partition, key, value)


def values(messages: Sequence[WireMessage]) -> list[bytes | None]:
    """What the messages carry."""
    return [message.value() for message in messages]
