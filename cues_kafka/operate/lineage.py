"""Where a message comes from: its ancestors by their provenance headers (O8), back to the sources.

A header names the messages of its step by topic id, partition and offset. So the walk needs no graph, and it finds a
topic again only while it is the same topic. What names no message is looked up in the backing topic of its task: rows
of a staged batch, of a feed, and what a state handler held back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cues_kafka.codecs.error_messages import error_messages, known_headers
from cues_kafka.core.delivery import HEADER, Provenance, parse_provenance, show_topic_id
from cues_kafka.core.records import KEY, Record, Snapshot
from cues_kafka.errors import CodecError, ConfigError
from cues_kafka.graph.names import backing_topic, tools_group
from cues_kafka.ports import UNREADABLE, Broker, Reader, TopicFacts, TopicPartition, WireMessage, headers_of
from cues_kafka.records.reading import offsets_of, read_record
from cues_kafka.records.scanning import first_from

MOST: Final = 1_000
"""Messages that are looked at, unless it is said otherwise."""

PRESENT: Final = "present"
SENT: Final = "sent"
TRIMMED: Final = "trimmed"
COMPACTED: Final = "compacted"
RECREATED: Final = "recreated"
UNFOLLOWED: Final = "not followed"
"""What is known of an ancestor, see `Ancestor.state`."""


class MessageId(NamedTuple):
    """A message, by the id of its topic."""

    topic_id: bytes
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class BatchOrigin:
    """
    What names no message: rows of a staged batch or of a feed, and what a state handler held back.

    Attributes:
        kind: `staged`, `feed`, `held back`; or `unknown`, where the task's records do not tell.
        ranges: by topic and partition, what the batch took of its inputs, as [start, end); empty where the task's
            records no longer tell.
        place: where the task stood behind the batch: of a feed the place in its source, of a state handler what its
            task had read.
        spark: query and batch of Spark.
    """

    kind: str
    ranges: Mapping[str, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    place: str = ""
    spark: str = ""


@dataclass(slots=True)
class Ancestor:
    """
    A message, and those that its step consumed.

    Attributes:
        topic: its topic; empty: there is no topic with this id any more.
        topic_id: as Kafka's tools print it.
        partition, offset: its place.
        state: `present`: a task wrote it. `sent`: it is there without a provenance header, so it came from outside, or
            its topic has `provenance=False`. `trimmed`: it was deleted from the beginning of its partition.
            `compacted`: it is gone between others. `recreated`: its topic was deleted since. `not followed`: the walk
            ended before it.
        timestamp_ms: milliseconds since the epoch; None: it is gone.
        key: its key.
        made: the provenance header; None: it has none, or is gone.
        error: class and text of the exception, if it is an error message.
        replay_of: where the error message stands whose replay gave it; empty: none did.
        batch: what its header says in the place of messages; None: it names messages.
        inputs: the messages that its step consumed, by binding. Of a timer's step those whose step set the timer.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int
    state: str
    timestamp_ms: int | None = None
    key: bytes | None = None
    made: Provenance | None = None
    error: str = ""
    replay_of: str = ""
    batch: BatchOrigin | None = None
    inputs: list[tuple[str, Ancestor]] = field(default_factory=list)

    @property
    def place(self) -> str:
        """Where it is, as the command takes it: ``orders/3@17``."""
        return f"{self.topic or self.topic_id}/{self.partition}@{self.offset}"

    def to_dict(self) -> dict[str, Any]:
        """The tree as data for JSON. A message that is there twice has its inputs once: the other has `see_above`."""
        return _to_dict(self, set())


