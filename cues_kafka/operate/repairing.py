"""Lists the error messages of a graph, and asks its tasks to replay them or to drop them (X1, Y1, Y2).

A request is a message on the replay topic of the processor, in the partition of the task that left the error message.
What is settled stands in the backing topic of the processor. So the tool needs no lock and no state of its own: it can
be cut short and run again, and two of them may run at once, because a task settles each error message once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias

from cues_kafka.arguments import known_arguments, known_call
from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka, Memory
from cues_kafka.brokers.patience import ask_again
from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.core.delivery import ErrorPlace, show_topic_id
from cues_kafka.core.hashing import delivery_hash
from cues_kafka.core.strategies import EXACTLY_ONCE
from cues_kafka.errors import CodecError, ConfigError, RecoveryError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.graph.names import (
    backing_topic,
    no_such_processor,
    processor_of,
    quoted,
    replay_topic,
    tools_group,
)
from cues_kafka.operate.former_names import FormerName, arrivals, follow
from cues_kafka.plan.topics import CLOCKS_MS
from cues_kafka.ports import (
    Broker,
    Clock,
    Sender,
    TopicFacts,
    TopicPartition,
    Watermarks,
    WireMessage,
)
from cues_kafka.records.error_messages import read_error
from cues_kafka.records.requests import (
    ReplayRequest,
    Settled,
    Wish,
    encode_request,
    kept_payload,
    not_paired,
    refused_key,
    request_in,
    settled_in,
    what_settled,
)
from cues_kafka.records.scanning import first_from, ranges_of, read_all, read_range
from cues_kafka.records.strangers import readable
from cues_kafka.runtime.given import check_graph
from cues_kafka.runtime.task.clock import SystemClock

KINDS: Final = ("raised", "decode", "output", "retries exhausted", "quarantine")
"""Kinds of error messages."""

PATIENCE_S: Final = 15.0
"""How long the cluster is asked for its topics: a partition may have no leader for a moment."""

CHUNK: Final = 500
"""Requests that are sent together."""

LOOK_S: Final = 0.25
"""How often a wait looks whether tasks have settled more."""

Progress: TypeAlias = Callable[[int, int], None]
"""Told how many offsets of the errors topics are read, and how many there are."""

Place: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset of an error message."""


@known_arguments(ConfigError)
@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """
    Which error messages are meant: those for which all of this holds. What is None or empty leaves the choice open.

    Attributes:
        processor: name of the processor; those of its former names count as its own, see `follow`.
        kind: one of `KINDS`.
        exception: name of the exception's class.
        since_ms: they failed at this time or later, in milliseconds since 1970.
        until_ms: they failed before this time.
        places: where they stand.
    """

    processor: str | None = None
    kind: str | None = None
    exception: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    places: frozenset[Place] = frozenset()

    def fits(self, place: Place, error: ErrorMessage, now: str) -> bool:
        """Whether it is one of them; its processor has the name `now` since it was renamed."""
        return (
            self.processor in (None, error.processor, now)
            and self.kind in (None, error.kind)
            and self.exception in (None, error.exception)
            and (self.since_ms is None or error.timestamp_ms >= self.since_ms)
            and (self.until_ms is None or error.timestamp_ms < self.until_ms)
            and (not self.places or place in self.places)
        )


ALL: Final = Selection()


@dataclass(frozen=True, slots=True)
class FiledError:
    """
    An error message where it stands, and what became of it.

    Attributes:
        topic, partition, offset: where it stands.
        place: the same by topic id.
        message: what it says.
        asked_of: the processor whose tasks take requests for it: its own, or what that one was renamed to.
        number: of the replay that comes next: 1 for a message that was not replayed yet.
        asked: what a task was asked to do with it; None: nothing.
        settled: what that came to; None: it is open.
        obstacle: why its messages cannot be delivered again; empty: they can.
        droppable: whether it can be dropped.
    """

    topic: str
    partition: int
    offset: int
    place: ErrorPlace
    message: ErrorMessage
    asked_of: str
    number: int
    asked: Wish | None
    settled: Settled | None
    obstacle: str
    droppable: bool

    def __str__(self) -> str:
        """Where it stands, as commands take it: ``shop.errors/0@17``."""
        return f"{self.topic}/{self.partition}@{self.offset}"


