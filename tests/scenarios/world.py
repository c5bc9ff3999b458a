"""The stage of a scenario: a graph at work on a cluster, and the world that it leaves.

Offsets differ between clusters, because the markers of transactions take some. So places are counted: the first message
of a topic has number 1, and a position is the number of the next message.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

from cues_kafka import CommitPolicy, ErrorMessage, Fenced, Graph, Kafka, Memory, Running, TaskStopped, Topic, start
from cues_kafka.brokers.kafka.session import KafkaSession
from cues_kafka.brokers.memory import MemorySession
from cues_kafka.client.client import Client
from cues_kafka.core.delivery import HEADER, parse_provenance
from cues_kafka.core.hashing import delivery_hash
from cues_kafka.core.records import Record, Totals
from cues_kafka.graph.names import backing_topic
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import Coordinates
from cues_kafka.records.reading import records_of

PATIENCE_S = 30.0
"""How long a scenario waits for what must happen. Nothing takes this long unless it is broken."""

ONE_BY_ONE = CommitPolicy(max_messages=1)
"""Each step is a transaction of its own, so that records do not depend on what a fetch happens to bring."""


PLACES = Topic(meta={"offset"})
"""Each message says where it comes from."""

OUTCOMES = ("outputs", "errors", "nils")
"""Each step ends as one of them."""


class Seen(NamedTuple):
    """
    A committed message.

    Attributes:
        value: its value; of an error message processor, kind and text.
        places: by topic, its own number, and those of the messages that it comes from.
        tx: the topic whose place counts as the transaction, if one does.
    """

    value: Any
    places: dict[str, int]
    tx: str = ""


def seen(value: Any, tx: str = "", /, **places: int) -> Seen:
    """A message that is expected: `seen({"x": 2}, s1=1, q1=1)` is the first one in q1, made of the first one in s1."""
    return Seen(value, places, tx)


class Entry(NamedTuple):
    """
    A record of a task.

    Attributes:
        kind: start, snapshot or attempt.
        next: by input topic, the number of the next message.
        outcome: how the step of an attempt ended: outputs, errors or nils.
        choice: of alts with effects, the bindings that the announced steps take.
        deaths: of processes, on what a snapshot announces.
        left: whether the writer of a snapshot left in order.
    """

    kind: str
    next: dict[str, int]
    outcome: str = ""
    choice: tuple[str, ...] = ()
    deaths: int = 0
    left: bool = False


def began(**following: int) -> Entry:
    """A task's first record. It will take the messages of these numbers first."""
    return Entry("start", following)


def announced(choice: Sequence[str] = (), *, deaths: int = 0, left: bool = False, **following: int) -> Entry:
    """A snapshot: the task is about to take the messages of these numbers."""
    return Entry("snapshot", following, "", tuple(choice), deaths, left)


def delivered(outcome: str, **following: int) -> Entry:
    """An attempt: the step before these numbers ended as this outcome."""
    return Entry("attempt", following, outcome)


def taken(**following: int) -> Entry:
    """At-most-once: the messages before these numbers are taken. Their outcomes come later, or are dropped."""
    return Entry("attempt", following)


class Death:
    """
    Where a process dies: before or after the nth effect of this name.

    A thread stands still there, and never goes on. Nothing is closed, no group is left, and what is not committed stays
    open: the next owner of the task finds the cluster as SIGKILL leaves it.
    """

    def __init__(self, moment: str, effect: str, nth: int = 1) -> None:
        self._point = (moment, effect)
        self._left = nth
        self._reached = threading.Event()
        self._over = threading.Event()

    def __call__(self, moment: str, effect: str) -> None:
        """Stand still here, if this is the place."""
        if (moment, effect) == self._point:
            self._left -= 1
            if self._left == 0:
                self._reached.set()
                self._over.wait()
                raise Fenced("the process is dead")

    def wait(self) -> None:
        """Wait until it is there."""
        assert self._reached.wait(PATIENCE_S), f"nothing came {' '.join(self._point)}"

    def end(self) -> None:
        """Let the thread end."""
        self._over.set()


class Scene:
    """A graph at work."""

    def __init__(self, stage: Stage, running: Running) -> None:
        self._stage = stage
        self.running = running

    def send(self, topic: str, *values: Any) -> None:
        """Send messages, one after the other."""
        self._stage.send(topic, *values)

    def idle(self) -> None:
        """Wait until everything is delivered."""
        self.running.wait_idle(timeout_s=PATIENCE_S)

    def stopped(self) -> TaskStopped:
        """Wait until a task stops, and give the reason."""
        try:
            self.idle()
        except TaskStopped as stopped:
            return stopped
        raise AssertionError("everything is delivered, and no task has stopped")


