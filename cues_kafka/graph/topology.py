"""Dependencies between processors, their cycles, and whether two graphs have the same shape.

A processor depends on the processors that write what it reads. It reads inputs and tailers; it writes outputs,
appenders and its errors topic. A graph may be in several pieces, and may have cycles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from cues_kafka.errors import GraphError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.names import no_such_processor, quoted
from cues_kafka.graph.processor import DataFrameProcessor, Processor

Node: TypeAlias = tuple[str, str]
"""("processor" | "topic", name)."""


class Edge(NamedTuple):
    """
    One binding of one processor.

    Attributes:
        processor: the processor's name.
        role: input, tailer, output, appender or errors.
        binding: the binding; empty for errors.
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


def edges(graph: Graph) -> tuple[Edge, ...]:
    """All bindings of all processors, in the order of declaration."""
    return tuple(edge for part in graph.all_processors.values() for edge in _edges_of(graph, part))


def _edges_of(graph: Graph, part: Processor | DataFrameProcessor | Feed) -> Iterator[Edge]:
    roles: list[tuple[str, Iterable[tuple[str, str]]]] = [("input", part.inputs), ("output", part.outputs)]
    if isinstance(part, Processor):
        errors = graph.errors_of(part)
        roles += [("table", [(name, table.topic) for name, table in part.tables.items()])]
        roles += [("tailer", part.tailers.items()), ("appender", part.appenders.items())]
        roles += [("errors", [("", errors)] if errors else [])]
    if isinstance(part, Feed) and (errors := graph.errors_of(part)):
        roles += [("errors", [("", errors)])]
    for role, pairs in roles:
        for binding, topic in pairs:
            yield Edge(part.name, role, binding, topic)


def dependencies(graph: Graph) -> dict[str, frozenset[str]]:
    """For each processor, the processors that write what it reads; itself too if it feeds itself."""
    writers: dict[str, set[str]] = {}
    for edge in edges(graph):
        if not edge.reads:
            writers.setdefault(edge.topic, set()).add(edge.processor)
    found: dict[str, set[str]] = {name: set() for name in graph.all_processors}
    for edge in edges(graph):
        if edge.reads:
            found[edge.processor] |= writers.get(edge.topic, set())
    return {name: frozenset(names) for name, names in found.items()}


def transitive_dependencies(graph: Graph, name: str) -> frozenset[str]:
    """
    All processors whose messages can reach this one; itself too if it is on a cycle.

    Raises:
        GraphError: there is no such processor.
    """
    needs = dependencies(graph)
    if name not in needs:
        raise GraphError(no_such_processor(graph.name, [name], needs))
    return _reachable(needs, name)


def _reachable(steps: Mapping[str, frozenset[str]], start: str) -> frozenset[str]:
    seen: set[str] = set()
    waiting = list(steps[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += steps[name]
    return frozenset(seen)


def cycles(graph: Graph) -> tuple[tuple[str, ...], ...]:
    """The groups of processors that feed each other or themselves, in the order of declaration."""
    needs = dependencies(graph)
    reach = {name: _reachable(needs, name) for name in needs}
    groups: list[tuple[str, ...]] = []
    for name in needs:
        if name in reach[name] and not any(name in group for group in groups):
            groups.append(tuple(other for other in needs if other in reach[name] and name in reach[other]))
    return tuple(groups)


# --- Cuts


def feeders(graph: Graph) -> dict[str, frozenset[str]]:
    """For each topic that the graph writes, the processors that write it: outputs, appended messages or errors."""
    found: dict[str, set[str]] = {}
    for edge in edges(graph):
        if not edge.reads:
            found.setdefault(edge.topic, set()).add(edge.processor)
    return {topic: frozenset(names) for topic, names in found.items()}


def check_cuts(graph: Graph) -> None:
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
    needs = {
        name: frozenset(feeder for topic in one.input_topics for feeder in writers.get(topic, ()))
        for name, one in graph.processors.items()
    }
    if around := [name for name in needs if name in _reachable(needs, name)]:
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


class _Shape(NamedTuple):
    """
    A graph as coloured nodes and labelled arrows, without the names that may differ.

    Attributes:
        colours: what is known of each node so far; nodes of different colours are different.
        arrows: for each node its arrows' labels and other ends.
    """

    colours: dict[Node, object]
    arrows: dict[Node, list[tuple[str, Node]]]

    def signature(self, node: Node) -> object:
        """A node's colour, and the colours that it sees along its arrows."""
        seen = Counter((label, self.colours[other]) for label, other in self.arrows[node])
        return self.colours[node], frozenset(seen.items())

    def with_mark(self, node: Node) -> _Shape:
        """The same shape, one node with a colour of its own."""
        return self._replace(colours={**self.colours, node: "marked"})


def isomorphic(one: Graph, other: Graph) -> bool:
    """
    Whether two graphs are the same up to the names of processors and topics.

    Kinds, bindings, sources and wiring count; functions and settings do not.
    """
    return _same_shape(_shape(one), _shape(other))


def _shape(graph: Graph) -> _Shape:
    colours: dict[Node, object] = {("topic", name): name in graph.sources for name in graph.topics_used()}
    colours |= {("processor", name): part.kind for name, part in graph.all_processors.items()}
    arrows: dict[Node, list[tuple[str, Node]]] = {node: [] for node in colours}
    for edge in edges(graph):
        processor, topic = ("processor", edge.processor), ("topic", edge.topic)
        arrows[processor].append((f"{edge.role} {edge.binding}", topic))
        arrows[topic].append((f"{edge.role} {edge.binding}", processor))
    return _Shape(colours, arrows)


def _same_shape(left: _Shape, right: _Shape) -> bool:
    """Refine the colours until nothing changes; where nodes still look alike, try each of them."""
    for _ in left.colours:  # colours travel one arrow a round, so as many rounds as nodes are enough
        numbers: dict[object, int] = {}
        left, right = (
            shape._replace(colours={n: numbers.setdefault(shape.signature(n), len(numbers)) for n in shape.colours})
            for shape in (left, right)
        )
        if Counter(left.colours.values()) != Counter(right.colours.values()):
            return False
    alike = Counter(left.colours.values())
    node = next((node for node, colour in left.colours.items() if alike[colour] > 1), None)
    if node is None:
        return len(left.colours) == len(right.colours)
    twins = (twin for twin, colour in right.colours.items() if colour == left.colours[node])
    return any(_same_shape(left.with_mark(node), right.with_mark(twin)) for twin in twins)