@dataclass(slots=True)
class FailureCause:
    """
    Error messages of one processor with one class of exception and one kind.

    Attributes:
        processor, exception, kind: what they have in common.
        count: how many there are.
        asked: how many of these were asked for, and are not settled yet.
        settled: how many of these are settled.
        first_ms, last_ms: when the first and the last one failed, in milliseconds since 1970.
        example: where the newest one stands.
        text: what its exception says.
    """

    processor: str
    exception: str
    kind: str
    count: int = 0
    asked: int = 0
    settled: int = 0
    first_ms: int = 1 << 62
    last_ms: int = -1
    example: str = ""
    text: str = ""

    def add(self, one: FiledError) -> None:
        """Count one of them."""
        self.count += 1
        self.asked += one.settled is None and one.asked is not None
        self.settled += one.settled is not None
        at_ms = one.message.timestamp_ms
        self.first_ms = min(self.first_ms, at_ms)
        if at_ms >= self.last_ms:
            self.last_ms, self.example, self.text = at_ms, str(one), one.message.text


@dataclass(slots=True)
class Requested:
    """
    What became of a wish.

    Attributes:
        wish: to replay, or to drop.
        causes: those that were asked for; of a dry run those that would be.
        waiting: error messages that are not settled yet, as far as they were asked for: where each stands, by the key
            of the record that will settle it, for each task.
        before: how many were asked for already, and are not settled yet.
        settled: how many are settled already.
        refused: how many cannot be, by reason.
        examples: where one of these stands, by reason.
        outcomes: what those came to that `wait` has seen settled.
    """

    wish: Wish
    causes: dict[tuple[str, str, str], FailureCause] = field(default_factory=dict)
    waiting: dict[str, dict[bytes, str]] = field(default_factory=dict)
    before: int = 0
    settled: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def asked(self) -> int:
        """How many were asked for now."""
        return sum(cause.count for cause in self.causes.values())

    @property
    def open(self) -> tuple[str, ...]:
        """Where those stand that are not settled yet."""
        return tuple(where for places in self.waiting.values() for where in places.values())


class _Ledger:
    """What the topics of one processor say of its error messages: what is asked for, what is settled, who runs it."""

    def __init__(self, broker: Broker, group: str, backing: TopicFacts, replay: TopicFacts) -> None:
        self._broker, self._group = broker, group
        self._next: dict[TopicPartition, int] = {}
        self._backing, self._replay = backing, replay
        self.settled: dict[bytes, bytes] = {}
        self.asked: dict[bytes, Wish] = {}

    def read(self) -> None:
        """Read what came since."""
        found: list[tuple[bytes, bytes, Wish]] = []
        for message in self._new(self._replay, passing="a request to replay"):
            request = readable(message, request_in, "a request to replay")
            if request is not None:
                found.append((refused_key(self._replay.topic_id, message), request.error.key, request.wish))
        self.look()
        for refused, key, wish in found:
            if refused not in self.settled:  # else its task has refused it, so nothing is asked for
                self.asked.setdefault(key, wish)

    def look(self, partitions: Collection[int] | None = None) -> None:
        """Read what is settled since."""
        self.settled.update(settled_in(self._new(self._backing, partitions)))

    def _new(
        self, topic: TopicFacts, partitions: Collection[int] | None = None, *, passing: str | None = None
    ) -> Iterator[WireMessage]:
        for place, (low, end) in ranges_of(self._broker, topic.name, topic.partitions).items():
            start = max(low, self._next.get(place, 0))
            if start < end and (partitions is None or place.partition in partitions):
                yield from read_range(self._broker, place, start, end, group=self._group, passing=passing)
                self._next[place] = end