def _to_dict(one: Ancestor, seen: set[int]) -> dict[str, Any]:
    data: dict[str, Any] = {name: getattr(one, name) for name in ("topic", "topic_id", "partition", "offset", "state")}
    if one.timestamp_ms is not None:
        data["timestamp_ms"] = one.timestamp_ms
        data["key"] = None if one.key is None else one.key.decode(errors="backslashreplace")
    if id(one) in seen:
        return data | {"see_above": True}
    seen.add(id(one))
    if one.made is not None:
        data |= {"task": one.made.task, "sequence": one.made.sequence, "record": [one.made.index, one.made.count]}
        if one.made.timer is not None:
            data["timer"] = {"key": one.made.timer[0], "due_ms": one.made.timer[1]}
        if one.made.replay is not None:
            data["replay"] = {"number": one.made.replay[0], "of": one.replay_of}
    if one.error:
        data["error"] = one.error
    if one.batch is not None:
        data["batch"] = {name: getattr(one.batch, name) for name in ("kind", "ranges", "place", "spark")}
    return data | {"inputs": [{"binding": binding, **_to_dict(parent, seen)} for binding, parent in one.inputs]}


def parse_place(text: str) -> tuple[TopicPartition, int]:
    """
    Read ``orders/3@17``.

    Raises:
        ConfigError: it names no message.
    """
    rest, at, offset = text.rpartition("@")
    topic, slash, partition = rest.rpartition("/")
    if not (at and slash and topic and partition.isdecimal() and offset.isdecimal()):
        raise ConfigError(f"{text!r} names no message. Write TOPIC/PARTITION@OFFSET, such as orders/3@17.")
    return TopicPartition(topic, int(partition)), int(offset)


def lineage(broker: Broker, place: TopicPartition, offset: int, *, most: int = MOST, graph: str = "") -> Ancestor:
    """
    The tree of a message's ancestors.

    Args:
        broker: the cluster.
        place: topic and partition of the message.
        offset: its offset.
        most: how many messages are looked at; those behind have the state `not followed`.
        graph: the name of a graph whose tools may read; empty: the reader names a group after the topic.

    Raises:
        ConfigError: there is no committed message.
        BrokerError: the cluster cannot be read.
    """
    reader = broker.reader(tools_group(graph or place.topic), prompt=True)
    try:
        return _Ancestry(broker, reader, place.topic).walk(place, offset, most)
    finally:
        reader.close()


