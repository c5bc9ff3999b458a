"""What became of a message: the messages that a graph's tasks made of it, by their provenance headers (O8).

The headers of a task name the messages of its input in their order. So a partition of an output is bisected for the
first message that the task made at or behind the one that is looked for. After a `reset` a task takes messages again,
and the order holds from there on only: then the newest of its runs is found.

What a timer or a replay made later is out of this order, and found only if it stands near. What names no message is not
found: rows of a staged batch, what a state handler held back, and topics with `provenance=False`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cues_kafka.core.delivery import Provenance
from cues_kafka.errors import ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import tools_group
from cues_kafka.graph.topology import Edge, edges
from cues_kafka.operate.look.lineage import error_of
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.facts import TopicFacts
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.records.provenance import provenance_of
from cues_kafka.records.scanning import chunk_from
from cues_kafka.records.strangers import readable
from cues_kafka.words import as_data, count

NEAR: Final = 200
"""Up to this number of offsets are read in one go, which takes no longer than to look for their middle."""


@dataclass(frozen=True, slots=True)
class Effort:
    """
    What a walk may cost.

    Attributes:
        most: messages that are found.
        looks: messages that are looked at for it.
        seconds: how long it takes, about.
    """

    most: int = 1_000
    looks: int = 100_000
    seconds: float = 60.0


@dataclass(slots=True)
class Descendant:
    """
    A message, and those that tasks made of it.

    Attributes:
        topic, partition, offset: its place.
        timestamp_ms: milliseconds since the epoch; None for the message that was asked for.
        key: its key.
        made: its provenance header; None for the message that was asked for.
        error: class and text of the exception, if it is an error message.
        outputs: what was made of it. A message that several steps lead to is there once for each.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None = None
    key: bytes | None = None
    made: Provenance | None = None
    error: str = ""
    outputs: list[Descendant] = field(default_factory=list)

    @property
    def place(self) -> str:
        """Where it is, as the command takes it: ``orders/3@17``."""
        return f"{self.topic}/{self.partition}@{self.offset}"

    def to_dict(self) -> dict[str, Any]:
        """The tree as data for JSON. A message that is there twice has its outputs once: the other has `see_above`."""
        return _to_dict(self, set())


def _to_dict(one: Descendant, seen: set[int]) -> dict[str, Any]:
    data: dict[str, Any] = {"topic": one.topic, "partition": one.partition, "offset": one.offset}
    if one.made is not None:
        data |= {"timestamp_ms": one.timestamp_ms, "task": one.made.task, "sequence": one.made.sequence}
        data |= {"key": None} if one.key is None else as_data("key", one.key)
    if one.error:
        data["error"] = one.error
    if id(one) in seen:
        return data | {"see_above": True}
    seen.add(id(one))
    return data | {"outputs": [_to_dict(output, seen) for output in one.outputs]}


@dataclass(frozen=True, slots=True)
class Descent:
    """
    What was found.

    Attributes:
        root: the message that was asked for.
        count: messages that were found.
        ended: which bound ended the walk, in words, so that more may be there; empty: all was looked at.
    """

    root: Descendant
    count: int
    ended: str


def descendants(
    broker: Broker, graph: Graph, place: TopicPartition, offset: int, effort: Effort | None = None
) -> Descent:
    """
    The tree of the messages that a graph's tasks made of a message.

    Args:
        broker: the cluster.
        graph: whose processors are followed.
        place: topic and partition of the message.
        offset: its offset.
        effort: what it may cost.

    Raises:
        ConfigError: there is no committed message.
        BrokerError: the cluster cannot be read.
    """
    reader = broker.reader(tools_group(graph.name), prompt=True)
    try:
        return _Descent(broker, graph, reader, effort or Effort()).walk(place, offset)
    finally:
        reader.close()


