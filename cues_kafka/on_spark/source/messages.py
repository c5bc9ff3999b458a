"""The streaming source of a DataFrame processor: messages of one topic, from where its tasks' records stand.

It is like `format("cues")`, but carries its input with it. So no secret is an option that Spark shows. The first
offsets are the records' positions, so Spark may ask for them repeatedly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSource, InputPartition

from cues_kafka.on_spark.source.format import WITH_HEADERS
from cues_kafka.on_spark.source.planning import OffsetRange
from cues_kafka.on_spark.source.ranges import RangeReader, RangeRow, SourceInput, data_source
from cues_kafka.on_spark.source.rows import read_range
from cues_kafka.ports.log import TopicPartition

PREFIX: Final = "cues-messages-"

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
        span = OffsetRange(TopicPartition(one.topic, partition.partition), one.start, one.end)
        remedy = ACCEPT if given.back else RESET
        return read_range(given.options, span, name=given.name, headers=True, fail=True, remedy=remedy)


def message_source(given: SourceInput) -> type[DataSource]:
    """Make the data source of one processor's messages."""
    return data_source(PREFIX + given.name, WITH_HEADERS, lambda: MessageReader(given))
