"""A topic as an object, with its codec: append to it, read it, ask it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cues_kafka.client.access import Access, HeadersLike, Since, TopicAccess
from cues_kafka.client.asking import ASK_S, SinceOffsets
from cues_kafka.client.handles import ClientHandles
from cues_kafka.client.messages import Messages, messages_of
from cues_kafka.client.starts import Start
from cues_kafka.client.tailer import ClientTailer
from cues_kafka.errors import ConfigError
from cues_kafka.ports.log import Sent
from cues_kafka.records.scanning import read_newest


class ClientTopic:
    """
    A topic of a client, see `Client.topic`. Threads may share it.

    Attributes:
        name: the topic's name.
        access: what converts its messages.
    """

    def __init__(self, access: Access, topic: TopicAccess, handles: ClientHandles) -> None:
        self.name: str = topic.name
        self.access = topic
        self._shared = access
        self._handles = handles

    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""
        return self.access.facts.partitions

    def append(self, message: Any, *, key: Any = None, headers: HeadersLike = None, id: str | None = None) -> Sent:
        """Send one message and wait until it is acknowledged; see `Client.send`."""
        return self._handles.send(self.access, message, key=key, headers=headers, id=id)

    def append_many(self, messages: Iterable[Any]) -> list[Sent]:
        """
        Send messages together, and wait until all are acknowledged; see `Client.send`. It is no transaction: if it
        raises, some of them may be sent.

        Returns:
            Where they are, in the same order.
        """
        records = [self.access.record(message) for message in messages]
        return self._handles.send_records(self.access, records) if records else []

    def appender(self) -> ClientAppender:
        """Make an appender, which remembers where its last message is."""
        return ClientAppender(self)

    def sent(self, id: str, *, since: SinceOffsets | None = None, timeout_s: float = ASK_S) -> Sent | None:
        """Ask the log for a message that was sent with this id; see `Client.sent`."""
        return self.sent_many([id], since=since, timeout_s=timeout_s).get(id)

    def sent_many(
        self, ids: Iterable[str], *, since: SinceOffsets | None = None, timeout_s: float = ASK_S
    ) -> dict[str, Sent]:
        """
        Ask the log for several ids at once; see `Client.sent`.

        Returns:
            The first message of each id that is there.
        """
        return self._handles.sent(self.access, list(ids), since=since, timeout_s=timeout_s)

    def messages(self, limit: int | None = None, *, last: int | None = None, since: Since | None = None) -> Messages:
        """The committed messages, read while you iterate; see `Client.messages`."""
        return messages_of(self._shared, self.access, limit, last=last, since=since)

    def last_offset(self, partition: int = 0) -> int | None:
        """
        The offset of the newest committed message of a partition; None: there is none.

        Raises:
            ConfigError: there is no such partition.
        """
        places = self.access.places
        if not 0 <= partition < len(places):
            raise ConfigError(f"{self.name!r} has partitions 0 to {len(places) - 1}, not {partition!r}")
        place, broker = places[partition], self._shared.broker
        marks = broker.watermarks([place])[place]
        found = read_newest(broker, {place: (marks.low, marks.stable)}, 1, None, group=self.access.group)
        return found[0].offset() if found else None

    def tailer(
        self,
        partition: int | None = 0,
        *,
        name: str | None = None,
        start: Start = "earliest",
        again: bool = False,
    ) -> ClientTailer:
        """
        Open a tailer. Close it, or use it as a context manager.

        Args:
            partition: what to read; None: all partitions, and then offsets are mappings by partition.
            name: keeps its place on the cluster, for `transaction().advance(tailer)`. Another tailer of this name and
                client, in any process, takes it over: the former one cannot store its place any more.
            start: where to begin without a stored place: `earliest`, `latest`, an offset, or a `datetime` with a
                zone.
            again: begin at `start` although a place is stored.

        Raises:
            ConfigError: there is no such partition or start; or the name is held in this client.
            RecoveryError: what lies at the stored place was deleted, or the topic was recreated.
        """
        return self._handles.tailer(self.access, partition, name, start, again=again)

    def __repr__(self) -> str:
        return f"<ClientTopic {self.name!r}>"


class ClientAppender:
    """
    Appends to a topic, and remembers where.

    Attributes:
        last: where the last message of this appender is; None: it has appended none.
    """

    def __init__(self, topic: ClientTopic) -> None:
        self.topic = topic
        self.last: Sent | None = None

    def append(self, message: Any, *, key: Any = None, headers: HeadersLike = None, id: str | None = None) -> Sent:
        """Send one message and wait until it is acknowledged; see `Client.send`."""
        self.last = self.topic.append(message, key=key, headers=headers, id=id)
        return self.last
