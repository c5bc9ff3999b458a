"""What the function of an imperative processor reads and writes by itself: its tailers and appenders (L1 to L3).

Moves and appended messages belong to the step that is called. `Hands.undo_step` takes them back, `Hands.end_step` gives
what was appended to the step's outputs. Where tailers stand is kept in a `Stands`, which each recovery makes new: what
a void batch moved is void with it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from cues_kafka.errors import BrokerError, OutputError, RetriableError
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import Positions, TopicPartition, WireMessage
from cues_kafka.records.reading import PATIENCE_S
from cues_kafka.task.calling.outage import Outage
from cues_kafka.task.calling.outputs import Payload, Target, payload
from cues_kafka.task.calling.step import Received

POLL_S: Final = 0.1
"""How long one poll waits for a message that is there."""

AT_ONCE: Final = 500
"""How many messages a tailer takes from its reader at once."""

OUTSIDE: Final = "a tailer or appender is valid during the call that it was passed to, and on its thread"

GIVEN_UP: Final = "the task was given up while its tailer read"

REST_S: Final = 1.0
"""After this time without a read, a tailer at the end of its log asks the broker for nothing more."""

RECENT_S: Final = 0.05
"""For how long within a batch the end of the log is taken for the present one."""

Found = TypeVar("Found")


class Tailer(Protocol):
    """
    Reads partition p of a topic at will, committed messages only; p is that of the task (L1, L2).

    It is valid during the call. Where it stands is committed with the step: if the step becomes an error, is called
    again or is interrupted, the tailer stands where it stood. All methods raise `RetriableError` if the topic cannot be
    read: then the batch is called again later, whatever the function does with the exception.
    """

    @property
    def offset(self) -> int:
        """The offset of the next message to read, or where it may come."""
        ...

    def read(self) -> Received | None:
        """
        The next message, and move behind it; None: none is there, and the tailer stands at the end of the log.

        Raises:
            CodecError: its value does not fit the topic's codec; the tailer has moved behind it.
        """
        ...

    def peek(self) -> Received | None:
        """The next message, without moving; None: none is there."""
        ...

    def messages(self, limit: int | None = None) -> Iterator[Received]:
        """Read the messages that are there, at most `limit` of them."""
        ...

    def seek(self, offset: int) -> None:
        """
        Move to an offset.

        Raises:
            ValueError: it is not in the log.
        """
        ...

    def to_start(self) -> None:
        """Move to the first message in the log."""
        ...

    def to_end(self) -> None:
        """Move behind the last message that `read` can give."""
        ...


class Appender(Protocol):
    """Writes a topic at will. What it appends is committed with the step, before what the function returns (L1)."""

    def append(self, message: Any) -> None:
        """
        Append a value, or a `Message`, which without a key of its own gets that of the input.

        Raises:
            OutputError: the topic does not take it.
            CodecError: the topic's codec refuses it.
        """
        ...


class TailerSpec(NamedTuple):
    """
    A tailer as it is declared.

    Attributes:
        binding: its name.
        topic: what it reads.
        received: makes what the function gets of a message.
    """

    binding: str
    topic: str
    received: Callable[[WireMessage], Received]


class Stands:
    """
    Where the tailers of a task stand, behind all steps that were called since its last recovery.

    Attributes:
        offsets: by binding.
    """

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self.offsets = {p.binding: p.offset for p in positions}

    @property
    def positions(self) -> Positions:
        """A copy, which later moves do not change (L2)."""
        return tuple(p._replace(offset=self.offsets[p.binding]) for p in self._positions)


class Line:
    """
    One partition, read at any offset, by a consumer of its own.

    It is opened at the first read. At the end of the log it asks the broker every few milliseconds, so that it hears of
    the end as soon; a line that is not used for a while rests. One thread at a time uses it; `close` may come from any.
    """

    def __init__(self, place: TopicPartition, broker: Broker, clock: Clock, group: str) -> None:
        self._place, self._broker, self._clock, self._group = place, broker, clock, group
        self._lock = threading.Lock()
        self._reader: Reader | None = None
        self._ahead: deque[WireMessage] = deque()
        self._from = self._reach = 0  # what was brought of these offsets, and is not in `_ahead`, is not there
        self._pointed = self._closed = False
        self._used_s = 0.0
        self._marks: Watermarks | None = None
        self._asked_s = 0.0
        self.bound = 0
        """When `head` has found none: nothing is below this offset, but markers."""

    def marks(self) -> Watermarks:
        """What bounds the partition now, or did a moment ago."""
        now = self._clock.monotonic()
        if self._marks is None or now - self._asked_s >= RECENT_S:
            self._marks, self._asked_s = self._broker.watermarks([self._place])[self._place], now
        return self._marks

    def refresh(self) -> None:
        """Ask again where the log ends."""
        self._marks = None

    def head(self, offset: int, end: int | None, given_up: Callable[[], bool]) -> WireMessage | None:
        """
        The first message at or past an offset; None: there is none (L3).

        Args:
            offset: from where.
            end: messages at or past it are not there (S5); None: all committed ones are.
            given_up: whether the task is taken away meanwhile.

        Raises:
            BrokerError: the partition cannot be read, or what must be there does not come.
        """
        with self._lock:
            try:
                while self._ahead and self._ahead[0].offset() < offset:
                    self._ahead.popleft()
                pointed = self._pointed and self._from <= offset <= self._reach
                self._from = offset if pointed else self._from
                if not (pointed and self._ahead):
                    self.bound = bound = self.marks().stable if end is None else end
                    if offset >= bound or (pointed and self._reach >= bound):
                        return None
                    self._bring(self._reader if pointed else self._point(offset), bound, given_up)
            except BrokerError:
                self._forget()
                raise
            finally:
                if self._closed:
                    self._forget()
            if self._closed:
                raise RetriableError(GIVEN_UP)  # the call may still be seen outside, and "none is there" is not true
            found = self._ahead[0] if self._ahead else None
            if found is not None and end is not None and found.offset() >= end:
                self.bound, found = end, None
            return found

    def _point(self, offset: int) -> Reader:
        """Have the reader bring messages from this offset on."""
        reader = self._reader = self._reader or self._broker.reader(self._group, prompt=True)
        reader.unassign([self._place])
        reader.assign({self._place: offset})
        self._ahead.clear()
        self._from = self._reach = offset
        self._pointed = True
        return reader

    def _bring(self, reader: Reader | None, bound: int, given_up: Callable[[], bool]) -> None:
        """Wait for a message, or for the end that says that none is below `bound`: one of them must come."""
        assert reader is not None
        self._used_s = since_s = self._clock.monotonic()
        while True:
            for fetched in reader.poll(POLL_S, AT_ONCE):
                self._ahead.extend(fetched.messages)
                last = fetched.messages[-1].offset() + 1 if fetched.messages else 0
                self._reach = max(self._reach, last, fetched.eof or 0)
            if self._ahead or self._reach >= bound:
                return
            if given_up():
                raise RetriableError(GIVEN_UP)
            now = self._clock.monotonic()
            if now - since_s >= PATIENCE_S:
                raise RetriableError(
                    f"nothing came of {self._place.topic}/{self._place.partition} from {self._reach} on for "
                    f"{PATIENCE_S:g} s, and committed messages end at {bound}"
                )
            if now == since_s:
                self._clock.sleep(POLL_S)  # time is virtual, and polls do not wait

    def rest(self, now_s: float) -> float | None:
        """Have the reader ask the broker for nothing, if it was at the end for a while; else when to call again."""
        if not self._pointed or self._ahead or self._reader is None:
            return None
        if now_s < (at_s := self._used_s + REST_S):
            return at_s
        with self._lock:
            self._pointed = False
            try:
                self._reader.unassign([self._place])
            except BrokerError:
                self._forget()  # the next read opens another one
        return None

    def close(self) -> None:
        """Release the client, now or as soon as the read that is under way ends."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            try:
                self._forget()
            finally:
                self._lock.release()

    def _forget(self) -> None:
        reader, self._reader = self._reader, None
        self._ahead.clear()
        self._pointed = False
        self._marks = None
        if reader is not None:
            reader.close()


