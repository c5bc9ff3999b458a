"""`format("cues")` with values as columns, and `write_exactly_once` with a codec: types, nulls, nesting."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from pyspark.errors import PySparkException

from cues_kafka import Avro, Digits, Graph, Json, Kafka, Message, Raw, Registry, Source, Topic, connect
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.loading import load_graph
from cues_kafka.codecs.avro import schema_text
from cues_kafka.ports.facts import NewTopic
from cues_kafka.spark import register, write_exactly_once
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.testing.registry import TestRegistry

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Line:
    """Inside an order."""

    sku: str
    price: Annotated[Decimal, Digits(12, 2)] | None = None


@dataclass(frozen=True)
class Order:
    """Nulls, nesting, a decimal, a timestamp."""

    id: int
    at: datetime
    day: date
    total: Annotated[Decimal, Digits(12, 2)]
    note: str | None = None
    lines: list[Line] = field(default_factory=list)
    tags: dict[str, int] = field(default_factory=dict)
    weights: list[float] = field(default_factory=list)


NOON = datetime(2026, 1, 1, 12, 0, 0, 123456, UTC)
FULL = Order(1, NOON, date(2026, 1, 1), Decimal("3.50"), "n", [Line("a", Decimal("0.05")), Line("b")], {"x": 1})
BARE = Order(2, NOON, date(2026, 1, 2), Decimal("-0.01"))
TYPES = (
    "struct<id:bigint,at:timestamp,day:date,total:decimal(12,2),note:string,"
    "lines:array<struct<sku:string,price:decimal(12,2)>>,tags:map<string,bigint>,weights:array<double>>"
)


@pytest.fixture
def forgotten(spark: Any) -> Iterator[None]:
    """The graphs of a test are not those of the next one."""
    yield
    register(spark)


def created(kafka: KafkaFixture, *topics: str) -> None:
    """Topics with one partition."""
    broker = open_broker(Kafka(kafka.bootstrap))
    broker.create([NewTopic(topic, 1) for topic in topics])
    broker.close()


def read(spark: Any, kafka: KafkaFixture, topic: str, **options: str) -> Any:
    """A batch with these options; two underscores stand for a dot."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    source = spark.read.format("cues").option("kafka.bootstrap.servers", kafka.bootstrap)
    return source.option("subscribe", topic).options(**given).load()


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("codec", [pytest.param("json", marks=pytest.mark.full), "avro"])
def test_values_of_a_graphs_topic_are_columns_and_rows_are_written_by_its_codec(
    spark: Any, kafka: KafkaFixture, tmp_path: Path, codec: str
) -> None:
    """What is read is what was sent; what is written is what was read. A message without a value is null."""
    name = kafka.unique(codec)
    declared = {"json": Json(Order), "avro": Avro(Order)}[codec]
    topics, cluster = (f"{name}.orders", f"{name}.copies"), Kafka(kafka.bootstrap)
    created(kafka, *topics)
    graph = Graph(name, *map(Source, topics), defaults=Topic(value=declared))
    register(spark, graph)
    with connect(cluster, graph) as client:
        client.send(topics[0], Message(FULL, key="k"))
        client.send(topics[0], BARE)
        client.send(topics[0], Message(None, key="gone"))

    frame = read(spark, kafka, topics[0], graph=name)
    assert frame.schema["value"].dataType.simpleString() == TYPES
    full, bare, gone = frame.orderBy("offset").collect()
    assert (full.key, full.topic, gone.key, gone.value) == (b"k", topics[0], b"gone", None)
    assert full.value.lines[0].asDict() == {"sku": "a", "price": Decimal("0.05")}
    assert (full.value.total, full.value.tags, bare.value.note) == (Decimal("3.50"), {"x": 1}, None)
    assert frame.where("value.at = timestamp'2026-01-01 12:00:00.123456+00:00'").count() == 2

    values = frame.where("value IS NOT NULL").select("value.*", "key").withColumnRenamed("key", "_key")
    options: dict[str, Any] = {"topic": topics[1], "name": f"{name}-copy", "checkpoint": str(tmp_path)}
    assert write_exactly_once(values, cluster, value=declared, **options).rows == 2
    with connect(cluster, graph) as client:
        found = {message.value.id: message for message in client.messages(topics[1])}
    assert {number: message.value for number, message in found.items()} == {1: FULL, 2: BARE}
    assert found[1].key == "k"