class Repairs:
    """
    Lists error messages of a graph, and has them replayed or dropped. Use it as a context manager, or close it.

    Args:
        graph: the graph.
        broker: where it runs.
        owned: whether to close the broker too.
        clock: time.

    Raises:
        ConfigError: the graph has no errors topic, or it does not exist.
        BrokerError: the cluster does not answer.
    """

    def __init__(self, graph: Graph, broker: Broker, *, owned: bool = False, clock: Clock | None = None) -> None:
        self._graph, self._broker, self._owned = graph, broker, owned
        self._clock = clock or SystemClock()
        self._group = tools_group(graph.name)
        self._topics = graph.error_topics()
        if not self._topics:
            raise ConfigError(
                f"graph {graph.name!r} has no errors topic, so it has no error messages. Declare one: "
                f"Graph({graph.name!r}, ..., errors='{graph.name}.errors')."
            )
        names = [n for n in graph.processors if graph.errors_of(n) is not None]
        inputs = [topic for name in names for topic in graph.processors[name].input_topics]
        own = [made(graph.name, name) for name in names for made in (backing_topic, replay_topic)]
        asked = [*dict.fromkeys((*self._topics, *inputs, *own))]
        self._facts = ask_again(lambda: broker.facts(asked), PATIENCE_S).topics
        if missing := [topic for topic in self._topics if topic not in self._facts]:
            raise ConfigError(
                f"errors topic {missing[0]!r} does not exist on this cluster. Run `cues-kafka plan MODULE:GRAPH "
                "--apply`, or name the cluster that the graph runs on."
            )
        self._lows = self._first_offsets(inputs)
        self._ledgers: dict[str, _Ledger] = {}
        self._former: dict[str, FormerName] = {}
        self._everywhere: dict[bytes, bytes] | None = None
        self._arrivals: Mapping[str, str] | None = None
        self._sender: Sender | None = None
        self.foreign = 0
        self.unreadable = 0

    # Reading

    def find(self, wanted: Selection = ALL, *, progress: Progress | None = None) -> Iterator[FiledError]:
        """
        Read error messages, those that are settled too, topic by topic and partition by partition.

        Messages of other graphs are counted in `foreign`, and those that cannot be read in `unreadable`.

        Args:
            wanted: which of them.
            progress: told how far the reading is.

        Raises:
            ConfigError: the graph has no such processor, or there is no such kind.
            BrokerError: something cannot be read.
        """
        self._check(wanted)
        self.foreign = self.unreadable = 0
        self._ledgers.clear()
        self._former.clear()
        self._arrivals = None
        self._everywhere = None
        ranges = {p: r for topic in self._topics for p, r in self._ranges(topic, wanted).items()}
        done, total = 0, sum(end - start for start, end in ranges.values())
        for place, (start, end) in ranges.items():
            for message in read_range(self._broker, place, start, end, group=self._group, passing="an error message"):
                if progress is not None:
                    progress(done + message.offset() + 1 - start, total)
                if (found := self._filed(message, wanted)) is not None:
                    yield found
            done += end - start

    def causes(
        self, wanted: Selection = ALL, *, settled: bool = False, progress: Progress | None = None
    ) -> tuple[FailureCause, ...]:
        """
        Count error messages by cause, the largest number first.

        Args:
            wanted: which of them.
            settled: whether to count those that are settled too.
            progress: told how far the reading is.

        Raises:
            ConfigError, BrokerError: see `find`.
        """
        found: dict[tuple[str, str, str], FailureCause] = {}
        for one in self.find(wanted, progress=progress):
            if settled or one.settled is None:
                _count(found, one)
        return tuple(sorted(found.values(), key=lambda cause: (-cause.count, cause.processor, cause.exception)))

    def show(self, topic: str, partition: int, offset: int) -> FiledError:
        """
        Read one error message.

        Raises:
            ConfigError: there is no such error message of this graph.
            BrokerError: it cannot be read.
        """
        message, error, number = self._read(topic, partition, offset)
        self._ledgers.clear()
        self._former.clear()
        self._arrivals = None
        return self._file(message, error, number)

    def _read(self, topic: str, partition: int, offset: int) -> tuple[WireMessage, ErrorMessage, int]:
        where = f"{topic}/{partition}@{offset}"
        if topic not in self._topics:
            raise ConfigError(
                f"{where}: {topic!r} is no errors topic of graph {self._graph.name!r}, which has {quoted(self._topics)}"
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
            raise ConfigError(f"{where} is no message: it is the end of a transaction, or was not committed.")
        try:
            error, number = read_error(message, error_messages().decode)
        except CodecError as unreadable:
            raise ConfigError(f"{where}: {unreadable}") from unreadable
        if error.graph != self._graph.name:
            raise ConfigError(f"{where} is of graph {error.graph!r}. Give that graph to the command.")
        return message, error, number

    # Asking

    def ask(
        self,
        wish: Wish,
        wanted: Selection = ALL,
        *,
        limit: int | None = None,
        dry: bool = False,
        progress: Progress | None = None,
    ) -> Requested:
        """
        Ask tasks to replay error messages, or to drop them. What is settled, or was asked for before, stays as it is.

        Args:
            wish: `replay` or `drop`.
            wanted: which of them.
            limit: how many to ask for at most, in the order of the errors topics; None: all.
            dry: write nothing, and say what would be asked for.
            progress: told how far the reading is.

        Raises:
            ConfigError: see `find`; what is asked for by name cannot be done, with the reason and the remedy; or an
                argument is not what it takes.
            BrokerError: something cannot be read, or a request was not acknowledged. Ask again: nothing is asked twice.
        """
        self._check(wanted)
        _check_wish(wish, limit)
        if wanted.processor is not None and (why := self._never(wanted.processor)):
            raise ConfigError(why)
        for place in sorted(wanted.places):
            self._read(*place)
        result, due = Requested(wish), list[FiledError]()
        for one in self.find(wanted, progress=progress):
            why = one.obstacle if wish == "replay" or not one.droppable else ""
            if one.settled is not None:
                result.settled += 1
            elif one.asked is not None:
                result.before += 1
                _await(result, one)
            elif why:
                result.refused[why] += 1
                result.examples.setdefault(why, str(one))
            elif one.place.key in self._settled_everywhere():
                result.settled += 1
            else:
                due.append(one)
                _count(result.causes, one)
                _await(result, one)
            if len(due) >= CHUNK and not dry:
                self._send(wish, due)
                due = []
            if limit is not None and result.asked >= limit:
                break
        if wanted.places and result.refused:
            [(why, _)] = result.refused.most_common(1)
            raise ConfigError(f"{result.examples[why]} cannot be {PAST[wish]}: {why}")
        if due and not dry:
            self._send(wish, due)
        return result

    def wait(
        self,
        requested: Requested,
        *,
        timeout_s: float = 60.0,
        ended: threading.Event | None = None,
        progress: Progress | None = None,
    ) -> bool:
        """
        Wait until tasks have settled what was asked for.

        Args:
            requested: what `ask` gave. Its `outcomes` and `open` say what became of it.
            timeout_s: how long to wait.
            ended: set it to end the wait.
            progress: told how many are settled, and how many were asked for.

        Returns:
            Whether all of it is settled.

        Raises:
            RecoveryError: a task of these takes no requests any longer.
            BrokerError: the cluster does not answer.
        """
        ended = threading.Event() if ended is None else ended
        deadline, total = self._clock.monotonic() + timeout_s, len(requested.open)
        while True:
            for task, places in requested.waiting.items():
                if not places:
                    continue
                name, _, partition = task.rpartition("/")
                ledger = self._ledger(name)
                if ledger is None:
                    raise RecoveryError(
                        f"{task} takes no requests now: {self._never(name) or 'it has no replay topic'}. `cues-kafka "
                        "errors list` shows what is still open"
                    )
                ledger.look({int(partition)})
                for key in [key for key in places if key in ledger.settled]:
                    del places[key]
                    requested.outcomes[what_settled(ledger.settled[key]).outcome] += 1
            left = len(requested.open)
            if progress is not None:
                progress(total - left, total)
            if not left or self._clock.monotonic() >= deadline or ended.wait(LOOK_S):
                return not left

    def close(self) -> None:
        """Release the clients."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._owned:
            self._broker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Within

    def _check(self, wanted: Selection) -> None:
        if not isinstance(wanted, Selection):
            raise ConfigError(f"{wanted!r:.80}: error messages are chosen by a Selection(...), such as {_CHOICE}.")
        for name, (fits, takes) in _TAKES.items():
            value = getattr(wanted, name)
            if value is not None and not fits(value):
                raise ConfigError(f"Selection({name}={value!r:.80}): takes {takes}.")
        known = self._graph.all_processors
        if wanted.processor is not None and self._now(wanted.processor) not in known:
            raise ConfigError(no_such_processor(self._graph.name, [wanted.processor], known))
        if wanted.kind is not None and wanted.kind not in KINDS:
            raise ConfigError(f"there are no error messages of kind {wanted.kind!r}. Kinds: {quoted(KINDS)}.")

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

    def _first_offsets(self, topics: Iterable[str]) -> Mapping[TopicPartition, Watermarks]:
        there = [self._facts[topic] for topic in dict.fromkeys(topics) if topic in self._facts]
        places = [TopicPartition(one.name, partition) for one in there for partition in range(one.partitions)]
        return self._broker.watermarks(places) if places else {}

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
        now = error.processor if wanted.processor in (None, error.processor) else self._now(error.processor)
        return self._file(message, error, number) if wanted.fits(place, error, now) else None

    def _file(self, message: WireMessage, error: ErrorMessage, number: int) -> FiledError:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        place = ErrorPlace(self._facts[topic].topic_id, partition, offset)
        ledger, now = self._ledger(error.processor), self._now(error.processor)
        declared = error.processor in self._graph.all_processors
        before = {} if declared else self._followed(error.processor).settled
        settled = before.get(place.key) or (ledger.settled.get(place.key) if ledger else None)
        if settled is None and (other := self._arrived.get(error.processor, now)) != now:
            settled = other_ledger.settled.get(place.key) if (other_ledger := self._ledger(other)) else None
        never = self._never(error.processor) or self._elsewhere(error)
        return FiledError(
            topic=topic,
            partition=partition,
            offset=offset,
            place=place,
            message=error,
            asked_of=now,
            number=number,
            asked=ledger.asked.get(place.key) if ledger else None,
            settled=None if settled is None else what_settled(settled),
            obstacle=never or self._gone(error),
            droppable=not never,
        )

    def _followed(self, name: str) -> FormerName:
        """What became of a processor that the graph does not declare."""
        if name not in self._former:
            self._former[name] = follow(self._graph, self._broker, name, self._clock)
        return self._former[name]

    @property
    def _arrived(self) -> Mapping[str, str]:
        """Former names of processors: one that is declared again has error messages that another has settled."""
        if self._arrivals is None:
            self._arrivals = arrivals(self._graph, self._broker, self._clock)
        return self._arrivals

    def _now(self, name: str) -> str:
        """The processor whose tasks take requests for error messages of this one."""
        return name if name in self._graph.all_processors else self._followed(name).now or name

    def _ledger(self, name: str) -> _Ledger | None:
        """
        What is known of a processor's error messages; None: it has no topics that say anything.

        A processor of another strategy takes no requests, and what it settled before is settled.
        """
        name = self._now(name)
        own = [self._facts.get(made(self._graph.name, name)) for made in (backing_topic, replay_topic)]
        if name not in self._ledgers and None not in own:
            backing, replay = (one for one in own if one is not None)
            self._ledgers[name] = _Ledger(self._broker, self._group, backing, replay)
            self._ledgers[name].read()
        return self._ledgers.get(name)

    def _settled_everywhere(self) -> Mapping[bytes, bytes]:
        """
        What any processor of the graph has settled, also one that is not declared any more.

        A name can come back, by a second `rename` or for another function. Its error messages of before may be settled
        under the name that it had meanwhile.
        """
        if self._everywhere is None:
            self._everywhere = {}
            for topic, width in sorted(self._broker.partitions().items()):
                name = processor_of(self._graph.name, topic)
                if name and topic == backing_topic(self._graph.name, name):
                    self._everywhere.update(settled_in(read_all(self._broker, topic, width, group=self._group)))
        return self._everywhere

    def _never(self, name: str) -> str:
        """Why a processor takes no requests; empty: it does."""
        graph = self._graph
        if name in graph.feeds:
            return (
                f"{name} is a feed, and its errors name no message of a topic. Correct the source, and have it give "
                "the rows again"
            )
        if name in graph.dataframes:
            return (
                f"{name} is a processor of DataFrames, and Spark's batches take no requests. Send the messages again, "
                "or declare a Processor with the same work and run it natively"
            )
        if name not in graph.processors:
            if why := self._followed(name).why:
                return why
            name = self._now(name)
        if (strategy := graph.strategy_of(name)) != EXACTLY_ONCE:
            return (
                f"{name} is {strategy}, and only exactly-once settles a request once. Declare strategy='exactly-once' "
                f"and run `cues-kafka strategy MODULE:GRAPH {name}`, or send the messages again"
            )
        if graph.errors_of(name) is None:
            return f"{name} has no errors topic any more. Declare errors= for it, and restart its workers"
        missing = [made(graph.name, name) for made in (backing_topic, replay_topic)]
        if missing := [topic for topic in missing if topic not in self._facts]:
            return f"topic {missing[0]!r} does not exist. Run `cues-kafka plan MODULE:GRAPH --apply`"
        return ""

    def _elsewhere(self, error: ErrorMessage) -> str:
        partition = error.task.rpartition("/")[2]
        if int(partition) >= self._facts[replay_topic(self._graph.name, self._now(error.processor))].partitions:
            return (
                f"its replay topic has no partition {partition}. Run `cues-kafka plan MODULE:GRAPH --apply`, and ask "
                "again"
            )
        return ""

    def _gone(self, error: ErrorMessage) -> str:
        """Why the messages of an error cannot be delivered again; empty: they can, as far as can be seen."""
        if not error.consumed:
            return "it names no message"
        if error.hash != delivery_hash(error.graph, error.processor, error.consumed):
            return (
                "a timer failed, not a message, and timers fire once. Drop it, and have a message set the timer again"
            )
        processor = self._graph.processors[self._now(error.processor)]
        bindings = dict(processor.inputs)
        for place, topic in zip(error.consumed, error.topics, strict=True):
            facts = self._facts.get(topic)
            if bindings.get(place.binding) != topic:
                return f"the processor has no input {place.binding!r} on {topic!r} any more"
            if facts is None or facts.topic_id != place.topic_id:
                return f"topic {topic!r} was deleted or recreated since ({show_topic_id(place.topic_id)})"
            marks = self._lows.get(TopicPartition(topic, place.partition))
            if (marks is None or place.offset < marks.low) and kept_payload(error) is None:
                return (
                    f"its message is gone from {topic!r} (retention), and the error message has not kept it. Declare "
                    "errors=Errors(..., payload=True) for the next time, without redact="
                )
        return not_paired(processor.input_shape, list(bindings), error.consumed)

    def _send(self, wish: Wish, errors: Sequence[FiledError]) -> None:
        if self._sender is None:
            self._sender = self._broker.sender(f"{self._graph.name}.tools")
        self._sender.send([_request(wish, one) for one in errors])


PAST: Final[Mapping[Wish, str]] = {"replay": "replayed", "drop": "dropped"}


@known_call(ConfigError)
def repairs(cluster: Kafka | Memory, graph: Graph) -> Repairs:
    """
    Open what lists the error messages of a graph, and has them replayed or dropped. Close it, or use it in a `with`.

    Args:
        cluster: `Kafka(...)` or `Memory(...)`.
        graph: the graph.

    Raises:
        ConfigError: an argument is not what it takes, the graph has no errors topic, or it does not exist.
        BrokerError: the cluster does not answer.
    """
    check_graph("repairs", graph)
    broker = open_broker(cluster)
    try:
        return Repairs(graph, broker, owned=True)
    except BaseException:
        broker.close()
        raise


def _check_wish(wish: Wish, limit: int | None) -> None:
    if wish not in PAST:
        raise ConfigError(f"ask({wish!r:.80}): takes 'replay' or 'drop'.")
    if limit is not None and not (isinstance(limit, int) and limit >= 1):
        raise ConfigError(f"limit={limit!r:.80}: takes a number from 1 on; None asks for all.")


_CHOICE: Final = "Selection(processor='check')"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_time(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_places(value: Any) -> bool:
    whole = isinstance(value, set | frozenset) and all(isinstance(one, tuple) and len(one) == 3 for one in value)
    return whole and all(isinstance(t, str) and isinstance(p, int) and isinstance(o, int) for t, p, o in value)


_TAKES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "processor": (_is_text, "the name of a processor"),
    "kind": (_is_text, "a kind of error messages, such as 'raised'"),
    "exception": (_is_text, "the name of a class, such as 'ValueError'"),
    "since_ms": (_is_time, "milliseconds since 1970, as a whole number"),
    "until_ms": (_is_time, "milliseconds since 1970, as a whole number"),
    "places": (_are_places, "a set of (topic, partition, offset), such as frozenset({('shop.errors', 0, 17)})"),
}


def _count(causes: dict[tuple[str, str, str], FailureCause], one: FiledError) -> None:
    key = one.message.processor, one.message.exception, one.message.kind
    causes.setdefault(key, FailureCause(*key)).add(one)


def _await(result: Requested, one: FiledError) -> None:
    result.waiting.setdefault(_task_of(one), {})[one.place.key] = str(one)


def _task_of(one: FiledError) -> str:
    """The task that takes a request for it."""
    return f"{one.asked_of}/{one.message.task.rpartition('/')[2]}"


def _request(wish: Wish, one: FiledError) -> tuple[Any, ...]:
    """The message that asks for one."""
    error = one.message
    request = ReplayRequest(
        error=one.place,
        errors=one.topic,
        wish=wish,
        number=one.number,
        consumed=error.consumed,
        topics=error.topics,
        payload=kept_payload(error),
        key=None if kept_payload(error) is None else error.key,
    )
    name, _, partition = _task_of(one).rpartition("/")
    return replay_topic(error.graph, name), int(partition), str(one.place).encode(), encode_request(request), None, 0


def _bounds(place: TopicPartition, marks: Watermarks | None) -> str:
    if marks is None:
        return f": {place.topic!r} has no partition {place.partition}"
    if marks.low >= marks.stable:
        return ": its partition is empty"
    return f": committed messages are from {marks.low} to {marks.stable - 1}"
