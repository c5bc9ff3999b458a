"""The proof of a request to replay or to drop: the error message that it names (Y1).

Each program that may write into a replay topic can ask for any message, also for one that has not failed. So a request
is only a pointer. The task reads the error message at the other end, and takes from it what it delivers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.core.delivery import show_topic_id
from cues_kafka.core.hashing import delivery_hash
from cues_kafka.core.spec import Spec
from cues_kafka.errors import BrokerError, CodecError
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.graph.names import backing_topic
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import TopicFacts
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.records.error_messages import read_error
from cues_kafka.records.history import read_history
from cues_kafka.records.reading import record_below
from cues_kafka.records.requests import ReplayRequest, kept_payload
from cues_kafka.task.again import ReadsAgain

ASK_AGAIN = (
    "`cues-kafka errors list MODULE:GRAPH` shows what can be replayed: ask for it with `cues-kafka errors replay`"
)


class Unproven(Exception):
    """
    A request that the error message it names does not prove. The task refuses it, and goes on.

    Attributes:
        remedy: what to do next.
    """

    def __init__(self, why: str, remedy: str = ASK_AGAIN) -> None:
        super().__init__(why)
        self.remedy = remedy


class Proving:
    """
    Compares the requests of one task with error messages.

    Args:
        spec: the task.
        broker: the cluster.
        clock: time.
        again: reads the error messages.
        topics: the errors topics of the graph.
    """

    def __init__(self, spec: Spec, broker: Broker, clock: Clock, again: ReadsAgain, topics: Collection[str]) -> None:
        self._spec, self._broker, self._clock, self._again = spec, broker, clock, again
        self._error_topics = topics
        self._topics: dict[str, TopicFacts | None] = {}
        self._former: dict[str, bool] = {}

    def void(self) -> None:
        """A recovery begins: topics may be others by now."""
        self._topics.clear()
        self._former.clear()

    def proven(self, request: ReplayRequest) -> ReplayRequest:
        """
        The request, with payload and key as its error message has kept them.

        Raises:
            Unproven: there is no such error message, or it says something else.
            BrokerError: the cluster does not answer.
        """
        where = f"error message {request.errors}/{request.error.partition} at {request.error.offset}"
        try:
            message = self._error_message(request, where)
        except BrokerError as refusal:
            if not refusal.forbidden:
                raise
            raise Unproven(
                f"{where} cannot be read: {refusal}", "give this user READ on the errors topic, and ask again"
            ) from refusal
        try:
            error, number = read_error(message, error_messages().decode)
        except CodecError as unreadable:
            raise Unproven(f"{where}: {unreadable}") from unreadable
        if why := self._why_not(request, error, number):
            raise Unproven(f"{where} {why}")
        return replace(request, payload=(kept := kept_payload(error)), key=None if kept is None else error.key)

    def _error_message(self, request: ReplayRequest, where: str) -> WireMessage:
        place = request.error
        if request.errors not in self._error_topics:
            raise Unproven(f"{request.errors!r} is not an errors topic of graph {self._spec.graph!r}")
        facts = self._facts(request.errors, place.topic_id)
        if facts is None or facts.topic_id != place.topic_id:
            raise Unproven(f"topic {request.errors!r} was deleted or recreated since ({show_topic_id(place.topic_id)})")
        message = None
        if 0 <= place.partition < facts.partitions:
            message = self._again.message(TopicPartition(request.errors, place.partition), place.offset)
        if message is None:
            raise Unproven(f"{where} is not there: it never was, or retention has taken it")
        return message

    def _facts(self, topic: str, topic_id: bytes) -> TopicFacts | None:
        known = self._topics.get(topic)
        if known is None or known.topic_id != topic_id:
            known = self._topics[topic] = self._broker.facts([topic]).topics.get(topic)
        return known

    def _why_not(self, request: ReplayRequest, error: ErrorMessage, number: int) -> str:
        """What an error message says that a request does not; empty: it proves the request."""
        spec = self._spec
        if (error.graph, error.task.rpartition("/")[2]) != (spec.graph, str(spec.partition)):
            return f"is of {error.task}"
        if error.processor != spec.processor and not self._was(error.processor):
            return f"is of processor {error.processor!r}"
        if (error.consumed, error.topics) != (request.consumed, request.topics):
            return "names other messages than the request"
        if request.wish == "replay" and error.hash != delivery_hash(spec.graph, error.processor, error.consumed):
            return "has another delivery hash: a timer failed, and no message"
        if number != request.number:
            return f"is for replay {number}, and the request for replay {request.number}"
        return ""

    def _was(self, name: str) -> bool:
        """Whether this processor had that name before, as its history (X6) or the records under that name (X5) say."""
        if self._spec.slot:  # no processor of DataFrames is renamed
            return False
        if name not in self._former:
            self._former[name] = name in self._history_names() or self._leads_here(name)
        return self._former[name]

    def _history_names(self) -> tuple[str, ...]:
        spec = self._spec
        place = TopicPartition(spec.backing, spec.partition)
        marks = self._broker.watermarks([place])[place]
        return read_history(self._broker, place, marks.low, marks.stable, self._clock, group=spec.group).names

    def _leads_here(self, name: str) -> bool:
        passed, spec = set[str](), self._spec
        while name and name not in passed and name != spec.processor:
            passed.add(name)
            place = TopicPartition(backing_topic(spec.graph, name), spec.partition)
            facts = self._broker.facts([place.topic]).topics.get(place.topic)
            if facts is None or spec.partition >= facts.partitions:
                return False
            marks = self._broker.watermarks([place])[place]
            try:
                record = record_below(self._broker, place, marks.low, marks.stable, self._clock, group=spec.group)
            except CodecError:
                return False
            name = record.moved_to if record else ""
        return name == spec.processor
