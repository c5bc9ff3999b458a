"""Finds error messages in the errors topics of a graph, and files what became of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from cues_kafka.brokers.patience import ask_again
from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.core.delivery import ErrorPlace, show_topic_id
from cues_kafka.core.hashing import delivery_hash
from cues_kafka.core.strategies import EXACTLY_ONCE
from cues_kafka.errors import CodecError, ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.graph.names import backing_topic, no_such_processor, quoted, replay_topic, tools_group
from cues_kafka.graph.processor import Processor
from cues_kafka.operate.repair.filed import FiledError, Selection, check_selection
from cues_kafka.operate.repair.ledger import Ledgers
from cues_kafka.plan.topics import CLOCKS_MS
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.records.error_messages import read_error
from cues_kafka.records.reading import record_below
from cues_kafka.records.requests import kept_payload, not_paired, what_settled
from cues_kafka.records.scanning import first_from, ranges_of, read_range
from cues_kafka.task.calling.placements import moved_key

PATIENCE_S: Final = 15.0
"""How long the cluster is asked for its topics: a partition may have no leader for a moment."""

Progress: TypeAlias = Callable[[int, int], None]
"""Told how many offsets of the errors topics are read, and how many there are."""


class ErrorFinder:
    """
    Finds error messages of a graph.

    Attributes:
        ledgers: what is asked for and settled, as of the last look.
        foreign: how many messages of the last look were of other graphs.
        unreadable: how many of them could not be read.
        ends: behind what the last look has read, by partition.

    Raises:
        ConfigError: the graph has no errors topic, or it does not exist.
        BrokerError: the cluster does not answer.
    """

    def __init__(self, graph: Graph, broker: Broker, clock: Clock) -> None:
        self._graph, self._broker, self._clock = graph, broker, clock
        self._group = tools_group(graph.name)
        self._topics = graph.error_topics()
        if not self._topics:
            raise ConfigError(
                f"graph {graph.name!r} has no errors topic, so it has no error messages. Declare one: "
                f"Graph({graph.name!r}, ..., errors='{graph.name}.errors')."
            )
        parts = {**graph.processors, **graph.dataframes}
        names = [n for n in parts if graph.errors_of(n) is not None]
        inputs = [topic for name in names for topic in parts[name].input_topics]
        own = [made(graph.name, name) for name in names for made in (backing_topic, replay_topic)]
        asked = [*dict.fromkeys((*self._topics, *inputs, *own))]
        self._facts = ask_again(lambda: broker.facts(asked), PATIENCE_S).topics
        if missing := [topic for topic in self._topics if topic not in self._facts]:
            raise ConfigError(
                f"errors topic {missing[0]!r} does not exist on this cluster. Run `cues-kafka plan MODULE:GRAPH "
                "--apply`, or name the cluster that the graph runs on."
            )
        there = [self._facts[topic] for topic in dict.fromkeys(inputs) if topic in self._facts]
        places = [TopicPartition(one.name, partition) for one in there for partition in range(one.partitions)]
        self._lows: Mapping[TopicPartition, Watermarks] = broker.watermarks(places) if places else {}
        self._staged: dict[str, bool] = {}
        self.foreign = self.unreadable = 0
        self.ends: Mapping[TopicPartition, int] = {}
        self.look()

    def look(self) -> None:
        """Forget what was asked for and settled: the next questions read it again."""
        self.ledgers = Ledgers(self._graph, self._broker, self._clock, self._facts)

    def check(self, wanted: Selection) -> None:
        """
        Refuse to look for what this graph cannot have.

        Raises:
            ConfigError: the graph has no such processor, or see `check_selection`.
        """
        check_selection(wanted)
        known = self._graph.all_processors
        if wanted.processor is not None and self.ledgers.now(wanted.processor) not in known:
            raise ConfigError(no_such_processor(self._graph.name, [wanted.processor], known))

    def find(
        self,
        wanted: Selection,
        progress: Progress | None = None,
        below: Mapping[TopicPartition, int] | None = None,
    ) -> Iterator[FiledError]:
        self.check(wanted)
        self.foreign = self.unreadable = 0
        self.look()
        ranges = {p: r for topic in self._topics for p, r in self._ranges(topic, wanted).items()}
        if below is not None:
            cut = {place: (start, min(end, below.get(place, 0))) for place, (start, end) in ranges.items()}
            ranges = {place: (start, end) for place, (start, end) in cut.items() if start < end}
        self.ends = {place: end for place, (_, end) in ranges.items()}
        done, total = 0, sum(end - start for start, end in ranges.values())
        for place, (start, end) in ranges.items():
            for message in read_range(self._broker, place, start, end, group=self._group, passing="an error message"):
                if progress is not None:
                    progress(done + message.offset() + 1 - start, total)
                if (found := self._filed(message, wanted)) is not None:
                    yield found
            done += end - start

    def read(self, topic: str, partition: int, offset: int) -> tuple[WireMessage, ErrorMessage, int]:
        """
        Read one error message, with its number: how often it was replayed, and one.

        Raises:
            ConfigError: there is no such error message of this graph.
            BrokerError: it cannot be read.
        """
        where = f"{topic}/{partition}@{offset}"
        if topic not in self._topics:
            raise ConfigError(
                f"{where}: {topic!r} is not an errors topic of graph {self._graph.name!r}, which has "
                f"{quoted(self._topics)}"
            )
        place = TopicPartition(topic, partition)
        marks = self._broker.watermarks([place])[place] if partition < self._facts[topic].partitions else None
        if marks is None or not marks.low <= offset < marks.stable:
            raise ConfigError(f"{where} is not there{_bounds(place, marks)}.")
        reader = self._broker.reader(self._group, prompt=True)
        try:
            message = first_from(self._broker, reader, place, offset)
        finally:
            reader.close()
        if message is None or message.offset() != offset:
            raise ConfigError(f"{where} is not a message: it is the end of a transaction, or was not committed.")
        try:
            error, number = read_error(message, error_messages().decode)
        except CodecError as unreadable:
            raise ConfigError(f"{where}: {unreadable}") from unreadable
        if error.graph != self._graph.name:
            raise ConfigError(f"{where} is of graph {error.graph!r}. Give that graph to the command.")
        return message, error, number

    def file(self, message: WireMessage, error: ErrorMessage, number: int) -> FiledError:
        """An error message, with what became of it."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        place = ErrorPlace(self._facts[topic].topic_id, partition, offset)
        ledger = self.ledgers[error.processor]
        settled = self.ledgers.settled(error.processor, place)
        never = self.never(error.processor) or self._elsewhere(error)
        return FiledError(
            topic=topic,
            partition=partition,
            offset=offset,
            place=place,
            message=error,
            asked_of=self.ledgers.now(error.processor),
            number=number,
            asked=ledger.asked.get(place.key) if ledger else None,
            settled=None if settled is None else what_settled(settled),
            obstacle=never or self._gone(error) or self._moved(error),
            droppable=not never and bool(error.consumed),
        )

    def _filed(self, message: WireMessage, wanted: Selection) -> FiledError | None:
        try:
            error, number = read_error(message, error_messages().decode)
        except CodecError:
            self.unreadable += 1
            return None
        if error.graph != self._graph.name:
            self.foreign += 1
            return None
        place = message.topic(), message.partition(), message.offset()
        now = error.processor if wanted.processor in (None, error.processor) else self.ledgers.now(error.processor)
        return self.file(message, error, number) if wanted.fits(place, error, now) else None

    def _ranges(self, topic: str, wanted: Selection) -> Mapping[TopicPartition, tuple[int, int]]:
        """
        What is to be read of an errors topic: with places these alone, with a time from then on.

        Where brokers set the timestamps of the topic, as `plan` has them do, a message is stamped after it failed. The
        clock of its worker may have been ahead by `CLOCKS_MS`.
        """
        found = ranges_of(self._broker, topic, self._facts[topic].partitions)
        stamped = self._facts[topic].config.get("message.timestamp.type") == "LogAppendTime"
        if found and stamped and wanted.since_ms is not None:
            since_ms = max(0, wanted.since_ms - CLOCKS_MS)
            firsts = self._broker.offsets_at(dict.fromkeys(found, since_ms))
            found = {p: (max(low, first), end) for p, (low, end) in found.items() if (first := firsts[p]) is not None}
            found = {place: (start, end) for place, (start, end) in found.items() if start < end}
        if not wanted.places:
            return found
        named: dict[TopicPartition, list[int]] = {}
        for name, partition, offset in wanted.places:
            named.setdefault(TopicPartition(name, partition), []).append(offset)
        return {place: (min(named[place]), max(named[place]) + 1) for place in found if place in named}

    # What stands against requests

    def never(self, name: str) -> str:
        """Why a processor takes no requests; empty: it does."""
        graph = self._graph
        if name in graph.feeds:
            return (
                f"{name} is a feed, and its errors name no message of a topic. Correct the source, and have it give "
                "the rows again"
            )
        if name in graph.dataframes and not self._is_staged(name):
            return (
                f"{name} writes DataFrames directly, and its batches take no requests: only staged ones do. Send the "
                "messages again, or declare a Processor with the same work"
            )
        if name not in graph.all_processors:
            if why := self.ledgers.followed(name).why:
                return why
            name = self.ledgers.now(name)
        if name in graph.processors and (strategy := graph.strategy_of(name)) != EXACTLY_ONCE:
            return (
                f"{name} is {strategy}, and only exactly-once settles a request once. Declare strategy='exactly-once' "
                f"and run `cues-kafka strategy MODULE:GRAPH {name}`, or send the messages again"
            )
        if graph.errors_of(name) is None:
            return f"{name} no longer has an errors topic. Declare errors= for it, and restart its workers"
        missing = [made(graph.name, name) for made in (backing_topic, replay_topic)]
        if missing := [topic for topic in missing if topic not in self._facts]:
            return f"topic {missing[0]!r} does not exist. Run `cues-kafka plan MODULE:GRAPH --apply`"
        return ""

    def _is_staged(self, name: str) -> bool:
        """Whether the newest record of a processor of DataFrames says that it is staged."""
        if name not in self._staged:
            backing = self._facts.get(backing_topic(self._graph.name, name))
            self._staged[name] = False
            if backing is not None:
                place = TopicPartition(backing.name, 0)
                marks = self._broker.watermarks([place])[place]
                record = record_below(self._broker, place, marks.low, marks.stable, self._clock, group=self._group)
                self._staged[name] = record is not None and record.staged is not None
        return self._staged[name]

    def _elsewhere(self, error: ErrorMessage) -> str:
        """Why the task of an error takes no requests; empty: it does."""
        partition = error.task.rpartition("/")[2]
        if int(partition) >= self._facts[replay_topic(self._graph.name, self.ledgers.now(error.processor))].partitions:
            return (
                f"its replay topic has no partition {partition}. Run `cues-kafka plan MODULE:GRAPH --apply`, and ask "
                "again"
            )
        return ""

    def _gone(self, error: ErrorMessage) -> str:
        """Why the messages of an error cannot be delivered again; empty: they can, as far as can be seen."""
        if not error.consumed:
            return (
                "it is of a row that the function returned, which may be made of any number of messages. Correct the "
                "function, and send the messages again"
            )
        if error.hash != delivery_hash(error.graph, error.processor, error.consumed):
            return (
                "a timer failed, not a message, and timers fire once. Drop it, and have a message set the timer again"
            )
        processor = self._graph.all_processors[self.ledgers.now(error.processor)]
        bindings = dict(processor.inputs)
        for place, topic in zip(error.consumed, error.topics, strict=True):
            facts = self._facts.get(topic)
            if bindings.get(place.binding) != topic:
                return f"the processor no longer has the input {place.binding!r} on {topic!r}"
            if facts is None or facts.topic_id != place.topic_id:
                return f"topic {topic!r} was deleted or recreated since ({show_topic_id(place.topic_id)})"
            marks = self._lows.get(TopicPartition(topic, place.partition))
            if (marks is None or place.offset < marks.low) and kept_payload(error) is None:
                return (
                    f"its message is gone from {topic!r} (retention), and the error message has not kept it. Declare "
                    "errors=Errors(..., payload=True) for the next time, without redact="
                )
        pairing = processor.input_shape if isinstance(processor, Processor) else "alts"
        return not_paired(pairing, list(bindings), error.consumed)

    def _moved(self, error: ErrorMessage) -> str:
        """Why the task of an error must not call its message again: its key has another task by now; empty: it may."""
        name = self.ledgers.now(error.processor)
        processor = self._graph.all_processors[name]
        if not isinstance(processor, Processor) or len(error.consumed) != 1:
            return ""
        tasks = self._facts[backing_topic(self._graph.name, name)].partitions
        place = TopicPartition(error.topics[0], error.consumed[0].partition)
        return moved_key(self._graph, processor, tasks, place, error.key)


def _bounds(place: TopicPartition, marks: Watermarks | None) -> str:
    if marks is None:
        return f": {place.topic!r} has no partition {place.partition}"
    if marks.low >= marks.stable:
        return ": its partition is empty"
    return f": committed messages are from {marks.low} to {marks.stable - 1}"
