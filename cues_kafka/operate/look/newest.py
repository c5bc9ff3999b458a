"""The newest committed records of many tasks, read side by side; what has not moved is not read again."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from cues_kafka.core.records import Record
from cues_kafka.errors import CodecError, RetriableError, UnreadableError
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import OPEN_TRANSACTION, newest, read_record

AT_ONCE: Final = 16
"""How many backing partitions are read side by side."""

PATIENCE_S: Final = 15.0
"""How long a partition may bring nothing. Each has a connection of its own, and brokers that recover are slow to log
in. Below the last stable offset no transaction hides a record."""

LOOK_AGAIN: Final = "Look again"
"""The end of a text of what the next look may read."""

ANOTHER_RELEASE: Final = "run the release that wrote it"
"""What helps where a record has a form that this release does not know."""

NOT_READ: Final = -1
"""In place of an offset: read it again."""


class NewestRecord(NamedTuple):
    """
    The newest committed record of a task.

    Attributes:
        record: None: there is none, or it cannot be read.
        committed_s: when the broker wrote it, in seconds since the epoch; 0: there is none.
        why: why it cannot be read; empty: it can. What took too long is read again at the next look.
        remedy: what helps, where the brokers give it and this release does not know it; else empty.
    """

    record: Record | None = None
    committed_s: float = 0.0
    why: str = ""
    remedy: str = ""

    @property
    def lasts(self) -> bool:
        """Whether the next look says the same: the record itself cannot be read."""
        return bool(self.why) and not self.why.endswith(LOOK_AGAIN)


class NewestRecords:
    """Reads the newest records of backing partitions, as any reader sees them: it waits for no open transaction."""

    def __init__(self, broker: Broker, group: str, clock: Clock) -> None:
        self._broker, self._group, self._clock = broker, group, clock
        self._known: dict[TopicPartition, tuple[int, NewestRecord]] = {}  # the last stable offset then

    def look(self, marks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, NewestRecord]:
        """
        The newest record below the last stable offset of each partition.

        Raises:
            BrokerError: the cluster does not answer, or refuses.
        """
        due = [place for place, one in marks.items() if self._known.get(place, (NOT_READ, None))[0] != one.stable]

        def read(place: TopicPartition) -> tuple[int, NewestRecord]:
            low, stable, _ = marks[place]
            try:
                found = newest(self._broker, place, low, stable, self._clock, group=self._group, patience_s=PATIENCE_S)
            except UnreadableError as error:
                return stable, NewestRecord(why=str(error))
            except RetriableError as error:
                if error.code != OPEN_TRANSACTION:
                    raise
                return NOT_READ, NewestRecord(why=f"the brokers gave nothing within {PATIENCE_S:g} s. {LOOK_AGAIN}")
            if found is None:
                return stable, NewestRecord()
            committed_s = found.timestamp()[1] / 1000
            try:
                return stable, NewestRecord(read_record(found), committed_s)
            except CodecError as error:
                return stable, NewestRecord(None, committed_s, str(error), ANOTHER_RELEASE)

        if due:
            with ThreadPoolExecutor(min(AT_ONCE, len(due)), thread_name_prefix="newest") as pool:
                self._known |= dict(zip(due, pool.map(read, due), strict=True))
        return {place: self._known[place][1] for place in marks}
