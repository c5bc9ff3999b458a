"""A tailer reads a topic at its own pace: forward and backward, from any place, waiting or not."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self, TypeAlias

from cues_kafka.client.access import Access, Since, TopicAccess
from cues_kafka.client.places import HeldPlace, HeldPlaces, place_key
from cues_kafka.errors import BrokerError, ConfigError, RecoveryError, RetriableError
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import Outgoing, TopicPartition, WireMessage
from cues_kafka.records.scanning import read_range
from cues_kafka.task.calling.step import Received

Direction: TypeAlias = Literal["forward", "backward"]
Start: TypeAlias = "Literal['earliest', 'latest'] | int | datetime | Mapping[int, int]"

SLICE_S: Final = 0.05
"""A tailer that waits looks this often whether it was told to stop waiting."""

PATIENCE_S: Final = 30.0
"""A tailer that knows of messages waits for them this long; then the cluster does not answer."""

WINDOW: Final = 16
"""Offsets of the first look backward. The looks behind it double."""

WIDEST: Final = 8192
"""Offsets of the widest look backward, whose messages are held in memory."""

_AT_ONCE: Final = 1000


class Unblock(Protocol):
    """What ends a wait: a `threading.Event`, or anything that says whether it is set."""

    def is_set(self) -> bool: ...


class ClientTailer:
    """
    Reads the committed messages of one partition of a topic, or of all of them.

    It stands between two messages. Forward, the next one is the first at or past `offset`; backward, it is the last
    before it. Use it on one thread at a time; only `unblock` may be called from any. It closes with its client.

    Attributes:
        name: its name; None: it has none, and keeps no place.
    """

    def __init__(
        self, access: Access, topic: TopicAccess, partition: int | None, name: str | None, forget: Callable[[Any], None]
    ) -> None:
        """See `ClientTopic.tailer`; `begin` sets it to its start."""
        self.name = name
        self._access = access
        self._topic = topic
        self._topic_id = topic.facts.topic_id  # a place is one of this topic, also when another one takes its name
        self._single = partition is not None
        self._places = topic.places if partition is None else [TopicPartition(topic.name, partition)]
        self._forget = forget
        self._direction: Direction = "forward"
        self._at: dict[TopicPartition, int] = {}
        self._last: dict[TopicPartition, int | None] = dict.fromkeys(self._places)
        self._reader: Reader | None = None
        self._assigned = False
        self._ahead: deque[WireMessage] = deque()
        self._reached: dict[TopicPartition, int] = {}  # ends that the reader has reported
        self._behind: dict[TopicPartition, list[WireMessage]] = {}
        self._floor: dict[TopicPartition, int] = {}  # offsets below which nothing was looked at yet
        self._window = WINDOW
        self._woken = threading.Event()
        self._using = threading.Lock()
        self._closed = False
        self._held: HeldPlaces | None = None
        self._group = ""

    # Making it.

    def begin(self, start: Start) -> None:
        """
        Set a tailer without a name to its start.

        Raises:
            ConfigError: there is no such place.
        """
        self._at = self._resolved(start)

    def begin_named(self, start: Start, group: str, held: HeldPlaces, *, again: bool) -> None:
        """
        Take the tailer's id, then its place (K3); where it has none, or with `again`, its start becomes its place.

        A partition that was added since the tailer has places is read from its beginning.

        `group` is the transactional id, and the group whose offsets show the place to lag tools.

        Raises:
            RecoveryError: the topic was recreated, or what lies at the place was deleted.
        """
        self._held, self._group = held, group
        kept = held.open(self._key(place.partition) for place in self._places)
        known = {} if again else {p: kept[key] for p in self._places if (key := self._key(p.partition)) in kept}
        self._check_kept(known)
        at = {place: one.offset for place, one in known.items()}
        if new := [place for place in self._places if place not in known]:
            at |= self._resolved("earliest" if known else start, new)
        self.store({place.partition: offset for place, offset in at.items()})  # so the id is this tailer's from now on
        self._at = at

    # Reading.

    def read(self) -> Received | None:
        """
        The next message; None: none was committed before this call. Does not wait for one that comes later.

        Raises:
            CodecError: the message does not fit the codec. The tailer has moved past it.
            RecoveryError: the messages at its place were deleted.
            RetriableError: the cluster does not answer.
        """
        with self._used():
            return self._taken(self._there())

    def peek(self) -> Received | None:
        """What `read` would return, without moving."""
        with self._used():
            found = self._there()
            return None if found is None else self._topic.received(found)

    def read_blocking(self, timeout_s: float | None = None, unblock: Unblock | None = None) -> Received | None:
        """
        The next message; waits for it.

        Args:
            timeout_s: how long; None: until it comes.
            unblock: ends the wait when it is set, such as a `threading.Event`. `unblock()` does it too.

        Returns:
            None: the time is over, or the wait was ended. Backward it never waits.
        """
        with self._used():
            if self._direction == "backward":
                return self._taken(self._there())
            found = self._head()
            clock = self._access.clock
            deadline = None if timeout_s is None else clock.monotonic() + timeout_s
            while found is None and not self.stopped(unblock):
                left_s = SLICE_S if deadline is None else min(SLICE_S, deadline - clock.monotonic())
                if left_s <= 0:
                    break
                self._fetch(left_s)
                found = self._head()
            return self._taken(found)

    def messages(self, limit: int | None = None) -> Iterator[Received]:
        """The messages from here on, until none is there now, or until this many were read."""
        read = 0
        while (limit is None or read < limit) and (found := self.read()) is not None:
            read += 1
            yield found

    def give_back(self, positions: Mapping[int, int]) -> None:
        """Stand where it stood before, so that what was read since is read again."""
        if not self._closed:
            with self._used():
                self._move({TopicPartition(self.topic, partition): offset for partition, offset in positions.items()})

    def unblock(self) -> None:
        """End the wait that is under way, or else the next one. May be called on any thread."""
        self._woken.set()

    # Moving.

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def topic(self) -> str:
        """The topic that it reads."""
        return self._topic.name

    @property
    def positions(self) -> dict[int, int]:
        """The next offset to read of each partition. It moves over markers."""
        return {place.partition: offset for place, offset in self._at.items()}

    @property
    def offset(self) -> Any:
        """The next offset to read; a mapping by partition if it reads all of them."""
        return self._shape(self.positions)

    @property
    def last_read_offset(self) -> Any:
        """The offset of the message that was read last, or None; a mapping by partition if it reads all of them."""
        return self._shape({place.partition: offset for place, offset in self._last.items()})

    @property
    def direction(self) -> Direction:
        """`forward` or `backward`; set it to turn around."""
        return self._direction

    @direction.setter
    def direction(self, direction: Direction) -> None:
        if direction not in ("forward", "backward"):
            raise ConfigError(f"direction={direction!r}: a tailer reads 'forward' or 'backward'")
        with self._used():
            if direction != self._direction:
                self._direction = direction
                self._move(self._at)

    def seek(self, offset: int | Mapping[int, int]) -> Self:
        """
        Stand at an offset; with all partitions, give a mapping by partition. Others stay where they are.

        Raises:
            ConfigError: the log has no such offset.
        """
        with self._used():
            self._move({**self._at, **self._given(offset)})
        return self

    def to_start(self) -> Self:
        """Stand before the first message."""
        with self._used():
            self._move(self._resolved("earliest"))
        return self

    def to_end(self) -> Self:
        """Stand behind the last message that is committed now."""
        with self._used():
            self._move(self._resolved("latest"))
        return self

    def to_time(self, time: Since) -> Self:
        """Stand before the first message that is not older than a time; without one, behind the last message."""
        with self._used():
            self._move(self._at_time(time))
        return self

    def to_place(self) -> Self:
        """Stand at the place that is stored, as when it was opened; only for a named tailer."""
        with self._used():
            kept = self._named().kept
            self._move({place: kept[self._key(place.partition)].offset for place in self._places})
        return self

    def close(self) -> None:
        """Release the clients. The place of a named tailer stays."""
        if self._closed:
            return
        self._closed = True
        self._woken.set()
        with self._using:  # a thread that waits comes back within a moment
            if self._reader is not None:
                self._reader.close()
            if self._held is not None:
                self._held.writer.close()
        self._forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        name = f", name={self.name!r}" if self.name else ""
        return f"<ClientTailer of {self._topic.name!r} at {self.offset!r}{name}>"

    # For `alts` and transactions.

    @property
    def clock(self) -> Clock:
        """The time by which it waits."""
        return self._access.clock

    def look(self, wait_s: float | None) -> WireMessage | None:
        """The next message, which is not moved over; waits so long for one. None: of those that are committed now."""
        with self._used():
            if wait_s is None:
                return self._there()
            if self._head() is None:
                self._fetch(wait_s)
            return self._head()

    def stopped(self, unblock: Unblock | None) -> bool:
        """Whether a wait is over. What `unblock` has set counts once."""
        if self._woken.is_set():
            if not self._closed:
                self._woken.clear()
            return True
        return unblock is not None and unblock.is_set()

    def pending(self) -> dict[int, int]:
        """Where it stands, for `advance`."""
        self._named()
        return self.positions

    def store(
        self, offsets: Mapping[int, int], records: Sequence[Outgoing] = (), batch_bytes: int | None = None
    ) -> None:
        """
        Store places and write records in one transaction; see `HeldPlaces.store`.

        Raises:
            BrokerError: nothing of it is written.
            Unknown: it cannot be told whether it is.
        """
        self._named().store(
            {self._key(partition): (offset, self._topic_id) for partition, offset in offsets.items()},
            records,
            batch_bytes=batch_bytes,
            offsets={TopicPartition(self._topic.name, partition): offset for partition, offset in offsets.items()},
            group=self._group,
        )

    # How.

    def _named(self) -> HeldPlaces:
        if self._held is None:
            raise ConfigError(
                f"this tailer of {self._topic.name!r} has no name, so its place is not kept. Open it with name=, by a "
                "client with a name: connect(..., name=...)"
            )
        return self._held

    def _key(self, partition: int) -> bytes:
        return place_key(self.name or "", self._topic.name, partition)

    def _shape(self, by_partition: dict[int, Any]) -> Any:
        return next(iter(by_partition.values()), None) if self._single else by_partition

    @contextmanager
    def _used(self) -> Iterator[None]:
        if not self._using.acquire(blocking=False):
            raise RuntimeError(f"{self!r} is used by another thread; open one tailer for each thread")
        try:
            if self._closed:
                raise RuntimeError(f"{self!r} is closed; open another one")
            yield
        finally:
            self._using.release()

    def _taken(self, message: WireMessage | None) -> Received | None:
        """Move over a message, and decode it."""
        if message is None:
            return None
        place = TopicPartition(message.topic(), message.partition())
        offset = message.offset()
        if self._direction == "forward":
            self._ahead.popleft()
            self._at[place] = offset + 1
            self._pass_markers()
        else:
            self._behind[place].pop()
            self._at[place] = offset
        self._last[place] = offset
        return self._topic.received(message)

    def _there(self) -> WireMessage | None:
        """The next message that is committed now."""
        return self._present() if self._direction == "forward" else self._previous()

    def _present(self) -> WireMessage | None:
        if (found := self._head()) is not None:
            return found
        self._fetch(0)
        if (found := self._head()) is not None:
            return found
        ends = {place: marks.stable for place, marks in self._marks().items()}
        clock = self._access.clock
        deadline = clock.monotonic() + PATIENCE_S
        while any(self._end_of(place) < end for place, end in ends.items()):
            self._fetch(SLICE_S)
            if (found := self._head()) is not None:
                return found
            if clock.monotonic() >= deadline:
                raise RetriableError(
                    f"{self!r}: messages up to {ends} are there, and none came for {PATIENCE_S:g} s; see whether the "
                    "brokers answer",
                    code="_TIMED_OUT",
                )
        return None

    def _head(self) -> WireMessage | None:
        return self._ahead[0] if self._ahead else None

    def _end_of(self, place: TopicPartition) -> int:
        return max(self._at[place], self._reached.get(place, 0))

    def _fetch(self, timeout_s: float) -> None:
        """Take what arrives within this time; under virtual time, let the time pass."""
        clock = self._access.clock
        until_s = clock.monotonic() + timeout_s
        if self._reader is None:
            self._reader = self._access.broker.reader(self._topic.group)
        if not self._assigned:
            self._check_range(self._at)
            self._reader.assign(self._at)
            self._assigned = True
        try:
            found = self._reader.poll(timeout_s, _AT_ONCE)
        except BrokerError:
            self._move(self._at)  # the reader is silent behind an error until it is pointed to the place again
            self._check_range(self._at)
            raise
        for place, messages, eof in found:
            self._ahead.extend(messages)
            if eof is not None:
                self._reached[place] = eof
        self._pass_markers()
        if not found and timeout_s > 0:
            clock.sleep(until_s - clock.monotonic())

    def _pass_markers(self) -> None:
        """Move to the ends that the reader has reported, once everything before them is read."""
        if not self._ahead:
            for place, end in self._reached.items():
                self._at[place] = max(self._at[place], end)

    def _previous(self) -> WireMessage | None:
        """The newest message before where it stands, of all partitions."""
        marks: dict[TopicPartition, Watermarks] | None = None
        for place in self._places:
            if not self._behind.get(place):
                marks = marks or self._marks()
                self._look_back(place, marks[place])
        heads = [found[-1] for place in self._places if (found := self._behind[place])]
        return max(heads, key=lambda message: message.timestamp()[1], default=None)

    def _look_back(self, place: TopicPartition, marks: Watermarks) -> None:
        end = min(self._floor.get(place, self._at[place]), marks.stable)
        found: list[WireMessage] = []
        while not found and end > marks.low:
            start = max(marks.low, end - self._window)
            found = list(read_range(self._access.broker, place, start, end, group=self._topic.group))
            self._window, end = min(self._window * 2, WIDEST), start
        self._behind[place], self._floor[place] = found, end

    def _marks(self) -> dict[TopicPartition, Watermarks]:
        return self._access.broker.watermarks(self._places)

    def _move(self, to: Mapping[TopicPartition, int]) -> None:
        """Stand somewhere else; what was fetched is dropped."""
        self._at = dict(to)
        self._ahead.clear()
        self._reached.clear()
        self._behind.clear()
        self._floor.clear()
        self._window = WINDOW
        if self._reader is not None and self._assigned:
            self._reader.unassign(self._places)
        self._assigned = False

    def _given(self, offset: int | Mapping[int, int]) -> dict[TopicPartition, int]:
        """Offsets of a user, checked."""
        if isinstance(offset, Mapping):
            given = {TopicPartition(self._topic.name, partition): one for partition, one in offset.items()}
        elif self._single or len(self._places) == 1:
            given = {self._places[0]: offset}
        else:
            raise ConfigError(
                f"offset {offset!r}: this tailer reads {len(self._places)} partitions of {self._topic.name!r}. Give a "
                "mapping, such as {0: 17}"
            )
        unknown = [place.partition for place in given if place not in self._places]
        if unknown:
            have = [place.partition for place in self._places]
            raise ConfigError(f"this tailer of {self._topic.name!r} reads partitions {have}, not {unknown[0]!r}")
        marks = self._marks()
        for place, one in given.items():
            low, _, high = marks[place]
            if isinstance(one, bool) or not isinstance(one, int) or not low <= one <= high:
                raise ConfigError(
                    f"offset {one!r} is not in {place.topic}/{place.partition}, which has {low} to {high}. "
                    "to_start() and to_end() go to its ends"
                )
        return given

    def _resolved(self, start: Start, places: Sequence[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        wanted = self._places if places is None else places
        marks = self._marks()
        if start == "earliest":
            found = {place: marks[place].low for place in wanted}
        elif start == "latest":
            found = {place: marks[place].stable for place in wanted}
        elif isinstance(start, datetime):
            found = self._at_time(start)
        elif isinstance(start, int | Mapping):
            found = {place: marks[place].low for place in wanted} | self._given(start)
        else:
            raise ConfigError(f"start={start!r}: give 'earliest', 'latest', an offset or a datetime")
        return {place: found[place] for place in wanted}

    def _at_time(self, time: Since) -> dict[TopicPartition, int]:
        marks = self._marks()
        firsts = self._access.broker.offsets_at(dict.fromkeys(self._places, self._access.milliseconds(time)))
        return {
            place: marks[place].stable if first is None else max(marks[place].low, first)
            for place, first in firsts.items()
        }

    def _check_range(self, at: Mapping[TopicPartition, int]) -> None:
        marks = self._marks()
        for place, offset in at.items():
            low, _, high = marks[place]
            if not low <= offset <= high:
                raise RecoveryError(
                    f"the tailer{f' {self.name!r}' if self.name else ''} is at offset {offset} of "
                    f"{place.topic}/{place.partition}, which has offsets {low} to {high}: "
                    f"{'the messages between were deleted' if offset < low else 'the topic lost records'}. Continue "
                    "with seek, to_start or to_end; open a named tailer with again=True to begin at start="
                )

    def _check_kept(self, known: Mapping[TopicPartition, HeldPlace]) -> None:
        """Whether the stored places are of this topic, and still in its log."""
        for place, kept in known.items():
            if kept.topic_id != self._topic_id:
                raise RecoveryError(
                    f"topic {place.topic!r} was recreated after tailer {self.name!r} had stored its position, "
                    f"offset {kept.offset} of partition {place.partition}. Open it with again=True to begin at start="
                )
        self._check_range({place: kept.offset for place, kept in known.items()})
