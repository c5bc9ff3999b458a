"""What a task knows of replays: which error messages are settled, and the messages behind a request (Y1, Y2)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Task
from cues_kafka.errors import CodecError, RetriableError
from cues_kafka.observe.refused import REFUSED
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Coordinates, TopicPartition, WireMessage
from cues_kafka.records.reading import PATIENCE_S
from cues_kafka.records.requests import (
    Outcome,
    ReplayRequest,
    Settled,
    encode_settled,
    not_paired,
    refused_key,
    request_in,
    settled_in,
)
from cues_kafka.records.strangers import readable
from cues_kafka.task.again import ReadsAgain
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.replayed import Replayed, Restored
from cues_kafka.task.proving import Proving, Unproven

SHARE: Final = 10
"""While messages wait, replays get a tenth of the time (Y3): they neither starve nor hold messages up."""


Moved: TypeAlias = Callable[[TopicPartition, bytes | None], str]
"""Says of a key in a partition why it is another task's by now; empty: it is not. See `placements.moved_key`."""


WHAT: Final = "a request to replay"
"""For the log, and for the count of what is refused."""


class PresentRequest:
    """
    The request that comes next.

    Attributes:
        request: the message that asks for it.
        behind: the next offset to read of the replay topic.
        key: of the record that settles it.
        replayed: the replay; None: there is nothing to call.
        settled: the value of the record that settles it already; None: there is none.
        outcome: what it comes to where nothing is called.
        began_s: when it was taken up (monotonic).
    """

    __slots__ = ("began_s", "behind", "key", "outcome", "replayed", "request", "settled")

    def __init__(self, request: WireMessage, key: bytes, began_s: float) -> None:
        self.request = request
        self.behind = request.offset() + 1
        self.key = key
        self.began_s = began_s
        self.replayed: Replayed | None = None
        self.settled: bytes | None = None
        self.outcome: Outcome = "nil"


