"""The user's modules on Spark's Python processes, which cannot import them."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import ConfigError, Graph, Kafka, Processor, Source, TaskStopped, start
from cues_kafka.cli.loading import load_graph
from cues_kafka.on_spark.shipping import ship_options
from cues_kafka.spark import Spark
from cues_kafka.testing.fixtures import KafkaFixture

pytestmark = pytest.mark.timeout(300)

MODULE = """
from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cues_kafka import Graph, Json, Processor, Source, Topic


@dataclass
class Meal:
    at: datetime
    dessert: Meal | None = None


def later(meal: Meal) -> Meal:
    return Meal(meal.at + timedelta(hours=1), meal)


graph = Graph(
    "NAME", Source("NAME.in"), Processor(later, inputs="NAME.in", outputs="NAME.out"), defaults=Topic(value=Json(Meal))
)
"""


def test_a_class_with_annotations_that_are_text_is_decoded_and_encoded(
    spark: Any, kafka: KafkaFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`plan` looks "datetime" and "Meal" up in the module; a process that has the class by value has no module."""
    from datetime import UTC, datetime

    monkeypatch.setattr(sys, "path", [*sys.path])
    name = kafka.unique("meals")
    file = tmp_path / f"{name.replace('-', '_')}.py"
    file.write_text(MODULE.replace("NAME", name))
    graph = load_graph(f"{file}:graph")
    meal, noon = sys.modules[file.stem].Meal, datetime(2026, 1, 1, 12, tzinfo=UTC)

    with start(graph, Kafka(kafka.bootstrap), engine=Spark(spark, checkpoint=str(tmp_path / "c"))) as running:
        running.send(f"{name}.in", meal(noon))
        running.wait_idle(timeout_s=180)
        [found] = running.messages(f"{name}.out")

    assert found.value == meal(noon.replace(hour=13), meal(noon))


def test_a_function_for_tokens_that_does_not_travel_is_refused_with_the_way_out() -> None:
    """Before a query starts."""
    lock = threading.Lock()

    def token(_: str | None) -> Any:
        with lock:
            return "token", 0

    with pytest.raises(ConfigError, match=r"oauth: .* cannot be sent .*Open connections and make locks inside"):
        ship_options(Kafka("127.0.0.1:1", config={"oauth_cb": token}))


def test_a_graph_that_does_not_travel_is_refused_before_its_query_starts(
    spark: Any, kafka: KafkaFixture, tmp_path: Path
) -> None:
    """Once, with the way out: no later try would find anything else."""
    name = kafka.unique("lock")

    def locked(number: int, lock: Any) -> int:
        with lock:
            return number

    pipe = Processor(locked, inputs=f"{name}.in", outputs=f"{name}.out", opts={"lock": threading.Lock()})
    graph = Graph(name, Source(f"{name}.in"), pipe)

    with pytest.raises(TaskStopped, match=r"cannot be sent to Spark's Python processes .*factory of system="):
        start(graph, Kafka(kafka.bootstrap), engine=Spark(spark, checkpoint=str(tmp_path / "c")), timeout_s=200)

    assert not (tmp_path / "c").exists()
