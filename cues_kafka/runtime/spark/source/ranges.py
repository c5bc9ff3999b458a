"""A streaming source of ranges (D1): one row for each partition of a processor's input, also for empty ranges.

The messages never pass through Spark. Offsets are JSON, as Spark needs them, from partition to next offset: `{"0": 17,
"1": 4}`. `end` is a last stable offset, so everything below it is decided and can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Options
from cues_kafka.ports import Broker, TopicPartition

PREFIX = "cues-ranges-"
"""Prefix of the names of data sources: each processor has one of its own, which carries its input."""

SCHEMA = "partition INT, start BIGINT, end BIGINT"

ARROW = pa.schema([("partition", pa.int32()), ("start", pa.int64()), ("end", pa.int64())])


@dataclass(frozen=True, slots=True)
class SourceInput:
    """
    The input that a query reads.

    Attributes:
        name: name of the processor, with its graph.
        first: where a query without a checkpoint begins, by partition; fixed before Spark can ask twice.
        limit: offsets in one micro-batch, over all partitions; None: no limit.
        back: records may be behind Spark's checkpoint, and the query goes back to them. Not if Spark keeps state or
            announces batches: what it has taken once it never takes again.
    """

    name: str
    options: Options
    topic: str
    first: tuple[int, ...]
    limit: int | None = None
    back: bool = True


@dataclass
class RangeRow(InputPartition):
    """One partition's range `[start, end)`."""

    partition: int
    start: int
    end: int


class Connected:
    """A reader with a connection to the cluster, which stays behind when Spark pickles the reader for its tasks."""

    def __init__(self, options: Options, limit: int | None = None) -> None:
        self._options = options
        self._limit = limit
        self._connection: Broker | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    @property
    def _broker(self) -> Broker:
        self._connection = self._connection or open_broker(self._options)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None


class ConnectedStream(Connected, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What the readers of all streaming sources share."""

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._limit is None else ReadMaxRows(self._limit)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: Spark's checkpoint, or the records of the tasks, have the offsets."""

    def stop(self) -> None:
        self._disconnect()


class RangeReader(ConnectedStream):
    """Tell how far there are messages to read, in a process of its own beside the driver."""

    def __init__(self, given: SourceInput) -> None:
        super().__init__(given.options, given.limit)
        self._given = given
        self._until: dict[str, int] | None = None
        self._compared = False

    def initialOffset(self) -> dict[str, int]:
        """Where a query without a checkpoint begins: the positions of the tasks' records."""
        return {str(p): offset for p, offset in enumerate(self._given.first)}

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the messages of now as the end for `available-now`."""
        self._until = self._stable()

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> dict[str, int]:
        if behind := self._behind(start):
            return behind
        ends = self._until or self._stable()
        if isinstance(limit, ReadMaxRows):
            ends = within(start, ends, limit.max_rows)
        return {p: max(end, start.get(p, 0)) for p, end in ends.items()}

    def reportLatestOffset(self) -> dict[str, int]:
        """The end of the log, by which Spark's progress computes the lag."""
        return self._stable()

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[RangeRow]:
        """A range for each partition, in order."""
        return [RangeRow(int(p), start.get(p, 0), end[p]) for p in sorted(end, key=int)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the row that says what to deliver."""
        assert isinstance(partition, RangeRow)
        yield pa.RecordBatch.from_pylist([asdict(partition)], schema=ARROW)

    def _behind(self, start: Mapping[str, int]) -> dict[str, int]:
        """
        Return where the records stand, if some are behind Spark's checkpoint (`cues-kafka reset`); looked up once in a
        run.

        The record decides, but if everything is behind the checkpoint Spark plans no batch before a new message comes.
        So the next batch is empty and leads back to the records, and the one after it has what they miss. After a
        crash, a batch that Spark has already run again looks the same, so this asks the group.
        """
        if self._compared or not self._given.back:
            return {}
        self._compared = True
        places = [
            TopicPartition(self._given.topic, p)
            for p, first in enumerate(self._given.first)
            if first < start.get(str(p), first)
        ]
        committed = self._broker.committed(self._given.name, places) if places else {}
        back = {
            str(place.partition): offset
            for place, offset in committed.items()
            if offset is not None and offset < start[str(place.partition)]
        }
        return {**start, **back} if back else {}

    def _stable(self) -> dict[str, int]:
        places = [TopicPartition(self._given.topic, p) for p in range(len(self._given.first))]
        marks = self._broker.watermarks(places)
        return {str(place.partition): marks[place].stable for place in places}


def within(start: Mapping[str, int], ends: Mapping[str, int], limit: int) -> dict[str, int]:
    """Return ends at most `limit` offsets behind `start` in all, shared by how far each partition is behind."""
    lags = {p: max(0, end - start.get(p, 0)) for p, end in ends.items()}
    lag = sum(lags.values())
    if lag <= limit:
        return dict(ends)
    # Rounded up, so that with a limit below the number of partitions each of them still moves.
    return {p: start.get(p, 0) + min(own, -(-limit * own // lag)) for p, own in lags.items()}


def range_source(given: SourceInput) -> type[DataSource]:
    """Make the data source of one processor's ranges."""
    return data_source(PREFIX + given.name, SCHEMA, lambda: RangeReader(given))


def data_source(name: str, schema: str | StructType, reader: Callable[[], RangeReader]) -> type[DataSource]:
    """Make a data source class that carries its input with it, so that no secret is an option that Spark shows."""
    called, columns = name, schema

    class InputSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return called

        def schema(self) -> str | StructType:
            return columns

        def streamReader(self, schema: Any) -> RangeReader:
            return reader()

    return InputSource
