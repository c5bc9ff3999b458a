"""examples/impact.py: what a change touches, on the demo's graph and on a cycle."""

from __future__ import annotations

import pytest

from cues_kafka import Graph, GraphError, Processor, Source
from cues_kafka.cli.loading import load_graph
from examples.impact import impact


def same(value: object) -> object:
    return value


def test_example_names_what_a_change_reaches_in_order() -> None:
    """The flights of the demo; what no message of the processor reaches is left out."""
    graph = load_graph("examples/flights/graph.py:graph")

    assert [*impact(graph, "by_airline")] == [
        "changed: by_airline -> flights.by_airline",
        "reached: punctuality -> flights.punctuality",
        "not connected: 0 of 8 parts",
    ]
    with pytest.raises(GraphError, match="did you mean 'clean'"):
        [*impact(graph, "claen")]


def test_example_takes_a_cycle() -> None:
    """In the order of declaration, since there is no other one."""
    graph = Graph(
        "crawler",
        Source("urls"),
        Processor(same, name="fetch", inputs="urls", outputs="pages"),
        Processor(same, name="parse", inputs="pages", outputs={"urls": "urls", "docs": "docs"}),
        Processor(same, name="alone", inputs="other"),
    )

    assert [*impact(graph, "parse")] == [
        "reached: fetch -> pages",
        "changed: parse -> urls, docs",
        "careful: fetch, parse feed each other",
        "not connected: 1 of 4 parts",
    ]
