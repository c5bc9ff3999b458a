"""A registry that is not ours: what we register, it compares; what others write with it, we read, and the reverse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from typer.testing import CliRunner

from cues_kafka import Avro, Graph, Kafka, Processor, Registry, Source, Topic, start
from cues_kafka.cli.main import app
from cues_kafka.codecs.avro import schema_text
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import Record, produce
from tests.integration.test_formats import bills_of_orders
from tests.integration.test_supervisor import wait_for
from tests.registries.apicurio import Apicurio

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


@dataclass
class Customer:
    """A type of its own in the registry."""

    name: str


@dataclass
class Order:
    """Holds another one."""

    id: int
    customer: Customer


CUSTOMER = json.dumps(
    {"type": "record", "name": "Customer", "namespace": "com.shop", "fields": [{"name": "name", "type": "string"}]}
)
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "com.shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": "com.shop.Customer"}],
    }
)


def same(order: Order) -> Order:
    """Gives what it gets."""
    return order


def graph_of(name: str) -> Graph:
    """From orders to orders."""
    return Graph(
        name,
        Source(f"{name}.orders"),
        Processor(same, inputs=f"{name}.orders", outputs=f"{name}.copies"),
        errors=f"{name}.errors",
        topics={
            f"{name}.orders": Topic(value=Avro(Order, registry=True)),
            f"{name}.copies": Topic(value=Avro(Order, registry=True, namespace="com.shop")),
        },
    )


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    """One for all tests here."""
    with Apicurio(tmp_path_factory.mktemp("apicurio")) as registry:
        yield registry


def encoded(topic: str, client: SchemaRegistryClient, numbers: range) -> list[bytes]:
    """As another team's application writes, whose schema refers to another subject's."""
    subject = f"{topic}.customer"
    client.register_schema(subject, Schema(CUSTOMER, "AVRO"))
    serialize = AvroSerializer(client, Schema(ORDER, "AVRO", [SchemaReference("com.shop.Customer", subject, 1)]))
    context = SerializationContext(topic, MessageField.VALUE)
    return [serialize({"id": n, "customer": {"name": f"c{n}"}}, context) or b"" for n in numbers]


def test_other_clients_messages_are_read_and_ours_by_them(kafka: KafkaFixture, registry: Apicurio) -> None:
    """The writer's schema refers to a schema of another subject; ours holds both."""
    name = kafka.unique("apicurio")
    client = SchemaRegistryClient({"url": registry.url})
    client.register_schema(f"{name}.copies-value", Schema(schema_text(graph_of(name).topic(f"{name}.copies").value)))
    with start(graph_of(name), Kafka(kafka.bootstrap, registry=Registry(registry.url))) as running:
        produce(kafka.bootstrap, f"{name}.orders", encoded(f"{name}.orders", client, range(5)))
        running.wait_idle()
        copies = [message.value for message in running.messages(f"{name}.copies")]
        raw = running.committed(f"{name}.copies")
        assert not running.messages(f"{name}.errors")
    assert copies == [Order(n, Customer(f"c{n}")) for n in range(5)]
    read = AvroDeserializer(client)
    theirs = [read(m.value(), SerializationContext(f"{name}.copies", MessageField.VALUE)) for m in raw]
    assert theirs == [{"id": n, "customer": {"name": f"c{n}"}} for n in range(5)]


def test_json_schema_and_protobuf_are_its_types_too(kafka: KafkaFixture, registry: Apicurio) -> None:
    """Registered by us, with the file that another one names; read and written by both sides."""
    bills_of_orders(kafka, registry.url)


