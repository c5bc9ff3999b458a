"""The streaming source of a DataFrame processor: messages of one topic, from where its tasks' records stand.

It is like `format("cues")`, but carries its input with it. So no secret is an option that Spark shows. The first
offsets are the records' positions, so Spark may ask for them repeatedly.

A message that cannot be decoded makes no row. The source of a direct processor reports it to the slot (`report`); that
of a staged one counts it, and the driver has it looked for once the batch is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, nullcontext
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from cues_kafka.brokers.open import open_broker
from cues_kafka.on_spark.redelivery import Redelivery, refuse_foreign
from cues_kafka.on_spark.source.decoding import Decoding
from cues_kafka.on_spark.source.format import WITH_HEADERS as COLUMNS
from cues_kafka.on_spark.source.planning import OffsetRange, Offsets, from_json, to_json
from cues_kafka.on_spark.source.ranges import InputRange, RangeReader, RangeRow, SourceInput, data_source
from cues_kafka.on_spark.source.report import ReportWriter, UndecodedReport
from cues_kafka.on_spark.source.rows import WITH_HEADERS, arrow, message_batches
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import TopicPartition

PREFIX: Final = "cues-messages-"

COUNT: Final = "_cues_undecoded"
"""The column of a staged processor's source: null in a row of a message. A row behind each range that was read to its
end has the number of its messages that cannot be decoded, and nothing else."""

ACCEPT: Final = "`cues-kafka accept-loss MODULE:GRAPH PROCESSOR` goes on behind it"

RESET: Final = (
    "a staged processor cannot pass over it: `cues-kafka reset MODULE:GRAPH PROCESSOR` begins again with a new "
    "checkpoint, and outputs repeat"
)


class MessageReader(RangeReader):
    """Gives the messages of the only input, in place of its ranges, and those that are to be replayed (Y4)."""

    def __init__(self, given: SourceInput) -> None:
        super().__init__(given)
        self._asked_until: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:
        begins = super().initialOffset()
        asked = self._given.redelivery
        return begins if asked is None else {**begins, **to_json(asked.begins())}

    def prepareForTriggerAvailableNow(self) -> None:
        super().prepareForTriggerAvailableNow()
        if self._given.redelivery is not None:
            self._asked_until = self._given.redelivery.stable(self._broker)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        ends = super().latestOffset(start, limit)
        asked = self._given.redelivery
        if asked is None:
            return ends
        return {**ends, **to_json(asked.ends(from_json(start), self._asked_until or asked.stable(self._broker)))}

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read all committed messages of a range, with a consumer of its own."""
        assert isinstance(partition, RangeRow)
        due = [found for one in partition.inputs if (found := self._range(one, partition.partition)).due]
        if not due:
            return
        broker = open_broker(self._given.options)
        try:
            for found in due:
                yield from found.read(broker)
        finally:
            broker.close()

    def _range(self, one: InputRange, partition: int) -> _DecodedRange:
        given, asked = self._given, self._given.redelivery
        if one.topic in given.first:
            return _DecodedRange(given, OffsetRange(TopicPartition(one.topic, partition), one.start, one.end))
        if asked is None or one.topic != asked.topic:
            refuse_foreign(one.topic, list(given.first))
        return _AskedRange(given, asked, asked.range(partition, one.start, one.end))


class _DecodedRange:
    """Reads one range as rows."""

    def __init__(self, given: SourceInput, span: OffsetRange) -> None:
        self._given, self._span = given, span
        self._failed = 0

    @property
    def due(self) -> bool:
        """Whether it has offsets."""
        return self._span.start < self._span.end

    def read(self, broker: Broker) -> Iterator[Any]:
        report = self._given.report
        path = None if report is None else report.path
        writer = ReportWriter(path, self._span.place.partition) if path else None
        with nullcontext() if writer is None else closing(writer):
            yield from self._batches(broker, report, writer)
            if writer is not None:
                writer.add((), self._span.end)
        if self._given.counted:
            yield self._count()

    def _batches(self, broker: Broker, report: UndecodedReport | None, writer: ReportWriter | None) -> Iterator[Any]:
        given, span, decoding = self._given, self._span, self._given.decoding
        assert decoding is not None
        remedy = ACCEPT if given.back else RESET
        for messages in message_batches(broker, span, name=given.name, fail=True, remedy=remedy):
            found = decoding.separate(messages)
            self._failed += len(found.failed)
            if writer is not None and report is not None:
                writer.add(report.undecoded.rows(span.place.partition, found.failed), messages[-1].offset() + 1)
            if found.good:
                batch = arrow(found.good, span, headers=True, came=found.headers, values=found.values)
                yield self._with_count(batch) if given.counted else batch

    @staticmethod
    def _with_count(batch: Any) -> Any:
        return batch.append_column(COUNT, pa.nulls(len(batch), pa.int64()))

    def _count(self) -> Any:
        """The row behind the range."""
        assert self._given.decoding is not None
        empty = arrow_schema(self._given.decoding)
        columns = [pa.nulls(1, field.type) for field in empty]
        return pa.RecordBatch.from_arrays(
            [*columns, pa.array([self._failed], pa.int64())], schema=empty.append(pa.field(COUNT, pa.int64()))
        )


class _AskedRange(_DecodedRange):
    """Reads the requests of one range, and makes rows of the messages that they name."""

    def __init__(self, given: SourceInput, asked: Redelivery, span: OffsetRange) -> None:
        super().__init__(given, span)
        self._asked = asked

    def _batches(self, broker: Broker, report: UndecodedReport | None, writer: ReportWriter | None) -> Iterator[Any]:
        asked, place = self._asked, TopicPartition(self._asked.undecoded.topic, self._span.place.partition)
        found, failed = asked.separated(asked.taken(broker, self._span))
        self._failed += len(failed)
        for one in found:
            if one.good:
                span = OffsetRange(place, 0, 0)
                yield self._with_count(arrow(one.good, span, headers=True, came=one.headers, values=one.values))


def arrow_schema(decoding: Decoding) -> Any:
    """The schema of the source's batches, without `COUNT`."""
    return WITH_HEADERS if decoding.kind is None else WITH_HEADERS.set(1, pa.field("value", decoding.kind))


def message_source(given: SourceInput) -> type[DataSource]:
    """Make the data source of one processor's messages."""
    decoding = given.decoding
    assert decoding is not None
    types = {each.name: each.dataType.simpleString() for each in COLUMNS.fields}
    if decoding.ddl is not None:
        types["value"] = decoding.ddl
    if given.counted:
        types[COUNT] = "bigint"

    def reader(schema: StructType) -> MessageReader:
        decoding.know(schema)
        return MessageReader(given)

    columns = ", ".join(f"`{name}` {kind}" for name, kind in types.items())
    return data_source(PREFIX + given.name, columns, reader)
