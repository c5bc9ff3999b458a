"""The streaming source of a DataFrame processor: messages of one topic, from where its tasks' records stand.

It is like `format("cues")`, but carries its input with it. So no secret is an option that Spark shows. The first
offsets are the records' positions, so Spark may ask for them repeatedly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from cues_kafka.ports import TopicPartition
from cues_kafka.runtime.spark.source.format import WITH_HEADERS
from cues_kafka.runtime.spark.source.planning import OffsetRange
from cues_kafka.runtime.spark.source.ranges import RangeReader, RangeRow, SourceInput, data_source
from cues_kafka.runtime.spark.source.rows import read_range

PREFIX: Final = "cues-messages-"

ACCEPT: Final = "`cues-kafka accept-loss MODULE:GRAPH PROCESSOR` goes on behind it"

RESET: Final = (
    "a staged processor cannot pass over it: `cues-kafka reset MODULE:GRAPH PROCESSOR` begins again with a new "
    "checkpoint, and outputs repeat"
)


class MessageReader(RangeReader):
    """Offsets are `{topic: {partition: next offset}}`, as in the checkpoint of any Kafka source."""

    def initialOffset(self) -> dict[str, Any]:
        return self._named(super().initialOffset())

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._named(super().latestOffset(start[self._given.topic], limit))

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._named(super().reportLatestOffset())

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[RangeRow]:
        topic = self._given.topic
        return super().partitions(start[topic], end[topic])

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read all committed messages of a range, with a consumer of its own."""
        assert isinstance(partition, RangeRow)
        given = self._given
        span = OffsetRange(TopicPartition(given.topic, partition.partition), partition.start, partition.end)
        remedy = ACCEPT if given.back else RESET
        return read_range(given.options, span, name=given.name, headers=True, fail=True, remedy=remedy)

    def _named(self, offsets: Mapping[str, int]) -> dict[str, Any]:
        return {self._given.topic: dict(offsets)}


def message_source(given: SourceInput) -> type[DataSource]:
    """Make the data source of one processor's messages."""
    return data_source(PREFIX + given.name, WITH_HEADERS, lambda: MessageReader(given))
