"""A streaming source of ranges (D1): one row for each task of a processor, with a range of each input, also empty ones.

The messages never pass through Spark. Offsets are JSON, as in the checkpoint of any Kafka source, by topic and
partition: `{"orders": {"0": 17, "1": 4}}`. `end` is a last stable offset, so everything below it is decided and can be
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Options
from cues_kafka.on_spark.source.planning import Offsets, from_json, to_json
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.scanning import due

if TYPE_CHECKING:
    from cues_kafka.on_spark.redelivery import Redelivery
    from cues_kafka.on_spark.source.decoding import Decoding
    from cues_kafka.on_spark.source.report import UndecodedReport

PREFIX = "cues-ranges-"
"""Prefix of the names of data sources: each processor has one of its own, which carries its input."""

SCHEMA = "partition INT, inputs ARRAY<STRUCT<topic: STRING, start: BIGINT, end: BIGINT>>"

_INPUT = pa.struct([("topic", pa.string()), ("start", pa.int64()), ("end", pa.int64())])

ARROW = pa.schema([("partition", pa.int32()), ("inputs", pa.list_(_INPUT))])

Begins: TypeAlias = Mapping[str, tuple[int, ...]]
"""Next offsets by topic, of each partition in order."""


@dataclass(frozen=True, slots=True)
class SourceInput:
    """
    What a query reads.

    Attributes:
        name: name of the processor, with its graph.
        first: the topics, and where a query without a checkpoint begins; fixed before Spark can ask twice.
        limit: offsets in one micro-batch, over all partitions; None: no limit.
        back: records may be behind Spark's checkpoint, and the query goes back to them. Not if Spark keeps state or
            announces batches: what it has taken once it never takes again.
        pairing: `single`, `join` or `alts`.
        decoding: of the values of the only topic; None: they are not decoded, or not read here.
        report: of a direct processor: what messages that make no row are handed to its slots with.
        counted: of a staged processor: each range that was read to its end makes one more row, see `messages.COUNT`.
        redelivery: of a staged processor: takes requests to replay errors; None: there are none.
    """

    name: str
    options: Options
    first: Begins
    limit: int | None = None
    back: bool = True
    pairing: str = "single"
    decoding: Decoding | None = None
    report: UndecodedReport | None = None
    counted: bool = False
    redelivery: Redelivery | None = None


class InputRange(NamedTuple):
    """The range `[start, end)` of one input."""

    topic: str
    start: int
    end: int


@dataclass
class RangeRow(InputPartition):
    """What one task is to deliver: the same partition of each input."""

    partition: int
    inputs: tuple[InputRange, ...]

    @property
    def starts(self) -> dict[str, int]:
        """Where Spark says that the ranges begin, by topic; a slot decides by its record."""
        return {one.topic: one.start for one in self.inputs}

    @property
    def ends(self) -> dict[str, int]:
        """Where the ranges end, by topic."""
        return {one.topic: one.end for one in self.inputs}

    @property
    def holds_offsets(self) -> bool:
        """Whether one of the ranges is not empty."""
        return any(one.start < one.end for one in self.inputs)


def rows_of(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[RangeRow]:
    """The rows of a micro-batch, by partition; an input's partition that is not in `start` begins at 0."""
    found: dict[int, list[InputRange]] = {}
    for place in sorted(end):
        one = InputRange(place.topic, start.get(place, 0), end[place])
        found.setdefault(place.partition, []).append(one)
    return [RangeRow(partition, tuple(found[partition])) for partition in sorted(found)]


def row_of(given: Mapping[str, Any]) -> RangeRow:
    """A row as Spark gives it, see `SCHEMA`."""
    return RangeRow(given["partition"], tuple(InputRange(**one) for one in given["inputs"]))


def offsets_of(begins: Begins) -> Offsets:
    """The same by topic and partition."""
    return {TopicPartition(topic, p): offset for topic, offsets in begins.items() for p, offset in enumerate(offsets)}


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
        self._until: Offsets | None = None
        self._compared = False

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins: the positions of the tasks' records."""
        return to_json(offsets_of(self._given.first))

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the messages of now as the end for `available-now`."""
        self._until = self._stable()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = from_json(start)
        if behind := self._behind(begun):
            return to_json(behind)
        ends = self._until or self._stable()
        if isinstance(limit, ReadMaxRows):
            known = {**offsets_of(self._given.first), **begun}  # an input that was added has no start yet
            ends = within(known, ends, limit.max_rows)
        return to_json({place: max(end, begun.get(place, 0)) for place, end in ends.items()})

    def reportLatestOffset(self) -> dict[str, Any]:
        """The end of the log, by which Spark's progress computes the lag."""
        return to_json(self._stable())

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[RangeRow]:
        """A row for each partition, in order."""
        return rows_of(from_json(start), from_json(end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the row that says what to deliver."""
        assert isinstance(partition, RangeRow)
        row = {"partition": partition.partition, "inputs": [one._asdict() for one in partition.inputs]}
        yield pa.RecordBatch.from_pylist([row], schema=ARROW)

    def _behind(self, start: Offsets) -> Offsets:
        """
        Return where the records stand, if some are behind Spark's checkpoint (`cues-kafka reset`); looked up once in a
        run.

        The record decides, but if everything is behind the checkpoint Spark plans no batch before a new message comes.
        So the next batch is empty and leads back to the records, and the one after it has what they miss. After a
        crash, a batch that Spark has already run again looks the same, so this asks the group.

        A join that waits for partners is behind in one input. It goes back only where each input is behind.
        """
        if self._compared or not self._given.back:
            return {}
        self._compared = True
        places = self._due({p for p, first in offsets_of(self._given.first).items() if first < start.get(p, first)})
        committed = self._broker.committed(self._given.name, sorted(places)) if places else {}
        back = {place: offset for place, offset in committed.items() if offset is not None and offset < start[place]}
        back = {place: back[place] for place in self._due(set(back))}
        return {**start, **back} if back else {}

    def _due(self, places: set[TopicPartition]) -> set[TopicPartition]:
        """Those of the partitions from which a task can deliver something, by its pairing."""
        tasks = [[TopicPartition(topic, p) for topic in self._given.first] for p in {one.partition for one in places}]
        return {place for inputs in tasks for place in due(self._given.pairing, inputs, places.intersection(inputs))}

    def _stable(self) -> Offsets:
        places = sorted(offsets_of(self._given.first))
        marks = self._broker.watermarks(places)
        return {place: marks[place].stable for place in places}


def within(start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int) -> Offsets:
    """Return ends at most `limit` offsets behind `start` in all, shared by how far each partition is behind."""
    lags = {p: max(0, end - start.get(p, 0)) for p, end in ends.items()}
    lag = sum(lags.values())
    if lag <= limit:
        return dict(ends)
    # Rounded up, so that with a limit below the number of partitions each of them still moves.
    return {p: start.get(p, 0) + min(own, -(-limit * own // lag)) for p, own in lags.items()}


def range_source(given: SourceInput) -> type[DataSource]:
    """Make the data source of one processor's ranges."""
    return data_source(PREFIX + given.name, SCHEMA, lambda _: RangeReader(given))


def data_source(name: str, schema: str | StructType, reader: Callable[[StructType], RangeReader]) -> type[DataSource]:
    """Make a data source class that carries its input with it, so that no secret is an option that Spark shows."""
    called, columns = name, schema

    class InputSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return called

        def schema(self) -> str | StructType:
            return columns

        def streamReader(self, schema: StructType) -> RangeReader:
            return reader(schema)

    return InputSource
