"""What a plan says of each edge of a graph."""

from __future__ import annotations

from typing import Any

from cues_kafka import Blobs, DataFrameProcessor, Graph, Processor, Source, Sql
from cues_kafka.plan.acls import acls_of
from cues_kafka.plan.edges import edges_of
from cues_kafka.plan.plan import plan
from cues_kafka.ports import ClusterFacts, TopicFacts


def book(order: dict[str, Any], db: Any) -> dict[str, Any]:
    """Rows and messages."""
    raise NotImplementedError


def ring(order: dict[str, Any]) -> None:
    """An effect that nothing takes back."""


SECRET = "postgresql://shop:hidden@db.internal/shop"
GRAPH = Graph(
    "shop",
    Source("orders"),
    Processor(book, inputs="orders", outputs="booked", effects={"db": Sql(SECRET)}),
    Processor(ring, inputs="booked"),
)


def test_each_edge_has_its_level() -> None:
    """From applications, between topics, into a database, and into whatever a sink does."""
    assert [(one.where, one.level) for one in edges_of(GRAPH)] == [
        ("applications -> orders", "at least once"),
        ("book", "exactly once"),
        ("book -> database db", "exactly once"),
        ("ring -> its effects", "at least once"),
    ]


def test_plan_prints_edges_and_no_address() -> None:
    """As text, as data, and in what Python prints of the declaration."""
    planned = plan(GRAPH)

    assert "book -> database db" in planned.text()
    assert planned.to_dict()["edges"][2]["level"] == "exactly once"
    for text in (
        planned.text(topics=True, acls=True),
        repr(GRAPH),
        repr(GRAPH.processors["book"]),
        str(planned.to_dict()),
    ):
        assert "hidden" not in text
        assert "db.internal" not in text


def test_files_of_dataframes_are_an_edge_out_of_kafka() -> None:
    """With its level; the processor is staged, has one part, and writes no topic but its errors."""
    into = Blobs("s3://hidden-bucket/lake").parquet("sums")
    planned = plan(Graph("shop", Source("orders"), DataFrameProcessor(ring, inputs="orders", into=into), errors="bad"))

    assert [(one.where, one.level) for one in planned.edges] == [
        ("applications -> orders", "at least once"),
        ("ring -> table of files sums", "exactly once"),
    ]
    assert "  ring  dataframe, staged  1 part  orders -> table of files sums; errors: bad\n" in planned.text()
    [frame] = planned.to_dict()["dataframes"]
    assert (frame["outputs"], frame["into"], frame["staged"], frame["slots"]) == ({}, "table of files sums", True, 1)
    assert {one.name for one in planned.create} == {"orders", "bad", "shop.ring.backing"}
    assert "hidden-bucket" not in f"{planned.text(topics=True, acls=True)}{planned.to_dict()}"


def test_each_strategy_has_its_level() -> None:
    """W1, W5: between topics, and for effects of the function itself."""
    graph = Graph(
        "g",
        Source("a"),
        Processor(ring, name="whole", inputs="a", outputs="b"),
        Processor(ring, name="often", inputs="a", outputs="c", strategy="at-least-once"),
        Processor(ring, name="once", inputs="a", outputs="d", strategy="at-most-once", effects=True),
        Processor(ring, name="ring", inputs="a", strategy="at-least-once"),
    )

    assert [(one.where, one.level) for one in edges_of(graph)][1:] == [
        ("whole", "exactly once"),
        ("often", "at least once"),
        ("once", "at most once"),
        ("once -> its effects", "at most once"),
        ("ring -> its effects", "at least once"),
    ]


def test_a_worker_at_least_once_needs_no_right_to_transactional_ids() -> None:
    """W5: the tools that move its tasks do."""
    graph = Graph("g", Source("a"), Processor(ring, inputs="a", strategy="at-least-once"))

    assert [(acl.role, acl.name) for acl in acls_of(graph) if acl.resource == "transactional-id"] == [
        ("operator", "g.ring."),
        ("sender", "g.a.send."),
    ]


def test_at_most_once_needs_safe_topics_too() -> None:
    """A take that the brokers lose would be taken, and called, again."""
    graph = Graph("g", Source("a"), Processor(ring, inputs="a", strategy="at-most-once"))
    unsafe = TopicFacts("a", b"a" * 16, 1, 1, {"min.insync.replicas": "1"})

    assert any("'a'" in text for text in plan(graph, ClusterFacts(3, {"a": unsafe})).refusals)
