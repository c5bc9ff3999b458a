"""What a graph with columns needs, where it runs, and what its plan shows."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Graph, MissingExtra, Processor, Raw, Source, Topic
from cues_kafka.extras import ARROW, Package
from cues_kafka.graph.packages import packages_of, require_packages
from cues_kafka.on_spark.verdict import refusal
from cues_kafka.plan.plan import plan


def passed(columns: Any) -> Any:
    """The same."""
    return columns


GRAPH = Graph(
    "g", Source("in"), Processor(passed, inputs="in", outputs="out", batch="arrow"), defaults=Topic(value=Raw())
)


def test_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(ARROW) <= set(packages_of(GRAPH))
    monkeypatch.setattr(Package, "installed", property(lambda _: False))

    with pytest.raises(MissingExtra, match=r"needs pyarrow.*cues-kafka\[arrow\]"):
        require_packages(GRAPH)


def test_plan_shows_columns() -> None:
    assert "pipe, columns" in str(plan(GRAPH))


def test_spark_refuses_columns_with_the_remedy() -> None:
    why = refusal(GRAPH, GRAPH.processors["passed"])

    assert "DataFrameProcessor" in why
    assert "--only passed" in why


def test_graph_with_columns_is_written_down_and_read_back() -> None:
    assert Graph.from_dict(GRAPH.to_dict()) == GRAPH
    assert GRAPH.to_dict()["parts"][1]["batch"] == "arrow"
