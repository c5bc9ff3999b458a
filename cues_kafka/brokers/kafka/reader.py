"""Reads partitions committed, from explicit offsets: `ports.Reader` over a consumer that never joins its group.

`poll` is the hottest loop of the product. It makes two calls of the client for a whole batch, and per message only what
C can do: `map` over unbound methods instead of a Python loop that calls each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import groupby
from typing import Any, Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from cues_kafka.brokers.kafka.classify import error_of, name, translate
from cues_kafka.brokers.kafka.kept import KeptConsumers
from cues_kafka.brokers.kafka.opening import opened
from cues_kafka.brokers.kafka.rights import Right, user_of
from cues_kafka.brokers.kafka.watch import LOG, Watch
from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import BrokerError, FatalError
from cues_kafka.graph.names import is_tools_group
from cues_kafka.ports import Fetched, TopicPartition, WireMessage

_PROMPT: Final = {"fetch.wait.max.ms": 4, "queued.min.messages": 20_000}
"""The end of a partition that ends in markers is only told by a fetch that finds nothing, after this wait: a recovery
takes 6 ms with it, 13 with one of 10. What lies before the end is fetched ahead, while its reader still does something
else."""

_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - the client's codes are named so

# The client's messages have all that a `WireMessage` has, but their stubs say so in other words.
_Batch: TypeAlias = "list[Any]"
_error_of: Any = Message.error
_partition_of: Any = Message.partition
_topic_of: Any = Message.topic


class KafkaReader:
    """See `ports.Reader`; belongs to one thread (A2)."""

    def __init__(
        self, options: Kafka, reader_name: str, *, prompt: bool = False, kept: KeptConsumers | None = None
    ) -> None:
        self._name = reader_name
        self._user = user_of({**options.config, **options.consumer})
        self._kept = kept if prompt else None
        self._consumer, self._watch = (self._kept and self._kept.take(reader_name)) or _opened(
            options, reader_name, prompt=prompt
        )
        self._assigned: dict[tuple[str, int], TopicPartition] = {}
        self._paused: set[TopicPartition] = set()
        self._errors: list[BrokerError] = []
        self._topics = 0
        self._sound: bool | None = None  # the last poll brought something, and no error; None: there was none
        self._closed = False

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        self._watch.same_process()
        places = [ClientPartition(topic, partition, offset) for (topic, partition), offset in starts.items()]
        self._call("assigning", self._consumer.incremental_assign, places)
        self._assigned |= {(topic, partition): TopicPartition(topic, partition) for topic, partition in starts}
        self._count_topics()

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        self._watch.same_process()
        # The client keeps a pause beyond the assignment, and would bring nothing of the next one.
        self.resume(self._paused.intersection(partitions))
        # Taking away what is not there raises (M24).
        gone = [self._assigned.pop((topic, partition), None) for topic, partition in partitions]
        places = [ClientPartition(*tp) for tp in gone if tp is not None]
        if places:
            self._call("unassigning", self._consumer.incremental_unassign, places)
            self._count_topics()
        self._errors = [error for error in self._errors if error.at is None or error.at in self._assigned]

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._call("pausing", self._consumer.pause, self._places(partitions))
        self._paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._call("resuming", self._consumer.resume, self._places(partitions))
        self._paused.difference_update(partitions)

    def poll(self, timeout_s: float, max_messages: int = 10_000) -> list[Fetched]:
        self._sound = False
        if self._errors:
            raise self._errors.pop(0)
        self._watch.same_process()
        try:
            batch = self._take(timeout_s, max_messages)
        except KafkaException as problem:
            raise self._failed(problem, "reading") from problem
        fetched = self._group(batch)
        # An error is raised only when nothing else came with it: what came was taken from the client for good.
        if self._errors and not fetched:
            raise self._errors.pop(0)
        self._sound = bool(fetched) and not self._errors
        return fetched

    def close(self) -> None:
        if self._closed or _forked(self._watch):
            return
        self._closed = True
        if self._kept is None or not self._give_back(self._kept):
            self._consumer.close()

    def _give_back(self, kept: KeptConsumers) -> bool:
        """Whether the consumer is kept: only one that has just done what it should, and has nothing left to tell."""
        if self._sound is None or not kept.wanted:
            return False
        sound = self._sound
        try:
            self.unassign(list(self._assigned.values()))
            # Nothing is assigned, so what still comes is an error that the next reader would take for its own.
            sound = sound and not self._consumer.consume(1, 0)
        except (BrokerError, KafkaException) as problem:
            LOG.info("%s: not kept: %s", self._watch.label, problem)
            sound = False
        if not sound:
            kept.doubt()
        return sound and kept.put(self._name, self._consumer, self._watch)

    def _take(self, timeout_s: float, max_messages: int) -> _Batch:
        """Wait for one message, then take what is queued."""
        consumer = self._consumer
        first = consumer.poll(timeout_s)
        batch: _Batch = [] if first is None else [first]
        if batch and max_messages > 1:
            # A time-out of zero: with any other the client waits until it has that many, up to the whole time.
            batch += consumer.consume(max_messages - 1, 0)
        return batch

    def _group(self, batch: _Batch) -> list[Fetched]:
        """Messages by partition, in order of offset. Events (ends of partitions, errors) are rare and taken apart."""
        if any(map(_error_of, batch)):
            return self._group_with_events(batch)
        return [Fetched(self._assigned[place], messages, None) for place, messages in self._split(batch).items()]

    def _split(self, batch: _Batch) -> dict[tuple[str, int], _Batch]:
        """Split messages without events by partition; they come in runs of a fetch response each."""
        found: dict[tuple[str, int], _Batch] = {}
        # Strings cost a new object per message: the name of the topic is asked of each only where there are several.
        by_topic = groupby(batch, _topic_of) if self._topics > 1 else ((m.topic(), batch) for m in batch[:1])
        for topic, messages in by_topic:
            for partition, run in groupby(messages, _partition_of):
                place = (topic, partition)
                if place in found:
                    found[place].extend(run)
                else:
                    found[place] = list(run)
        return {place: messages for place, messages in found.items() if place in self._assigned}

    def _group_with_events(self, batch: _Batch) -> list[Fetched]:
        """
        Messages beside ends of partitions and errors.

        What comes of a partition behind an error of it is dropped. The client goes on behind a message whose checksum
        is wrong; delivering what follows would skip that message for ever. The error is raised by the next poll, and
        the recovery points the reader to the position again.
        """
        messages: list[WireMessage] = []
        ends: dict[tuple[str, int], int] = {}
        broken = {error.at for error in self._errors if error.at is not None}
        for message in batch:
            error = message.error()
            topic, partition = message.topic(), message.partition()
            if topic is None or partition is None or partition < 0:
                self._note(error, message)  # an error of no partition; there may be several
                continue
            place = (topic, partition)
            if place in broken:
                continue
            if error is None:
                # An end that messages follow is no end any more.
                ends.pop(place, None)
                messages.append(message)
            elif error.code() == _EOF:
                ends[place] = int(message.offset() or 0)
            else:
                self._note(error, message)
                broken.add(place)
        found = self._split(messages)
        for place in ends:
            if place in self._assigned:
                found.setdefault(place, [])
        return [Fetched(self._assigned[place], run, ends.get(place)) for place, run in found.items()]

    def _note(self, error: KafkaError, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is None or partition is None or partition < 0:
            # Of no partition: the client's own trouble with connections, which it mends itself.
            LOG.info("%s: %s: %s", self._watch.label, name(error), error.str())
            if error.fatal() or name(error).endswith("AUTHORIZATION_FAILED"):
                self._errors.append(self._failed(error, "reading", topic=topic))
            return
        at = TopicPartition(topic, partition)
        if at in self._assigned:
            where = f" at {offset}" if offset is not None and offset >= 0 else ""
            self._errors.append(self._failed(error, f"reading {topic}/{partition}{where}", at=at))

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
        # A reader asks where its group is coordinated, and no more; but the processor's own group is joined, too.
        operation = "Describe" if is_tools_group(self._name) else "Read"
        return translate(
            problem,
            f"{self._name}: {doing}",
            reasons=() if at else self._watch.reasons,
            at=at,
            needs=[Right(operation, "group", self._name), *(Right("Read", "topic", read) for read in sorted(topics))],
            user=self._user,
        )

    def _count_topics(self) -> None:
        self._topics = len({topic for topic, _ in self._assigned})

    def _places(self, partitions: Collection[TopicPartition]) -> list[ClientPartition]:
        return [ClientPartition(*tp) for tp in partitions if tp in self._assigned]

    def _call(self, doing: str, function: Any, places: list[ClientPartition]) -> None:
        if not places:
            return
        try:
            function(places)
        except KafkaException as problem:
            first = places[0]
            what = f"{self._name}: {doing} {first.topic}/{first.partition}"
            error = translate(error_of(problem), what, reasons=self._watch.reasons)
            raise error from problem


def _opened(options: Kafka, reader_name: str, *, prompt: bool) -> tuple[Consumer, Watch]:
    watch = Watch(f"reader {reader_name}", options)
    settings = options.settings("reader", client_id=f"{reader_name}.reader", tuning=_PROMPT if prompt else {})
    # The client demands a group id for assign; nothing is ever committed under it and it is never joined.
    return opened(Consumer, settings | {"group.id": reader_name} | watch.callbacks()), watch


def _forked(watch: Watch) -> bool:
    try:
        watch.same_process()
    except FatalError:
        return True
    return False
