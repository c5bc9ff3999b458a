"""Processors folded by the first word of their names."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Graph, Processor, Source
from cues_kafka.ui.folding import MANY, folded, word_of
from cues_kafka.ui.layout import picture
from tests.unit.ui.hostile import HOSTILE, on_page


def same(value: Any) -> Any:
    """Passes it on."""
    return value


def chain(*names: str) -> Graph:
    """Each reads what the one before writes."""
    steps = [
        Processor(same, name=name, inputs=f"t{number}", outputs=f"t{number + 1}") for number, name in enumerate(names)
    ]
    return Graph("g", Source("t0"), *steps, errors="g.errors")


def page(graph: Graph, *words: str) -> Any:
    """As a page gets it."""
    return on_page(folded(picture(graph), words))


def test_a_group_is_one_node_with_the_topics_that_only_it_uses() -> None:
    """What leads in and out stays, with all of its bindings."""
    graph = chain("read", "bill-check", "bill-send", "end")

    found = page(graph, "bill")

    columns = {node["id"]: node["column"] for node in found["nodes"]}
    assert columns.keys() == {
        *("topic t0", "processor read", "topic t1", "group bill", "topic t3", "processor end", "topic t4"),
        "topic g.errors",
    }
    assert columns["topic t1"] < columns["group bill"] < columns["topic t3"]
    bindings = {(one["start"], one["end"]): one["bindings"] for one in found["arrows"]}
    assert bindings["topic t1", "group bill"] == [["bill-check", "t1"]]
    assert bindings["group bill", "topic g.errors"] == [["bill-check", "g.errors"], ["bill-send", "g.errors"]]
    assert found["groups"] == {"bill": ["bill-check", "bill-send"]}


@pytest.mark.parametrize("words", [(), ("read",), ("other",), ("",), tuple(HOSTILE)])
def test_what_is_no_group_folds_nothing(words: tuple[str, ...]) -> None:
    """The picture is that of the graph."""
    graph = chain("read", "bill-check", "bill-send")

    found = page(graph, *words)

    assert {node["id"]: (node["column"], node["row"]) for node in found["nodes"]} == {
        node.id: (node.column, node.row) for node in picture(graph).nodes
    }
    assert len(found["arrows"]) == len(picture(graph).arrows)


def test_large_graphs_are_folded_at_first() -> None:
    """A hundred processors of ten groups are few boxes."""
    graph = chain(*(f"team{number // 10}_step{number}" for number in range(100)))
    found = page(graph)

    assert found["advised"] == [f"team{number}" for number in range(10)]
    assert len(page(graph, *found["advised"])["nodes"]) == 10 + 11 + 1
    assert page(chain(*(f"a-{number}" for number in range(MANY))))["advised"] == []


@pytest.mark.parametrize(
    ("name", "word"), [("bill-send", "bill"), ("bill_send", "bill"), ("bill", "bill"), ("_x", "_x")]
)
def test_a_word_ends_before_a_hyphen_an_underline_or_a_dot(name: str, word: str) -> None:
    assert word_of(name) == word