class Hands:
    """
    The tailers and appenders of one task, and what the present step does with them.

    Attributes:
        values: what the function gets, by name.
    """

    def __init__(self, tailers: Sequence[TailerSpec], appenders: Mapping[str, Target], partition: int) -> None:
        self._tailers = {one.binding: StepTailer(self, one, TopicPartition(one.topic, partition)) for one in tailers}
        self.values: Mapping[str, Any] = {
            **self._tailers,
            **{binding: StepAppender(self, target) for binding, target in appenders.items()},
        }
        self._standing = Stands(())
        self._ends: Mapping[str, int] = {}
        self._before: dict[str, int] = {}
        self._appended: list[Payload] = []
        self._key: bytes | None = None
        self._outage: Outage | None = None
        self._thread: int | None = None  # that calls a step now

    def connect(self, broker: Broker, clock: Clock, group: str, given_up: Callable[[], bool]) -> None:
        """Say where the topics are, and whether the task is taken away."""
        for one in self._tailers.values():
            one.connect(Line(one.place, broker, clock, group), given_up)

    def follow(self, standing: Stands, ends: Positions) -> None:
        """The steps that are called next move the tailers from here, which show messages below these ends (S5)."""
        self._standing = standing
        self._ends = {p.binding: p.offset for p in ends}
        for one in self._tailers.values():
            one.line.refresh()

    def rest(self, now_s: float) -> float | None:
        """No step is to be called: have readers rest that were not used for a while; when to call this again."""
        left = [at_s for one in self._tailers.values() if (at_s := one.line.rest(now_s)) is not None]
        return min(left, default=None)

    def begin_step(self, key: bytes | None) -> None:
        """The function is called next, for a message with this key."""
        self._before = dict(self._standing.offsets)
        self._appended, self._key, self._outage = [], key, None
        self._thread = threading.get_ident()

    def end_step(self, outputs: Sequence[Payload]) -> list[Payload]:
        """
        What the step sends: what it has appended, then its outputs.

        Raises:
            Outage: a tailer could not read, whatever the function has made of that.
        """
        self._thread = None
        self.check()
        return [*self._appended, *outputs]

    def undo_step(self) -> None:
        """Take back what the step did: it became an error message, or it did not end. A second time it does nothing."""
        self._thread = None
        self._standing.offsets.update(self._before)
        self._appended = []

    def check(self) -> None:
        """
        Raises:
            Outage: see `end_step`.
        """
        if (outage := self._outage) is not None:
            self._outage = None
            raise outage

    def note(self, outage: Outage) -> None:
        """A tailer could not read."""
        self._outage = outage

    def demand_call(self) -> None:
        """
        Raises:
            RuntimeError: no call is under way, or on another thread.
        """
        if self._thread != threading.get_ident():
            raise RuntimeError(OUTSIDE)

    def end_of(self, binding: str) -> int | None:
        """Up to where a tailer shows messages to this call; None: to the end of the log."""
        return self._ends.get(binding)

    def offset_of(self, binding: str) -> int:
        """Where a tailer stands."""
        return self._standing.offsets[binding]

    def move(self, binding: str, offset: int) -> None:
        """Move a tailer."""
        self._standing.offsets[binding] = offset

    def append(self, target: Target, message: Any) -> None:
        """Encode a message, and keep it for the end of the step."""
        self.demand_call()
        if message is None:
            raise OutputError(
                f"append(None) on {target.topic!r}. Append a value; to delete a key, append Message(None, key=...)."
            )
        self._appended.append(payload(target, message, self._key))

    def close(self) -> None:
        """The task is given up."""
        for one in self._tailers.values():
            one.line.close()


