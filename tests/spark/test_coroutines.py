"""`async def` in Spark's slots, as natively (tests/integration)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cues_kafka import Kafka, start
from cues_kafka.spark import Spark
from cues_kafka.testing.fixtures import KafkaFixture
from tests.integration.test_coroutines import check, graph_of


def test_coroutines_are_committed_in_order_on_spark(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """Up to `concurrency=` of them side by side, in each slot."""
    name = kafka.unique("later")
    with start(graph_of(name), Kafka(kafka.bootstrap), engine=Spark(spark, checkpoint=str(tmp_path))) as running:
        check(running, name)