class Stage:
    """
    A cluster, and the names of one scenario on it.

    A scenario declares its graph with short names. On the cluster all names have a prefix that no other scenario has,
    so that all scenarios share one broker.
    """

    def __init__(self, cluster: Kafka | Memory, client: Client, prefix: str) -> None:
        """
        Args:
            cluster: where graphs run.
            client: sends to it. All scenarios share it: the first message of a client takes half a second now and then.
            prefix: of all names.
        """
        self.cluster = cluster
        self._client = client
        self.prefix = prefix
        self._ends = ExitStack()

    def close(self) -> None:
        """End what processes that died have left."""
        self._ends.close()

    @property
    def session(self) -> type[Any]:
        """The class of the sessions in which tasks write."""
        return MemorySession if isinstance(self.cluster, Memory) else KafkaSession

    # Names

    def graph(self, *parts: Any, **settings: Any) -> Graph:
        """A graph whose topics have the names of this scenario, and pass the places of messages on."""
        graph = Graph("graph", *parts, **{"defaults": PLACES, **settings})
        return graph.bind({topic: self.name(topic) for topic in graph.topics_used()}).merge(name=self.prefix)

    def name(self, topic: str) -> str:
        """What a topic is called on the cluster."""
        return f"{self.prefix}.{topic}"

    def short(self, topic: str) -> str:
        """What the scenario calls a topic."""
        return topic.removeprefix(f"{self.prefix}.")

    # Graphs at work

    @contextmanager
    def run(self, graph: Graph, **settings: Any) -> Iterator[Scene]:
        """Run a graph in this process; it is stopped in order behind the block, also where a task has stopped."""
        running = self._start(graph, **settings)
        try:
            yield Scene(self, running)
        except BaseException:
            running.abandon()
            raise
        running.stop()

    def run_to_death(self, graph: Graph, death: Death, **sent: Sequence[Any]) -> None:
        """Run a graph, send these messages to these topics, and die."""
        running = self._start(graph, hook=death)
        self._ends.callback(running.abandon)
        self._ends.callback(death.end)
        for topic, values in sent.items():
            self.send(topic, *values)
        death.wait()

    def send(self, topic: str, *values: Any) -> None:
        """Send messages, one after the other."""
        for value in values:
            self._client.send(self.name(topic), value)

    def _start(self, graph: Graph, **settings: Any) -> Running:
        """The instance is the same each time: a successor takes the tasks of a process that died at once."""
        return start(graph, self.cluster, instance=self.prefix, **{"policy": ONE_BY_ONE, **settings})

    def world(self, graph: Graph) -> World:
        """Everything that is committed now."""
        broker = self._client._broker
        return World(Client(broker, graph), broker, graph, self.short)


class World:
    """Everything that a graph has committed."""

    def __init__(self, client: Client, broker: Broker, graph: Graph, short: Callable[[str], str]) -> None:
        topics = graph.topics_used()
        facts = broker.facts(topics).topics
        self._graph = graph
        self._short = short
        self._found = {short(topic): list(client.messages(topic)) for topic in topics}
        self._offsets = {topic: [message.offset for message in found] for topic, found in self._found.items()}
        self._ids = {short(topic): facts[topic].topic_id for topic in topics}
        self._records = {
            name: records_of(list(client.committed(backing_topic(graph.name, name)))) for name in graph.processors
        }

    @property
    def messages(self) -> dict[str, list[Seen]]:
        """All messages by topic, each with the places that it comes from."""
        return {topic: [self._seen(topic, n) for n in range(1, 1 + len(found))] for topic, found in self._found.items()}

    def values(self, topic: str) -> list[Any]:
        """The values of a topic."""
        return [message.value for message in self._found[topic]]

    def records(self, processor: str) -> list[Entry]:
        """
        The records of a processor's only task.

        Raises:
            AssertionError: a sequence is missing or repeated, or totals do not add up.
        """
        records = self._records[processor]
        entries = [self._entry(record) for record in records]
        assert [record.sequence for record in records] == list(range(len(records)))
        for before, record in pairwise(records):
            assert record.totals == before.totals.plus(record.batch)
        outcomes = [entry.outcome for entry in entries]
        totals = self.totals(processor)
        assert {name: getattr(totals, name) for name in OUTCOMES} == {name: outcomes.count(name) for name in OUTCOMES}
        return entries

    def totals(self, processor: str) -> Totals:
        """The totals in the newest record of a processor's only task."""
        return self._records[processor][-1].totals

    def hash(self, processor: str, **numbers: int) -> str:
        """The delivery hash of the step that takes the messages of these numbers, by topic."""
        consumed = [
            Coordinates(binding, self._ids[topic], message.partition, message.offset)
            for binding, long in self._graph.processors[processor].inputs
            if (topic := self._short(long)) in numbers and (message := self._found[topic][numbers[topic] - 1])
        ]
        return delivery_hash(self._graph.name, processor, consumed).hex()

    def _entry(self, record: Record) -> Entry:
        positions = {self._short(p.topic): self._number(self._short(p.topic), p.offset) for p in record.positions}
        [outcome] = [name for name in OUTCOMES if getattr(record.batch, name)] or [""]
        choice = tuple(binding for binding, count in record.choice for _ in range(count))
        return Entry(type(record).__name__.lower(), positions, outcome, choice, record.starts, record.left)

    def _seen(self, topic: str, number: int) -> Seen:
        """
        A message.

        Raises:
            AssertionError: its metadata and its provenance do not tell the same.
        """
        message = self._found[topic][number - 1]
        meta = message.meta
        places = {(name := self._short(long)): self._number(name, one.offset) for long, one in meta.places.items()}
        assert places == self._origin(topic, number)
        assert meta.tx is None or meta.tx == meta.places[meta.tx.topic]
        value = message.value
        shown = (value.processor, value.kind, value.text) if isinstance(value, ErrorMessage) else value
        return Seen(shown, places, "" if meta.tx is None else self._short(meta.tx.topic))

    def _number(self, topic: str, offset: int) -> int:
        """The number of the message at an offset, or of the next one behind it."""
        return 1 + bisect_left(self._offsets[topic], offset)

    def _origin(self, topic: str, number: int) -> dict[str, int]:
        """The places of a message, followed back by the provenance headers."""
        places: dict[str, int] = {}
        for name, value in self._found[topic][number - 1].headers:
            if name == HEADER and value is not None:
                for one in parse_provenance(value).consumed:
                    [came] = [name for name, topic_id in self._ids.items() if topic_id == one.topic_id]
                    places |= self._origin(came, self._number(came, one.offset))
        return places | {topic: number}