class StepTailer:
    """See `Tailer`."""

    line: Line

    def __init__(self, hands: Hands, spec: TailerSpec, place: TopicPartition) -> None:
        self._hands, self._spec = hands, spec
        self.place = place
        self._given_up: Callable[[], bool] = lambda: False

    def connect(self, line: Line, given_up: Callable[[], bool]) -> None:
        """Where it reads, and whether the task is taken away."""
        self.line, self._given_up = line, given_up

    def __repr__(self) -> str:
        return f"Tailer({self._spec.binding!r} of {self.place.topic}/{self.place.partition})"

    @property
    def offset(self) -> int:
        self._hands.demand_call()
        return self._hands.offset_of(self._spec.binding)

    def peek(self) -> Received | None:
        message = self._head()
        return None if message is None else self._received(message)

    def read(self) -> Received | None:
        message = self._head()
        if message is None:
            # Over markers: where retention takes them, the tailer must not seem to stand below the log (L2).
            self._hands.move(self._spec.binding, max(self.offset, self.line.bound))
            return None
        self._hands.move(self._spec.binding, message.offset() + 1)
        return self._received(message)

    def messages(self, limit: int | None = None) -> Iterator[Received]:
        left = limit
        while left is None or left > 0:
            if (one := self.read()) is None:
                return
            yield one
            left = None if left is None else left - 1

    def seek(self, offset: int) -> None:
        low, end = self._bounds()
        if type(offset) is not int or not low <= offset <= end:
            raise ValueError(f"seek({offset!r}): {self!r} has offsets {low} to {end}")
        self._hands.move(self._spec.binding, offset)

    def to_start(self) -> None:
        self._hands.move(self._spec.binding, self._bounds()[0])

    def to_end(self) -> None:
        self._hands.move(self._spec.binding, self._bounds()[1])

    def _head(self) -> WireMessage | None:
        offset, end = self.offset, self._hands.end_of(self._spec.binding)
        return self._asked(lambda: self.line.head(offset, end, self._given_up))

    def _bounds(self) -> tuple[int, int]:
        self._hands.demand_call()
        marks, end = self._asked(self.line.marks), self._hands.end_of(self._spec.binding)
        return marks.low, marks.stable if end is None else end

    def _received(self, message: WireMessage) -> Received:
        return self._asked(lambda: self._spec.received(message))

    def _asked(self, ask: Callable[[], Found]) -> Found:
        """
        What a cluster or a registry answers.

        Raises:
            Outage: it does not, so the batch cannot go on.
        """
        try:
            return ask()
        except BrokerError as error:
            outage = Outage(f"tailer {self._spec.binding!r}: {error}", remedy=error.remedy)
            self._hands.note(outage)
            raise outage from error


class StepAppender:
    """See `Appender`."""

    def __init__(self, hands: Hands, target: Target) -> None:
        self._hands, self._target = hands, target

    def __repr__(self) -> str:
        return f"Appender({self._target.topic!r})"

    def append(self, message: Any) -> None:
        self._hands.append(self._target, message)


def ends_of(broker: Broker, tails: Positions, partition: int) -> Positions:
    """
    The ends of tailers: the last stable offsets of their logs (S5).

    Raises:
        RetriableError: the cluster does not answer.
    """
    places = {p.binding: TopicPartition(p.topic, partition) for p in tails}
    try:
        marks = broker.watermarks(list(dict.fromkeys(places.values())))
    except BrokerError as error:
        raise RetriableError(f"the ends of tailers cannot be read: {error}") from error
    return tuple(p._replace(offset=marks[places[p.binding]].stable) for p in tails)
