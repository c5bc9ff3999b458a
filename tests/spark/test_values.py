"""One meaning of bytes: native workers and Spark read and write the same values, and the same errors (D1, T1)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from google.protobuf.message import Message as ProtobufMessage

from cues_kafka import CodecError, ConfigError, DataFrameProcessor, Graph, Kafka, Processor, Source, Topic, start
from cues_kafka.brokers.memory import MemoryMessage
from cues_kafka.codecs.lookup import MadeFor
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.graph.message import written_ms
from cues_kafka.on_spark.columns import META, as_columns, as_messages, as_outputs, form_of
from cues_kafka.on_spark.source.decoding import Decoding
from cues_kafka.on_spark.source.planning import OffsetRange
from cues_kafka.on_spark.source.rows import arrow
from cues_kafka.ports.log import TopicPartition
from cues_kafka.running.running import Running
from cues_kafka.spark import Spark
from cues_kafka.task.making.build import decoder
from cues_kafka.testing.fixtures import KafkaFixture
from tests.spark.value_cases import BEYOND, CODECS, messages
from tests.unit.codecs.protobuf_cases import shown

pytestmark = pytest.mark.timeout(600)

MADE_FOR = MadeFor("t")

ZONE = "spark.sql.session.timeZone"

ZONES = ("America/New_York", "UTC", "Asia/Kolkata")
FEW = 20
"""Cases that one of these zones suffices for, because they are about names, and not about times."""

TIMES_MS = (-1, 0, 1, 5_000)
"""Of messages: one has none, or one before all that may be written."""


def same(value: Any) -> Any:
    return value


def direct(rows: Any) -> Any:
    return rows


def staged(rows: Any) -> Any:
    return rows.repartition(2)


ON_SPARK = {"plain": (same, Processor), "direct": (direct, DataFrameProcessor), "staged": (staged, DataFrameProcessor)}
"""What runs on Spark: functions, and kinds of processors. No column holds unions, so only the first one takes those."""


def graph_of(name: str, codec: str) -> Graph:
    """One codec natively and on Spark, over the same input."""
    topics = {
        f"{name}.{end}": Topic(value=CODECS[codec], partitions=1, config={"retention.ms": "-1"})
        for end in ("in", "same", *labels(codec))
    }
    parts = [
        kind(fn, name=label, inputs=f"{name}.in", outputs=f"{name}.{label}")
        for label, (fn, kind) in {"same": (same, Processor), **ON_SPARK}.items()
        if f"{name}.{label}" in topics
    ]
    return Graph(name, Source(f"{name}.in"), *parts, topics=topics, errors=f"{name}.errors")


def labels(codec: str) -> list[str]:
    """The processors of a codec that run on Spark."""
    return ["plain"] if "unions" in codec else [*ON_SPARK]


def seen(value: Any) -> Any:
    """A value so that equal ones compare equal: NaN is itself, and a time without a zone is one of UTC."""
    match value:
        case datetime():
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        case float() | bool():
            return repr(value)
        case list():
            return [seen(one) for one in value]
        case dict():
            return {name: seen(one) for name, one in value.items()}
        case ProtobufMessage():
            return shown(value)
        case _ if is_dataclass(value):
            return {each.name: seen(getattr(value, each.name)) for each in fields(value)}
    return value


def outcomes(running: Running, name: str, label: str) -> dict[str, Any]:
    """What became of each case: its value and time, or kind and text of its error."""
    found: dict[str, Any] = {}
    for one in running.messages(f"{name}.{label}", limit=10_000):
        assert one.key not in found
        found[one.key] = (seen(one.value), one.timestamp_ms)
    for one in running.messages(f"{name}.errors", limit=10_000):
        if one.value.processor == label:
            assert one.key not in found
            found[one.key] = (one.value.kind, one.value.exception, one.value.text, one.value.payload)
    return found


@contextmanager
def zone(spark: Any, name: str) -> Iterator[None]:
    """A session whose times are shown in a zone."""
    was = spark.conf.get(ZONE)
    spark.conf.set(ZONE, name)
    try:
        yield
    finally:
        spark.conf.set(ZONE, was)


def check(found: dict[str, Any], expected: dict[str, Any], beyond: Collection[str] = BEYOND) -> None:
    """The same value or the same error, but for what a column cannot hold: the cases `beyond`."""
    different = {}
    for case, value in expected.items():
        if case in beyond:
            assert "A column of Spark cannot hold the value" in str(found.get(case))
        elif found.get(case) != value:
            different[case] = [str(found.get(case)), str(value)]
    assert json.dumps(different, indent=1) == "{}"


@pytest.mark.parametrize("codec", [codec for codec in CODECS if labels(codec) == [*ON_SPARK]])
def test_columns_have_the_values_of_native_workers_under_any_time_zone(codec: str, spark: Any) -> None:
    """From the bytes to columns, and back to the bytes and times of direct and of staged processors."""
    cases, decoding, form = messages()[codec], Decoding(CODECS[codec], MADE_FOR), form_of(CODECS[codec], MADE_FOR)
    if decoding.ddl is not None:
        decoding.know(spark.createDataFrame([], f"`value` {decoding.ddl}").schema)
    times = dict(zip(cases, cycle(TIMES_MS), strict=False))
    came = [MemoryMessage("t", 0, n, one.encode(), cases[one], None, (1, times[one]), 0) for n, one in enumerate(cases)]
    separated = decoding.separate(came)
    errors = {name_of(one.message.key()): str(one.error) for one in separated.failed}
    span = OffsetRange(TopicPartition("t", 0), 0, len(came))
    rows = arrow(separated.good, span, headers=True, came=separated.headers, values=separated.values)
    for session_zone in ZONES if len(cases) > FEW else ZONES[:1]:
        with zone(spark, session_zone):
            frame = as_columns(spark.createDataFrame(pa.Table.from_batches([rows])), decoding.ddl)
            for made in (as_messages(frame, None, form), as_outputs(frame, None, form, columns=("timestamp",))):
                written = made.select("key", "value", "timestamp").collect()
                values = {name_of(row.key): seen(decoding.decoder.decode(bytes(row.value))) for row in written}
                assert all(row.timestamp == written_ms(times[name_of(row.key)]) for row in written)
                check(values | errors, natively(CODECS[codec], came))
    given = frame.selectExpr(f"{META}.key", f"unix_millis({META}.timestamp) AS at").collect()
    assert {name_of(row.key): row.at for row in given}.items() <= times.items()


def name_of(key: Any) -> str:
    """The case that a message is of."""
    return bytes(key).decode()


def natively(declared: CodecSpec, came: Sequence[MemoryMessage]) -> dict[str, Any]:
    """What a native worker reads."""
    found, reader = {}, decoder(Topic(value=declared), MADE_FOR)
    for message in came:
        try:
            found[name_of(message.key())] = seen(reader.read(message))
        except CodecError as error:
            found[name_of(message.key())] = str(error)
    return found


@pytest.mark.parametrize("codec", [codec for codec in CODECS if "unions" in codec])
def test_unions_are_refused_as_columns_with_the_remedy(codec: str) -> None:
    """Before anything runs."""
    with pytest.raises(ConfigError, match=r"Unions\.one: no column of Spark holds this type\. Use Raw\(\)"):
        Decoding(CODECS[codec], MADE_FOR)


@pytest.mark.full
@pytest.mark.parametrize("codec", CODECS)
def test_values_and_errors_are_the_same_natively_and_on_spark(
    codec: str, spark: Any, kafka: KafkaFixture, tmp_path: Path
) -> None:
    """On real topics, in a session of another time zone: in functions of messages, and of DataFrames."""
    name, options, cases = kafka.unique("values"), Kafka(kafka.bootstrap), messages()[codec]
    graph = graph_of(name, codec)
    with start(graph, options, only=["same"]) as running:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for (case, data), time_ms in zip(cases.items(), cycle((1, 5_000)), strict=False):
            producer.produce(f"{name}.in", data, case.encode(), 0, timestamp=time_ms)
        assert producer.flush(30) == 0
        running.wait_idle(timeout_s=60)
        expected = outcomes(running, name, "same")
    assert expected.keys() == cases.keys()
    engine = Spark(spark, checkpoint=str(tmp_path))
    with (
        zone(spark, "America/New_York"),
        start(graph, options, only=labels(codec), engine=engine, timeout_s=250) as running,
    ):
        running.wait_idle(timeout_s=300)
        for label in labels(codec):
            check(outcomes(running, name, label), expected, beyond=() if label == "plain" else BEYOND)