class _Ancestry:
    """One walk, breadth first, so that `most` cuts off what is farthest away."""

    def __init__(self, broker: Broker, reader: Reader, topic: str) -> None:
        self._broker = broker
        self._reader = reader
        self._topics = {facts.topic_id: facts for facts in broker.facts([topic]).topics.values()}
        self._knows_all = False
        self._found: dict[MessageId, Ancestor] = {}

    def walk(self, place: TopicPartition, offset: int, most: int) -> Ancestor:
        facts = next(iter(self._topics.values()), None)
        if facts is None or place.partition >= facts.partitions:
            raise ConfigError(f"{place.topic}/{place.partition} does not exist on this cluster.")
        root = self._node(MessageId(facts.topic_id, place.partition, offset))
        low, stable, _ = self._broker.watermarks([place])[place]
        if root.state == UNFOLLOWED and not low <= offset < stable:
            there = f"committed messages are from {low} to {stable - 1}" if low < stable else "its partition is empty"
            raise ConfigError(f"{root.place} is not there: {there}.")
        due = [root]
        for _ in range(most):
            if not due:
                break
            due += self._look(due.pop(0))
        if root.state == COMPACTED:
            raise ConfigError(f"{root.place} is no message: compaction removed it, or it is the end of a transaction.")
        return root

    def _node(self, at: MessageId) -> Ancestor:
        facts = self._facts(at.topic_id)
        name = facts.name if facts is not None else ""
        state = UNFOLLOWED if facts is not None and at.partition < facts.partitions else RECREATED
        node = Ancestor(name, show_topic_id(at.topic_id), at.partition, at.offset, state)
        self._found[at] = node
        return node

    def _facts(self, topic_id: bytes) -> TopicFacts | None:
        """The topic with this id; None: there is none. All topics are asked for once, when the first id is unknown."""
        if topic_id not in self._topics and not self._knows_all:
            names = [*self._broker.partitions()]
            self._topics |= {facts.topic_id: facts for facts in self._broker.facts(names).topics.values()}
            self._knows_all = True
        return self._topics.get(topic_id)

    def _look(self, node: Ancestor) -> Iterable[Ancestor]:
        """Read a message; gives those of its ancestors that are seen for the first time."""
        if node.state != UNFOLLOWED:
            return
        place = TopicPartition(node.topic, node.partition)
        if node.offset < self._broker.watermarks([place])[place].low:
            node.state = TRIMMED
            return
        message = first_from(self._broker, self._reader, place, node.offset)
        if message is None or message.offset() != node.offset:
            node.state = COMPACTED
            return
        node.timestamp_ms, node.key = message.timestamp()[1], message.key()
        node.error = _error_of(message)
        node.made = _provenance(message)
        node.state = SENT if node.made is None else PRESENT
        if node.made is None:
            return
        if node.made.replay is not None:
            error = node.made.replay[1]
            facts = self._facts(error.topic_id)
            name = show_topic_id(error.topic_id) if facts is None else facts.name
            node.replay_of = f"{name}/{error.partition}@{error.offset}"
        if not node.made.consumed:
            node.batch = self._batch(node.made)
        for one in node.made.consumed:
            at = MessageId(one.topic_id, one.partition, one.offset)
            known = self._found.get(at)
            parent = known or self._node(at)
            node.inputs.append((one.binding, parent))
            if known is None:
                yield parent

    # What names no message

    def _batch(self, made: Provenance) -> BatchOrigin:
        name, _, partition = made.task.rpartition("/")
        topic = backing_topic(*name.rsplit(".", 1))
        if topic not in self._broker.partitions([topic]):
            return BatchOrigin("unknown")
        record = self._record(TopicPartition(topic, int(partition)), made.sequence)
        if record is None:
            return BatchOrigin("unknown")
        if record.staged is not None:
            return _staged(record, self._record(TopicPartition(topic, 0), record.staged.number))
        if record.place:
            return BatchOrigin("feed", place=record.place)
        return BatchOrigin("held back", place=", ".join(f"{p.topic}/{partition}@{p.offset}" for p in record.positions))

    def _record(self, place: TopicPartition, sequence: int) -> Record | None:
        """
        The record of a task with this sequence number; None: compaction removed it.

        By bisection: the newest part of a backing topic is not compacted, and has a record for each batch.
        """
        low, high, _ = self._broker.watermarks([place])[place]
        found: Record | None = None
        while low < high:
            middle = (low + high) // 2
            message = self._task_record(place, middle, high)
            if message is None:
                high = middle
                continue
            record = read_record(message)
            if record.sequence >= sequence:
                found, high = record, middle
            else:
                low = message.offset() + 1
        return found if found is not None and found.sequence == sequence else None

    def _task_record(self, place: TopicPartition, start: int, high: int) -> WireMessage | None:
        """The first record of a task in a range; between them stand those of settled error messages."""
        while start < high:
            message = first_from(self._broker, self._reader, place, start)
            if message is None or message.offset() >= high:
                return None
            if message.key() == KEY:
                return message
            start = message.offset() + 1
        return None


def _staged(record: Record, first: Record | None) -> BatchOrigin:
    """The rows of a staged batch; its announcement says what it took of its inputs."""
    staged = record.staged
    assert staged is not None
    ranges: dict[str, dict[int, tuple[int, int]]] = {}
    if isinstance(first, Snapshot) and first.staged is not None:
        for extent in first.staged.extents:
            ends = offsets_of(extent, extent.end)
            for place, start in offsets_of(extent, extent.start).items():
                if place in ends:
                    ranges.setdefault(place.topic, {})[place.partition] = (start, ends[place])
    return BatchOrigin("staged", ranges, spark=f"batch {staged.batch} of query {staged.query}")


def _provenance(message: WireMessage) -> Provenance | None:
    headers = headers_of(message)
    if headers is UNREADABLE:
        return None
    header = next((value for name, value in headers or () if name == HEADER and value), None)
    return None if header is None else parse_provenance(header)


def _error_of(message: WireMessage) -> str:
    """What an error message says; empty: it is another message."""
    data = message.value() or b""
    if data[:10] not in known_headers():
        return ""
    try:
        error = error_messages().decode(data)
    except CodecError as unreadable:
        return str(unreadable)
    return f"{error.exception}: {error.text}"
