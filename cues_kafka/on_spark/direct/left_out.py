"""Messages of a range that cannot be decoded, as the slot of a direct processor of DataFrames delivers them (D1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.direct.frame_slot import Range, Row
from cues_kafka.on_spark.source.messages import ACCEPT
from cues_kafka.on_spark.source.planning import OffsetRange
from cues_kafka.on_spark.source.report import ReportReader
from cues_kafka.on_spark.undecoded import ErrorRow, Undecoded
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import TopicPartition

log = get_logger("cues_kafka.slot")


class Reported:
    """
    Error messages that the source of the same Spark task has reported; behind these, what the range itself says.

    It is a `frame_slot.LeftOut`. What the source did not read, because the plan did not ask for it, is read here.
    """

    def __init__(
        self, undecoded: Undecoded, broker: Broker, partition: int, given: Range, reader: ReportReader | None = None
    ) -> None:
        """
        Args:
            undecoded: makes error messages.
            broker: the cluster.
            partition: of the input.
            given: the range that the driver gave.
            reader: of the report; None: the source wrote no report.
        """
        self._undecoded = undecoded
        self._broker = broker
        self._partition = partition
        self._given = given
        self._reader = reader
        self._held: deque[ErrorRow] = deque()
        self._read_to = self._position = given.start
        self._rest: Iterator[ErrorRow] | None = None

    def begin(self, position: int) -> None:
        """Leave out what is below the position of the slot."""
        self._position = max(position, self._given.start)

    def below(self, offset: int) -> Iterator[Row]:
        """The error messages below an offset, from where the last call ended."""
        while True:
            while self._held and self._held[0].offset < offset:
                yield _row(self._held.popleft())
            if self._held or max(self._read_to, self._position) >= offset:
                return
            if not self._read_on():
                return

    def _read_on(self) -> bool:
        """Hold the next error messages; whether there may be more."""
        if self._rest is None and self._reader is not None and (entry := self._reader.next()) is not None:
            self._read_to = entry.to
            self._held.extend(entry.rows)
            return True
        if self._rest is None:
            start = max(self._read_to, self._position)
            log.info("read again", topic=self._undecoded.topic, partition=self._partition, start=start)
            rest = OffsetRange(TopicPartition(self._undecoded.topic, self._partition), start, self._given.end)
            self._rest = self._undecoded.within(self._broker, rest, remedy=ACCEPT)
        row = next(self._rest, None)
        self._read_to = self._given.end if row is None else row.offset + 1
        if row is not None:
            self._held.append(row)
        return row is not None


def _row(one: ErrorRow) -> Row:
    """The error message, with the broker's time."""
    return Row(one.offset, one.key, one.value, one.headers, 0, one.why, one.note)
