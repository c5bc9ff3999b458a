"""The streaming source of a DataFrame processor: messages of one topic, from where its tasks' records stand.

It is like `format("cues")`, but carries its input with it. So no secret is an option that Spark shows. The first
offsets are the records' positions, so Spark may ask for them repeatedly.

A message that cannot be decoded makes no row. The source of a direct processor reports it to the slot (`report`); that
of a staged one counts it, and the driver has it looked for once the batch is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, nullcontext
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from cues_kafka.brokers.open import open_broker
from cues_kafka.on_spark.source.decoding import Decoding
from cues_kafka.on_spark.source.format import WITH_HEADERS as COLUMNS
from cues_kafka.on_spark.source.planning import OffsetRange
from cues_kafka.on_spark.source.ranges import RangeReader, RangeRow, SourceInput, data_source
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
    """Gives the messages of the only input, in place of its ranges."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read all committed messages of a range, with a consumer of its own."""
        assert isinstance(partition, RangeRow)
        given, [one] = self._given, partition.inputs
        if one.start >= one.end:
            return
        span = OffsetRange(TopicPartition(one.topic, partition.partition), one.start, one.end)
        broker = open_broker(given.options)
        try:
            yield from _DecodedRange(given, span).read(broker)
        finally:
            broker.close()


class _DecodedRange:
    """Reads one range as rows."""

    def __init__(self, given: SourceInput, span: OffsetRange) -> None:
        self._given, self._span = given, span
        self._failed = 0

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