class _Descent:
    """One walk, breadth first, so that a bound cuts off what is farthest away."""

    def __init__(self, broker: Broker, graph: Graph, reader: Reader, effort: Effort) -> None:
        self._broker, self._graph, self._reader, self._effort = broker, graph, reader, effort
        self._left = effort.looks
        self._until_s = time.monotonic() + effort.seconds
        self._ended = ""
        self._edges = edges(graph)
        self._topics: dict[str, TopicFacts] = dict(broker.facts(sorted({one.topic for one in self._edges})).topics)
        self._found: dict[tuple[str, int, int], Descendant] = {}

    def walk(self, place: TopicPartition, offset: int) -> Descent:
        facts = self._topics.get(place.topic) or self._broker.facts([place.topic]).topics.get(place.topic)
        if facts is None or place.partition >= facts.partitions:
            raise ConfigError(f"{place.topic}/{place.partition} does not exist on this cluster.")
        if offset >= self._broker.watermarks([place])[place].stable:
            raise ConfigError(f"{place.topic}/{place.partition}@{offset} is not there: it is behind the end.")
        root = Descendant(place.topic, place.partition, offset)
        self._found[place.topic, place.partition, offset] = root
        due = [root]
        while due and not self._ended:
            due += self._follow(due.pop(0))
        return Descent(root, len(self._found) - 1, self._ended)

    def _follow(self, node: Descendant) -> Iterator[Descendant]:
        """What the readers of a message made of it; gives those that are seen for the first time."""
        for reads in self._edges:
            if reads.role != "input" or reads.topic != node.topic:
                continue
            for writes in self._edges:
                if writes.processor == reads.processor and not writes.reads:
                    for message, made in self._made(node, writes):
                        yield from self._take(node, message, made)

    def _take(self, node: Descendant, message: WireMessage, made: Provenance) -> Iterator[Descendant]:
        at = message.topic(), message.partition(), message.offset()
        known = self._found.get(at)
        if known is None and len(self._found) > self._effort.most:
            self._ended = f"{count(self._effort.most, 'message')} were found"
            return
        new = known or Descendant(*at, message.timestamp()[1], message.key(), made, error_of(message))
        if not any(one is new for one in node.outputs):
            node.outputs.append(new)
        if known is None:
            self._found[at] = new
            yield new

    def _made(self, node: Descendant, writes: Edge) -> Iterator[tuple[WireMessage, Provenance]]:
        """The messages of a topic that a processor made of a message."""
        facts, source = self._topics.get(writes.topic), self._topics.get(node.topic)
        if facts is None or source is None:
            return
        task = f"{self._graph.name}.{writes.processor}/{node.partition}"
        wanted = _Step(task, source.topic_id, node.partition, node.offset)
        places = [TopicPartition(writes.topic, partition) for partition in range(facts.partitions)]
        for place, marks in self._broker.watermarks(places).items():
            start = self._start(place, marks.low, marks.stable, wanted)
            for message, made in self._messages(place, start, marks.stable):
                if wanted.is_of(made):
                    yield message, made
                elif wanted.order_of(made) > node.offset:
                    break

    def _start(self, place: TopicPartition, low: int, high: int, wanted: _Step) -> int:
        """An offset from which on the task's messages are read, with none before it that is looked for."""
        while high - low > NEAR and not self._ended:
            middle = (low + high) // 2
            seen = ((message.offset(), wanted.order_of(made)) for message, made in self._messages(place, middle, high))
            first = next(((here, at) for here, at in seen if at != _NO_ORDER), None)
            if first is not None and first[1] < wanted.offset:
                low = first[0] + 1
            else:
                high = middle
        return low

    def _messages(self, place: TopicPartition, start: int, end: int) -> Iterator[tuple[WireMessage, Provenance]]:
        """Messages with a provenance header in a range, until a bound is reached."""
        while start < end and (chunk := chunk_from(self._broker, self._reader, place, start)):
            for message in chunk:
                if message.offset() >= end or self._over():
                    return
                made = readable(message, provenance_of, "a message with a provenance header")
                if made is not None:
                    yield message, made
            start = chunk[-1].offset() + 1

    def _over(self) -> bool:
        self._left -= 1
        if self._left < 0:
            self._ended = self._ended or f"{count(self._effort.looks, 'message')} were looked at"
        elif time.monotonic() >= self._until_s:
            self._ended = self._ended or f"{self._effort.seconds:g} s are over"
        return bool(self._ended)


_NO_ORDER: Final = -1


class _Step(NamedTuple):
    """What is looked for: messages that a task made of one message."""

    task: str
    topic_id: bytes
    partition: int
    offset: int

    def is_of(self, made: Provenance) -> bool:
        """Whether this header names the message."""
        return made.task == self.task and self.offset in self._offsets(made)

    def order_of(self, made: Provenance) -> int:
        """The last offset that the step took of the partition. `_NO_ORDER`: the step is out of the task's order."""
        if made.task != self.task or made.timer is not None or made.replay is not None:
            return _NO_ORDER
        return max(self._offsets(made), default=_NO_ORDER)

    def _offsets(self, made: Provenance) -> list[int]:
        own = (one for one in made.consumed if one.topic_id == self.topic_id)
        return [one.offset for one in own if one.partition == self.partition]
