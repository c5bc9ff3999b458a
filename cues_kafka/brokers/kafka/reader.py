"""Reads committed messages from explicit offsets: `ports.clients.Reader` over a consumer that never joins its group.

`poll` is the hottest loop of the product. It calls the client twice for a whole batch (see `brokers.kafka.polled`), and
does per message only what C can do: `map` over unbound methods instead of a Python loop that calls each.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from itertools import groupby
from typing import Any, Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from cues_kafka.brokers.kafka.classify import error_of, name, translate
from cues_kafka.brokers.kafka.kept import KeptConsumers
from cues_kafka.brokers.kafka.polled import Polling, polling
from cues_kafka.brokers.kafka.refused import CODES, TOO_LARGE, limit_of, refused
from cues_kafka.brokers.kafka.rights import Right
from cues_kafka.brokers.kafka.watch import LOG, Watch
from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import BrokerError, UnreadableError
from cues_kafka.graph.names import is_tools_group
from cues_kafka.ports.log import Fetched, TopicPartition, WireMessage

_PROMPT: Final = {"fetch.wait.max.ms": 4, "queued.min.messages": 20_000}
"""Only a fetch that finds nothing reports the end of a partition that ends in markers, after this wait: a recovery
takes 6 ms with it, 13 with a wait of 10. Messages before the end are fetched while the reader does other work."""

_LEADERS_S: Final = 1.0
"""How long a reader waits for the leaders of new topics. Without an answer it goes on: the client finds them later."""

PROBE_S: Final = 3.0
"""How long a partition is read alone to find out whether its next batch is too large to be received."""

OPEN_S: Final = 5.0
"""How long the first records of open transactions are looked for."""

_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - the client's codes are named so

# The client's messages have all methods of a `WireMessage`, but their stubs declare other types.
_Batch: TypeAlias = "list[Any]"


class KafkaReader:
    """See `ports.clients.Reader`; belongs to one thread (A2)."""

    def __init__(
        self,
        options: Kafka,
        reader_name: str,
        *,
        prompt: bool = False,
        kept: KeptConsumers | None = None,
        opened: tuple[Consumer, Watch] | None = None,
    ) -> None:
        self._name = reader_name
        self._options = options
        self._kept = kept if prompt else None
        self._consumer, self._watch = (
            opened or (self._kept and self._kept.take(reader_name)) or _opened(options, reader_name, prompt=prompt)
        )
        self._polling: Polling = polling(self._consumer, prompt=prompt)
        self._assigned: dict[tuple[str, int], TopicPartition] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._errors: list[BrokerError] = []
        self._topics = 0
        self._led: set[str] | None = None if prompt else set()  # topics whose leaders it knows; None: it does not ask
        self._healthy: bool | None = None  # the last poll brought something, and no error; None: there was no poll
        self._closed = False

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        self._watch.same_process()
        places = [ClientPartition(topic, partition, offset) for (topic, partition), offset in starts.items()]
        if self._led is not None:
            self._find_leaders({topic for topic, _ in starts} - self._led)
        self._polling.expect(starts)
        self._call("assigning", self._consumer.incremental_assign, places)
        self._assigned |= {(topic, partition): TopicPartition(topic, partition) for topic, partition in starts}
        self._starts |= starts
        self._count_topics()

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        self._watch.same_process()
        # The client keeps a pause beyond the assignment, and the next one would bring nothing.
        self.resume(self._paused.intersection(partitions))
        # Polling away a partition that is not assigned raises (M24).
        gone = [self._assigned.pop((topic, partition), None) for topic, partition in partitions]
        places = [ClientPartition(*tp) for tp in gone if tp is not None]
        if places:
            self._polling.forget(partitions)
            self._call("unassigning", self._consumer.incremental_unassign, places)
            self._count_topics()
        self._errors = [error for error in self._errors if error.at is None or error.at in self._assigned]

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._call("pausing", self._consumer.pause, self._client_partitions(partitions))
        self._paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._call("resuming", self._consumer.resume, self._client_partitions(partitions))
        self._paused.difference_update(partitions)

    def poll(self, timeout_s: float, max_messages: int = 10_000) -> list[Fetched]:
        self._healthy = False
        if self._errors:
            raise self._errors.pop(0)
        self._watch.same_process()
        try:
            batch = self._polling.take(timeout_s, max_messages)
        except KafkaException as problem:
            raise self._failed(problem, "reading") from problem
        fetched = self._group(batch)
        if self._watch.oversized is not None:
            self._note_oversized()
        # Raise an error only if nothing else came with it: the client does not give the messages again.
        if self._errors and not fetched:
            raise self._errors.pop(0)
        self._healthy = bool(fetched) and not self._errors
        return fetched

    def close(self) -> None:
        if self._closed or self._watch.forked:
            return
        self._closed = True
        self._polling.close()
        if self._kept is None or not self._give_back(self._kept):
            self._consumer.close()

    def _give_back(self, kept: KeptConsumers) -> bool:
        """Whether the consumer is kept: only one that has just read something, and has no error left to report."""
        if self._healthy is None or not kept.keeps_any:
            return False
        healthy = self._healthy
        try:
            # First: as soon as the consumer is kept, a reader on another thread may have it.
            self.unassign(list(self._assigned.values()))
            # Nothing is assigned, so whatever still comes is an error, and the next reader would take it for its own.
            healthy = healthy and not self._consumer.consume(1, 0)
        except (BrokerError, KafkaException) as problem:
            LOG.info("%s: not kept: %s", self._watch.label, problem)
            healthy = False
        if not healthy:
            kept.discard_all()
        return healthy and kept.put(self._name, self._consumer, self._watch)

    def _find_leaders(self, topics: Collection[str]) -> None:
        """
        Have the client know the leaders of new topics.

        Else it often looks for them at its next tick, which comes once in a second: in one of three starts the first
        message came 0.8 s late. A prompt reader belongs to a recovery, and its topics are known by then.
        """
        assert self._led is not None
        for topic in sorted(topics):
            try:
                self._consumer.list_topics(topic, timeout=_LEADERS_S)
            except KafkaException as problem:
                LOG.info("%s: leaders of %s: %s", self._watch.label, topic, problem)
                return
            self._led.add(topic)

    def _group(self, batch: _Batch) -> list[Fetched]:
        """Group messages by partition, in order of offset. Events (ends, errors) are rare, and handled apart."""
        if batch and any(map(type(batch[0]).error, batch)):
            return self._group_with_events(batch)
        return [Fetched(self._assigned[place], messages, None) for place, messages in self._split(batch).items()]

    def _split(self, batch: _Batch) -> dict[tuple[str, int], _Batch]:
        """Split messages without events by partition; they come in runs of a fetch response each."""
        found: dict[tuple[str, int], _Batch] = {}
        if not batch:
            return found
        kind_of: Any = type(batch[0])
        # A topic's name costs a new string per message: with one topic only the first message is asked.
        by_topic = groupby(batch, kind_of.topic) if self._topics > 1 else [(batch[0].topic(), batch)]
        for topic, messages in by_topic:
            for partition, run in groupby(messages, kind_of.partition):
                place = (topic, partition)
                if place in found:
                    found[place].extend(run)
                else:
                    found[place] = list(run)
        return {place: messages for place, messages in found.items() if place in self._assigned}

    def _group_with_events(self, batch: _Batch) -> list[Fetched]:
        """
        Messages beside ends of partitions and errors.

        The messages of a partition behind its error are dropped. The client goes on behind a message whose checksum is
        wrong; delivering what follows would skip that message for good. The next poll raises the error, and the
        recovery points the reader to the position again.
        """
        messages: list[WireMessage] = []
        ends: dict[tuple[str, int], int] = {}
        broken = {error.at for error in self._errors if error.at is not None}
        for message in batch:
            error = message.error()
            topic, partition = message.topic(), message.partition()
            if topic is None or partition is None or partition < 0:
                self._note(error, message)  # an error of no partition
                continue
            place = (topic, partition)
            if place in broken:
                continue
            if error is None:
                # An end that messages follow is no longer the end.
                ends.pop(place, None)
                messages.append(message)
            elif error.code() == _EOF:
                ends[place] = int(message.offset() or 0)
            else:
                self._note(error, message)
                broken.add(place)
        found = self._split(messages)
        found |= {place: [] for place in ends if place in self._assigned and place not in found}
        return [Fetched(self._assigned[place], run, ends.get(place)) for place, run in found.items()]

    def _note(self, error: KafkaError, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is None or partition is None or partition < 0:
            # The client's own trouble with connections, from which it recovers itself.
            LOG.info("%s: %s: %s", self._watch.label, name(error), error.str())
            if error.fatal() or name(error).endswith("AUTHORIZATION_FAILED"):
                self._errors.append(self._failed(error, "reading", topic=topic))
            return
        at = TopicPartition(topic, partition)
        if at in self._assigned and name(error) in CODES:
            self._errors.append(self._refused(name(error), at, -1 if offset is None else offset, error.str()))
        elif at in self._assigned:
            where = f" at {offset}" if offset is not None and offset >= 0 else ""
            self._errors.append(self._failed(error, f"reading {topic}/{partition}{where}", at=at))

    def _refused(self, code: str, at: TopicPartition, offset: int, said: str) -> UnreadableError:
        limit = limit_of(self._options.settings("reader", client_id=self._name))
        at_offset = offset if offset >= 0 else self._position(at)
        return refused(code, self._name, at, at_offset, said=said, limit=limit)

    def _position(self, at: TopicPartition) -> int:
        """The offset that is read next."""
        [found] = self._consumer.position([ClientPartition(*at)])
        return int(found.offset) if found.offset >= 0 else self._starts[at]

    def _note_oversized(self) -> None:
        """Find the partition whose batch was too large to be received: the client names none."""
        size, self._watch.oversized = self._watch.oversized, None
        for at in [one for one in self._assigned.values() if one not in self._paused]:
            if not any(error.at == at for error in self._errors) and self._is_oversized(at):
                said = f"the response of a broker has {size:,} bytes"
                self._errors.append(self._refused(TOO_LARGE, at, -1, said))

    def _is_oversized(self, at: TopicPartition) -> bool:
        """Whether the next batch of a partition, read alone, is too large to be received."""
        consumer, watch = _opened(self._options, self._name, prompt=True)
        try:
            consumer.incremental_assign([ClientPartition(*at, self._position(at))])
            deadline = time.monotonic() + PROBE_S
            while watch.oversized is None and time.monotonic() < deadline:
                message = consumer.poll(0.1)
                if message is not None and message.topic() is not None:  # its next message, its end, or another error
                    return False
            return watch.oversized is not None
        finally:
            consumer.close()

    def _failed(
        self,
        problem: Exception | KafkaError,
        doing: str,
        *,
        at: TopicPartition | None = None,
        topic: str | None = None,
    ) -> BrokerError:
        one = at.topic if at else topic
        topics = {one} if one else {assigned for assigned, _ in self._assigned}
        # A reader only asks for the coordinator of its group; but workers join the processor's own group.
        operation = "Describe" if is_tools_group(self._name) else "Read"
        return translate(
            problem,
            f"{self._name}: {doing}",
            reasons=() if at else self._watch.reasons,
            at=at,
            needs=[Right(operation, "group", self._name), *(Right("Read", "topic", read) for read in sorted(topics))],
            user=self._watch.user,
            address=self._watch.address,
        )

    def _count_topics(self) -> None:
        self._topics = len({topic for topic, _ in self._assigned})

    def _client_partitions(self, partitions: Collection[TopicPartition]) -> list[ClientPartition]:
        return [ClientPartition(*tp) for tp in partitions if tp in self._assigned]

    def _call(self, doing: str, function: Any, places: list[ClientPartition]) -> None:
        if not places:
            return
        try:
            function(places)
        except KafkaException as problem:
            what = f"{self._name}: {doing} {places[0].topic}/{places[0].partition}"
            raise self._watch.error(error_of(problem), what) from problem


def open_since(options: Kafka, starts: Mapping[TopicPartition, int], group: str) -> dict[TopicPartition, float]:
    """
    Since when open transactions have written, in seconds since the epoch.

    The last stable offset is where the oldest open transaction began. So a reader of uncommitted records finds its
    first record there. Nothing but the timestamp is taken from it.

    Args:
        options: the cluster.
        starts: last stable offsets of partitions with an open transaction.
        group: see `ports.broker.Broker.open_since`.
    """
    if not starts:
        return {}
    reader = KafkaReader(options, group, opened=_opened(options, group, prompt=True, committed=False))
    found: dict[TopicPartition, float] = {}
    try:
        reader.assign(starts)
        deadline = time.monotonic() + OPEN_S
        left = set(starts)
        while left and time.monotonic() < deadline:
            for place, messages, eof in reader.poll(0.1):
                if messages:
                    found.setdefault(place, messages[0].timestamp()[1] / 1000)
                if messages or eof is not None:
                    left.discard(place)
                    reader.unassign([place])
    finally:
        reader.close()
    return found


def _opened(options: Kafka, reader_name: str, *, prompt: bool, committed: bool = True) -> tuple[Consumer, Watch]:
    watch = Watch(f"reader {reader_name}", options)
    settings = options.settings("reader", client_id=f"{reader_name}.reader", tuning=_PROMPT if prompt else {})
    settings |= {} if committed else {"isolation.level": "read_uncommitted"}
    # The client demands a group id for assign; the reader never commits under it, and never joins it.
    return watch.open(Consumer, settings | {"group.id": reader_name}), watch
