"""The messages of topics as a client sees them: the codecs, limits and places of each topic, asked for once."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.brokers.partitioners import place_of
from cues_kafka.codecs.lookup import MadeFor
from cues_kafka.errors import CodecError, ConfigError, OutputError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.message import HeaderValue, Message, header_list, with_travelling
from cues_kafka.graph.names import check_written_topic, tools_group
from cues_kafka.graph.times import milliseconds_of
from cues_kafka.graph.topic import Topic
from cues_kafka.observe.spans import current_trace
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import NewTopic, TopicFacts
from cues_kafka.ports.log import Outgoing, TopicPartition, WireMessage
from cues_kafka.records.scanning import Ranges, ranges_of
from cues_kafka.task.calling.decoding import Decoder
from cues_kafka.task.calling.outputs import Target, payload
from cues_kafka.task.calling.step import Received
from cues_kafka.task.making.build import decoder, target_of
from cues_kafka.words import hint, quoted

Since: TypeAlias = datetime | timedelta | int
"""A time, a time span before now, or milliseconds since the epoch."""

HeadersLike: TypeAlias = "Mapping[str, HeaderValue] | None"

ID_HEADER: Final = "cues-id"
"""The header of the id that `send` and `append` take."""

FRESH_S: Final = 60.0
"""How long the facts of a topic are believed: then its partitions are asked for again, because some may be new."""


class Access:
    """What all parts of a client share: the cluster, the graph whose codecs it uses, and the time."""

    def __init__(self, broker: Broker, graph: Graph | None, cluster: Any, clock: Clock) -> None:
        self.broker = broker
        self.graph = graph
        self.cluster = cluster
        self.clock = clock
        self._topics: dict[str, TopicAccess] = {}

    def topic(self, name: str, settings: Topic | None = None) -> TopicAccess:
        """A topic with these settings; None: with those of the graph."""
        if settings is not None:
            return TopicAccess(self, name, settings.over(self.graph.defaults if self.graph else Topic()))
        if name not in self._topics:
            declared = self.graph.topic(name) if self.graph else Topic()
            self._topics[name] = TopicAccess(self, name, declared)
        return self._topics[name]

    def group(self, topic: str) -> str:
        """The group that the client names when it reads a topic."""
        return tools_group(self.graph.name if self.graph else topic)

    def milliseconds(self, since: Since) -> int:
        """
        A time in milliseconds since the epoch.

        Raises:
            ConfigError: it has no zone.
        """
        if isinstance(since, timedelta):
            return int((self.clock.time() - since.total_seconds()) * 1000)
        return milliseconds_of(since, "") if isinstance(since, datetime) else since


class TopicAccess:
    """
    One topic: converts its messages, and knows its places. Threads may share it.

    Attributes:
        name: the topic's name.
        settings: its settings, with the codecs.
    """

    def __init__(self, access: Access, name: str, settings: Topic) -> None:
        self.name = name
        self._access = access
        self.settings = settings
        self._facts: TopicFacts | None = None
        self._fresh_until_s = 0.0
        self._target: Target | None = None
        self._decoder: Decoder | None = None
        self._place = place_of(settings.partitioner)  # None: only its other writers know the rule
        self._by_another_rule = self._place is not partition_for  # than the client's
        self._keyless = random.randrange(1 << 16)  # noqa: S311 - spreads messages without a key over partitions

    @property
    def cluster(self) -> Any:
        """The options of the cluster, which has the registry of codecs."""
        return self._access.cluster

    @property
    def facts(self) -> TopicFacts:
        """
        What the cluster says of the topic.

        Raises:
            ConfigError: it does not exist.
        """
        now_s = self._access.clock.monotonic()
        if self._facts is None or now_s >= self._fresh_until_s:
            found = self._access.broker.facts([self.name]).topics.get(self.name)
            if found is None:
                raise ConfigError(self._missing())
            if found != self._facts:
                self._target = None
            self._facts, self._fresh_until_s = found, now_s + FRESH_S
        return self._facts

    def _missing(self) -> str:
        graph, create = self._access.graph, f"client.topic({self.name!r}, create=True) creates it."
        names = sorted(graph.topics_used()) if graph else []
        if graph and self.name not in names:
            near = hint(self.name, names)
            return (
                f"topic {self.name!r} does not exist, and graph {graph.name!r} does not use it{near}. "
                f"The graph's topics are {quoted(names)}. For another topic, {create}"
            )
        return (
            f"topic {self.name!r} does not exist. If a graph declares it, start the graph, or write "
            f"cues-kafka plan MODULE:GRAPH --apply. Otherwise, {create}"
        )

    def refresh(self) -> None:
        """Ask the cluster again at the next use: it may be another topic of this name, or have more partitions."""
        self._fresh_until_s = 0.0

    def create(self) -> None:
        """
        Create the topic if it does not exist.

        Raises:
            GraphError: only the framework writes topics of this name.
        """
        broker, settings = self._access.broker, self.settings
        check_written_topic(self.name, "topic(..., create=True)")
        if not broker.partitions([self.name]):
            broker.create([NewTopic(self.name, settings.partitions, config=settings.config)])

    @property
    def target(self) -> Target:
        """What encodes its messages."""
        facts, target = self.facts, self._target
        if target is None:
            access = self._access
            made = target_of(self.settings, facts, self.name, access.broker.max_bytes, access.cluster)
            target = self._target = replace(made, provenance=False)
        return target

    @property
    def places(self) -> list[TopicPartition]:
        """The partitions of the topic."""
        return [TopicPartition(self.name, partition) for partition in range(self.facts.partitions)]

    def record(
        self, message: Any, *, key: Any = None, headers: HeadersLike = None, id: str | None = None, placed: bool = False
    ) -> Outgoing:
        """
        Encode a message. It belongs to the trace of the program's current span, unless it has headers of its own.

        Args:
            message: a value for the codec, or a `Message`.
            key: overrides the key of the message and the topic's `key=` field.
            headers: override those of the message.
            id: goes into the header `cues-id`.
            placed: choose the partition here, as the client would: by the key, and without one in turns.

        Raises:
            OutputError, CodecError: the message does not fit the topic, or nothing says where its key belongs.
        """
        made = message if isinstance(message, Message) else Message(message)
        own = made.headers if headers is None else headers
        if id is not None:
            _check_id(id)
            own = [*((name, value) for name, value in _pairs(own) if name != ID_HEADER), (ID_HEADER, id)]
        if trace := current_trace():
            own = with_travelling(header_list(own), trace)
        if key is not None or headers is not None or id is not None or trace:
            made = Message(
                made.value,
                key=made.key if key is None else key,
                headers=own,
                timestamp_ms=made.timestamp_ms,
                partition=made.partition,
            )
        _, key, data, encoded, timestamp_ms, partition = payload(self.target, made, None)
        record = Outgoing(self.name, partition, key, data, encoded or None, timestamp_ms or 0)
        return self.place(record) if placed or self._by_another_rule else record

    def place(self, record: Outgoing) -> Outgoing:
        """
        A record with a partition, so that its place in the log is known before it is written.

        Raises:
            OutputError: the topic has a rule of its writers' own (`custom`), which may put the key elsewhere.
        """
        if record.partition is not None:
            return record
        count = self.facts.partitions
        if record.key is not None:
            if self._place is None and count > 1:
                raise OutputError(
                    f"{self.name!r} is declared with partitioner='custom', so only its writers know which of its "
                    f"{count} partitions has a key, and a key in two partitions has two entries in a store. Give the "
                    "message its partition: Message(value, key=..., partition=...)"
                )
            return record._replace(partition=self._place(record.key, count) if self._place else 0)
        self._keyless += 1
        return record._replace(partition=self._keyless % count)

    def received(self, message: WireMessage) -> Received:
        """
        Decode a message.

        Raises:
            CodecError: it does not fit the codec. The text names partition and offset.
        """
        try:
            return self._reads.received(message)
        except CodecError as error:
            place = f"{message.topic()}/{message.partition()} at offset {message.offset()}"
            raise CodecError(f"{place} cannot be decoded: {error}", remedy=error.remedy) from error

    def decoded(self, data: bytes) -> Any:
        """
        Decode the bytes of a value.

        Raises:
            CodecError: they do not fit the codec.
        """
        return self._reads.decode(data)

    @property
    def _reads(self) -> Decoder:
        if self._decoder is None:
            self._decoder = decoder(self.settings, MadeFor(self.name, self._access.cluster))
        return self._decoder

    def ranges(self, since: Since | None = None) -> Ranges:
        """The offsets of each partition that may have messages committed by now, and not older than a time."""
        broker = self._access.broker
        ranges = ranges_of(broker, self.name, self.facts.partitions, self._access.clock)
        if since is None:
            return ranges
        firsts = broker.offsets_at(dict.fromkeys(ranges, self._access.milliseconds(since)))
        return {
            place: (max(start, first), end)
            for place, (start, end) in ranges.items()
            if (first := firsts[place]) is not None and first < end
        }

    @property
    def group(self) -> str:
        """The group that readers of the topic name."""
        return self._access.group(self.name)


def _pairs(headers: Mapping[str, HeaderValue] | Sequence[tuple[str, HeaderValue]]) -> Iterable[tuple[str, HeaderValue]]:
    return headers.items() if isinstance(headers, Mapping) else headers


def _check_id(id: str) -> None:
    if not isinstance(id, str) or not id:
        raise ConfigError(f"id={id!r}: an id is text, and not empty. Give each message one of its own")
