"""What Spark's slots do as native workers do (tests/integration): `async def`, and messages that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Kafka, start
from cues_kafka.spark import Spark
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import Setup, produce_any_headers
from tests.integration.test_coroutines import check, graph_of


def test_coroutines_are_committed_in_order_on_spark(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """Up to `concurrency=` of them side by side, in each slot."""
    name = kafka.unique("later")
    with start(graph_of(name), Kafka(kafka.bootstrap), engine=Spark(spark, checkpoint=str(tmp_path))) as running:
        check(running, name)


def same(value: Any) -> Any:
    """Any function."""
    return value


@pytest.mark.full
def test_a_header_name_that_is_no_utf8_costs_its_message_alone_on_spark(
    spark: Any, kafka: KafkaFixture, tmp_path: Path
) -> None:
    """Its slot goes on, as a native worker does (tests/integration/test_bad_input.py)."""
    setup = Setup(kafka.bootstrap, kafka.unique("g"))
    graph = setup.graph(same)
    with start(graph, Kafka(kafka.bootstrap), engine=Spark(spark, checkpoint=str(tmp_path))) as running:
        setup.send(b"0")
        produce_any_headers(setup.bootstrap, setup.source, b"1", [(b"good", b"g"), (b"\xff\xfe", b"x")])
        setup.send(b"2")
        running.wait_idle(timeout_s=120)
    world = setup.world()

    assert world.values == [0, 2]
    [error] = world.errors
    assert (error["consumed"][0]["offset"], error["kind"], error["payload"]) == (1, "decode", b"1")
    assert "header whose name is not UTF-8" in error["text"]
