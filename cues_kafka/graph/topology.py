"""Which processor depends on which, in what order, where the cycles are, and whether two graphs have the same shape.

A processor depends on those that write what it reads: inputs and tailers on one side, outputs, appenders and errors
topics on the other. A graph may be in several pieces, and may have cycles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter
from typing import NamedTuple, TypeAlias

from cues_kafka.errors import GraphError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import hint, quoted
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
        return self.role in {"input", "tailer"}


def edges(graph: Graph) -> tuple[Edge, ...]:
    """All bindings of all processors, in the order of declaration."""
    everyone: Iterable[Processor | DataFrameProcessor] = (*graph.processors.values(), *graph.dataframes.values())
    return tuple(edge for part in everyone for edge in _edges_of(graph, part))


def _edges_of(graph: Graph, part: Processor | DataFrameProcessor) -> Iterator[Edge]:
    roles: list[tuple[str, Iterable[tuple[str, str]]]] = [("input", part.inputs), ("output", part.outputs)]
    if isinstance(part, Processor):
        errors = graph.errors_of(part)
        roles += [("tailer", part.tailers.items()), ("appender", part.appenders.items())]
        roles += [("errors", [("", errors)] if errors else [])]
    for role, pairs in roles:
        for binding, topic in pairs:
            yield Edge(part.name, role, binding, topic)


def dependencies(graph: Graph) -> dict[str, frozenset[str]]:
    """For each processor those that write what it reads; itself among them where it feeds itself."""
    writers: dict[str, set[str]] = {}
    for edge in edges(graph):
        if not edge.reads:
            writers.setdefault(edge.topic, set()).add(edge.processor)
    found: dict[str, set[str]] = {name: set() for name in (*graph.processors, *graph.dataframes)}
    for edge in edges(graph):
        if edge.reads:
            found[edge.processor] |= writers.get(edge.topic, set())
    return {name: frozenset(names) for name, names in found.items()}


def dependents(graph: Graph) -> dict[str, frozenset[str]]:
    """For each processor those that read what it writes."""
    needs = dependencies(graph)
    return {name: frozenset(other for other in needs if name in needs[other]) for name in needs}


def transitive_dependencies(graph: Graph, name: str) -> frozenset[str]:
    """
    All processors whose messages can reach this one; itself among them only on a cycle.

    Raises:
        GraphError: there is no such processor.
    """
    return _reachable(dependencies(graph), name)


def transitive_dependents(graph: Graph, name: str) -> frozenset[str]:
    """
    All processors that this one's messages can reach; itself among them only on a cycle.

    Raises:
        GraphError: there is no such processor.
    """
    return _reachable(dependents(graph), name)


def _reachable(steps: Mapping[str, frozenset[str]], start: str) -> frozenset[str]:
    if start not in steps:
        raise GraphError(f"There is no processor {start!r}{hint(start, steps)}. Processors: {quoted(steps)}.")
    seen: set[str] = set()
    waiting = list(steps[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += steps[name]
    return frozenset(seen)


def cycles(graph: Graph) -> tuple[tuple[str, ...], ...]:
    """The groups of processors that feed each other, or themselves, in the order of declaration."""
    needs = dependencies(graph)
    reach = {name: _reachable(needs, name) for name in needs}
    groups: list[tuple[str, ...]] = []
    for name in needs:
        if name in reach[name] and not any(name in group for group in groups):
            groups.append(tuple(other for other in needs if other in reach[name] and name in reach[other]))
    return tuple(groups)


def order(graph: Graph) -> tuple[str, ...]:
    """All processors, each after those that it depends on; the members of a cycle stand together."""
    needs = dependencies(graph)
    home = {name: group for group in cycles(graph) for name in group}
    groups = {home.get(name, (name,)): set[tuple[str, ...]]() for name in needs}
    for name, others in needs.items():
        own = home.get(name, (name,))
        groups[own] |= {home.get(other, (other,)) for other in others} - {own}
    return tuple(name for group in TopologicalSorter(groups).static_order() for name in group)


# --- Shape


class _Shape:
    """A graph as labelled nodes and labelled arrows, without the names that may differ."""

    def __init__(self, graph: Graph) -> None:
        self.colour: dict[Node, object] = {("topic", name): name in graph.sources for name in graph.topics_used()}
        self.arrows: dict[Node, list[tuple[str, Node]]] = {node: [] for node in self.colour}
        everyone: Iterable[Processor | DataFrameProcessor] = (*graph.processors.values(), *graph.dataframes.values())
        for part in everyone:
            self.colour["processor", part.name] = part.kind
            self.arrows["processor", part.name] = []
        for edge in edges(graph):
            processor, topic = ("processor", edge.processor), ("topic", edge.topic)
            self.arrows[processor].append((f"{edge.role} {edge.binding}", topic))
            self.arrows[topic].append((f"{edge.role} {edge.binding}", processor))

    def signature(self, node: Node) -> object:
        """A node's colour and what it sees along its arrows."""
        seen = Counter((label, self.colour[other]) for label, other in self.arrows[node])
        return self.colour[node], frozenset(seen.items())


def isomorphic(one: Graph, other: Graph) -> bool:
    """
    Whether two graphs are the same up to the names of processors and topics.

    Kinds, bindings, sources and wiring count; functions and settings do not.
    """
    left, right = _Shape(one), _Shape(other)
    if len(left.colour) != len(right.colour):
        return False
    for _ in left.colour:  # colours travel one arrow a round, so as many rounds as nodes are enough
        numbers: dict[object, int] = {}
        for shape in (left, right):
            signatures = {node: shape.signature(node) for node in shape.colour}
            shape.colour = {node: numbers.setdefault(mark, len(numbers)) for node, mark in signatures.items()}
        if Counter(left.colour.values()) != Counter(right.colour.values()):
            return False
    return _match(left, right, {}, sorted(left.colour))


def _match(left: _Shape, right: _Shape, pairs: dict[Node, Node], waiting: list[Node]) -> bool:
    if not waiting:
        return True
    node, *others = waiting
    taken = set(pairs.values())
    for candidate, colour in right.colour.items():
        if candidate in taken or colour != left.colour[node]:
            continue
        now = {**pairs, node: candidate}
        if _agree(left, right, now, node) and _match(left, right, now, others):
            return True
    return False


def _agree(left: _Shape, right: _Shape, pairs: dict[Node, Node], node: Node) -> bool:
    """Whether the arrows between this node and the nodes that are paired already are the same on both sides."""
    images = set(pairs.values())
    mine = Counter((label, pairs[other]) for label, other in left.arrows[node] if other in pairs)
    theirs = Counter((label, other) for label, other in right.arrows[pairs[node]] if other in images)
    return mine == theirs
