"""What waits behind the positions of tasks: the age of the oldest message, and how many messages there are.

Markers of transactions have offsets, too. So a number of offsets is exact only where what lies there is read, which is
done where it is little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cues_kafka.errors import BrokerError, UnreadableError
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Fetched, TopicPartition

COUNTED: Final = 1_000
"""Up to this number of offsets are read to count the messages among them."""

WAITING_S: Final = 5.0
"""How long it is looked for; what is not found in time is open."""

Ranges = Mapping[TopicPartition, tuple[Iterable[int], int]]
"""By partition the offsets at which tasks stand, and the last stable offset."""


class Waiting(NamedTuple):
    """
    What waits from an offset on.

    Attributes:
        oldest_s: the timestamp of the first message, in seconds since the epoch; None: only markers come.
        messages: how many there are below the last stable offset; None: they were not counted.
    """

    oldest_s: float | None
    messages: int | None


@dataclass(slots=True)
class _Counted:
    """One partition that is read."""

    starts: list[int]
    end: int
    seen: list[tuple[int, float]] = field(default_factory=list)
    """Offsets and times of messages."""
    reached: int = 0

    @property
    def counted(self) -> bool:
        """Whether all of it is read."""
        return self.end - self.starts[0] <= COUNTED

    def take(self, fetched: Fetched) -> None:
        """Keep what came."""
        self.seen += [(one.offset(), one.timestamp()[1] / 1000) for one in fetched.messages]
        last = fetched.messages[-1].offset() + 1 if fetched.messages else 0
        self.reached = max(self.reached, last, fetched.eof or 0)

    @property
    def ended(self) -> bool:
        """Whether all is known."""
        if self.reached >= self.end:
            return True
        return not self.counted and bool(self.seen) and self.seen[-1][0] >= self.starts[-1]

    def found(self, start: int) -> Waiting:
        """What waits from an offset on."""
        times = [time_s for offset, time_s in self.seen if start <= offset < self.end]
        whole = self.counted or self.reached >= self.end
        return Waiting(times[0] if times else None, len(times) if whole else None)


class WaitingMessages:
    """
    Looks for what waits, with one reader that stays; one thread at a time.

    Args:
        broker: the cluster.
        group: named as the reader's.
        clock: time.
    """

    def __init__(self, broker: Broker, group: str, clock: Clock) -> None:
        self._broker, self._group, self._clock = broker, group, clock
        self._reader: Reader | None = None

    def look(self, ranges: Ranges) -> dict[tuple[TopicPartition, int], Waiting]:
        """
        What waits from each of the offsets on, as far as it is found in time.

        Raises:
            BrokerError: the cluster does not answer, or this user may not read a topic.
        """
        left = {place: _Counted(sorted(starts), end) for place, (starts, end) in ranges.items()}
        found: dict[tuple[TopicPartition, int], Waiting] = {}
        reader = self._reader = self._reader or self._broker.reader(self._group, prompt=True)
        try:
            reader.assign({place: one.starts[0] for place, one in left.items()})
            deadline = self._clock.monotonic() + WAITING_S
            while left and self._clock.monotonic() < deadline:
                try:
                    polled = reader.poll(0.1)
                except UnreadableError as error:  # what waits there is not known
                    place = TopicPartition(*error.place)
                    reader.unassign([place])
                    left.pop(place, None)
                    continue
                for fetched in polled:
                    if (one := left.get(fetched.partition)) is None:
                        continue
                    one.take(fetched)
                    if one.ended:
                        reader.unassign([fetched.partition])
                        found |= {(fetched.partition, at): one.found(at) for at in one.starts}
                        del left[fetched.partition]
            reader.unassign([*left])
        except BrokerError:
            self.close()
            raise
        return found

    def close(self) -> None:
        """Release the reader."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
