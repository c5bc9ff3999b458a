"""Columns whose names differ by case only: refused before a query starts, and told apart where Spark is told to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from cues_kafka import (
    Avro,
    ConfigError,
    DataFrameProcessor,
    Delta,
    Graph,
    Json,
    Kafka,
    Source,
    Sql,
    Topic,
    start,
)
from cues_kafka.brokers.open import open_broker
from cues_kafka.codecs.avro import schema_text
from cues_kafka.on_spark.letter_case import SETTING
from cues_kafka.ports.facts import NewTopic
from cues_kafka.spark import Spark, explain, register, write_exactly_once
from cues_kafka.testing.fixtures import KafkaFixture

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Pair:
    """Two names that differ by case only."""

    n: int
    a: str
    A: str


@dataclass(frozen=True)
class Order:
    """A name for each value."""

    n: int
    a: str


@pytest.fixture
def exact(spark: Any) -> Iterator[None]:
    """A session for which case counts."""
    spark.conf.set(SETTING, "true")
    yield
    spark.conf.unset(SETTING)
    register(spark)


def same(pairs: Any) -> Any:
    """All rows, directly."""
    return pairs


def sorted_rows(pairs: Any) -> Any:
    """All rows, staged: each column is named."""
    return pairs.groupBy("n", "a", "A").count().drop("count")


def graph_of(name: str, value: Any = Pair) -> Graph:
    """A direct and a staged processor of one topic."""
    return Graph(
        name,
        Source(f"{name}.in"),
        DataFrameProcessor(same, name="direct", inputs=f"{name}.in", outputs=f"{name}.direct"),
        DataFrameProcessor(
            sorted_rows, name="staged", inputs=f"{name}.in", outputs=f"{name}.staged", output_mode="update"
        ),
        defaults=Topic(value=Json(value), partitions=1),
    )


def test_fields_of_an_input_are_refused_before_anything_is_created(spark: Any, tmp_path: Path) -> None:
    """By start and by explain, with both names and the setting, for the direct and the staged processor."""
    graph, engine = graph_of("case"), Spark(spark, checkpoint=str(tmp_path))
    words = f"the fields 'a' and 'A' of Pair in topic 'case.in' differ by case only.*Set {SETTING}=true"

    with pytest.raises(ConfigError, match=words) as refused:
        start(graph, Kafka("127.0.0.1:9"), engine=engine)
    assert "processor 'direct'" in str(refused.value)
    assert "processor 'staged'" in str(refused.value)
    assert len(explain(graph, engine=engine).refusals) == 2


@pytest.mark.full
@pytest.mark.usefixtures("exact")
def test_both_fields_are_columns_where_case_counts(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """Direct and staged: what went in comes out; and a typed read has both."""
    graph = graph_of(kafka.unique("case"))
    sent = [Pair(n, f"small {n}", f"large {n}") for n in range(3)]
    with start(graph, Kafka(kafka.bootstrap), engine=Spark(spark, checkpoint=str(tmp_path))) as running:
        running.send_many(f"{graph.name}.in", sent)
        running.wait_idle(timeout_s=180)
        for label in ("direct", "staged"):
            found = [message.value for message in running.messages(f"{graph.name}.{label}")]
            assert sorted(found, key=lambda one: one.n) == sent
    register(spark, graph)
    read = spark.read.format("cues").option("kafka.bootstrap.servers", kafka.bootstrap).option("graph", graph.name)
    rows = read.option("subscribe", f"{graph.name}.in").load().select("value.A", "value.a").collect()
    assert sorted(map(tuple, rows)) == [(one.A, one.a) for one in sent]


def test_columns_that_a_function_makes_are_refused(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """By name, when the processor starts; nothing is written."""

    def doubled(orders: Any) -> Any:
        return orders.selectExpr("n", "a", "a AS A", "_cues")

    name = kafka.unique("case")
    graph = Graph(
        name,
        Source(f"{name}.in"),
        DataFrameProcessor(doubled, name="rows", inputs=f"{name}.in", outputs=f"{name}.out"),
        topics={f"{name}.in": Topic(value=Json(Order), partitions=1), f"{name}.out": Topic(partitions=1)},
    )
    with pytest.raises(ConfigError, match=r"'a' and 'A' differ by case only.*Drop one of them"):
        start(graph, Kafka(kafka.bootstrap), engine=Spark(spark, checkpoint=str(tmp_path)))


def test_typed_source_and_any_frame_are_refused(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """A graph's topic and an Avro schema; a batch that is written."""
    name = kafka.unique("case")
    broker = open_broker(Kafka(kafka.bootstrap))
    broker.create([NewTopic(f"{name}.in", 1)])
    broker.close()
    graph = graph_of(name)
    register(spark, graph)
    for option, value in (("graph", name), ("avroSchema", schema_text(Avro(Pair)))):
        read = spark.read.format("cues").option("kafka.bootstrap.servers", kafka.bootstrap).option(option, value)
        with pytest.raises(AnalysisException, match="'a' and 'A' of Pair differ by case only"):
            read.option("subscribe", f"{name}.in").load()
    register(spark)

    frame = spark.createDataFrame([(1, "x", "y")], "n INT, a STRING, b STRING").toDF("n", "a", "A")
    with pytest.raises(ConfigError, match=f"{name}-copy: the columns 'a' and 'A' differ by case only"):
        write_exactly_once(
            frame, Kafka(kafka.bootstrap), topic=f"{name}.in", name=f"{name}-copy", checkpoint=str(tmp_path)
        )


def test_into_a_database_needs_the_setting_and_into_a_table_another_name(spark: Any, tmp_path: Path) -> None:
    """A table of Delta has no such columns, whatever the session says."""
    from cues_kafka.on_spark.frame_targets import frame_target

    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE rows (n INTEGER)")
    frame = spark.createDataFrame([(1, "x", "y")], "n INT, a STRING, b STRING").toDF("n", "a", "A")

    def into(target: Any) -> Any:
        processor = DataFrameProcessor(same, name="rows", inputs="orders", into=target)
        return frame_target(processor, {"into": frame}, "shop")

    rows = Sql(f"sqlite:///{path}").table("rows", columns=["n"])
    with pytest.raises(ConfigError, match="'a' and 'A' differ by case only"):
        into(rows)
    spark.conf.set(SETTING, "true")
    try:
        assert into(rows)[0].columns == ["n"]
        with pytest.raises(ConfigError, match="'A', 'a' have one name for those who read the table"):
            into(Delta(f"file://{tmp_path}/lake").table("t"))
    finally:
        spark.conf.unset(SETTING)
