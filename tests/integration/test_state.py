"""Stores, tables and ready processors on a real broker, through deaths of the process that has them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from cues_kafka import (
    CommitPolicy,
    Dedupe,
    GlobalTable,
    Graph,
    Json,
    Kafka,
    Message,
    Processor,
    Running,
    Source,
    State,
    Store,
    Table,
    TableView,
    Topic,
    connect,
    rekey,
    start,
)
from cues_kafka.brokers.open import open_broker
from cues_kafka.core.records import Attempt
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import read_record
from cues_kafka.records.scanning import read_all
from cues_kafka.state.layers import ENTRY
from cues_kafka.state.stores import Cache
from cues_kafka.state.tables import TableSpec
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.following import Tables
from cues_kafka.task.restoring import Restoring
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify

WIDTH, MOST = 3, 40


def counted(
    order: dict[str, Any], counts: State[int], customers: TableView[str], rates: TableView[int]
) -> dict[str, Any]:
    """The order with its customer, and a number: which order of the customer it is."""
    customer = order["customer"]
    counts[customer] = counts.get(customer, 0) + 1
    return {**order, "name": customers.get(customer), "nth": counts[customer], "cents": order["sum"] * rates["EUR"]}


def graph_of(name: str) -> Graph:
    """Each order once, by customer, with what the tables know."""
    topics = {part: f"{name}.{part}" for part in ("orders", "once", "keyed", "customers", "rates", "counted")}
    return Graph(
        name,
        Source(topics["orders"]),
        Source(topics["customers"]),
        Source(topics["rates"]),
        Dedupe("once", inputs=topics["orders"], outputs=topics["once"], by="id", within="1 day"),
        rekey("keyed", inputs=topics["once"], outputs=topics["keyed"], by="customer"),
        Processor(
            counted,
            inputs={"order": topics["keyed"], "customers": Table(topics["customers"])},
            tables={"rates": GlobalTable(topics["rates"])},
            outputs=topics["counted"],
            state={"counts": Store(Json(int))},
            commit=CommitPolicy(max_messages=MOST),
        ),
        defaults=Topic(value=Json(), partitions=WIDTH),
        topics={topics["rates"]: Topic(value=Json(int), partitions=2)},
        errors=f"{name}.errors",
    )


def until(condition: Callable[[], Any], running: Running) -> Any:
    """Wait for something that the tasks of this process do."""
    deadline = time.monotonic() + 30
    while not (found := condition()):
        running.wait_idle()
        assert time.monotonic() < deadline
    return found


def test_orders_are_counted_once_with_their_customers(kafka: KafkaFixture) -> None:
    """A process ends in mid-transaction; another one restores the stores, and reads the tables again."""
    cluster, name = Kafka(kafka.bootstrap), kafka.unique("g")
    graph = graph_of(name)
    people = {f"c{number}": f"Customer {number}" for number in range(10)}
    orders = [{"id": number, "customer": f"c{number % 10}", "sum": number} for number in range(500)]
    with start(graph, cluster) as running, connect(cluster, graph) as client:
        client.send_many(f"{name}.customers", [Message(person, key=key) for key, person in people.items()])
        client.send(f"{name}.rates", Message(100, key="EUR"))
        until(lambda: len(client.messages(f"{name}.customers")) == 10, running)
        probed = _probe(running, client, name)
        client.send_many(f"{name}.orders", [Message(order, key=str(order["id"])) for order in orders[:300]])
        running.wait_idle()
        client.send_many(f"{name}.orders", [Message(order, key=str(order["id"])) for order in orders[:350]])
        running.abandon()
    with start(graph, cluster) as running, connect(cluster, graph) as client:
        client.send_many(f"{name}.orders", [Message(order, key=str(order["id"])) for order in orders])
        running.wait_idle()
        found = [one.value for one in client.messages(f"{name}.counted") if one.value["id"] >= 0]
        errors = client.messages(f"{name}.errors")

    assert errors == []
    assert sorted(one["id"] for one in found) == [*range(500)]
    assert all(one["name"] == people[one["customer"]] and one["cents"] == one["sum"] * 100 for one in found)
    for customer in people:
        probes = probed if customer == "c0" else 0
        nths = sorted(one["nth"] for one in found if one["customer"] == customer)
        assert nths == [*range(1 + probes, 51 + probes)]
    broker = open_broker(cluster)
    assert verify(graph, broker).ok
    records = map(read_record, read_all(broker, f"{name}.counted.backing", WIDTH))
    assert max(record.batch.deliveries for record in records if isinstance(record, Attempt)) == MOST
    stores = verify(graph, broker, state=True)
    assert (stores.anomalies, stores["once"].not_recomputed, stores["once"].entries) == (0, 0, 500 + probed)
    assert stores["counted"].not_recomputed == WIDTH  # it has tables
    broker.close()


def _probe(running: Running, client: Any, name: str) -> int:
    """Send orders of a customer until one meets the customer: what comes to a table while a task runs is seen soon."""
    sent = 0

    def met() -> bool:
        nonlocal sent
        sent += 1
        client.send(f"{name}.orders", Message({"id": -sent, "customer": "c0", "sum": 0}, key="probe"))
        running.wait_idle()
        return any(one.value["name"] for one in client.messages(f"{name}.counted"))

    until(met, running)
    return sent


def test_a_table_whose_log_was_cut_off_is_read_again(kafka: KafkaFixture) -> None:
    """A process that starts later begins at the first message that is left."""
    cluster, name = Kafka(kafka.bootstrap), kafka.unique("g")
    graph = graph_of(name)
    with start(graph, cluster) as running, connect(cluster, graph) as client:
        running.wait_idle()
        client.send(f"{name}.rates", Message(1, key="USD"))
        sent = client.send(f"{name}.rates", Message(2, key="EUR"))
        broker = open_broker(cluster)
        broker.trim({TopicPartition(f"{name}.rates", sent.partition): sent.offset})
        broker.close()
    with start(graph, cluster) as running, connect(cluster, graph) as client:
        client.send(f"{name}.orders", {"id": 1, "customer": "c1", "sum": 5})
        running.wait_idle()
        assert [one.value["cents"] for one in client.messages(f"{name}.counted")] == [10]


def test_a_task_that_comes_back_reads_its_tables_over_what_was_aborted(kafka: KafkaFixture) -> None:
    """Its process reads on where it stood, up to an end that may have moved over an aborted message only."""
    topic, broker = kafka.unique("customers"), open_broker(Kafka(kafka.bootstrap))
    broker.create([NewTopic(topic, 1)])
    spec = TableSpec(topic, topic, 1, True, bytes.decode, None, str.encode, bytes.decode, 10**6)
    tables, place = Tables([spec]), TopicPartition(topic, 0)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)

    def written(name: str, *, kept: bool) -> dict[str, str]:
        """What a task sees that begins behind this transaction, and begins behind it once more."""
        producer.begin_transaction()
        producer.produce(topic, name, key="a")
        producer.flush(30)
        (producer.commit_transaction if kept else producer.abort_transaction)(30)
        deadline = time.monotonic() + 30
        while (marks := broker.watermarks([place])[place]).stable < marks.high or marks.high % 2:
            assert time.monotonic() < deadline, "the marker is written behind the answer"
        for _ in range(2):
            tables.bring_up(0, broker, SystemClock(), group=topic, task="g.p/0", given_up=lambda: False)
            assert tables._read[place].offset == marks.high
        return dict(tables.values(0)[topic])

    try:
        assert written("Ann", kept=True) == {"a": "Ann"}
        assert written("Bob", kept=False) == {"a": "Ann"}
        assert written("Anna", kept=True) == {"a": "Anna"}
    finally:
        tables.close()
        broker.close()


def test_a_worker_on_the_same_machine_reads_only_what_is_new(
    kafka: KafkaFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has the place where the first worker stopped, so nothing of the changelog is read twice."""

    def count(word: str, counts: State[int]) -> None:
        counts[word] = counts.get(word, 0) + 1

    read: list[tuple[bytes, bytes | None]] = []
    take = Restoring._take

    def counting(self: Restoring, one: Cache, found: Sequence[tuple[bytes, bytes | None]], behind: int | None) -> None:
        read.extend(found)
        take(self, one, found, behind)

    monkeypatch.setattr(Restoring, "_take", counting)
    name = kafka.unique("words")
    processor = Processor(count, inputs=name, state={"counts": Store(Json(int), on_disk=True)})
    graph = Graph(name, Source(name), processor, topics={name: Topic(value=Json(str), partitions=1)})
    cluster = Kafka(kafka.bootstrap, state_dir=str(tmp_path))
    for words in (["a"] * 150 + ["b"] * 50, ["a"]):
        with start(graph, cluster) as running, connect(cluster, graph) as client:
            client.send_many(graph.name, words)
            running.wait_idle()
        assert read == []
    shutil.rmtree(tmp_path)
    with start(graph, cluster) as running:
        assert running.query("count", "counts", "a").value == 151
    assert len([key for key, _ in read if key[:1] == ENTRY]) >= 3
