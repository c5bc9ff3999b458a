"""Plain processors on Spark begin where `start=` says, once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import ConfigError, DataFrameProcessor, Graph, Json, Kafka, Source, Topic, start
from cues_kafka.spark import Spark
from cues_kafka.testing.fixtures import KafkaFixture
from tests.integration.test_starts import EACH, WIDTH, fill, from_offsets, graph_of, place

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


@dataclass(frozen=True)
class Order:
    """What `fill` sends."""

    p: int
    n: int


def frames_of(name: str, begin: Any, *, staged: bool) -> Graph:
    """One processor of DataFrames; staged where its rows are shuffled."""

    def same(orders: Any) -> Any:
        return orders.repartition(2, "n").select("p", "n") if staged else orders.select("p", "n", "_cues")

    return Graph(
        name,
        Source(f"{name}.orders"),
        DataFrameProcessor(same, name="frames", inputs=f"{name}.orders", outputs=f"{name}.checked", start=begin),
        topics={
            f"{name}.orders": Topic(value=Json(Order), partitions=WIDTH),
            f"{name}.checked": Topic(value=Json(), partitions=WIDTH),
        },
    )


@pytest.mark.full
@pytest.mark.parametrize("staged", [False, True], ids=["direct", "staged"])
def test_dataframes_begin_at_offsets_once(spark: Any, kafka: KafkaFixture, tmp_path: Path, staged: bool) -> None:
    """An offset that is not in the log is refused; after the first start the declaration means nothing."""
    options, name = Kafka(kafka.bootstrap), kafka.unique("starts")
    fill(options, name)
    offsets = place(options, name)
    engine = Spark(spark, checkpoint=str(tmp_path / "a"))
    with pytest.raises(ConfigError, match="is not in the log"):
        delivered(frames_of(name, offsets | {1: 1000}, staged=staged), options, engine)
    expected = from_offsets({0: 2, 1: 4, 2: 0})
    assert delivered(frames_of(name, offsets, staged=staged), options, engine) == expected
    assert delivered(frames_of(name, dict.fromkeys(range(WIDTH), 0), staged=staged), options, engine) == expected


@pytest.mark.full
def test_dataframes_of_two_inputs_begin_at_a_time(spark: Any, kafka: KafkaFixture, tmp_path: Path) -> None:
    """Each input at its first message that is not older; or at offsets by binding."""
    options, name = Kafka(kafka.bootstrap), kafka.unique("starts")
    times = fill(options, name)
    fill(options, f"{name}-other")

    def both(left: Any, right: Any) -> Any:
        return left.select("p", "n").unionByName(right.select("p", "n"))

    def graph_from(begin: Any, number: int) -> Graph:
        one = DataFrameProcessor(
            both,
            name=f"both{number}",
            inputs={"left": f"{name}.orders", "right": f"{name}-other.orders"},
            outputs=f"{name}.out{number}",
            start=begin,
        )
        topics = {topic: Topic(value=Json(Order), partitions=WIDTH) for _, topic in one.inputs}
        topics[f"{name}.out{number}"] = Topic(value=Json(), partitions=WIDTH)
        sources = map(Source, dict.fromkeys(topic for _, topic in one.inputs))
        return Graph(f"{name}-{number}", *sources, one, topics=topics)

    def out(begin: Any, number: int) -> int:
        graph = graph_from(begin, number)
        with start(graph, options, engine=Spark(spark, checkpoint=str(tmp_path / str(number)))) as running:
            running.wait_idle(timeout_s=180)
            return len(running.messages(f"{name}.out{number}"))

    newer = sum(time >= times[7] for time in times)
    assert out(datetime.fromtimestamp(times[7] / 1000, UTC), 1) == newer + WIDTH * EACH
    offsets = place(options, name)
    assert out({"left": offsets, "right": dict.fromkeys(range(WIDTH), 0)}, 2) == 9 + WIDTH * EACH
