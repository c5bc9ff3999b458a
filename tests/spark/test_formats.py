"""JSON Schema and Protobuf on Spark: in a plain processor, and as columns, through a registry."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import DataFrameProcessor, Graph, JsonSchema, Kafka, Processor, Protobuf, Registry, Source, Topic, start
from cues_kafka.codecs.registry import RegistrySchemas
from cues_kafka.codecs.subjects import subjects
from cues_kafka.spark import Spark
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.testing.registry import TestRegistry
from tests.unit.codecs.protos import Bill

pytestmark = pytest.mark.timeout(300)


@dataclass
class Order:
    """What is bought."""

    id: int
    note: str | None = None


def bill(order: Order) -> Any:
    """The bill of an order."""
    if order.id < 0:
        raise ValueError("no such order")
    return Bill(order=order.id)


def noted(orders: Any) -> Any:
    """Orders with a note."""
    from pyspark.sql import functions as f

    return orders.where("note is not null").withColumn("note", f.upper("note"))


@pytest.mark.full
def test_json_schema_and_protobuf_run_on_spark(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """The executors find the schemas by the registry; columns are those of the class."""
    name = kafka.unique("formats")
    graph = Graph(
        name,
        Source(f"{name}.orders"),
        Processor(bill, inputs=f"{name}.orders", outputs=f"{name}.bills"),
        DataFrameProcessor(noted, inputs=f"{name}.orders", outputs=f"{name}.noted"),
        topics={
            f"{name}.orders": Topic(value=JsonSchema(Order, registry=True), partitions=2),
            f"{name}.bills": Topic(value=Protobuf(Bill, registry=True), partitions=2),
            f"{name}.noted": Topic(value=JsonSchema(Order, registry=True), partitions=2),
        },
        errors=f"{name}.errors",
    )
    with TestRegistry() as registry:
        options, own = Kafka(kafka.bootstrap, registry=Registry(registry.url)), RegistrySchemas(Registry(registry.url))
        for one in subjects(graph):
            own.register(one.name, one.own)
        with start(graph, options, engine=Spark(spark, checkpoint=str(tmp_path))) as running:
            running.send_many(f"{name}.orders", [Order(1), Order(2, "a"), Order(-3, "b")])
            running.wait_idle(timeout_s=200)
            bills = [message.value for message in running.messages(f"{name}.bills")]
            found = [message.value for message in running.messages(f"{name}.noted")]
            errors = [message.value.text for message in running.messages(f"{name}.errors")]
    assert sorted(one.order for one in bills) == [1, 2]
    assert sorted(found, key=lambda one: one.id) == [Order(-3, "B"), Order(2, "A")]
    assert errors == ["no such order"]
