"""Where a message comes from: its ancestors by their provenance headers (O8), back to the sources.

A header names the messages of its step by topic id, partition and offset. So the walk needs no graph, and it finds a
topic again only while it is the same topic. What names no message is looked up in the backing topic of its task: rows
of a staged batch, of a feed, what a state handler held back, and entries of stores.

Asked for, it tells besides what the attempts behind the messages changed: entries of stores, and what the targets of a
graph's processors still show.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cues_kafka.codecs.error_messages import error_messages, known_headers
from cues_kafka.core.delivery import Provenance, parse_topic_id, show_topic_id
from cues_kafka.core.hashing import delivery_hash
from cues_kafka.core.records import Record, Snapshot
from cues_kafka.errors import CodecError, ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import tools_group
from cues_kafka.graph.processor import Processor
from cues_kafka.graph.targets import TaskName
from cues_kafka.operate.look.attempts import AttemptRecords, StoreChanges, TakenAttempt
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.facts import TopicFacts
from cues_kafka.ports.log import Coordinates, TopicPartition, WireMessage
from cues_kafka.records.extents import offsets_of
from cues_kafka.records.provenance import provenance_of
from cues_kafka.records.scanning import first_from
from cues_kafka.records.strangers import readable
from cues_kafka.sinks.traces import AskedAttempt, EffectTrace, traces
from cues_kafka.words import as_data

_TOPIC_ID: Final = re.compile(r"[\w-]{22}", re.ASCII)

MOST: Final = 1_000
"""Messages that are looked at, unless it is said otherwise."""

PRESENT: Final = "present"
SENT: Final = "sent"
ENTRY: Final = "entry"
TRIMMED: Final = "trimmed"
COMPACTED: Final = "compacted"
AHEAD: Final = "not there"
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
    What names no message: rows of a staged batch or of a feed, what a state handler held back, entries of stores.

    Attributes:
        kind: `staged`, `feed`, `held back`, `entry`; or `unknown`, where the task's records do not tell.
        ranges: by topic and partition, what the batch took of its inputs, as [start, end); empty where the task's
            records no longer tell.
        place: where the task stood behind the batch: of a feed the place in its source, of a state handler what its
            task had read, of an entry the attempt that changed it.
        spark: query and batch of Spark.
    """

    kind: str
    ranges: Mapping[str, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    place: str = ""
    spark: str = ""


@dataclass(frozen=True, slots=True)
class Changed:
    """
    What an attempt did besides the messages that it wrote.

    Attributes:
        task: `graph.processor/partition`.
        sequence: of the attempt; None: no record tells of it.
        deliveries: how many deliveries it has; its changes in stores are those of all of them.
        stores: what it changed in the stores of its task.
        effects: what is found of the effects that the graph declares, for the messages of the one delivery.
    """

    task: str
    sequence: int | None
    deliveries: int = 0
    stores: tuple[StoreChanges, ...] = ()
    effects: tuple[EffectTrace, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same as data for JSON."""
        stores = [
            {"store": one.store, "count": one.count, "entries": [entry.to_dict() for entry in one.entries]}
            for one in self.stores
        ]
        head = {"task": self.task, "sequence": self.sequence, "deliveries": self.deliveries}
        return head | {"stores": stores, "effects": [one._asdict() for one in self.effects]}


@dataclass(slots=True)
class Ancestor:
    """
    A message, and those that its step consumed.

    Attributes:
        topic: its topic; empty: there is no topic with this id any more.
        topic_id: as Kafka's tools print it.
        partition, offset: its place.
        state: `present`: a task wrote it. `sent`: it is there without a provenance header, so it came from outside, or
            its topic has `provenance=False`. `entry`: it is an entry of a store, in its changelog. `trimmed`: it was
            deleted from the beginning of its partition. `compacted`: it is gone between others. `not there`: it is
            behind the end of its partition, so another program wrote the header. `recreated`: its topic was deleted
            since. `not followed`: the walk ended before it.
        timestamp_ms: milliseconds since the epoch; None: it is gone.
        key: its key.
        made: the provenance header; None: it has none, or is gone.
        error: class and text of the exception, if it is an error message.
        replay_of: where the error message stands whose replay gave it; empty: none did.
        batch: what its header says in the place of messages; None: it names messages.
        inputs: the messages that its step consumed, by binding. Of a timer's step those whose step set the timer.
        changed: what the attempt that wrote it did besides; None: no one asked, or no record tells of the attempt.
        taken: of the message that was asked for, the attempts of the graph that took it; empty: no one asked.
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
    changed: Changed | None = None
    taken: list[Changed] = field(default_factory=list)

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
        data |= {"key": None} if one.key is None else as_data("key", one.key)
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
    if one.changed is not None:
        data["changed"] = one.changed.to_dict()
    if one.taken:
        data["taken"] = [attempt.to_dict() for attempt in one.taken]
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


def lineage(
    broker: Broker,
    place: TopicPartition,
    offset: int,
    *,
    most: int = MOST,
    graph: Graph | None = None,
    changes: bool = False,
) -> Ancestor:
    """
    The tree of a message's ancestors.

    Args:
        broker: the cluster.
        place: topic and partition of the message; the topic by its name or its id.
        offset: its offset.
        most: how many messages are looked at; those behind have the state `not followed`.
        graph: a graph whose tools may read; None: the reader names a group after the topic.
        changes: whether to look for what the attempts behind the messages changed: entries of stores; with `graph` also
            effects, and what the attempts did that took this message.

    Raises:
        ConfigError: there is no committed message.
        BrokerError: the cluster cannot be read.
    """
    reader = broker.reader(tools_group(graph.name if graph else place.topic), prompt=True)
    try:
        return _Ancestry(broker, reader, place.topic, graph, changes=changes).walk(place, offset, most)
    finally:
        reader.close()


class _Ancestry:
    """One walk, breadth first, so that `most` cuts off what is farthest away."""

    def __init__(self, broker: Broker, reader: Reader, topic: str, graph: Graph | None, *, changes: bool) -> None:
        self._broker = broker
        self._reader = reader
        self._records = AttemptRecords(broker, reader)
        self._graph = graph
        self._changes = changes
        self._stores: dict[tuple[str, int], tuple[StoreChanges, ...]] = {}  # by task and sequence of the attempt
        self._topics = {facts.topic_id: facts for facts in broker.facts([topic]).topics.values()}
        self._knows_all = False
        self._found: dict[MessageId, Ancestor] = {}

    def walk(self, place: TopicPartition, offset: int, most: int) -> Ancestor:
        facts = next(iter(self._topics.values()), None) or self._of_id(place.topic)
        if facts is None or place.partition >= facts.partitions:
            raise ConfigError(f"{place.topic}/{place.partition} does not exist on this cluster.")
        root = self._node(MessageId(facts.topic_id, place.partition, offset))
        place = TopicPartition(facts.name, place.partition)
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
            raise ConfigError(
                f"{root.place} is not a message: compaction removed it, or it is the end of a transaction."
            )
        if self._changes and self._graph is not None:
            root.taken = [
                *self._taken(self._graph, Coordinates("", facts.topic_id, place.partition, offset), facts.name)
            ]
        return root

    def _of_id(self, text: str) -> TopicFacts | None:
        """The topic whose id Kafka's tools print like this, as the rows of an upsert have it."""
        return self._facts(parse_topic_id(text)) if _TOPIC_ID.fullmatch(text) else None

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
        marks = self._broker.watermarks([place])[place]
        if not marks.low <= node.offset < marks.stable:
            node.state = TRIMMED if node.offset < marks.low else AHEAD
            return
        message = first_from(self._broker, self._reader, place, node.offset)
        if message is None or message.offset() != node.offset:
            node.state = COMPACTED
            return
        node.timestamp_ms, node.key = message.timestamp()[1], message.key()
        node.error = error_of(message)
        node.made = readable(message, provenance_of, "a message with a provenance header")
        node.state = SENT if node.made is None else PRESENT
        if node.made is None:
            if is_changelog(node.topic) and (attempt := self._records.setting(place, node.offset)):
                node.state = ENTRY
                by = f"{attempt.task}, batch {attempt.record.sequence}"
                node.batch = BatchOrigin("entry", attempt.ranges, by)
            return
        if node.made.replay is not None:
            error = node.made.replay[1]
            facts = self._facts(error.topic_id)
            name = show_topic_id(error.topic_id) if facts is None else facts.name
            node.replay_of = f"{name}/{error.partition}@{error.offset}"
        if not node.made.consumed:
            node.batch = self._batch(node.made)
        if self._changes and (attempt := self._records.attempt(node.made.task, node.made.sequence)):
            call = f"{node.made.hash.hex()}.{node.made.replay[0] if node.made.replay else 0}"
            node.changed = self._changed(attempt, node.made.consumed, call if node.made.consumed else "")
        for one in node.made.consumed:
            at = MessageId(one.topic_id, one.partition, one.offset)
            known = self._found.get(at)
            parent = known or self._node(at)
            node.inputs.append((one.binding, parent))
            if known is None:
                yield parent

    # What attempts did besides

    def _changed(self, attempt: TakenAttempt, messages: tuple[Coordinates, ...], call: str) -> Changed:
        """`messages` are those of the one delivery that is looked at, `call` is the key of its calls."""
        graph, name, partition = attempt.place
        mine = self._graph.processors.get(name) if self._graph is not None and self._graph.name == graph else None
        timers = [mine.timers[0]] if mine is not None and mine.timers is not None else []
        known = attempt.task, attempt.record.sequence
        if known not in self._stores:
            self._stores[known] = self._records.changes(attempt, timers)
        declared = mine.targets if mine is not None else {}
        found = traces(declared, AskedAttempt(TaskName(graph, name, partition), attempt.record.step, messages, call))
        return Changed(*known, attempt.record.batch.deliveries, self._stores[known], tuple(found))

    def _taken(self, graph: Graph, message: Coordinates, topic: str) -> Iterable[Changed]:
        """What the attempts did that took this message."""
        for processor in graph.processors.values():
            bindings = [binding for binding, one in processor.inputs if one == topic]
            if not bindings:
                continue
            task = f"{graph.name}.{processor.name}/{message.partition}"
            attempt = self._records.taking(task, message.topic_id, message.offset)
            if attempt is None:
                yield Changed(task, None)
                continue
            mine = message._replace(binding=bindings[0])
            yield self._changed(attempt, (mine,), _call_of(graph, processor, mine))

    # What names no message

    def _batch(self, made: Provenance) -> BatchOrigin:
        name, _, partition = made.task.rpartition("/")
        record = self._records.numbered(made.task, made.sequence)
        if record is None:
            return BatchOrigin("unknown")
        if record.staged is not None:
            first = self._records.numbered(f"{name}/0", record.staged.number)
            return _staged(record, first)
        if record.place:
            return BatchOrigin("feed", place=record.place)
        return BatchOrigin("held back", place=", ".join(f"{p.topic}/{partition}@{p.offset}" for p in record.positions))


def is_changelog(topic: str) -> bool:
    """Whether a topic may have the entries of a store."""
    return topic.endswith(".changelog") and topic.count(".") > 2


def _call_of(graph: Graph, processor: Processor, message: Coordinates) -> str:
    """The key of the calls of the step that delivered a message; empty: it had other messages, too."""
    alone = len(processor.inputs) == 1
    return f"{delivery_hash(graph.name, processor.name, [message]).hex()}.0" if alone else ""


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


def error_of(message: WireMessage) -> str:
    """What an error message says; empty: it is another message."""
    data = message.value() or b""
    if data[:10] not in known_headers():
        return ""
    try:
        error = error_messages().decode(data)
    except CodecError as unreadable:
        return str(unreadable)
    return f"{error.exception}: {error.text}"
