"""Plain processors on Spark begin where `start=` says, once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, Kafka, start
from cues_kafka.spark import Spark
from cues_kafka.testing.fixtures import KafkaFixture
from tests.integration.test_starts import fill, from_offsets, graph_of, place

pytestmark = pytest.mark.timeout(300)


def delivered(graph: Graph, options: Kafka, engine: Spark) -> list[tuple[int, int]]:
    """Run until all is delivered; what came out by now."""
    with start(graph, options, engine=engine) as running:
        running.wait_idle(timeout_s=180)
        found = [message.value for message in running.messages(f"{graph.name}.checked")]
    return sorted((one["p"], one["n"]) for one in found)


def test_a_processor_begins_at_offsets_or_a_time_once(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """Whatever a checkpoint or the declaration says later."""
    options, name = Kafka(kafka.bootstrap), kafka.unique("starts")
    times = fill(options, name)
    expected = from_offsets({0: 2, 1: 4, 2: 0})
    graph = graph_of(name, place(options, name))
    assert delivered(graph, options, Spark(spark, checkpoint=str(tmp_path / "a"))) == expected
    late = graph_of(name, datetime.fromtimestamp(times[0] / 1000, UTC))
    assert delivered(late, options, Spark(spark, checkpoint=str(tmp_path / "b"))) == expected
