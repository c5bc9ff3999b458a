"""A tailer reads a topic at its own pace: forward and backward, from any place, waiting or not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

from cues_kafka.client.access import Access, Since, TopicAccess
from cues_kafka.client.cursor import SLICE_S, Direction, LogCursor
from cues_kafka.client.places import HeldPlaces
from cues_kafka.client.starts import Start, Starts
from cues_kafka.client.stored_place import StoredPlace
from cues_kafka.errors import ConfigError
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.task.calling.step import Received


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
        topic: the topic that it reads.
        closed: whether it was closed.
    """

    def __init__(
        self, access: Access, topic: TopicAccess, partition: int | None, name: str | None, forget: Callable[[Any], None]
    ) -> None:
        """See `ClientTopic.tailer`; `begin` sets it to its start."""
        self.name = name
        self.topic: str = topic.name
        self.closed: bool = False
        self._access = access
        self._topic = topic
        self._cursor = LogCursor(access, topic, partition, name)
        self._starts = Starts(access, self._cursor, topic.name)
        self._stored: StoredPlace | None = None
        self._forget = forget
        self._woken = threading.Event()
        self._using = threading.Lock()

    # Making it.

    def begin(self, start: Start) -> None:
        """
        Set a tailer without a name to its start.

        Raises:
            ConfigError: there is no such place.
        """
        self._cursor.at = self._starts.resolved(start)

    def begin_named(self, start: Start, group: str, held: HeldPlaces, *, again: bool) -> None:
        """
        Take the tailer's id, then its place (K3); where it has none, or with `again`, its start becomes its place.

        A partition that was added since the tailer has places is read from its beginning.

        `group` is the transactional id, and the group whose offsets show the place to lag tools.

        Raises:
            RecoveryError: the topic was recreated, or what lies at the place was deleted.
        """
        cursor = self._cursor
        stored = self._stored = StoredPlace(held, group, self.name or "", cursor.places, self._topic.facts.topic_id)
        at = stored.open(again=again)
        cursor.check_range(at)
        if new := [place for place in cursor.places if place not in at]:
            at |= self._starts.resolved("earliest" if at else start, new)
        stored.store({place.partition: offset for place, offset in at.items()})  # the id is this tailer's from now on
        cursor.at = at

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
            return self._taken(self._cursor.there())

    def peek(self) -> Received | None:
        """What `read` would return, without moving."""
        with self._used():
            found = self._cursor.there()
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
            if self._cursor.direction == "backward":
                return self._taken(self._cursor.there())
            found = self._cursor.head()
            clock = self._access.clock
            deadline = None if timeout_s is None else clock.monotonic() + timeout_s
            while found is None and not self.stopped(unblock):
                left_s = SLICE_S if deadline is None else min(SLICE_S, deadline - clock.monotonic())
                if left_s <= 0:
                    break
                self._cursor.fetch(left_s)
                found = self._cursor.head()
            return self._taken(found)

    def messages(self, limit: int | None = None) -> Iterator[Received]:
        """The messages from here on, until none is there now, or until this many were read."""
        read = 0
        while (limit is None or read < limit) and (found := self.read()) is not None:
            read += 1
            yield found

    def give_back(self, positions: Mapping[int, int]) -> None:
        """Stand where it stood before, so that what was read since is read again."""
        if not self.closed:
            with self._used():
                at = {TopicPartition(self.topic, partition): offset for partition, offset in positions.items()}
                self._cursor.move(at)

    def unblock(self) -> None:
        """End the wait that is under way, or else the next one. May be called on any thread."""
        self._woken.set()

    # Moving.

    @property
    def positions(self) -> dict[int, int]:
        """The next offset to read of each partition. It moves over markers."""
        return {place.partition: offset for place, offset in self._cursor.at.items()}

    @property
    def offset(self) -> Any:
        """The next offset to read; a mapping by partition if it reads all of them."""
        return self._cursor.shape(self._cursor.at)

    @property
    def last_read_offset(self) -> Any:
        """The offset of the message that was read last, or None; a mapping by partition if it reads all of them."""
        return self._cursor.shape(self._cursor.last)

    @property
    def direction(self) -> Direction:
        """`forward` or `backward`; set it to turn around."""
        return self._cursor.direction

    @direction.setter
    def direction(self, direction: Direction) -> None:
        if direction not in ("forward", "backward"):
            raise ConfigError(f"direction={direction!r}: a tailer reads 'forward' or 'backward'")
        with self._used():
            if direction != self._cursor.direction:
                self._cursor.direction = direction
                self._cursor.move(self._cursor.at)

    def seek(self, offset: int | Mapping[int, int]) -> Self:
        """
        Stand at an offset; with all partitions, give a mapping by partition. Others stay where they are.

        Raises:
            ConfigError: the log has no such offset.
        """
        with self._used():
            self._cursor.move({**self._cursor.at, **self._starts.given(offset)})
        return self

    def to_start(self) -> Self:
        """Stand before the first message."""
        with self._used():
            self._cursor.move(self._starts.resolved("earliest"))
        return self

    def to_end(self) -> Self:
        """Stand behind the last message that is committed now."""
        with self._used():
            self._cursor.move(self._starts.resolved("latest"))
        return self

    def to_time(self, time: Since) -> Self:
        """Stand before the first message that is not older than a time; without one, behind the last message."""
        with self._used():
            self._cursor.move(self._starts.at_time(time))
        return self

    def to_place(self) -> Self:
        """Stand at the place that is stored, as when it was opened; only for a named tailer."""
        with self._used():
            self._cursor.move(self.stored.stored())
        return self

    def close(self) -> None:
        """Release the clients. The place of a named tailer stays."""
        if self.closed:
            return
        self.closed = True
        self._woken.set()
        with self._using:  # a thread that waits comes back within a moment
            self._cursor.close()
            if self._stored is not None:
                self._stored.close()
        self._forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return str(self._cursor)

    # For `alts` and transactions.

    @property
    def clock(self) -> Clock:
        """The time by which it waits."""
        return self._access.clock

    def look(self, wait_s: float | None) -> WireMessage | None:
        """The next message, which is not moved over; waits so long for one. None: of those that are committed now."""
        with self._used():
            if wait_s is None:
                return self._cursor.there()
            if self._cursor.head() is None:
                self._cursor.fetch(wait_s)
            return self._cursor.head()

    def stopped(self, unblock: Unblock | None) -> bool:
        """Whether a wait is over. What `unblock` has set counts once."""
        if self._woken.is_set():
            if not self.closed:
                self._woken.clear()
            return True
        return unblock is not None and unblock.is_set()

    @property
    def stored(self) -> StoredPlace:
        """
        Its place, for `advance`.

        Raises:
            ConfigError: it has no name.
        """
        if self._stored is None:
            raise ConfigError(
                f"this tailer of {self._topic.name!r} has no name, so its place is not kept. Open it with name=, by a "
                "client with a name: connect(..., name=...)"
            )
        return self._stored

    # How.

    @contextmanager
    def _used(self) -> Iterator[None]:
        if not self._using.acquire(blocking=False):
            raise RuntimeError(f"{self!r} is used by another thread; open one tailer for each thread")
        try:
            if self.closed:
                raise RuntimeError(f"{self!r} is closed; open another one")
            yield
        finally:
            self._using.release()

    def _taken(self, message: WireMessage | None) -> Received | None:
        """Move over a message, and decode it."""
        if message is None:
            return None
        self._cursor.take(message)
        return self._topic.received(message)
