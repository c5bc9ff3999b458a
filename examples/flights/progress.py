"""How far a graph is, seen from outside: the newest committed backing record of every task.

Read-only: nothing is initialised, so no worker is fenced. A record carries totals since its task's beginning and the
task's positions (O2), so the newest one of each task says all. Those of a staged processor have no positions:
slot 0's says what its newest batch took of the inputs, and those of all slots whether it is published.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from cues_kafka.brokers.patience import ask_again
from cues_kafka.core.records import KEY, Record, Totals
from cues_kafka.errors import ConfigError
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, tools_group
from cues_kafka.graph.processor import Processor
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import TopicFacts, Watermarks
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import has_reached, newest, published_ends, read_record
from cues_kafka.records.scanning import due, holds_messages, unstable
from cues_kafka.task.clock import SystemClock

PATIENCE_S = 15.0
"""How long questions are repeated: a partition may have no leader for a moment."""


_Part = TypeVar("_Part", Processor, DataFrameProcessor)


@dataclass(frozen=True, slots=True)
class Seen:
    """
    A committed record, when it was seen.

    Attributes:
        processor: whose.
        partition: of which task.
        record: what it says.
        at_s: monotonic time.
    """

    processor: str
    partition: int
    record: Record
    at_s: float


class Progress:
    """
    Follows the backing topics of a graph; one thread at a time.

    Attributes:
        newest: what was seen last of each task, by (processor, partition); a task without a record is not in it.
    """

    def __init__(
        self, graph: Graph, broker: Broker, *, only: Collection[str] | None = None, clock: Clock | None = None
    ) -> None:
        """
        Find the newest records, and follow from there.

        Args:
            graph: whose tasks.
            broker: the cluster.
            only: names of processors; None: all. Those of DataFrames count from their first record on, because before
                that it is not known whether a Spark runs them.
            clock: time.

        Raises:
            ConfigError: the graph was never started on this cluster.
            BrokerError: the cluster does not answer.
        """
        self.newest: dict[tuple[str, int], Seen] = {}
        self._graph = graph
        self._group = tools_group(graph.name)
        self._broker = broker
        self._clock = clock or SystemClock()
        self._only = only
        names = [name for name in (*graph.processors, *graph.dataframes) if only is None or name in only]
        self._processors = {backing_topic(graph.name, name): name for name in names}
        self._widths = self._ask_widths()
        self._places = [TopicPartition(t, p) for t, width in self._widths.items() for p in range(width)]
        starts = {place: self._first(place, marks) for place, marks in self._marks(self._places).items()}
        self._reader: Reader = broker.reader(self._group)
        self._reader.assign(starts)

    def poll(self, timeout_s: float) -> list[Seen]:
        """The records that were committed since the last call, oldest first for each task; waits for the first one."""
        found = []
        for fetched in self._reader.poll(timeout_s):
            processor = self._processors[fetched.partition.topic]
            for message in fetched.messages:
                if message.key() == KEY:
                    seen = Seen(processor, fetched.partition.partition, read_record(message), self._clock.monotonic())
                    self.newest[processor, seen.partition] = seen
                    found.append(seen)
        return found

    def totals(self, processor: str) -> Totals:
        """The totals of all tasks of a processor, since their beginning."""
        total = Totals()
        for (name, _), seen in self.newest.items():
            if name == processor:
                total = total.plus(seen.record.totals)
        return total

    def behind(self) -> list[TopicPartition]:
        """
        Input partitions with messages that are not delivered, by what was seen up to now, or that an open transaction
        writes to; and backing partitions of parts that are announced and not published yet. Empty: the graph is idle.
        """
        inputs = [TopicPartition(t, p) for t, width in self._input_widths().items() for p in range(width)]
        marks = self._marks(inputs)
        found = unstable(marks)
        for name, processor in self._named(self._graph.processors):
            for partition in range(self._widths[backing_topic(self._graph.name, name)]):
                places = [TopicPartition(topic, partition) for topic in processor.input_topics]
                waiting = {place for place in places if self._waits(name, place, marks[place])}
                found |= due(processor.input_shape, places, waiting)
        for name, frame in self._named(self._graph.dataframes):
            found.update(self._frames_waiting(name, frame, marks))
        return sorted(found)

    def close(self) -> None:
        """Release the reader."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _marks(self, places: list[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        return ask_again(lambda: self._broker.watermarks(places), PATIENCE_S)

    def _named(self, processors: Mapping[str, _Part]) -> Iterator[tuple[str, _Part]]:
        """Those that are followed; of DataFrames, unless they were asked for, those that have begun."""
        begun = {name for name, _ in self.newest}
        for name, processor in processors.items():
            if backing_topic(self._graph.name, name) in self._processors and (
                self._only is not None or name in begun or not isinstance(processor, DataFrameProcessor)
            ):
                yield name, processor

    def _facts_of(self, topics: Collection[str]) -> Mapping[str, TopicFacts]:
        return self._broker.facts(list(topics)).topics if topics else {}

    def _frames_waiting(
        self, name: str, frame: DataFrameProcessor, marks: Mapping[TopicPartition, Watermarks]
    ) -> Iterator[TopicPartition]:
        """Where a processor of DataFrames has work: partitions of parts that are due, and of inputs with messages."""
        backing = backing_topic(self._graph.name, name)
        seen = [self.newest.get((name, partition)) for partition in range(self._widths[backing])]
        records = [one.record if one else None for one in seen]
        first = records[0].staged if records and records[0] else None
        if first:
            due = (part for part, record in enumerate(records[: first.parts]) if not has_reached(record, first))
            yield from (TopicPartition(backing, part) for part in due)
        ends = published_ends(records) if first else _positions(records)
        for place in (place for place in marks if place.topic in frame.read_topics):
            at = ends.get(place, marks[place].low)
            if at < marks[place].stable and holds_messages(
                self._broker, place, at, marks[place].stable, group=self._group
            ):
                yield place

    def _ask_widths(self) -> dict[str, int]:
        facts = self._broker.facts(list(self._processors)).topics
        if self._only is None:  # one of DataFrames that was never started is not waited for
            frames = {backing_topic(self._graph.name, name) for name in self._graph.dataframes}
            self._processors = {t: name for t, name in self._processors.items() if t in facts or t not in frames}
        if missing := sorted(self._processors.keys() - facts.keys()):
            raise ConfigError(f"graph {self._graph.name!r} was never started on this cluster: {missing} are not there")
        return {topic: facts[topic].partitions for topic in self._processors}

    def _input_widths(self) -> dict[str, int]:
        widths: dict[str, int] = {}
        for name, processor in self._named(self._graph.processors):
            width = self._widths[backing_topic(self._graph.name, name)]
            widths |= dict.fromkeys(processor.input_topics, width)
        read = {topic for _, frame in self._named(self._graph.dataframes) for topic in frame.read_topics}
        read -= widths.keys()
        return widths | {name: facts.partitions for name, facts in self._facts_of(read).items()}

    def _first(self, place: TopicPartition, marks: Watermarks) -> int:
        """Where to begin to read: at the newest committed record."""
        found = newest(self._broker, place, marks.low, marks.stable, self._clock, group=self._group)
        return marks.low if found is None else found.offset()

    def _waits(self, processor: str, place: TopicPartition, marks: Watermarks) -> bool:
        seen = self.newest.get((processor, place.partition))
        stands = [p.offset for p in seen.record.positions if p.topic == place.topic] if seen is not None else []
        at = stands[0] if stands else marks.low  # its record may be of a declaration without this input
        return at < marks.stable and holds_messages(self._broker, place, at, marks.stable, group=self._group)


def _positions(records: Sequence[Record | None]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(position.topic, partition): position.offset
        for partition, record in enumerate(records)
        for position in (record.positions if record else ())
    }