def test_a_stream_is_read_by_a_registry_and_written_through_it(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """Its newest schema gives the columns; rows are written directly, also numbers that JSON does not have."""
    name = kafka.unique("registry")
    topics, declared = (f"{name}.orders", f"{name}.copies"), Avro(Order, registry=True)
    sent = [replace(FULL, weights=[math.inf, -math.inf, 0.5]), BARE]
    created(kafka, *topics)
    graph = Graph(name, *map(Source, topics), defaults=Topic(value=declared))
    with TestRegistry() as registry:
        for topic in topics:
            registry.register(f"{topic}-value", json.loads(schema_text(Avro(Order))))
        cluster = Kafka(kafka.bootstrap, registry=Registry(registry.url))
        register(spark)
        with connect(cluster, graph) as client:
            client.send_many(topics[0], sent)
        source = spark.readStream.format("cues").option("kafka.bootstrap.servers", kafka.bootstrap)
        stream = source.options(subscribe=topics[0], startingOffsets="earliest", includeHeaders="true")
        stream = stream.option("schema.registry.url", registry.url).load()
        assert stream.schema["value"].dataType.simpleString() == TYPES
        rows = stream.select("value.*", "topic", "partition", "offset")
        query = write_exactly_once(
            *(rows, cluster), topic=topics[1], name=f"{name}-copy", checkpoint=str(tmp_path), value=declared
        )
        query.processAllAvailable()
        query.stop()
        with connect(cluster, graph) as client:
            assert [message.value for message in client.messages(topics[1])] == sent


MODULE = """
from __future__ import annotations

from dataclasses import dataclass

from cues_kafka import Codec, Graph, Source, Topic


@dataclass(frozen=True)
class Reading:
    sensor: str
    celsius: float | None


@dataclass(frozen=True)
class Lines(Codec):
    schema = Reading

    def encode(self, value: Reading) -> bytes:
        return f"{value.sensor};{value.celsius or ''}".encode()

    def decode(self, data: bytes) -> Reading:
        sensor, celsius = data.decode().split(";")
        return Reading(sensor, float(celsius) if celsius else None)


graph = Graph("NAME", Source("NAME.readings"), defaults=Topic(value=Lines()))
"""


@pytest.mark.usefixtures("forgotten")
def test_a_codec_of_a_users_module_gives_columns_and_bad_messages_fail_or_are_null(
    spark: Any, kafka: KafkaFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's processes cannot import the module. The error names the place of the message, and the way out."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = kafka.unique("own")
    topic, file = f"{name}.readings", tmp_path / f"{name.replace('-', '_')}.py"
    file.write_text(MODULE.replace("NAME", name))
    register(spark, load_graph(f"{file}:graph"))
    created(kafka, topic)
    raw = Graph("raw", Source(topic), defaults=Topic(value=Raw()))
    with connect(Kafka(kafka.bootstrap), raw) as client:
        client.send_many(topic, [b"attic;21.5", b"attic", b"cellar;"])

    with pytest.raises(PySparkException, match=rf"{topic}/0 at 1 cannot be read: Lines cannot decode.*PERMISSIVE"):
        read(spark, kafka, topic, graph=name).collect()
    rows = read(spark, kafka, topic, graph=name, mode="PERMISSIVE").select("value.*").collect()
    assert [tuple(row) for row in rows] == [("attic", 21.5), (None, None), ("cellar", None)]


@pytest.mark.usefixtures("forgotten")
def test_what_has_no_columns_is_refused_by_load_with_the_remedy(spark: Any, kafka: KafkaFixture) -> None:
    """A codec without a schema, a graph that is not registered, columns of ones own."""
    name = kafka.unique("plain")
    register(spark, Graph(name, Source(f"{name}.t"), defaults=Topic(value=Json())))

    with pytest.raises(PySparkException, match=r"has no columns: its codec .* Declare"):
        read(spark, kafka, f"{name}.t", graph=name)
    with pytest.raises(PySparkException, match=r"Before the read, call register\(session, graph\)"):
        read(spark, kafka, f"{name}.t", graph="other")
    reader = spark.read.format("cues").schema("value STRING").option("avroSchema", schema_text(Avro(Line)))
    with pytest.raises(PySparkException, match="the columns of this source are fixed"):
        reader.options(subscribe="t").option("kafka.bootstrap.servers", kafka.bootstrap).load().collect()
