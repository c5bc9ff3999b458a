"""docs/move-in.md followed word by word, on a cluster and a registry where its reader may create nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from typer.testing import CliRunner, Result

from cues_kafka import start
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.cli.config import load
from cues_kafka.cli.loading import load_graph
from cues_kafka.cli.main import app
from cues_kafka.ports.facts import NewTopic
from cues_kafka.spark import Spark
from cues_kafka.testing.registry import TestRegistry
from tests.fault.support import committed_all
from tests.integration.test_permissions import WITH_LOGIN, Cluster

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

SENT, TAKEN, WIDTH = 30, 17, 2
ORDER = """{"type": "record", "name": "Order", "namespace": "com.shop", "fields": [
  {"name": "id", "type": "long"}, {"name": "total", "type": "double"}, {"name": "by", "type": "string"}]}"""
BILL = """{"type": "record", "name": "Bill", "namespace": "com.shop", "fields": [
  {"name": "order", "type": "long"}, {"name": "gross", "type": "double"}]}"""


class Estate:
    """
    What is there before the reader begins: a secured cluster, a registry, a topic, and an application that reads it.

    Attributes:
        name: of the graph, and prefix of its topics.
    """

    def __init__(self, cluster: Cluster, registry: TestRegistry, name: str, directory: Path) -> None:
        self.cluster, self.registry, self.name, self._directory = cluster, registry, name, directory
        self.legacy: list[int] = []
        self._schemas = SchemaRegistryClient({"url": registry.url})

    def write(self, first: int) -> None:
        """As another team's application does, with Confluent's serializer."""
        producer = Producer({"bootstrap.servers": self.cluster.broker.bootstrap})
        serialize = AvroSerializer(self._schemas, ORDER)
        context = SerializationContext(f"{self.name}.orders", MessageField.VALUE)
        for n in range(first, first + SENT):
            value = serialize({"id": n, "total": float(n), "by": "ann"}, context)
            producer.produce(f"{self.name}.orders", value, partition=n % WIDTH)
        assert producer.flush(30) == 0

    def run_legacy(self) -> None:
        """It processes some messages of each partition, commits behind them, and ends."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.broker.bootstrap,
                "group.id": f"{self.name}-legacy",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([f"{self.name}.orders"])
        read = AvroDeserializer(self._schemas)
        while len(self.legacy) < TAKEN or len({n % WIDTH for n in self.legacy}) < WIDTH:
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            value: Any = read(message.value(), SerializationContext(f"{self.name}.orders", MessageField.VALUE))
            self.legacy.append(value["id"])
            consumer.commit(message=message, asynchronous=False)
        consumer.close()

    def command(self, *words: str, user: str = "worker") -> Result:
        """A command of the reader, or of the administrator."""
        target = f"{self._directory / self.name}.py:graph"
        file = ["--file", str(self._directory / f"{user}.toml")]
        verbs = 2 if words[0] == "schemas" else 1
        return CliRunner().invoke(app, [*words[:verbs], target, *words[verbs:], *file])

    def bills(self) -> list[int]:
        """Orders of the bills that Confluent's deserializer reads."""
        read = AvroDeserializer(self._schemas)
        topic = f"{self.name}.bills"
        found = committed_all(self.cluster.broker.bootstrap, [topic])[topic]
        values: list[Any] = [read(m.value(), SerializationContext(topic, MessageField.VALUE)) for m in found]
        return [value["order"] for value in values]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Nothing is allowed that no ACL allows."""
    with LocalBroker(overrides=WITH_LOGIN, listeners=("SECURED",)) as broker:
        yield Cluster(broker)


@pytest.fixture
def estate(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Estate]:
    """With the graph that the reader has declared, and the settings of each user."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"move_{request.node.callspec.id}"
    (tmp_path / f"{name}.py").write_text(
        dedent(
            f"""
            from dataclasses import dataclass

            from cues_kafka import Avro, Graph, Processor, Source, Topic


            @dataclass
            class Order:
                id: int
                total: float


            @dataclass
            class Bill:
                order: int
                gross: float


            def bill(order: Order) -> Bill:
                return Bill(order.id, order.total * 1.25)


            graph = Graph(
                "{name}",
                Source("{name}.orders"),
                Processor(bill, inputs="{name}.orders", outputs="{name}.bills"),
                topics={{
                    "{name}.orders": Topic(value=Avro(Order, registry=True), partitions={WIDTH}),
                    "{name}.bills": Topic(value=Avro(Bill, registry=True, namespace="com.shop"), partitions={WIDTH}),
                }},
            )
            """
        )
    )
    with TestRegistry() as registry:
        for user, address, login in (
            ("worker", cluster.secured, cluster.login("worker").common()),
            ("admin", cluster.broker.bootstrap, {}),
        ):
            settings = "\n".join(f'"{key}" = "{value}"' for key, value in login.items())
            (tmp_path / f"{user}.toml").write_text(
                f'bootstrap = "{address}"\n[config]\n{settings}\n[registry]\nurl = "{registry.url}"\n'
            )
        yield Estate(cluster, registry, name, tmp_path)


@pytest.mark.parametrize("engine", ["native", "spark"])
def test_a_running_group_moves_by_the_page_without_any_right_to_create(
    estate: Estate, engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Both applications together process each message once, and Confluent's deserializer reads what comes out."""
    name = estate.name
    with closing(KafkaBroker(estate.cluster.super_user)) as admin:
        admin.create([NewTopic(f"{name}.orders", WIDTH, 1, {})])
    estate.write(0)
    estate.run_legacy()
    estate.write(SENT)

    # 2. The reader sees what is needed, and may not even look; the administrator does it.
    refused = estate.command("plan", "--acls", "--principal", "worker=User:worker")
    assert refused.exit_code == 1
    assert "user `worker` may not describe topics" in refused.output
    commands = [line.strip() for line in refused.output.splitlines() if line.strip().startswith("kafka-acls")]
    for line in commands:
        if "User:worker" in line:
            estate.cluster.carry_out(line)
    lacks = estate.command("schemas", "check")
    assert lacks.exit_code == 1, lacks.output
    assert f"{name}.bills-value" in lacks.output
    for words in (("schemas", "register", "--yes"), ("plan", "--apply")):
        done = estate.command(*words, user="admin")
        assert done.exit_code == 0, done.output
    assert estate.command("schemas", "check").exit_code == 0
    asked = len(estate.registry.requests)

    # 5. The reader takes the place over, with the rights that messages name.
    adopt = ("adopt", "bill", "--group", f"{name}-legacy", "--yes")
    while (done := estate.command(*adopt)).exit_code:
        commands = [line for line in done.output.split("`") if line.startswith("kafka-acls")]
        assert commands, done.output
        line = commands[0]
        estate.cluster.grant_by(line)

    # 6. The workers run.
    options = load(file=tmp_path / "worker.toml").kafka()
    graph = load_graph(f"{tmp_path / name}.py:graph")
    runs_on = None
    if engine == "spark":
        runs_on = Spark(request.getfixturevalue("spark"), checkpoint=str(tmp_path / "checkpoint"))
    with start(graph, options, engine=runs_on) as running:
        running.wait_idle(timeout_s=200)
    assert sorted(estate.legacy + estate.bills()) == list(range(2 * SENT))
    asked_then = estate.registry.requests[asked:]
    assert not [one for one in asked_then if re.match(r"POST /subjects/[^/]*/versions|PUT|DELETE", one)]
