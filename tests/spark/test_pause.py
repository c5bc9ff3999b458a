"""Pause, status, health and metrics of processors on Spark, where the driver tells of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import DataFrameProcessor, Graph, Json, Kafka, Processor, Source, Topic, start, status
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.operate.pausing import Pausing
from cues_kafka.plan.topics import Sides
from cues_kafka.spark import Spark
from cues_kafka.testing.fixtures import KafkaFixture
from tests.integration.test_run_command import answer, numbers

pytestmark = [pytest.mark.timeout(300), pytest.mark.full]


@dataclass(frozen=True)
class Order:
    """What is sent."""

    n: int


def check(order: Order) -> Order:
    """Nothing changes."""
    return order


def mixed(orders: Any) -> Any:
    """Staged: its rows are shuffled."""
    return orders.repartition(2, "n").select("n")


def test_queries_pause_between_batches_tell_it_and_go_on(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """A direct and a staged one; a stop does not wait for the pause to end."""
    name = kafka.unique("shop")
    graph = Graph(
        name,
        Source(f"{name}.orders"),
        Processor(check, inputs=f"{name}.orders", outputs=f"{name}.checked"),
        DataFrameProcessor(mixed, inputs=f"{name}.orders", outputs=f"{name}.mixed"),
        defaults=Topic(value=Json(Order), partitions=2),
    )
    cluster = Kafka(kafka.bootstrap, status_every_s=1.0)
    broker = KafkaBroker(cluster)
    tool = None
    try:
        [port] = free_ports(1)
        with start(graph, cluster, engine=Spark(spark, checkpoint=str(tmp_path)), http=str(port)) as running:
            running.send_many(f"{name}.orders", [Order(n) for n in range(4)])
            running.wait_idle(timeout_s=180)
            assert [answer(port, page) for page in ("healthz", "readyz")] == [(200, "ok\n")] * 2
            metrics = answer(port, "metrics")[1]
            assert [sum(numbers(metrics, f"cues_kafka_{name}")) for name in ("ready", "deliveries_total")] == [1.0, 8.0]
            assert 'cues_kafka_task_state{graph="' in metrics
            of_slots = ("batch_seconds_count", "commit_seconds_count", "output_bytes_total")
            assert all(sum(numbers(metrics, f"cues_kafka_{name}")) > 0 for name in of_slots)
            tool = Pausing(graph, broker, who="amy@desk", sides=Sides.of(cluster))
            assert tool.pause(timeout_s=60.0) == {}
            running.send_many(f"{name}.orders", [Order(n) for n in range(4, 8)])
            seen = status(cluster, graph)
            assert [one.task for one in seen.tasks] == ["check/0", "check/1", "mixed"]
            assert {(one.state, one.runtime) for one in seen.tasks} == {("paused", "spark")}
            for part in ("check", "mixed"):
                assert sum(one.lag or 0 for one in seen.tasks if one.processor == part) >= 4
            assert sum(one.deliveries for one in seen.tasks if one.processor == "check") == 4
            tool.resume()
            running.wait_idle(timeout_s=180)
            seen = status(cluster, graph)
            assert (sum(one.deliveries for one in seen.tasks if one.processor == "check"), seen.lag) == (8, 0)
            assert tool.pause(timeout_s=60.0) == {}
            running.send_many(f"{name}.orders", [Order(8)])
            began_s = time.monotonic()
        assert time.monotonic() - began_s < 15.0
    finally:
        if tool is not None:
            tool.close()
        broker.close()
