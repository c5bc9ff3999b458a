"""The bindings of a graph, what they make dependent on what, and whether two graphs have the same shape.

A processor depends on the processors that write what it reads. It reads inputs and tailers; it writes outputs,
appenders, its trail and its errors topic. A graph may be in several pieces, and may have cycles.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from cues_kafka.errors import GraphError
from cues_kafka.graph.alike import Colouring, same_shape
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.dependencies import Topology
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.graph_parts import GraphParts
from cues_kafka.graph.names import quoted
from cues_kafka.graph.processor import Processor


class Edge(NamedTuple):
    """
    One binding of one processor.

    Attributes:
        processor: the processor's name.
        role: input, table, tailer, output, appender, trail or errors.
        binding: the binding; empty for a trail and for errors.
        topic: the topic.
    """

    processor: str
    role: str
    binding: str
    topic: str

    @property
    def reads(self) -> bool:
        """Whether messages go from the topic to the processor."""
        return self.role in {"input", "table", "tailer"}


def edges(graph: GraphParts) -> tuple[Edge, ...]:
    """All bindings of all processors, in the order of declaration."""
    return tuple(edge for part in graph.all_processors.values() for edge in _edges_of(graph, part))


def _edges_of(graph: GraphParts, part: Processor | DataFrameProcessor | Feed) -> Iterator[Edge]:
    roles: list[tuple[str, Iterable[tuple[str, str]]]] = [("input", part.inputs), ("output", part.outputs)]
    errors = graph.errors_of(part)
    if isinstance(part, Processor):
        roles += [("table", [(name, table.topic) for name, table in part.tables.items()])]
        roles += [("tailer", part.tailers.items()), ("appender", part.appenders.items())]
        roles += [("trail", [("", part.trail)] if part.trail else [])]
        roles += [("errors", [("", errors)] if errors else [])]
    elif errors:
        roles += [("errors", [("", errors)])]
    for role, pairs in roles:
        for binding, topic in pairs:
            yield Edge(part.name, role, binding, topic)


def topology_of(graph: GraphParts) -> Topology:
    """
    The sources, feeds and processors of a graph, each before those that read what it writes.

    A source is called as its topic. If a processor has this name, too, the source is called ``source <topic>``.
    """
    writers: dict[str, list[str]] = {topic: [_node_of(graph, topic)] for topic in graph.sources}
    for edge in edges(graph):
        if not edge.reads:
            writers.setdefault(edge.topic, []).append(edge.processor)
    pairs = [(writer, edge.processor) for edge in edges(graph) if edge.reads for writer in writers.get(edge.topic, ())]
    sources = (_node_of(graph, topic) for topic in graph.sources)
    return Topology((*sources, *graph.all_processors), tuple(pairs))


def _node_of(graph: GraphParts, source: str) -> str:
    return f"source {source}" if source in graph.all_processors else source


# --- Cuts


def feeders(graph: GraphParts) -> dict[str, frozenset[str]]:
    """For each topic that the graph writes, the processors that write it: outputs, appended messages or errors."""
    found: dict[str, set[str]] = {}
    for edge in edges(graph):
        if not edge.reads:
            found.setdefault(edge.topic, set()).add(edge.processor)
    return {topic: frozenset(names) for topic, names in found.items()}


def check_cuts(graph: GraphParts) -> None:
    """
    Check that a graph with `cuts=` can come to rest while nothing is taken from its sources (X4).

    Raises:
        GraphError: it has processors of DataFrames or a cycle, or a topic that others write to, too.
    """
    label = f"Graph {graph.name!r}, cuts="
    if graph.dataframes:
        raise GraphError(
            f"{label}: {quoted(graph.dataframes)} work on DataFrames, and Spark keeps their place and their state. Put "
            "them into a graph of their own, without cuts=."
        )
    if graph.feeds:
        raise GraphError(
            f"{label}: {quoted(graph.feeds)} read sources outside of Kafka, which a reset to a cut cannot take back. "
            "Put them into a graph of their own, without cuts=."
        )
    writers = feeders(graph)
    feeding = [
        (feeder, name)
        for name, one in graph.processors.items()
        for topic in one.input_topics
        for feeder in writers.get(topic, ())
    ]
    if around := [name for group in Topology(tuple(graph.processors), tuple(feeding)).cycles for name in group]:
        raise GraphError(
            f"{label}: {quoted(around)} feed each other in a cycle, which never comes to rest. Leave cuts= out."
        )
    for name, one in graph.processors.items():
        if mixed := [topic for topic in one.input_topics if topic in writers and topic in graph.sources]:
            raise GraphError(
                f"{label}: {name!r} reads {quoted(mixed)}, which is a Source and an output as well. After a reset, "
                "messages of applications could not be told from those that the graph writes again. Give the outputs "
                "a topic of their own, and read both with alts=."
            )


# --- Shape


def isomorphic(one: GraphParts, other: GraphParts) -> bool:
    """
    Whether two graphs are the same up to the names of processors and topics.

    Kinds, bindings, sources and wiring count; functions and settings do not.
    """
    return same_shape(_colouring(one), _colouring(other))


def _colouring(graph: GraphParts) -> Colouring:
    colours: dict[Hashable, object] = {("topic", name): name in graph.sources for name in graph.topics_used()}
    colours |= {("processor", name): part.kind for name, part in graph.all_processors.items()}
    arrows: dict[Hashable, list[tuple[str, Hashable]]] = {node: [] for node in colours}
    for edge in edges(graph):
        processor, topic = ("processor", edge.processor), ("topic", edge.topic)
        arrows[processor].append((f"{edge.role} {edge.binding}", topic))
        arrows[topic].append((f"{edge.role} {edge.binding}", processor))
    return Colouring(colours, arrows)