class Replaying:
    """The replays of one task in one process."""

    def __init__(
        self,
        spec: Spec,
        broker: Broker,
        clock: Clock,
        error_topics: Collection[str],
        moved: Moved = lambda *_: "",
    ) -> None:
        self._spec, self._moved = spec, moved
        self._broker = broker
        self._clock = clock
        self._settled: dict[bytes, bytes] | None = None
        self._again = ReadsAgain(broker, clock, spec.group)
        self._proving = Proving(spec, broker, clock, self._again, error_topics)
        self._ends: dict[str, int] = {}  # a last stable offset, by topic
        self._again_s = 0.0

    # When

    def is_due(self, now_s: float, *, messages: bool) -> bool:
        """Whether a request may come next: where messages wait, only in the share of replays (Y3)."""
        return not messages or now_s >= self._again_s

    def void(self) -> None:
        """A recovery begins: what another worker has settled is to be read."""
        self._settled = None
        self._proving.void()
        self._ends.clear()
        self.rest(always=True)

    def rest(self, *, always: bool = False) -> None:
        """Close the reader if it was not used for a while."""
        self._again.rest(always=always)

    # What

    def prepare(self, message: WireMessage, task: Task) -> PresentRequest:
        """
        Read what a request speaks of.

        Raises:
            BrokerError: the cluster does not answer, or an older answer came.
        """
        began_s = self._clock.monotonic()
        request = readable(message, lambda one: self._request(one, task), WHAT)
        own = refused_key(task.record.replays[0].topic_id if task.record else b"", message)
        key = own if request is None else request.error.key
        present = PresentRequest(message, key, began_s)
        present.settled = self._known(task).get(key)
        if request is None:
            present.outcome = "unreadable"
        elif present.settled is None:
            self._prove(present, request, own, task)
        return present

    def _prove(self, present: PresentRequest, request: ReplayRequest, own: bytes, task: Task) -> None:
        """Deliver what the error message says; a request that it does not prove is settled by its own place."""
        message = present.request
        try:
            proven = self._proving.proven(request)
        except Unproven as error:
            REFUSED.note(message, WHAT, str(error), error.remedy)
            present.key, present.outcome = own, "refused"
            return
        if request.wish == "drop":
            present.outcome = "dropped"
        else:
            present.replayed = self._replayed(proven, message.timestamp()[1], task)

    def _request(self, message: WireMessage, task: Task) -> ReplayRequest:
        """
        The request in a message of the replay topic.

        Raises:
            CodecError: it is none, or it names a message that was never there: its offset is not in the log, which
                ends before it. That is also so where the log was truncated.
        """
        request = request_in(message)
        ids = {p.binding: (p.topic, p.topic_id) for p in task.positions}
        for place, topic in zip(request.consumed, request.topics, strict=True):
            if ids.get(place.binding) == (topic, place.topic_id) and place.offset >= self._ends.get(topic, 0):
                at = TopicPartition(topic, self._spec.partition)
                self._ends[topic] = end = self._broker.watermarks([at])[at].stable
                if place.offset >= end:
                    raise CodecError(
                        f"it names {topic}/{place.partition} at {place.offset}, and that log ends at {end}"
                    )
        return request

    def _known(self, task: Task) -> dict[bytes, bytes]:
        """Y2: what is settled; read from the backing partition once after a recovery, which has fenced all others."""
        if self._settled is None:
            self._settled = self._read_settled(task.expected)
        return self._settled

    def _read_settled(self, end: int) -> dict[bytes, bytes]:
        place = TopicPartition(self._spec.backing, self._spec.partition)
        found: dict[bytes, bytes] = {}
        reader = self._again.reader
        reader.assign({place: self._broker.watermarks([place])[place].low})
        try:
            heard_s = self._clock.monotonic()
            while self._clock.monotonic() - heard_s < PATIENCE_S:
                for fetched in reader.poll(0.2):
                    heard_s = self._clock.monotonic() if fetched.messages else heard_s
                    found.update(settled_in(fetched.messages))
                    last = fetched.messages[-1].offset() + 1 if fetched.messages else 0
                    if max(last, fetched.eof or 0) >= end:
                        return found
        finally:
            reader.unassign([place])
        raise RetriableError(f"nothing new below {end} of {place.topic}/{place.partition} for {PATIENCE_S:g} s")

    def _replayed(self, request: ReplayRequest, asked_ms: int, task: Task) -> Replayed:
        found: list[WireMessage] = []
        gone = ""
        unpaired = not_paired(self._spec.pairing, [one.binding for one in self._spec.inputs], request.consumed)
        ids = {p.binding: (p.topic, p.topic_id) for p in task.positions}
        for place, topic in zip(request.consumed, request.topics, strict=True):
            there = not unpaired and ids.get(place.binding) == (topic, place.topic_id)
            message = self._original(place, topic) if there else None
            if message is None:
                message = Restored(topic, place, request.key, asked_ms, request.payload)  # at each attempt this time
                known = place.binding in ids
                gone = gone or ("" if unpaired and known else self._why_gone(request, place, topic, known=known))
            if not gone and (why := self._moved(TopicPartition(topic, self._spec.partition), message.key())):
                gone = f"{topic}/{place.partition} at {place.offset}: {why}"
            found.append(message)
        gone = gone or unpaired
        return Replayed(self._spec, request, tuple(found), gone)

    def _why_gone(self, request: ReplayRequest, place: Coordinates, topic: str, *, known: bool) -> str:
        where = f"{topic}/{place.partition} at {place.offset}"
        if not known:
            return f"{where}: the processor no longer has the input {place.binding!r}"
        if request.payload is not None and len(request.consumed) == 1:
            return ""
        return (
            f"the message {where} is gone (retention, compaction, or another topic of that name), and its error "
            "message has not kept it: declare errors=Errors(..., payload=True) for the next time"
        )

    def _original(self, place: Coordinates, topic: str) -> WireMessage | None:
        """The message at these coordinates; None: it is gone."""
        return self._again.message(TopicPartition(topic, self._spec.partition), place.offset)

    # After the call

    def settle(self, present: PresentRequest, batch: Batch) -> None:
        """Y2: add the record that settles the error message; one that was settled before stays as it is."""
        replayed = present.replayed
        if replayed is not None:
            present.outcome = "error" if batch.errors else "output" if batch.outputs else "nil"
        number = 0 if replayed is None else replayed.number
        value = present.settled or encode_settled(Settled(present.outcome, number, int(self._clock.time() * 1000)))
        present.settled = value
        batch.records.add(self._spec.backing, self._spec.partition, present.key, value, None, 0)
        batch.replays += 1

    def committed(self, present: PresentRequest) -> None:
        """The transaction is committed."""
        now_s = self._clock.monotonic()
        self._again_s = now_s + (SHARE - 1) * (now_s - present.began_s)
        if self._settled is not None and present.settled is not None:
            self._settled[present.key] = present.settled
