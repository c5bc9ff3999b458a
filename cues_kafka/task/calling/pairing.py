"""From fetched messages to steps: one message, one of each input, or one of any (O3).

Filters and decoding run later, on the step, so that pairing does not depend on user code. A buffer belongs to one
assignment of one task and ends with it (A2). One thread adds, another one takes. The lock is held for each chunk, not
for each message.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, TypeAlias

from cues_kafka.core.records import Choice, Record
from cues_kafka.core.spec import Spec
from cues_kafka.core.turns import drop, shares
from cues_kafka.ports.log import Fetched, Position, Positions, WireMessage
from cues_kafka.task.calling.imperative import Stands

Step: TypeAlias = Any
"""single: a message. join: a tuple of messages in order of binding. alts: (index of the binding, message)."""


@dataclass(slots=True)
class Cut:
    """
    Steps that were taken from a buffer together.

    Attributes:
        steps: see `Step`.
        ends: the positions after the last of them.
        choice: for alts: the order of bindings.
    """

    steps: list[Step]
    ends: Positions
    choice: Choice = ()


def behind(pairing: str, begins: Positions, steps: Sequence[Step]) -> Positions:
    """The positions behind these steps, which begin there."""
    ends = [position.offset for position in begins]
    for step in steps:
        taken = [step] if pairing == "alts" else enumerate(step) if pairing == "join" else [(0, step)]
        for index, message in taken:
            ends[index] = message.offset() + 1
    return tuple(position._replace(offset=end) for position, end in zip(begins, ends, strict=True))


class OutOfOrder(Exception):
    """A reader gave messages below its position, or not in ascending order (A2). The task goes back to R1."""


class _Queue:
    """Messages of one binding that were fetched and not yet taken."""

    __slots__ = ("bytes", "chunks", "eof", "next_offset", "position", "size", "sizes")

    def __init__(self, position: Position) -> None:
        self.position = position  # of the next message to take
        self.next_offset = position.offset  # of the next message to be fetched
        self.chunks: deque[list[WireMessage]] = deque()
        self.sizes: deque[int] = deque()  # bytes of each chunk; what is left of one counts as its share of them
        self.size = 0
        self.bytes = 0  # of values
        self.eof = -1

    def add(self, fetched: Fetched) -> None:
        messages = fetched.messages
        if messages:
            first, last = messages[0].offset(), messages[-1].offset()
            if first < self.next_offset or last < first:
                raise OutOfOrder(f"{fetched.partition} gave {first} to {last} where {self.next_offset} was next")
            if not self.size:  # only markers lie between: a record may have moved over them already
                self.position = self.position._replace(offset=first)
            self.next_offset = last + 1
            self.chunks.append(messages)
            self.sizes.append(sum(map(len, messages)))
            self.size += len(messages)
            self.bytes += self.sizes[-1]
        if fetched.eof is not None:
            self.eof = max(self.eof, fetched.eof)

    def take(self, count: int) -> list[WireMessage]:
        """Take up to `count` messages. Whole chunks are taken as they are, which costs nothing for each message."""
        taken: list[WireMessage] = []
        while count > len(taken) and self.chunks:
            chunk, size = self.chunks.popleft(), self.sizes.popleft()
            missing = count - len(taken)
            if len(chunk) > missing:
                share = size * missing // len(chunk)
                self.chunks.appendleft(chunk[missing:])
                self.sizes.appendleft(size - share)
                chunk, size = chunk[:missing], share
            taken = taken + chunk if taken else chunk
            self.bytes -= size
        self.size -= len(taken)
        if taken:
            self.position = self.position._replace(offset=taken[-1].offset() + 1)
        return taken

    def put_back(self, messages: Sequence[WireMessage]) -> None:
        if messages:
            self.chunks.appendleft(list(messages))
            self.sizes.appendleft(sum(map(len, messages)))
            self.size += len(messages)
            self.bytes += self.sizes[0]
            self.position = self.position._replace(offset=messages[0].offset())

    def behind(self) -> Position:
        """The position; where everything is taken and the end was seen, the end: only markers lie between (EOF)."""
        if not self.size and self.eof >= self.next_offset:
            return self.position._replace(offset=max(self.position.offset, self.eof))
        return self.position

    def covers(self, end: int) -> bool:
        """Whether everything below `end` was fetched: a later message came, the last one, or the end of the log."""
        return self.next_offset >= end or self.eof >= end

    def take_below(self, end: int) -> list[WireMessage]:
        count = 0
        for chunk in self.chunks:
            if chunk[-1].offset() < end:
                count += len(chunk)
                continue
            count += sum(message.offset() < end for message in chunk)
            break
        taken = self.take(count)
        self.position = self.position._replace(offset=end)
        return taken


class Buffer:
    """
    What one task has fetched and not yet taken.

    Attributes:
        pairing: `single`, `join` or `alts`.
        starts: where its messages begin, and requests to replay.
        standing: where the task's tailers stand behind what was taken (L2); None: it is not set yet.
        requests: messages of the replay topic (Y1); None: there is none, or it cannot be read.
    """

    def __init__(self, pairing: str, positions: Positions, replays: Positions = ()) -> None:
        self.pairing = pairing
        self.starts = positions + replays
        self.standing: Stands | None = None
        self._queues = [_Queue(position) for position in positions]
        self._by_topic = {queue.position.topic: queue for queue in self._queues}
        self.requests = _Queue(replays[0]) if replays else None
        if self.requests is not None:
            self._by_topic[self.requests.position.topic] = self.requests
        self._turn = 0  # of alts: the queue that the next cut begins with
        self._order: Choice = ()  # of alts steps that were put back: they are taken again in this order, before others
        self._lock = threading.Lock()  # `behind` must not see a message's offset without its size

    @property
    def size(self) -> int:
        """Messages of the longest queue."""
        return max(queue.size for queue in self._queues)

    def size_of(self, topic: str) -> int:
        """Messages of one input."""
        return self._by_topic[topic].size

    def bytes_of(self, topic: str) -> int:
        """Bytes of the values of one input's messages."""
        return self._by_topic[topic].bytes

    @property
    def asked(self) -> int:
        """Requests that wait."""
        return 0 if self.requests is None else self.requests.size

    def is_replay(self, topic: str) -> bool:
        """Whether this is the replay topic."""
        return self.requests is not None and self.requests.position.topic == topic

    def take_request(self) -> WireMessage | None:
        """The next request; None: none has arrived."""
        with self._lock:
            found = [] if self.requests is None else self.requests.take(1)
        return found[0] if found else None

    def put_request_back(self, request: WireMessage) -> None:
        """Put back the request that was taken last, because it was not delivered."""
        with self._lock:
            assert self.requests
            self.requests.put_back([request])

    def without_requests(self, position: Position) -> Positions:
        """Where to go on if an announced request is gone from the replay topic; none: it may still come."""
        with self._lock:
            if self.requests is None:
                return (position,)
            return (self.requests.behind(),) if self.requests.eof >= self.requests.next_offset else ()

    @property
    def ready(self) -> int:
        """Steps that can be taken now."""
        match self.pairing:
            case "join":
                return min(queue.size for queue in self._queues)
            case "alts":
                return sum(queue.size for queue in self._queues)
            case _:
                return self._queues[0].size

    @property
    def positions(self) -> Positions:
        """Where the next messages are taken; the end of the log where everything is taken."""
        with self._lock:
            return self._positions()

    def _positions(self) -> Positions:
        return tuple(queue.behind() for queue in self._queues)

    @property
    def seen(self) -> dict[str, int]:
        """The offset up to which everything was fetched, by topic."""
        with self._lock:
            return {queue.position.topic: max(queue.next_offset, queue.eof) for queue in self._queues}

    @property
    def oldest_ms(self) -> int | None:
        """The oldest timestamp of the messages that are next in their queues, in ms; None: there is none."""
        with self._lock:
            heads = [queue.chunks[0][0].timestamp() for queue in self._queues if queue.chunks]
        return min((ms for kind, ms in heads if kind), default=None)

    @property
    def at_end(self) -> bool:
        """Whether every input was read to the end of its log, after its last message."""
        return all(queue.eof >= queue.next_offset for queue in self._queues)

    def add(self, fetched: Fetched) -> None:
        """
        Add what a poll brought of one partition.

        Raises:
            OutOfOrder: the task goes back to R1.
        """
        with self._lock:
            self._by_topic[fetched.partition.topic].add(fetched)

    def cut(self, limit: int) -> Cut:
        """Take up to `limit` steps."""
        with self._lock:
            match self.pairing:
                case "join":
                    count = min(limit, self.ready)
                    steps: list[Step] = list(zip(*(queue.take(count) for queue in self._queues), strict=True))
                    return Cut(steps, self._positions())
                case "alts":
                    return self._cut_alts(limit)
                case _:
                    return Cut(self._queues[0].take(limit), self._positions())

    def _cut_alts(self, limit: int) -> Cut:
        """Take steps of alts: the inputs take turns (`core.turns`), and the choice keeps the order."""
        if self._order:
            again, _ = self._take_chosen(limit, self._order, ())
            self._order = drop(self._order, len(again))
            return Cut(again, self._positions(), self._choice(again))
        taken, self._turn = shares([queue.size for queue in self._queues], limit, self._turn)
        steps: list[Step] = []
        for index, count in taken:
            steps += [(index, message) for message in self._queues[index].take(count)]
        return Cut(steps, self._positions(), self._choice(steps))

    def _choice(self, steps: list[Step]) -> Choice:
        runs = groupby(steps, key=lambda step: step[0])
        return tuple((self._queues[index].position.binding, sum(1 for _ in run)) for index, run in runs)

    def holds(self, ends: Positions) -> bool:
        """Whether everything below `ends` was fetched."""
        wanted = {p.binding: p.offset for p in ends}
        with self._lock:
            return all(queue.covers(wanted[queue.position.binding]) for queue in self._queues)

    def cut_exactly(self, ends: Positions, choice: Choice) -> Cut:
        """Take the steps below `ends`, in this order of bindings, for a retry. Only if `holds(ends)`."""
        wanted = {p.binding: p.offset for p in ends}
        with self._lock:
            taken = [queue.take_below(wanted[queue.position.binding]) for queue in self._queues]
        if self.pairing == "join":
            if len({len(column) for column in taken}) > 1:
                raise OutOfOrder(f"the inputs up to {ends} no longer form pairs: was one of the topics compacted?")
            return Cut(list(zip(*taken, strict=True)), ends)
        if self.pairing == "single":
            return Cut(list(taken[0]), ends)
        rows = {queue.position.binding: (i, iter(taken[i])) for i, queue in enumerate(self._queues)}
        steps: list[Step] = []
        for binding, count in choice:
            index, messages = rows[binding]
            steps += [(index, message) for message in islice(messages, count)]
        if len(steps) != sum(map(len, taken)):
            raise OutOfOrder(f"the recorded choice {choice} does not name every message up to {ends}")
        self._order = drop(self._order, len(steps))
        return Cut(steps, ends, self._choice(steps))  # only of what is there: compaction may have removed some

    def cut_chosen(self, limit: int, choice: Choice, until: Positions) -> Cut:
        """
        Take the next steps in a recorded order, as far as they are there (alts with effects, and careful mode).

        Args:
            limit: how many.
            choice: the order.
            until: where it ends, if that is known.
        """
        with self._lock:
            steps, whole = self._take_chosen(limit, choice, until)
            if whole and not steps:
                return self._cut_alts(limit)  # compaction has taken all that the order speaks of
            self._order = drop(self._order, len(steps))
            return Cut(steps, self._positions(), self._choice(steps))

    def _take_chosen(self, limit: int, choice: Choice, until: Positions) -> tuple[list[Step], bool]:
        """
        Take steps in an order; gives them, and whether the order has none after them.

        The messages that an order names were in the log once. A message is compacted away if the queue is empty and the
        log was read to its end, or to where the order ends.
        """
        steps: list[Step] = []
        names = [queue.position.binding for queue in self._queues]
        ends = {p.binding: p.offset for p in until}
        for binding, count in choice:
            queue = self._queues[names.index(binding)]
            got = queue.take(min(count, limit - len(steps)))
            steps += [(names.index(binding), message) for message in got]
            end = ends.get(binding)
            gone = not queue.size and (queue.eof >= queue.next_offset if end is None else queue.covers(end))
            if len(got) < count and not gone:
                return steps, False
        return steps, True

    def put_back(self, steps: Sequence[Step]) -> None:
        """Put back the last steps that were taken, because they were not delivered."""
        with self._lock:
            self._put_back(steps)

    def _put_back(self, steps: Sequence[Step]) -> None:
        match self.pairing:
            case "join":
                for queue, column in zip(self._queues, zip(*steps, strict=True), strict=False):
                    queue.put_back(column)
            case "alts":
                self._order = self._choice(list(steps)) + self._order
                for index, queue in enumerate(self._queues):
                    queue.put_back([message for i, message in steps if i == index])
            case _:
                self._queues[0].put_back(steps)

    def ends_before(self, rest: Sequence[Step]) -> Positions:
        """Put these last steps back, and give the positions then; for batches that end early."""
        with self._lock:
            self._put_back(rest)
            return self._positions()


def buffer_of(spec: Spec, positions: Positions, record: Record | None) -> Buffer:
    """A task's buffer of messages from these positions on, and of requests behind those that its record has settled."""
    return Buffer(spec.pairing, positions, record.replays if spec.replays and record else ())
