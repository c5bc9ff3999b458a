"""Sends messages to topics and reads them, for applications."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Self, TypeAlias

from cues_kafka.codecs.lookup import MadeFor
from cues_kafka.errors import ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.message import Message
from cues_kafka.graph.names import backing_topic, changelog_topic, sender_id, tools_group
from cues_kafka.graph.topic import Topic
from cues_kafka.ports import Broker, Sender, Sent, Session, WireMessage
from cues_kafka.records.scanning import Ranges, ranges_of, read_newest, read_since
from cues_kafka.runtime.build import decoder, limits_of, store_spec, target_of
from cues_kafka.runtime.calling.caller import Decoder
from cues_kafka.runtime.calling.outputs import Target, payload
from cues_kafka.runtime.calling.step import Received
from cues_kafka.runtime.queries import processor_with
from cues_kafka.runtime.specs import Identity
from cues_kafka.runtime.store_view import MAX_BYTES, StoreView, ViewPlace
from cues_kafka.runtime.task.clock import SystemClock

INIT_TIMEOUT_S = 30.0

Since: TypeAlias = datetime | timedelta | int
"""A time, a time span before now, or milliseconds since the epoch."""


class Client:
    """Sends to topics and reads them with the codecs of a graph. Use it as a context manager, or close it."""

    def __init__(
        self,
        broker: Broker,
        graph: Graph | None = None,
        *,
        name: str | None = None,
        cluster: Any = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._broker = broker
        self._cluster = cluster
        self._now = now
        self._graph = graph
        self._identity = Identity.of_process("client", name)
        self._client = f"{self._identity.name}-{self._identity.incarnation[:8]}"  # two clients never fence each other
        self._senders: dict[int | None, Sender] = {}  # by the size of their batches, nearly always one
        self._sessions: dict[str, Session] = {}
        self._targets: dict[str, Target] = {}
        self._decoders: dict[str, Decoder] = {}
        self._tables: list[StoreView] = []
        self._lock = threading.Lock()

    def send(
        self,
        topic: Any,
        message: Any = ...,
        *,
        key: Any = None,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> Sent:
        """
        Send one message and wait until it is acknowledged. Retries of the client do not duplicate it.

        Args:
            topic: the topic. Leave it out to send to the graph's default source.
            message: a value for the topic's codec, or a `Message`.
            key: overrides the topic's `key=` field.
            headers: headers of the message.

        Raises:
            ConfigError: no topic is given, or it does not exist.
            OutputError, CodecError: the message does not fit the topic.
            BrokerError: the message was not acknowledged.
        """
        if message is ...:
            topic, message = self._default_source(), topic
        [sent] = self._send(topic, [self._record(topic, message, key, headers)])
        return sent

    def send_many(self, topic: str, messages: Iterable[Any]) -> int:
        """
        Send messages in one transaction: readers see all of them or none.

        Returns:
            How many were sent.
        """
        records = [self._record(topic, message, None, None) for message in messages]
        session = self._sessions.get(topic) or self._open_session(topic)
        self._sessions.pop(topic, None)
        try:
            session.begin()
            count = session.produce(records)
            session.flush()
            suspect = session.commit()
        except BaseException:
            session.abandon()
            raise
        if suspect:
            session.abandon()
        else:
            self._sessions[topic] = session
        return count

    def messages(
        self, topic: str, limit: int = 1000, *, last: int | None = None, since: Since | None = None
    ) -> list[Received]:
        """
        Read the first committed messages of a topic, or the last ones. The values of error messages are `ErrorMessage`.

        Args:
            topic: the topic.
            limit: how many messages to return at most, from the beginning; ignored with `last`.
            last: how many of the newest messages to return. With several partitions the timestamps decide.
            since: only messages whose timestamp is at or past this time: a `datetime` (without a time zone: local
                time), a `timedelta` before now, or milliseconds since the epoch.

        Returns:
            The messages partition by partition, each in the order of its log.

        Raises:
            ConfigError: the topic does not exist, or `last` is negative.
        """
        if last is not None and last < 0:
            raise ConfigError(f"messages({topic!r}, last={last}): give 0 or more")
        since_ms = None if since is None else self._milliseconds(since)
        ranges = self._ranges(topic, since_ms)
        if last is None:
            found: Iterable[WireMessage] = islice(
                read_since(self._broker, ranges, since_ms, group=self._group(topic)), limit
            )
        else:
            found = read_newest(self._broker, ranges, last, since_ms, group=self._group(topic))
        return [self._received(topic, message) for message in found]

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
        for sender in self._senders.values():
            sender.close()
        for session in self._sessions.values():
            session.close()
        self._senders, self._sessions = {}, {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_session(self, topic: str) -> Session:
        graph = self._graph.name if self._graph else None
        session = self._broker.session(
            sender_id(graph, topic, self._client), batch_bytes=self._target(topic).batch_bytes
        )
        session.init(timeout_s=INIT_TIMEOUT_S)
        return session

    def _send(self, topic: str, records: list[tuple[Any, ...]]) -> list[Sent]:
        most = self._target(topic).batch_bytes
        with self._lock:  # threads of an application share the client
            if most not in self._senders:
                self._senders[most] = self._broker.sender(self._identity.name, batch_bytes=most)
        return self._senders[most].send(records)

    def _default_source(self) -> str:
        source = self._graph.default_source if self._graph else None
        if source is None:
            raise ConfigError(
                "send(message) needs a default source: name the topic, or declare Source(..., default=True)"
            )
        return source.topic

    def _topic(self, topic: str) -> Topic:
        return self._graph.topic(topic) if self._graph else Topic()

    def _record(self, topic: str, message: Any, key: Any, headers: Any) -> tuple[Any, ...]:
        if key is not None or headers is not None:
            made = message if isinstance(message, Message) else Message(message)
            message = Message(
                made.value,
                key=made.key if key is None else key,
                headers=made.headers if headers is None else headers,
                timestamp_ms=made.timestamp_ms,
                partition=made.partition,
            )
        _, key, data, own, timestamp, partition = payload(self._target(topic), message, None)
        return topic, partition, key, data, own or None, timestamp or 0

    def _target(self, topic: str) -> Target:
        if topic not in self._targets:
            found = self._broker.facts([topic]).topics.get(topic)
            if found is None:
                raise ConfigError(f"topic {topic!r} does not exist; create it, or start the graph that declares it")
            target = target_of(self._topic(topic), found, topic, self._broker.max_bytes, self._cluster)
            self._targets[topic] = replace(target, provenance=False)
        return self._targets[topic]

    def _received(self, topic: str, message: WireMessage) -> Received:
        if topic not in self._decoders:
            self._decoders[topic] = decoder(self._topic(topic), MadeFor(topic, self._cluster))
        return self._decoders[topic].received(message)

    def committed(self, topic: str) -> Iterator[WireMessage]:
        """The committed messages of a topic as bytes, partition by partition."""
        yield from read_since(self._broker, self._ranges(topic, None), None, group=self._group(topic))

    def _ranges(self, topic: str, since_ms: int | None) -> Ranges:
        """The offsets of each partition that may have committed messages since this time."""
        found = self._broker.facts([topic]).topics.get(topic)
        if found is None:
            raise ConfigError(f"topic {topic!r} does not exist")
        ranges = ranges_of(self._broker, topic, found.partitions)
        if since_ms is None:
            return ranges
        firsts = self._broker.offsets_at(dict.fromkeys(ranges, since_ms))
        return {
            place: (max(start, first), end)
            for place, (start, end) in ranges.items()
            if (first := firsts[place]) is not None and first < end
        }

    def _milliseconds(self, since: Since) -> int:
        if isinstance(since, timedelta):
            return int((self._now() - since.total_seconds()) * 1000)
        return int(since.timestamp() * 1000) if isinstance(since, datetime) else since

    def _group(self, topic: str) -> str:
        """The group that the client names when it reads a topic."""
        return tools_group(self._graph.name if self._graph else topic)
