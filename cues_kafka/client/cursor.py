"""A place between two messages of a topic, and what brings the next one, forward or backward."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from cues_kafka.client.access import Access, TopicAccess
from cues_kafka.errors import BrokerError, RecoveryError, RetriableError
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.records.scanning import read_range

Direction: TypeAlias = Literal["forward", "backward"]

SLICE_S: Final = 0.05
"""A tailer that waits looks this often whether it was told to stop waiting."""

PATIENCE_S: Final = 30.0
"""A tailer that knows of messages waits for them this long; then the cluster does not answer."""

WINDOW: Final = 16
"""Offsets of the first look backward. The looks behind it double."""

WIDEST: Final = 8192
"""Offsets of the widest look backward, whose messages are held in memory."""

_AT_ONCE: Final = 1000


class LogCursor:
    """
    Stands in some partitions of a topic. Used on one thread at a time.

    Attributes:
        places: the partitions.
        at: the next offset to read of each. It moves over markers.
        last: the offset of the message of each that was read last; None: none was.
        direction: where the next message is looked for.
        single: whether its tailer reads one partition, and so speaks of one offset.
    """

    def __init__(
        self,
        access: Access,
        topic: TopicAccess,
        partition: int | None,
        name: str | None,
    ) -> None:
        """
        Args:
            access: of the client.
            topic: what it reads.
            partition: the one to read; None: all.
            name: its tailer's; None: it has none.
        """
        places = topic.places if partition is None else [TopicPartition(topic.name, partition)]
        self.single = partition is not None
        self.places = places
        self.at: dict[TopicPartition, int] = {}
        self.last: dict[TopicPartition, int | None] = dict.fromkeys(places)
        self.direction: Direction = "forward"
        self._access = access
        self._topic = topic
        self._name = name
        self._reader: Reader | None = None
        self._assigned = False
        self._ahead: deque[WireMessage] = deque()
        self._reached: dict[TopicPartition, int] = {}  # ends that the reader has reported
        self._behind: dict[TopicPartition, list[WireMessage]] = {}
        self._floor: dict[TopicPartition, int] = {}  # offsets below which nothing was looked at yet
        self._window = WINDOW

    def __str__(self) -> str:
        """Names its tailer."""
        name = f", name={self._name!r}" if self._name else ""
        return f"<ClientTailer of {self._topic.name!r} at {self.shape(self.at)!r}{name}>"

    def shape(self, offsets: Mapping[TopicPartition, Any]) -> Any:
        """The offset of a single partition, or offsets by partition."""
        by_partition = {place.partition: offset for place, offset in offsets.items()}
        return next(iter(by_partition.values()), None) if self.single else by_partition

    def there(self) -> WireMessage | None:
        """
        The next message that is committed now; the cursor does not move.

        Raises:
            RecoveryError: the messages at its place were deleted.
            RetriableError: the cluster does not answer.
        """
        return self._present() if self.direction == "forward" else self._previous()

    def take(self, message: WireMessage) -> None:
        """Move over the message that `there` or `head` gave."""
        place = TopicPartition(message.topic(), message.partition())
        offset = message.offset()
        if self.direction == "forward":
            self._ahead.popleft()
            self.at[place] = offset + 1
            self._pass_markers()
        else:
            self._behind[place].pop()
            self.at[place] = offset
        self.last[place] = offset

    def close(self) -> None:
        """Release the client."""
        if self._reader is not None:
            self._reader.close()

    def _present(self) -> WireMessage | None:
        if (found := self.head()) is not None:
            return found
        self.fetch(0)
        if (found := self.head()) is not None:
            return found
        ends = {place: marks.stable for place, marks in self.marks().items()}
        clock = self._access.clock
        deadline = clock.monotonic() + PATIENCE_S
        while any(self._end_of(place) < end for place, end in ends.items()):
            self.fetch(SLICE_S)
            if (found := self.head()) is not None:
                return found
            if clock.monotonic() >= deadline:
                raise RetriableError(
                    f"{self}: messages up to {ends} are there, and none came for {PATIENCE_S:g} s; see whether the "
                    "brokers answer",
                    code="_TIMED_OUT",
                )
        return None

    def head(self) -> WireMessage | None:
        """The next message forward that was fetched already."""
        return self._ahead[0] if self._ahead else None

    def _end_of(self, place: TopicPartition) -> int:
        return max(self.at[place], self._reached.get(place, 0))

    def fetch(self, timeout_s: float) -> None:
        """Take what arrives within this time; under virtual time, let the time pass."""
        clock = self._access.clock
        until_s = clock.monotonic() + timeout_s
        if self._reader is None:
            self._reader = self._access.broker.reader(self._topic.group)
        if not self._assigned:
            self.check_range(self.at)
            self._reader.assign(self.at)
            self._assigned = True
        try:
            found = self._reader.poll(timeout_s, _AT_ONCE)
        except BrokerError:
            self.move(self.at)  # the reader is silent behind an error until it is pointed to the place again
            self.check_range(self.at)
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
                self.at[place] = max(self.at[place], end)

    def _previous(self) -> WireMessage | None:
        """The newest message before where it stands, of all partitions."""
        marks: dict[TopicPartition, Watermarks] | None = None
        for place in self.places:
            if not self._behind.get(place):
                marks = marks or self.marks()
                self._look_back(place, marks[place])
        heads = [found[-1] for place in self.places if (found := self._behind[place])]
        return max(heads, key=lambda message: message.timestamp()[1], default=None)

    def _look_back(self, place: TopicPartition, marks: Watermarks) -> None:
        end = min(self._floor.get(place, self.at[place]), marks.stable)
        found: list[WireMessage] = []
        while not found and end > marks.low:
            start = max(marks.low, end - self._window)
            found = list(read_range(self._access.broker, place, start, end, group=self._topic.group))
            self._window, end = min(self._window * 2, WIDEST), start
        self._behind[place], self._floor[place] = found, end

    def marks(self) -> dict[TopicPartition, Watermarks]:
        """What bounds the partitions now."""
        return self._access.broker.watermarks(self.places)

    def move(self, to: Mapping[TopicPartition, int]) -> None:
        """Stand somewhere else; what was fetched is dropped."""
        self.at = dict(to)
        self._ahead.clear()
        self._reached.clear()
        self._behind.clear()
        self._floor.clear()
        self._window = WINDOW
        if self._reader is not None and self._assigned:
            self._reader.unassign(self.places)
        self._assigned = False

    def check_range(self, at: Mapping[TopicPartition, int]) -> None:
        """
        Raises:
            RecoveryError: the log does not reach to one of these offsets.
        """
        marks = self.marks()
        for place, offset in at.items():
            low, _, high = marks[place]
            if not low <= offset <= high:
                raise RecoveryError(
                    f"the tailer{f' {self._name!r}' if self._name else ''} is at offset {offset} of "
                    f"{place.topic}/{place.partition}, which has offsets {low} to {high}: "
                    f"{'the messages between were deleted' if offset < low else 'the topic lost records'}. Continue "
                    "with seek, to_start or to_end; open a named tailer with again=True to begin at start="
                )
