"""Sends messages to topics and reads them, for applications."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self, overload

from cues_kafka.client.access import Access, HeadersLike, Since
from cues_kafka.client.asking import ASK_S, SinceOffsets
from cues_kafka.client.handles import ClientHandles
from cues_kafka.client.messages import Messages, messages_of
from cues_kafka.client.queries import processor_with
from cues_kafka.client.store_reading import ViewPlace
from cues_kafka.client.store_view import MAX_BYTES, StoreView
from cues_kafka.client.topic import ClientTopic
from cues_kafka.client.transaction import ClientTransaction
from cues_kafka.errors import ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, changelog_topic, tools_group
from cues_kafka.graph.topic import Topic
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Sent, WireMessage
from cues_kafka.records.scanning import read_since
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.build import limits_of, store_spec
from cues_kafka.task.making.specs import Identity

__all__ = ["Client", "Since"]


class Client:
    """Sends to topics and reads them with the codecs of a graph. Use it as a context manager, or close it."""

    def __init__(
        self,
        broker: Broker,
        graph: Graph | None = None,
        *,
        name: str | None = None,
        stable: bool = False,
        cluster: Any = None,
        clock: Clock | None = None,
    ) -> None:
        """`stable`: another run has the same name, so the name alone goes into names on the cluster."""
        self._broker = broker
        self._cluster = cluster
        self._graph = graph
        identity = Identity.of_process("client", name)
        self._access = Access(broker, graph, cluster, clock or SystemClock())
        # Without a stable name, two clients never fence each other.
        own = identity.name if stable else f"{identity.name}-{identity.incarnation[:8]}"
        self._handles = ClientHandles(self._access, own, stable=stable)
        self._tables: list[StoreView] = []

    def send(
        self,
        topic: Any,
        message: Any = ...,
        *,
        key: Any = None,
        headers: HeadersLike = None,
        id: str | None = None,
    ) -> Sent:
        """
        Send one message and wait until it is acknowledged. Retries of the client do not duplicate it.

        With `id=`, the send is a transaction: when this returns the message is committed, and when it raises a
        `BrokerError` the message is not, and never will be.

        Args:
            topic: the topic. Leave it out to send to the graph's default source.
            message: a value for the topic's codec, or a `Message`.
            key: overrides the topic's `key=` field.
            headers: headers of the message.
            id: names the message in its header `cues-id`, for `sent`.

        Raises:
            ConfigError: no topic is given, or it does not exist.
            OutputError, CodecError: the message does not fit the topic.
            BrokerError: the message was not acknowledged.
            Unknown: with `id=`: whether it was sent cannot be told, because the cluster does not answer.
        """
        if message is ...:
            topic, message = self._default_source(), topic
        return self._handles.send(self._access.topic(topic), message, key=key, headers=headers, id=id)

    def sent(self, topic: str, id: str, *, since: SinceOffsets | None = None, timeout_s: float = ASK_S) -> Sent | None:
        """
        Ask the log for the message that was sent with this id, by this client or by an earlier run of it.

        The answer is final: None means that the message is not there, and that no earlier send will still write it.

        Args:
            topic: the topic.
            id: what `send` was given.
            since: where to begin, at or before the first try: a time, as for `messages`, or offsets by partition. A
                time counts by the messages' timestamps. None: the beginning.
            timeout_s: how long to wait for open transactions of other programs.

        Returns:
            The first message with this id; None: there is none.

        Raises:
            ConfigError: the client has no name, or the topic does not exist.
            Unknown: the message may have been there: the topic is compacted, or its log begins behind `since`; or a
                transaction of another program is open for too long.
        """
        return self._handles.sent(self._access.topic(topic), [id], since=since, timeout_s=timeout_s).get(id)

    def send_many(self, topic: str, messages: Iterable[Any]) -> int:
        """
        Send messages in one transaction: readers see all of them or none.

        Returns:
            How many were sent.

        Raises:
            BrokerError: none of them is sent.
            ConfigError: the graph says that each message of this topic is sent with an id.
            Unknown: whether they are sent cannot be told, because the cluster does not answer.
        """
        count = 0
        self._handles.check_unnamed(self._access.topic(topic))
        with self.transaction() as transaction:
            for message in messages:
                transaction.append(topic, message)
                count += 1
        return count

    def transaction(self) -> ClientTransaction:
        """Begin a transaction by hand: messages to any topics, and the place of a named tailer, all or nothing."""
        return ClientTransaction(self._access, self._handles.writer)

    def topic(self, topic: str, settings: Topic | None = None, *, create: bool = False) -> ClientTopic:
        """
        A topic as an object.

        Args:
            topic: the topic's name.
            settings: its codecs and key, such as `Topic(value=Json(Order))`; None: those of the graph, without one
                JSON.
            create: create the topic if it does not exist, with the partitions and the `config=` of the settings.

        Raises:
            ConfigError: the topic does not exist.
            GraphError: `create`, and it cannot have this name.
        """
        access = self._access.topic(topic, settings)
        if create:
            access.create()
        assert access.facts
        return ClientTopic(self._access, access, self._handles)

    @overload
    def messages(
        self, topic: str, limit: int | None = None, *, last: int | None = None, since: Since | None = None
    ) -> Messages: ...

    @overload
    def messages(
        self, topic: None = None, limit: int | None = None, *, last: int | None = None, since: Since | None = None
    ) -> dict[str, Messages]: ...

    def messages(
        self, topic: str | None = None, limit: int | None = None, *, last: int | None = None, since: Since | None = None
    ) -> Messages | dict[str, Messages]:
        """
        Read the committed messages of a topic, up to its end now. The values of error messages are `ErrorMessage`.

        They are read while you iterate over the result, so a topic may be larger than the memory. What was committed
        before the call is there: it waits up to 1 s for the markers of commits, or for transactions that are open.

        Args:
            topic: the topic; None: all topics of the graph, each by its name.
            limit: how many messages to return at most, from the beginning; ignored with `last`.
            last: how many of the newest messages to return. With several partitions the timestamps decide.
            since: only messages whose timestamp is at or past this time: a `datetime` with a
                zone, a `timedelta` before now, or milliseconds since the epoch.

        Returns:
            The messages partition by partition, each in the order of its log.

        Raises:
            ConfigError: the topic does not exist, a number is negative, or a time has no zone; or no topic is given,
                and there is no graph.
        """
        if topic is not None:
            return messages_of(self._access, self._access.topic(topic), limit, last=last, since=since)
        return {name: self.messages(name, limit, last=last, since=since) for name in self.topics}

    @property
    def topics(self) -> tuple[str, ...]:
        """
        The topics of the graph, sorted.

        Raises:
            ConfigError: there is no graph.
        """
        if self._graph is None:
            raise ConfigError("messages() reads all topics of a graph: name a topic, or write connect(options, graph)")
        return self._graph.topics_used()

    def table(
        self,
        processor: str,
        store: str,
        *,
        partition: int | None = None,
        timeout_s: float = 60.0,
        max_bytes: int = MAX_BYTES,
    ) -> StoreView:
        """
        Follow a store of a processor that runs anywhere, as a read-only mapping. It closes with the client.

        All its entries are held in memory, also those of a store that the workers keep on the disk.

        Args:
            processor: its name.
            store: the store's name.
            partition: the entries of this task only; None: of all tasks.
            timeout_s: how long to wait until the view has what is committed now.
            max_bytes: memory that the entries may take, about. A view that needs more raises ConfigError at each look.

        Raises:
            ConfigError: the graph has no such store or partition, was never started on this cluster, or the entries
                need more memory.
            BrokerError: the changelog cannot be read.
            TimeoutError: it was not read to its end in time.
        """
        if self._graph is None:
            raise ConfigError("table(...) reads a store with the codecs of its graph: write connect(options, graph)")
        declared = processor_with(self._graph, processor, store)
        changelog, backing = (
            changelog_topic(self._graph.name, processor, store),
            backing_topic(self._graph.name, processor),
        )
        found = self._broker.facts([changelog]).topics.get(changelog)
        if found is None:
            raise ConfigError(f"topic {changelog!r} does not exist; start the graph {self._graph.name!r} first")
        if partition is not None and not 0 <= partition < found.partitions:
            raise ConfigError(
                f"table(partition={partition!r}): {changelog!r} has partitions 0 to {found.partitions - 1}"
            )
        most = limits_of(found, self._broker.max_bytes)["max_bytes"]
        view = StoreView(
            self._broker,
            store_spec(store, declared.state[store], changelog, most, self._cluster),
            ViewPlace(
                processor,
                backing,
                tuple(declared.input_topics),
                partition,
                tools_group(self._graph.name),
            ),
            SystemClock(),
            max_bytes=max_bytes,
        )
        self._tables.append(view)
        return view.open(timeout_s)

    def close(self) -> None:
        """Release the clients, and close the tables."""
        for view in self._tables:
            view.close()
        self._tables = []
        self._handles.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def committed(self, topic: str) -> Iterator[WireMessage]:
        """The committed messages of a topic as bytes, partition by partition."""
        access = self._access.topic(topic)
        yield from read_since(self._broker, access.ranges(), None, group=access.group)

    def _default_source(self) -> str:
        source = self._graph.default_source if self._graph else None
        if source is None:
            raise ConfigError(
                "send(message) needs a default source: name the topic, or declare Source(..., default=True)"
            )
        return source.topic
