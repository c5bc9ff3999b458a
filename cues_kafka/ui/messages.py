"""The newest messages of a topic, decoded as `cues-kafka tail` does, and filtered by key, time and text."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from cues_kafka.brokers.options import Options
from cues_kafka.client.client import Client
from cues_kafka.client.topic import ClientTopic
from cues_kafka.errors import CodecError, ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.times import milliseconds_of, shown_time, time_of
from cues_kafka.operate.shown import TOMBSTONE, key_text, value_text
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.log import UNREADABLE, TopicPartition, WireMessage, headers_of
from cues_kafka.ui.bounds import Bounds, Spent, read_bounded
from cues_kafka.ui.given import partition_of
from cues_kafka.ui.turns import Turns
from cues_kafka.ui.views import LONGEST
from cues_kafka.words import hint, quoted

SHOWN: Final = 100
"""Messages of an answer."""

HEADERS: Final = 20
"""Headers of a message that are shown; the others are counted."""

FIRST: Final = 64
"""Offsets of the first look into a partition, from its end backward. The looks before it grow."""

GROWS: Final = 4
WIDEST: Final = 4_096


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """
    Which messages of a topic are looked for.

    Attributes:
        topic: its name.
        partition: None: all.
        key: the whole key as text; empty: any.
        text: what the value as text has in it, in small or capital letters; empty: any.
        since_ms, until_ms: from this time, and before that one; None: any.
    """

    topic: str
    partition: int | None = None
    key: str = ""
    text: str = ""
    since_ms: int | None = None
    until_ms: int | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> MessageFilter:
        """
        Read the arguments of a request.

        Raises:
            ConfigError: the partition is not a number, or a time cannot be read.
        """
        return cls(
            given.get("topic", ""),
            partition_of(given),
            given.get("key", ""),
            given.get("text", "").lower(),
            _moment(given, "since"),
            _moment(given, "until"),
        )

    def takes_time(self, timestamp_ms: int) -> bool:
        """Whether a message is of this time: those of a partition need not be in the order of their times."""
        since, until = self.since_ms, self.until_ms
        return (since is None or timestamp_ms >= since) and (until is None or timestamp_ms < until)


def _moment(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name, "")
    if not text:
        return None
    when = time_of(text)
    if when is None:
        raise ConfigError(f"{name} {text!r:.80}: give a time such as 2026-11-25T10:00Z.")
    return milliseconds_of(when, f"{name} ")


@dataclass(frozen=True, slots=True)
class MessageRow:
    """
    A message as a page shows it.

    Attributes:
        place: as `cues-kafka lineage` takes it.
        timestamp_ms, time: when, as a number and as text.
        key: as text; None: it has none.
        value: as text; where it cannot be decoded, its bytes.
        why: why it cannot be decoded; empty: it is.
        headers: the first of them.
        more: how many headers there are besides.
        size: bytes of key and value.
    """

    place: str
    timestamp_ms: int
    time: str
    key: str | None
    value: str
    why: str
    headers: tuple[tuple[str, str], ...]
    more: int
    size: int


class MessageAnswers:
    """
    Answers about messages, one at a time. Only the topics of the graph are read.

    Args:
        graph: whose codecs it uses.
        broker: where.
        cluster: its settings, for codecs with a registry.
        bounds: what one answer may cost.
    """

    def __init__(self, graph: Graph, broker: Broker, cluster: Options, bounds: Bounds | None = None) -> None:
        self._graph, self._broker, self._cluster = graph, broker, cluster
        self._bounds = bounds or Bounds()
        self._turns = Turns()

    def topics(self) -> dict[str, Any]:
        """The topics that can be read, and the bounds."""
        return {"topics": list(self._graph.topics_used()), "shown": SHOWN, "bounds": str(self._bounds)}

    def newest(self, given: Mapping[str, str]) -> dict[str, Any]:
        """
        The newest messages that fit, the newest first.

        Raises:
            ConfigError: the graph has no such topic, or a filter is wrong.
            BrokerError: the cluster does not answer.
            TooMany: others ask as well.
        """
        wanted = MessageFilter.of(given)
        if wanted.topic not in self._graph.topics_used():
            known = self._graph.topics_used()
            raise ConfigError(
                f"graph {self._graph.name!r} has no topic {wanted.topic!r:.300}{hint(wanted.topic[:300], known)}. "
                f"It has {quoted(known)}."
            )
        with self._turns, closing(Client(self._broker, self._graph, cluster=self._cluster)) as client:
            spent = Spent(self._bounds)
            search = BackwardSearch(client.topic(wanted.topic), wanted, self._broker, spent)
            rows = search.run()
        return {"rows": rows, **spent.said(), "whole": search.whole}


class BackwardSearch:
    """
    One look through a topic, backward from its end: each partition in parts that grow, in turns.

    Attributes:
        whole: whether all messages that may fit were looked at, or as many as are shown were found in each partition.
    """

    def __init__(self, topic: ClientTopic, wanted: MessageFilter, broker: Broker, spent: Spent) -> None:
        self._topic, self._wanted, self._broker, self._spent = topic, wanted, broker, spent
        self.whole = False

    def run(self) -> list[MessageRow]:
        found: list[MessageRow] = []
        counts: Counter[TopicPartition] = Counter()
        left = self._ranges()
        width = FIRST
        with closing(self._broker.reader(self._topic.access.group, prompt=True)) as reader:
            while left and not self._spent.over:
                for place, (low, end) in [*left.items()]:
                    start = max(low, end - min(width, self._spent.room))
                    rows = self._part(reader, place, start, end)
                    found = _newest(found, rows)
                    counts[place] += len(rows)
                    if self._spent.over:
                        break
                    if start == low or counts[place] >= SHOWN:
                        del left[place]
                    else:
                        left[place] = low, start
                width = min(width * GROWS, WIDEST)
        self.whole = not left
        return found

    def _ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        wanted = self._wanted
        ranges = dict(self._topic.access.ranges(wanted.since_ms))
        if wanted.partition is not None:
            if wanted.partition >= self._topic.partitions:
                raise ConfigError(f"{wanted.topic!r} has partitions 0 to {self._topic.partitions - 1}.")
            ranges = {place: span for place, span in ranges.items() if place.partition == wanted.partition}
        if wanted.until_ms is None or not ranges:
            return ranges
        ends = self._broker.offsets_at(dict.fromkeys(ranges, wanted.until_ms))
        cut = {p: (start, end if (at := ends[p]) is None else min(at, end)) for p, (start, end) in ranges.items()}
        return {place: (start, end) for place, (start, end) in cut.items() if start < end}

    def _part(self, reader: Reader, place: TopicPartition, start: int, end: int) -> list[MessageRow]:
        """The newest rows of a part; of more, the oldest are let go, so that it holds few of them."""
        found: list[MessageRow] = []
        for message in read_bounded(reader, place, start, end, self._spent):
            if (row := self._row(message)) is not None:
                found.append(row)
                if len(found) >= 2 * SHOWN:
                    del found[:SHOWN]
        return found[-SHOWN:]

    def _row(self, message: WireMessage) -> MessageRow | None:
        """A message for the page; None: it is not looked for."""
        wanted, key, timestamp_ms = self._wanted, message.key(), message.timestamp()[1]
        if not wanted.takes_time(timestamp_ms) or (wanted.key and (key is None or key_text(key) != wanted.key)):
            return None
        headers, more = shown_headers(message)  # before a codec reads them
        data, why = message.value(), ""
        try:
            value = value_text(self._topic.access.received(message))
        except CodecError as error:
            value, why = TOMBSTONE if data is None else data.decode(errors="backslashreplace"), str(error)
        if wanted.text and wanted.text not in value.lower():
            return None
        return MessageRow(
            place=f"{message.topic()}/{message.partition()}@{message.offset()}",
            timestamp_ms=timestamp_ms,
            time=shown_time(timestamp_ms, fine=True),
            key=None if key is None else key_text(key),
            value=value,
            why=why,
            headers=headers,
            more=more,
            size=len(key or b"") + len(data or b""),
        )


def _newest(found: list[MessageRow], more: list[MessageRow]) -> list[MessageRow]:
    """Those that are shown: whatever a topic holds, no more than these are kept."""
    return heapq.nlargest(SHOWN, found + more, key=lambda row: (row.timestamp_ms, int(row.place.rpartition("@")[2])))


def shown_headers(message: WireMessage) -> tuple[tuple[tuple[str, str], ...], int]:
    """The first headers of a message as text, and how many more there are."""
    found = headers_of(message)
    if found is UNREADABLE:
        return (("(not readable)", "the name of a header is not UTF-8"),), 0
    pairs = found or []
    first = tuple((_header(name.encode()), _header(value)) for name, value in pairs[:HEADERS])
    return first, len(pairs) - len(first)


def _header(value: bytes | None) -> str:
    """
    A name or a value as text. The bounds of a search count keys and values only, because to read all headers takes
    long. So a long one is cut here, before it is kept.
    """
    if value is None:
        return "null"
    if len(value) <= LONGEST:
        return value.decode(errors="backslashreplace")
    text = value[:LONGEST].decode(errors="backslashreplace")
    return f"{text[: LONGEST - 100]} ... (as a whole {len(value):,} bytes)"
