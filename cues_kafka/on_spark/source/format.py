"""`format("cues")`: Kafka topics as DataFrames, read committed, with the columns and options of Spark's Kafka source.

It needs no jar, because Spark calls it in Python processes. The driver has one such process for each streaming query,
which answers how far there are messages to read (`planning`). A Spark task reads one range of one partition with a
consumer of its own (`rows`). A reader is pickled for the tasks, so it holds options and no client.

Offsets in Spark's checkpoint have the form of Spark's own source, `{"orders": {"0": 5, "1": 7}}`, the next offset of
each partition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cues_kafka.errors import ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import tools_group
from cues_kafka.on_spark.letter_case import SETTING, case_counts
from cues_kafka.on_spark.shipping import ship
from cues_kafka.on_spark.source.options import SourceOptions, parse, values_of, wants_headers
from cues_kafka.on_spark.source.planning import OffsetRange, Offsets, Planner, from_json, to_json, within
from cues_kafka.on_spark.source.ranges import Connected, ConnectedStream
from cues_kafka.on_spark.source.rows import Typed, read_range
from cues_kafka.on_spark.source.typed import Graphs
from cues_kafka.on_spark.source.values import arrow_type

NAME: Final = "cues"

SCHEMA: Final = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("timestampType", IntegerType())
)
_HEADER: Final = StructType().add("key", StringType()).add("value", BinaryType())
WITH_HEADERS: Final = StructType([*SCHEMA.fields, StructField("headers", ArrayType(_HEADER))])


def register(session: Any, *graphs: Graph) -> None:
    """
    Make `format("cues")` known to a Spark session.

    Args:
        session: a `SparkSession`, also one of Spark Connect.
        graphs: graphs whose topics `option("graph", name)` reads with the types of their codecs. Another call replaces
            them.

    Raises:
        GraphError: the class of a topic has a field that cannot travel.
    """
    for graph in graphs:
        ship(graph)
    codecs = {one.name: {topic: one.topic(topic).value for topic in one.topics_used()} for one in graphs}
    exact = case_counts(session.conf.get(SETTING))
    plain = not codecs and not exact
    source = CuesSource if plain else type("CuesGraphs", (CuesSource,), {"graphs": codecs, "exact": exact})
    session.dataSource.register(source)


class CuesSource(DataSource):
    """
    The data source; Spark makes one for each use of `format("cues")`.

    Attributes:
        graphs: codecs of topics, by graph; see `register`.
        exact: whether the session tells columns apart whose names differ by case only.
    """

    graphs: ClassVar[Graphs] = {}
    exact: ClassVar[bool] = False

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType | str:
        """The columns, with `headers` only if asked, as with Spark's Kafka source; or Spark's text of them."""
        columns = WITH_HEADERS if wants_headers(self.options) else SCHEMA
        values = values_of(self.options, self.graphs)
        if values is None:
            return columns
        if values.ambiguous and not self.exact:
            raise ConfigError(values.ambiguous)
        types = {each.name: each.dataType.simpleString() for each in columns.fields} | {"value": values.ddl}
        return ", ".join(f"`{name}` {kind}" for name, kind in types.items())

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(parse(self.options, streaming=False), self._typed(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(parse(self.options, streaming=True), self._typed(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _no_sink()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        _no_sink()

    def _typed(self, schema: StructType) -> Typed | None:
        """What the values are, if the columns are those of this source."""
        values = values_of(self.options, self.graphs)
        expected = WITH_HEADERS if wants_headers(self.options) else SCHEMA
        found = schema if values is None else StructType([_bytes_of_value(each) for each in schema.fields])
        if found != expected or (
            values is not None and _text(schema["value"].dataType.simpleString()) != _text(values.ddl)
        ):
            kind = expected.simpleString() if values is None else values.ddl
            raise ConfigError(
                f"the columns of this source are fixed ({kind}); leave out schema(...), and select or cast after load()"
            )
        return None if values is None else Typed(values, arrow_type(schema["value"].dataType))


def _bytes_of_value(field: StructField) -> StructField:
    return StructField("value", BinaryType()) if field.name == "value" else field


def _text(kind: str) -> str:
    """A type as text, in one of the ways to write it."""
    return re.sub(r"[\s`]", "", kind).lower()


def _no_sink() -> NoReturn:
    raise ConfigError(
        'format("cues") only reads: a sink of Spark does not know which offsets its rows come from, so it cannot be '
        "exactly-once. Use cues_kafka.spark.write_exactly_once(df, topic=..., name=..., value=...)"
    )


class _Reader(Connected):
    """What readers of batches and streams share."""

    def __init__(self, settings: SourceOptions, typed: Typed | None = None) -> None:
        super().__init__(settings.options, settings.limit)
        self._settings = settings
        self._typed = typed

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read all committed messages of a range, in a Spark task."""
        if not isinstance(partition, OffsetRange):  # Spark makes one if there are no ranges
            return iter(())
        settings = self._settings
        return read_range(
            settings.options,
            partition,
            name=settings.name or tools_group(partition.place.topic),
            headers=settings.headers,
            fail=settings.fail_on_loss,
            typed=self._typed,
        )

    @property
    def _planner(self) -> Planner:
        if self._connection is None:
            # This finds a value that the client refuses before many Spark tasks do.
            self._broker.reader(self._settings.name or tools_group("source")).close()
        return Planner(self._settings, self._broker)


class BatchReader(_Reader, DataSourceReader):
    """The reader of `spark.read.format("cues")`."""

    def partitions(self) -> list[OffsetRange]:
        """All ranges, in order of topic and partition; Spark asks again for each action on the DataFrame."""
        try:
            return self._planner.ranges()
        finally:
            self._disconnect()


class StreamReader(_Reader, ConnectedStream):
    """The reader of `spark.readStream.format("cues")`, which lives beside the driver as long as the query runs."""

    def __init__(self, settings: SourceOptions, typed: Typed | None = None) -> None:
        super().__init__(settings, typed)
        self._until: Offsets | None = None
        self._seen: Offsets = {}

    def initialOffset(self) -> dict[str, Any]:
        return to_json(self._planner.begin())

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the messages of now as the end for `availableNow`."""
        self._until = self._planner.until()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch; `start` itself if there is nothing new."""
        begun = from_json(start)
        found = self._planner.ahead(begun)
        ends = {place: one.last for place, one in found.items()}
        self._seen = ends
        if self._until is not None:
            ends = {place: min(end, self._until.get(place, 0)) for place, end in ends.items()}
            # The next run reads partitions that came later.
            ends = {p: max(found[p].first, end) for p, end in ends.items() if p in self._until or p in begun}
        if isinstance(limit, ReadMaxRows):
            ends = within(found, ends, limit.max_rows)
        return to_json(ends)

    def reportLatestOffset(self) -> dict[str, Any]:
        """The end of the log when the batch was planned; Spark's progress computes the lag by it."""
        return to_json(self._seen)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[OffsetRange]:
        """A range for each partition, also for empty ones, in order of topic and partition."""
        return self._planner.between(from_json(start), from_json(end))
