"""Pictures of a graph: what is drawn, as a tree, as Mermaid, as DOT and as data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from cues_kafka import Blobs, DataFrameProcessor, Feed, Graph, Iterate, Once, Processor, Source, Sql, Table
from cues_kafka.graph.pictures import MOST_DEEP, Branch, dot, mermaid, to_data, tree


def fn(*messages: Any, **rest: Any) -> Any: ...


def p(name: str, inputs: Any = None, outputs: Any = None, **more: Any) -> Processor:
    return Processor(fn, name=name, inputs=inputs, outputs=outputs, **more)


EVERYTHING = Graph(
    "all",
    Source("orders"),
    Feed(Iterate(lambda _: []), into="prices", name="shop"),
    p("enrich", {"order": "orders", "price": "prices", "customers": Table("customers")}, "rich"),
    p("route", "rich", {"big": "big", "small": "small"}),
    p("write", "big", effects={"db": Sql("sqlite:////tmp/never-opened.db"), "once": Once()}),
    p("either", None, "both", alts={"b": "big", "s": "small"}, appenders={"log": "log"}, errors="own"),
    p("look", "log", errors=False),
    p("again", "errors", errors=False),
    DataFrameProcessor(fn, inputs="both", outputs="sums", name="frame"),
    errors="errors",
)
RING = Graph("ring", p("a", "1", "2"), p("b", "2", "1"), p("c", "2", "3"))


def lines(branch: Branch, depth: int = 0) -> Iterator[str]:
    """The tree's texts, indented."""
    yield "  " * depth + branch.text
    for one in branch.below:
        yield from lines(one, depth + 1)


def test_tree_follows_the_messages_and_shows_everything_once() -> None:
    """Joins are reached twice; errors topics come last, with their readers."""
    assert [*lines(tree(EVERYTHING))] == [
        "all",
        "  orders (source)",
        "    enrich (join)",
        "      rich",
        "        route (fork)",
        "          big: big",
        "            write (sink)",
        "              db: Sql",
        "              once: Once",
        "            either (imperative alts)",
        "              both",
        "                frame (dataframe)",
        "                  sums",
        "              appender log: log",
        "                look (sink)",
        "          small: small",
        "            either (imperative alts), above",
        "  customers",
        "    enrich (join), as a table, above",
        "  shop (feed)",
        "    prices",
        "      enrich (join), above",
        "  errors (errors of enrich, route, write, frame, shop)",
        "    again (sink)",
        "  own (errors of either)",
    ]


def test_tree_of_a_cycle_begins_somewhere() -> None:
    """No topic comes from outside; the first input is the beginning."""
    assert [*lines(tree(RING))] == ["ring", "  1", "    a (pipe)", "      2", "        b (pipe)", "          1, above",
                                    "        c (pipe)", "          3"]  # fmt: skip


def test_tree_of_a_long_chain_goes_on_from_the_left() -> None:
    """Else it would not fit on a screen, and at some length not into Python's stack."""
    chain = Graph("chain", *(p(f"p{number}", f"t{number}", f"t{number + 1}") for number in range(500)))

    found = [*lines(tree(chain))]
    assert max(line.count("  ") for line in found) == 1 + 2 * MOST_DEEP
    assert [line for line in found if line.startswith("  t")] == [f"  t{number}" for number in range(0, 500, MOST_DEEP)]
    assert sum(line.endswith(", below") for line in found) == 500 // MOST_DEEP - 1
    assert {f"p{number} (pipe)" for number in range(500)} <= {line.strip() for line in found}


def test_mermaid_and_dot_draw_the_same_nodes_and_arrows() -> None:
    """Each processor once, each binding with an arrow; texts are quoted, so none is a word of the language."""
    for graph in (EVERYTHING, RING):
        flow, digraph = mermaid(graph), dot(graph)
        drawn = re.findall(r'^    n\d+[\[({/]+"([^"]+)"', flow, re.MULTILINE)
        assert drawn == re.findall(r'^    "[^"]+" \[label="([^"]+)"', digraph, re.MULTILINE)
        assert set(graph.topics_used()) < set(drawn)
        assert {f"{name} ({part.kind})" for name, part in graph.all_processors.items()} < set(drawn)

        names = dict(re.findall(r'^    (n\d+)[\[({/]+"([^"]+)"', flow, re.MULTILINE))
        arrows = [
            (names[start], names[end], text)
            for start, text, end in re.findall(r'^    (n\d+) -\.?->(?:\|"(.*)"\|)? (n\d+)$', flow, re.MULTILINE)
        ]
        labels = dict(re.findall(r'^    "([^"]+)" \[label="([^"]+)"', digraph, re.MULTILINE))
        found = re.findall(r'^    "([^"]+)" -> "([^"]+)"(?: \[(?:label="([^"]*)")?.*\])?$', digraph, re.MULTILINE)
        assert arrows == [(labels[start], labels[end], text) for start, end, text in found]
        assert len(arrows) == len(set(arrows)) >= len(to_data(graph)["edges"])

    flow = mermaid(EVERYTHING)
    assert '[("orders")]:::source' in flow
    assert '{{"db: Sql"}}' in flow
    assert '[/"shop (feed)"/]' in flow
    assert '-->|"table customers"|' in flow
    assert flow.count('-.->|"errors"|') == 6
    assert dot(EVERYTHING).count("style=dashed") == 6
    assert ":::" not in mermaid(RING)


def test_data_has_the_edges_and_what_the_topology_says() -> None:
    """A cycle has no order."""
    data = json.loads(json.dumps(to_data(EVERYTHING)))

    assert data["graph"] == "all"
    assert {"name": "own", "source": False, "errors": True} in data["topics"]
    assert {"name": "write", "kind": "sink", "acts_on": {"db": "Sql", "once": "Once"}} in data["processors"]
    assert {"processor": "enrich", "role": "table", "binding": "customers", "topic": "customers"} in data["edges"]
    assert data["dependencies"]["enrich"] == ["orders", "shop"]
    assert (data["in_nodes"], data["cycles"]) == (["orders", "shop"], [])
    assert data["order"].index("enrich") < data["order"].index("route")
    assert len(data["components"]) == 1
    assert (to_data(RING)["order"], to_data(RING)["cycles"]) == (None, [["a", "b"]])


def test_files_that_dataframes_become_are_drawn() -> None:
    """By the class of the table; the address shows nowhere."""
    table = Blobs("s3://hidden/lake").parquet("rows")
    graph = Graph("lake", Source("orders"), DataFrameProcessor(fn, inputs="orders", into=table))
    assert "into: FileTable" in mermaid(graph)
    assert "hidden" not in f"{mermaid(graph)}{dot(graph)}{to_data(graph)}"
