"""Where the topics and processors of a graph stand in its picture: columns from left to right, as messages go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cues_kafka.graph.definition import Graph
from cues_kafka.graph.topology import edges

NodeKind: TypeAlias = Literal["source", "topic", "processor", "feed", "group"]


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """
    A topic or processor in the picture.

    Attributes:
        id: `topic NAME` or `processor NAME`, as both may have one name; or `group WORD`.
        name: its name.
        kind: what it is; a group stands for several processors, see `folding`.
        column, row: where it stands, from 0.
    """

    id: str
    name: str
    kind: NodeKind
    column: int
    row: int


@dataclass(frozen=True, slots=True)
class PlacedArrow:
    """
    A binding of a processor.

    Attributes:
        start, end: ids of nodes, in the direction of messages.
        role: input, table, tailer, output, appender, trail or errors.
        processor, topic: what it binds.
        reads: whether messages go to the processor.
    """

    start: str
    end: str
    role: str
    processor: str
    topic: str
    reads: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """The picture of a graph."""

    graph: str
    nodes: tuple[PlacedNode, ...]
    arrows: tuple[PlacedArrow, ...]


def picture(graph: Graph) -> Picture:
    """Place a graph."""
    found = edges(graph)
    kinds: dict[str, tuple[str, NodeKind]] = {}
    for topic in dict.fromkeys([*graph.sources, *(edge.topic for edge in found)]):
        kinds[f"topic {topic}"] = topic, "source" if topic in graph.sources else "topic"
    for name in graph.all_processors:
        kinds[f"processor {name}"] = name, "feed" if name in graph.feeds else "processor"
    arrows = []
    for edge in found:
        topic, processor = f"topic {edge.topic}", f"processor {edge.processor}"
        start, end = (topic, processor) if edge.reads else (processor, topic)
        arrows.append(PlacedArrow(start, end, edge.role, edge.processor, edge.topic, edge.reads))
    places = placed(list(kinds), [(one.start, one.end) for one in arrows])
    nodes = (PlacedNode(node, *kinds[node], *places[node]) for node in kinds)
    return Picture(graph.name, tuple(nodes), tuple(arrows))


def placed(nodes: Sequence[str], arrows: Iterable[tuple[str, str]]) -> Mapping[str, tuple[int, int]]:
    """
    The column and the row of each node.

    A node stands to the right of all that lead to it, but for arrows that close a cycle. In a column, nodes are in the
    order of the mean row of what leads to them, so that few arrows cross.

    Args:
        nodes: in the order of declaration.
        arrows: from and to.
    """
    before: dict[str, list[str]] = {node: [] for node in nodes}
    after: dict[str, list[str]] = {node: [] for node in nodes}
    for start, end in dict.fromkeys(arrows):
        after[start].append(end)
    columns = dict.fromkeys(nodes, 0)
    for node in _in_order(nodes, after, before):
        columns[node] = max((columns[one] + 1 for one in before[node]), default=0)
    places: dict[str, tuple[int, int]] = {}
    for column in range(max(columns.values(), default=-1) + 1):
        members = [node for node in nodes if columns[node] == column]
        order = {node: number for number, node in enumerate(members)}
        members.sort(key=lambda node: (_mean([places[one][1] for one in before[node]], order[node]), order[node]))
        places |= {node: (column, row) for row, node in enumerate(members)}
    return places


def _in_order(nodes: Sequence[str], after: Mapping[str, list[str]], before: Mapping[str, list[str]]) -> list[str]:
    """Each node behind those that lead to it; fills `before`, without the arrows that close a cycle."""
    done: list[str] = []
    met: set[str] = set()
    for root in nodes:
        if root in met:
            continue
        met.add(root)
        path = [(root, iter(after[root]))]
        on_path = {root}
        while path:
            node, left = path[-1]
            following = next(left, None)
            if following is None:
                path.pop()
                on_path.discard(node)
                done.append(node)
                continue
            if following not in on_path:
                before[following].append(node)
            if following not in met:
                met.add(following)
                on_path.add(following)
                path.append((following, iter(after[following])))
    return done[::-1]


def _mean(rows: Sequence[int], otherwise: float) -> float:
    return sum(rows) / len(rows) if rows else otherwise
