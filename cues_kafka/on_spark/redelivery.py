"""Replays of errors of a staged processor: the messages that failed are rows of the next batch (Y4).

The replay topic is one more topic of each input's source, so Spark's offsets say which requests a batch takes. A batch
that runs again takes the same ones: what settled an error message is a request below them, or one of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

from cues_kafka.core.delivery import ErrorPlace
from cues_kafka.errors import ConfigError, RetriableError
from cues_kafka.observe.refused import REFUSED
from cues_kafka.on_spark.source.decoding import NotDecoded, Separated
from cues_kafka.on_spark.source.planning import OffsetRange, Offsets
from cues_kafka.on_spark.source.rows import message_batches
from cues_kafka.on_spark.undecoded import Undecoded
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.records.requests import (
    Outcome,
    ReplayRequest,
    Settled,
    encode_settled,
    refused_key,
    request_in,
    settled_in,
    what_settled,
)
from cues_kafka.records.scanning import read_range
from cues_kafka.records.strangers import readable
from cues_kafka.task.again import ReadsAgain
from cues_kafka.task.calling.replayed import MessageGone, Restored
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.specs import frame_spec
from cues_kafka.task.proving import ASK_AGAIN, Proving, Unproven
from cues_kafka.task.replaying import WHAT

AT_ONCE: Final = 1_000
"""Requests that a batch takes of a partition, at most, so that messages do not wait for long (Y3)."""

MARKERS_S: Final = 15.0
"""How long to wait for the markers of the batch before."""

ASK_AGAIN_S: Final = 0.05


class Redelivered(NamedTuple):
    """
    A request that a batch takes.

    Attributes:
        key: of the record that settles it.
        by: where the request stands.
        outcome: what it comes to; `row` turns to `error` if the message cannot be decoded.
        number: of the replay; 0: nothing is delivered.
        message: what is delivered; None: nothing is.
        gone: why it cannot be delivered; empty: it can.
    """

    key: bytes
    by: str
    outcome: Outcome
    number: int = 0
    message: WireMessage | None = None
    gone: str = ""

    def settled(self, now_ms: int, *, failed: bool) -> bytes:
        """The value of the record that settles it."""
        return encode_settled(Settled("error" if failed else self.outcome, self.number, now_ms, self.by))


@dataclass(frozen=True)
class Redelivery:
    """
    Takes requests for messages of one input. It can be pickled.

    Attributes:
        undecoded: of the input.
        topic, topic_id, width: the replay topic, and its number of partitions.
        errors: the errors topics of the graph.
        bindings: of all inputs; the source of the first one settles what is no request for any of them.
        parts: of the processor.
        first: where a query without a checkpoint begins to read it, by partition; 0 where it says nothing.
    """

    undecoded: Undecoded
    topic: str
    topic_id: bytes
    width: int
    errors: tuple[str, ...]
    bindings: tuple[str, ...]
    parts: int
    first: Mapping[int, int]

    def range(self, partition: int, start: int, end: int) -> OffsetRange:
        """The requests of a batch; a topic that ends before it begins was recreated, and is read from its start."""
        return OffsetRange(TopicPartition(self.topic, partition), start if start <= end else 0, end)

    def begins(self) -> Offsets:
        """Where a query without a checkpoint begins."""
        return {TopicPartition(self.topic, p): self.first.get(p, 0) for p in range(self.width)}

    def stable(self, broker: Broker) -> Offsets:
        """The ends of the replay topic."""
        marks = broker.watermarks(list(self.begins()))
        return {place: one.stable for place, one in marks.items()}

    def ends(self, start: Mapping[TopicPartition, int], stable: Mapping[TopicPartition, int]) -> Offsets:
        """How far the next batch takes requests."""
        return {
            place: min(end, AT_ONCE + (begun if (begun := start.get(place, 0)) <= end else 0))
            for place, end in stable.items()
        }

    def taken(self, broker: Broker, span: OffsetRange) -> list[Redelivered]:
        """
        Read the requests of a range: those for this input that no request below the range has settled.

        Raises:
            BrokerError: the cluster does not answer.
        """
        with closing(_Taking(self, broker, span.place.partition)) as taking:
            name = f"{self.undecoded.graph}.{self.undecoded.processor}"
            batches = message_batches(broker, span, name=name, fail=False)
            return [one for messages in batches for message in messages for one in taking.take(message)]

    def separated(self, taken: Iterable[Redelivered]) -> tuple[list[Separated], list[NotDecoded]]:
        """Decode what is delivered: the good messages of one class each, and all that failed, also what is gone."""
        failed: list[NotDecoded] = []
        alike: dict[type[Any], list[WireMessage]] = {}
        for one in taken:
            if one.gone and one.message is not None:
                failed.append(NotDecoded(one.message, MessageGone(one.gone)))
            elif one.message is not None:
                alike.setdefault(type(one.message), []).append(one.message)
        found = [self.undecoded.decoding.separate(messages) for messages in alike.values()]
        return found, [*failed, *(each for one in found for each in one.failed)]


class _Taking:
    """Takes the requests of one partition in one Spark task."""

    def __init__(self, given: Redelivery, broker: Broker, partition: int) -> None:
        made, clock = given.undecoded, SystemClock()
        inputs = ((made.binding, made.topic),)
        self._spec = frame_spec(made.graph, made.processor, partition, made.width, made.identity, inputs=inputs)
        self._given, self._broker = given, broker
        self._again = ReadsAgain(broker, clock, self._spec.group)
        self._proving = Proving(self._spec, broker, clock, self._again, given.errors)
        self._settled: dict[bytes, bytes] | None = None
        self._seen = set[bytes]()

    def take(self, message: WireMessage) -> Iterator[Redelivered]:
        """What one request asks of this input; nothing, if that was done before."""
        given = self._given
        by = str(ErrorPlace(given.topic_id, message.partition(), message.offset()))
        own = refused_key(given.topic_id, message)
        request = readable(message, request_in, WHAT)
        binding = given.bindings[0] if request is None else request.consumed[0].binding
        if binding not in given.bindings:
            binding = given.bindings[0]
        if binding != given.undecoded.binding:
            return
        if request is None:
            yield Redelivered(own, by, "unreadable")
        elif self._is_due(request.error.key, by):
            try:
                proven = self._proven(request)
            except Unproven as error:
                REFUSED.note(message, WHAT, str(error), error.remedy)
                yield Redelivered(own, by, "refused")
                return
            self._seen.add(request.error.key)
            yield self._delivered(proven, by, message.timestamp()[1])

    def _is_due(self, key: bytes, by: str) -> bool:
        """Whether no other request has settled it. What this one has settled, it settles when the batch runs again."""
        if self._settled is None:
            self._settled = self._read_settled()
        known = self._settled.get(key)
        return key not in self._seen and (known is None or what_settled(known).by == by)

    def _proven(self, request: ReplayRequest) -> ReplayRequest:
        proven = self._proving.proven(request)
        if len(request.consumed) > 1 or request.consumed[0].binding not in self._given.bindings:
            raise Unproven("names messages that are no input of the processor now", ASK_AGAIN)
        return proven

    def _delivered(self, request: ReplayRequest, by: str, asked_ms: int) -> Redelivered:
        key = request.error.key
        if request.wish == "drop":
            return Redelivered(key, by, "dropped")
        made, [place], [topic] = self._given.undecoded, request.consumed, request.topics
        at = TopicPartition(topic, place.partition)
        is_input = (topic, place.topic_id) == (made.topic, made.topic_id)
        message = self._again.message(at, place.offset) if is_input else None
        gone = ""
        if message is None:
            message = Restored(topic, place, request.key, asked_ms, request.payload)
            if request.payload is None:
                gone = (
                    f"the message {topic}/{place.partition} at {place.offset} is gone (retention, compaction, or "
                    "another topic of that name), and its error message has not kept it: declare "
                    "errors=Errors(..., payload=True) for the next time"
                )
        return Redelivered(key, by, "row", request.number, message, gone)

    def _read_settled(self) -> dict[bytes, bytes]:
        """What is settled. The markers of the batch before may still be on their way."""
        place = TopicPartition(self._spec.backing, self._spec.partition % self._given.parts)
        marks = self._broker.watermarks([place])[place]
        deadline, high = time.monotonic() + MARKERS_S, marks.high
        while marks.stable < high:
            if time.monotonic() > deadline:
                raise RetriableError(f"an open transaction hides what is settled in {place.topic}/{place.partition}")
            time.sleep(ASK_AGAIN_S)
            marks = self._broker.watermarks([place])[place]
        found = read_range(self._broker, place, marks.low, marks.stable, group=self._spec.group)
        return dict(settled_in(found))

    def close(self) -> None:
        """Close the reader."""
        self._again.rest(always=True)


def refuse_foreign(topic: str, known: Sequence[str]) -> NoReturn:
    """
    Refuse a range of a topic that is no input now, because Spark computes a batch again that has it.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(
        f"the batch was begun with topic {topic!r}, and the processor reads {', '.join(known)} now. Declare inputs= "
        "and errors= as they were until the batch is published"
    )