def test_the_commands_compare_and_register(registry: Apicurio, tmp_path: Path) -> None:
    """What is new is registered after it was shown; what old readers could not read is refused."""
    client = SchemaRegistryClient({"url": registry.url})

    def command(verb: str, *words: str, field: str) -> Any:
        file = tmp_path / f"shop_{field.partition(':')[0].strip()}.py"
        file.write_text(
            dedent(
                f"""
                from dataclasses import dataclass

                from cues_kafka import Avro, Graph, Processor, Source, Topic

                @dataclass
                class Bill:
                    order: int
                    {field}

                def bill(number: int) -> Bill:
                    return Bill(number)

                graph = Graph("billing", Source("in"), Processor(bill, inputs="in", outputs="billing.bills"),
                              topics={{"billing.bills": Topic(value=Avro(Bill, registry=True))}})
                """
            )
        )
        return CliRunner().invoke(app, ["schemas", verb, f"{file}:graph", "--registry", registry.url, *words])

    first = command("check", field="total: float = 0.0")
    assert first.exit_code == 1, first.output
    assert command("register", "--yes", field="total: float = 0.0").exit_code == 0
    assert command("check", field="total: float = 0.0").exit_code == 0
    client.set_compatibility("billing.bills-value", "BACKWARD")
    refused = command("register", "--yes", field="gross: float")
    assert refused.exit_code == 1, refused.output
    assert len(client.get_versions("billing.bills-value")) == 1


def test_a_registry_that_is_killed_is_an_outage(kafka: KafkaFixture, tmp_path: Path) -> None:
    """No message becomes an error message; with the registry back, work goes on by itself."""
    name = kafka.unique("killed")
    with Apicurio(tmp_path) as registry:
        client = SchemaRegistryClient({"url": registry.url})
        schema = Schema(schema_text(graph_of(name).topic(f"{name}.copies").value))
        client.register_schema(f"{name}.copies-value", schema)
        messages = encoded(f"{name}.orders", client, range(3))
        options = Kafka(kafka.bootstrap, registry=Registry(registry.url, timeout_s=1.0))
        with start(graph_of(name), options) as running:
            registry.kill()
            produce(kafka.bootstrap, f"{name}.orders", messages)
            wait_for(lambda: any("registry" in task.stopped for task in running.status().tasks), 100)
            registry.start()
            wait_for(lambda: not any(task.stopped for task in running.status().tasks), 100)
            running.wait_idle(timeout_s=120)
            copies = [message.value.id for message in running.messages(f"{name}.copies")]
            errors = running.messages(f"{name}.errors")
    assert copies == [0, 1, 2]
    assert not errors


def test_ids_and_guids_that_the_registry_takes_for_unknown_paths_are_error_messages(
    kafka: KafkaFixture, registry: Apicurio
) -> None:
    """Its answer to them is that of a server that is no registry; one such message must not stop its task."""
    name = kafka.unique("paths")
    client = SchemaRegistryClient({"url": registry.url})
    client.register_schema(f"{name}.copies-value", Schema(schema_text(graph_of(name).topic(f"{name}.copies").value)))
    [good] = encoded(f"{name}.orders", client, range(1))
    wrong = [
        Record(b"\0\xff\xff\xff\xff" + good[5:]),
        Record(b"\0\x7f\xff\xff\xff" + good[5:]),
        Record(good[5:], headers=[("__value_schema_id", b"\1" + bytes(16))]),
        Record(good, headers=[("__value_schema_id", b"\1" + bytes(15))]),
        Record(good[:4]),
    ]
    with start(graph_of(name), Kafka(kafka.bootstrap, registry=Registry(registry.url))) as running:
        produce(kafka.bootstrap, f"{name}.orders", [*wrong, good])
        running.wait_idle(timeout_s=60)
        copies = [message.value for message in running.messages(f"{name}.copies")]
        errors = [message.value for message in running.messages(f"{name}.errors")]
    assert copies == [Order(0, Customer("c0"))]
    assert [error.kind for error in errors] == ["decode"] * len(wrong)
    texts = ("the schema 4294967295", "the schema 2147483647", "has no GUIDs", "name no schema", "has 4 bytes")
    assert all(text in error.text for text, error in zip(texts, errors, strict=True))
