"""Cycles, dependencies and shapes of graphs, and the settings that graphs fill in."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import cues_kafka
from cues_kafka import (
    DataFrameProcessor,
    Feed,
    Graph,
    GraphError,
    Iterate,
    Json,
    Processor,
    Raw,
    Source,
    Table,
    Topic,
    Topology,
)


def fn(*messages: Any, **rest: Any) -> Any: ...


def p(name: str, inputs: Any, outputs: Any = None, **more: Any) -> Processor:
    return Processor(fn, name=name, inputs=inputs, outputs=outputs, **more)


DIAMOND = Graph(
    "diamond",
    Source("in"),
    p("last", {"a": "left", "b": "right"}, "out"),
    p("fork", "in", {"l": "raw.l", "r": "raw.r"}),
    p("left", "raw.l", "left"),
    p("right", "raw.r", "right"),
    p("alone", "elsewhere"),
)
CRAWLER = Graph("crawler", Source("urls"), p("fetch", "urls", "pages"), p("parse", "pages", {"u": "urls", "d": "docs"}))


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"inputs": "a"}, "sink"),
        ({"inputs": "a", "outputs": "b"}, "pipe"),
        ({"inputs": "a", "outputs": {"b": "b"}}, "fork"),
        ({"inputs": {"a": "a"}, "outputs": "b"}, "pipe"),
        ({"inputs": {"a": "a", "c": "c"}}, "join-sink"),
        ({"inputs": {"a": "a", "c": "c"}, "outputs": "b"}, "join"),
        ({"inputs": {"a": "a", "c": "c"}, "outputs": {"b": "b"}}, "join-fork"),
        ({"alts": {"a": "a", "c": "c"}}, "alts-sink"),
        ({"alts": {"a": "a", "c": "c"}, "outputs": "b"}, "alts"),
        ({"alts": {"a": "a", "c": "c"}, "outputs": {"b": "b"}}, "alts-fork"),
        ({"inputs": "a", "appenders": {"b": "b"}}, "imperative sink"),
    ],
)
def test_the_kind_follows_from_what_is_declared(arguments: dict[str, Any], kind: str) -> None:
    """It cannot be written down."""
    assert kind == Processor(fn, **arguments).kind


def test_dependencies_are_direct_or_transitive() -> None:
    """A processor is not its own dependency, except on a cycle. A source comes before those that read it."""
    diamond, crawler = DIAMOND.topology, CRAWLER.topology

    assert {"left", "right"} == diamond.dependencies("last")
    assert {"left", "right", "fork", "in"} == diamond.transitive_dependencies("last")
    assert frozenset() == diamond.transitive_dependencies("alone")
    assert {"fetch", "parse", "urls"} == crawler.transitive_dependencies("fetch")
    assert {"in", "alone"} == diamond.in_nodes
    assert {"last", "alone"} == diamond.out_nodes
    with pytest.raises(GraphError, match="did you mean 'left'"):
        diamond.transitive_dependencies("lefft")


def test_cycles_are_allowed_and_found() -> None:
    """A processor may feed itself, or several each other."""
    looped = Graph("g", p("self", "a", "a"), p("after", "a", "b"))

    assert (CRAWLER.topology.cycles, DIAMOND.topology.cycles) == ((("fetch", "parse"),), ())
    assert looped.topology.cycles == (("self",),)


def test_errors_tables_and_tailers_are_dependencies_too() -> None:
    """A reader of an errors topic depends on the processors that write to it; so do those of DataFrames, and feeds."""
    graph = Graph(
        "g",
        p("work", "a", "b"),
        p("look", "errors", errors=False),
        p("tail", "c", tailers={"t": "b"}),
        p("table", {"c": "c", "b": Table("b")}),
        DataFrameProcessor(fn, inputs="a", outputs="frames", name="frame"),
        Feed(Iterate(lambda _: []), into="c", name="feed"),
        errors="errors",
    )

    needs = graph.topology
    assert {"work", "tail", "table", "frame", "feed"} == needs.dependencies("look")
    assert {"work", "feed"} == needs.dependencies("tail") == needs.dependencies("table")


def test_source_keeps_apart_from_a_processor_of_the_same_name() -> None:
    """Both are nodes."""
    graph = Graph("g", Source("orders"), p("orders", "orders", "checked"))

    assert graph.topology == Topology.of(["source orders", "orders"])


def test_renamed_graphs_are_isomorphic() -> None:
    """Names of processors and topics may differ, the order of declaration too."""
    renamed = Graph(
        "other",
        p("x", "9"),
        p("r", "2", "4"),
        p("l", "1", "3"),
        p("f", "0", {"l": "1", "r": "2"}),
        p("z", {"a": "3", "b": "4"}, "5"),
        Source("0"),
    )

    assert DIAMOND.isomorphic(renamed)
    assert renamed.isomorphic(DIAMOND)


@pytest.mark.parametrize(
    "other",
    [
        Graph("g", p("fetch", "urls", "pages"), p("parse", "pages", {"u": "urls", "d": "docs"})),
        Graph("g", Source("urls"), p("fetch", "urls", "pages"), p("parse", "pages", {"u": "docs", "d": "urls"})),
        Graph("g", Source("urls"), p("fetch", "urls", "pages"), p("parse", "pages", {"u": "more", "d": "docs"})),
        Graph("g", Source("urls"), p("fetch", "urls", "pages")),
    ],
    ids=["no source", "bindings swapped", "no cycle", "a part less"],
)
def test_graphs_of_another_shape_are_not_isomorphic(other: Graph) -> None:
    """Sources, bindings and wiring count."""
    assert not CRAWLER.isomorphic(other)


def test_shapes_that_look_alike_from_every_node_are_told_apart() -> None:
    """Two rings of three and one of six: only a search tells them apart."""

    def ring(prefix: str, size: int) -> list[Processor]:
        return [p(f"{prefix}{i}", f"{prefix}{i}", f"{prefix}{(i + 1) % size}") for i in range(size)]

    assert not Graph("g", *ring("a", 3), *ring("b", 3)).isomorphic(Graph("g", *ring("a", 6)))
    assert Graph("g", *ring("a", 3), *ring("b", 3)).isomorphic(Graph("g", *ring("c", 3), *ring("d", 3)))


def test_settings_of_a_topic_stand_over_the_defaults() -> None:
    """Key by key; bytes take no key from defaults that are meant for records."""
    graph = Graph(
        "g",
        p("one", "a", "b"),
        p("two", "c"),
        defaults=Topic(key="id", partitions=4, config={"retention.ms": "1", "x": "1"}),
        topics={"b": Topic(partitions=8, config={"x": "2"}), "c": Topic(Raw())},
    )

    assert (Json(), "id", 4) == (graph.topic("a").value, graph.topic("a").key, graph.topic("a").partitions)
    assert (
        graph.topic("b").key,
        graph.topic("b").partitions,
        dict(graph.topic("b").config),
    ) == ("id", 8, {"retention.ms": "1", "x": "2"})
    assert (Raw(), None, 4) == (graph.topic("c").value, graph.topic("c").key, graph.topic("c").partitions)


def test_errors_and_strategy_come_from_the_graph_unless_the_processor_says_so() -> None:
    """False means no errors topic at all."""
    graph = Graph(
        "g",
        p("usual", "a"),
        p("own", "a", errors="mine", strategy="at-least-once"),
        p("none", "a", errors=False),
        errors="errors",
    )

    assert [graph.errors_of(name) for name in graph.processors] == ["errors", "mine", None]
    assert [graph.strategy_of(name) for name in ("usual", "own")] == ["exactly-once", "at-least-once"]
    assert graph.error_topics() == ("errors", "mine")


def test_the_default_source_is_the_marked_one_or_the_only_one() -> None:
    """With several sources and no mark there is no default."""
    marked = Source("b", default=True)

    assert Source("in") == DIAMOND.default_source
    assert marked == Graph("g", Source("a"), marked).default_source
    assert None is Graph("g", Source("a"), Source("b")).default_source


def test_a_processor_without_outputs_has_effects() -> None:
    """A processor without outputs has effects; others declare them."""
    assert (
        p("a", "a").has_effects,
        p("a", "a", "b").has_effects,
        p("a", "a", "b", effects=True).has_effects,
        p("a", "a", appenders={"b": "b"}).has_effects,
    ) == (True, False, True, False)


def test_all_topics_are_known_by_use() -> None:
    """What the user named, what the graph writes, and what is the framework's own."""
    frame = DataFrameProcessor(fn, inputs={"a": "in", "b": "table"}, outputs="frames", name="frame")
    graph = Graph("g", Source("in"), p("one", "in", "out", tailers={"t": "old"}), frame, errors="errors")

    assert graph.topics_used() == ("errors", "frames", "in", "old", "out", "table")
    assert graph.topics_written() == ("errors", "frames", "in", "out")
    assert graph.internal_topics() == ("g.one.backing", "g.one.replay", "g.frame.backing", "g.frame.replay")


def test_importing_the_package_loads_no_driver() -> None:
    """Plans and tools need neither a client nor a codec library nor Spark."""
    code = (
        "import sys, cues_kafka, cues_kafka.plan.plan\n"
        "print([m for m in ('confluent_kafka', 'fastavro', 'pyspark', 'pandas') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    """An unknown name is refused with a message."""
    assert all(hasattr(cues_kafka, name) for name in cues_kafka.__all__ if name not in {"start", "connect"})
    assert set(cues_kafka.__all__) <= set(dir(cues_kafka))
    assert not [name for name in dir(cues_kafka) if name not in cues_kafka.__all__ and not name.startswith("__")]
    misspelt = "Grahp"
    with pytest.raises(AttributeError, match="no attribute 'Grahp'"):
        getattr(cues_kafka, misspelt)
