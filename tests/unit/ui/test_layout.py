"""Where nodes stand in the picture of a graph."""

from __future__ import annotations

from itertools import pairwise

from cues_kafka import Graph, Json, Processor, Source, Topic
from cues_kafka.ui.layout import picture, placed


def same(message: object) -> object:
    """Nothing changes."""
    return message


def test_a_node_stands_to_the_right_of_all_that_lead_to_it() -> None:
    """Also where a short way leads to it beside a long one."""
    found = placed("abcd", [("a", "b"), ("b", "c"), ("a", "d"), ("c", "d")])

    assert {node: column for node, (column, _) in found.items()} == {"a": 0, "b": 1, "c": 2, "d": 3}


def test_a_cycle_has_an_end() -> None:
    """The arrow that closes it leads back to the left."""
    found = placed("abc", [("a", "b"), ("b", "c"), ("c", "b")])

    assert [found[node][0] for node in "abc"] == [0, 1, 2]


def test_no_two_nodes_share_a_place() -> None:
    """A hundred nodes in a row, each with a branch."""
    chain = [f"n{number}" for number in range(100)]
    arrows = [*pairwise(chain), *((node, f"{node} out") for node in chain)]
    found = placed([*chain, *(f"{node} out" for node in chain)], arrows)

    assert len(set(found.values())) == 200
    assert found["n99"] == (99, 0)


def test_arrows_do_not_cross_where_the_order_of_rows_avoids_it() -> None:
    """Rows follow what leads to them, not the declaration."""
    found = placed(["a", "b", "of b", "of a"], [("a", "of a"), ("b", "of b")])

    assert (found["of a"], found["of b"]) == ((1, 0), (1, 1))


def test_the_picture_has_topics_processors_and_errors() -> None:
    """A topic and a processor of one name are two nodes."""
    graph = Graph(
        "g",
        Source("orders"),
        Processor(same, inputs="orders", outputs="check", name="check"),
        errors="g.errors",
        defaults=Topic(value=Json()),
    )

    found = picture(graph)

    assert [(one.id, one.kind, one.column) for one in found.nodes] == [
        ("topic orders", "source", 0),
        ("topic check", "topic", 2),
        ("topic g.errors", "topic", 2),
        ("processor check", "processor", 1),
    ]
    assert [(one.start, one.end, one.role) for one in found.arrows] == [
        ("topic orders", "processor check", "input"),
        ("processor check", "topic check", "output"),
        ("processor check", "topic g.errors", "errors"),
    ]
