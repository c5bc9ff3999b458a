"""The path of a message through the graph, both ways, as `cues-kafka lineage` finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from cues_kafka.core.delivery import Provenance
from cues_kafka.errors import ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.operate.look.descendants import Effort, descendants
from cues_kafka.operate.look.lineage import lineage, parse_place
from cues_kafka.operate.look.lineage_lines import descent_tree, tree
from cues_kafka.operate.shown import key_text
from cues_kafka.ports.broker import Broker
from cues_kafka.ui.layout import placed
from cues_kafka.ui.turns import Turns

_Node = TypeVar("_Node")

MOST: Final = 100
"""Messages of each direction that are looked up."""

EFFORT: Final = Effort(MOST, 20_000, 10.0)
"""What it may cost to find those that a message became."""

BOUNDS: Final = f"{MOST} messages each way; forward also {EFFORT.looks:,} looked at, or {EFFORT.seconds:g} s"


@dataclass(frozen=True, slots=True)
class PathNode:
    """
    A message on the path.

    Attributes:
        id: its place, as the command takes it.
        topic: its topic; empty: it was deleted.
        key: as text; a hyphen: none, or the message is gone.
        state: see `Ancestor.state`; `present` for what became of a message.
        error: of an error message: class and text.
        column, row: where it stands, from 0.
    """

    id: str
    topic: str
    key: str
    state: str
    error: str
    column: int
    row: int


@dataclass(frozen=True, slots=True)
class PathArrow:
    """
    A step from a message that it consumed to one that it made.

    Attributes:
        start, end: ids of nodes.
        task: `graph.processor/partition`.
        sequence: of the batch.
    """

    start: str
    end: str
    task: str
    sequence: int


class LineageAnswers:
    """
    Answers about paths, one at a time.

    Args:
        graph: whose processors are followed.
        broker: where.
    """

    def __init__(self, graph: Graph, broker: Broker) -> None:
        self._graph, self._broker = graph, broker
        self._turns = Turns()

    def path(self, place: str) -> dict[str, Any]:
        """
        The path of a message: nodes and arrows, and the lines of the command.

        Raises:
            ConfigError: there is no such message.
            BrokerError: the cluster cannot be read.
            TooMany: others ask as well.
        """
        if not place:
            raise ConfigError("name a message, such as orders/3@17.")
        at, offset = parse_place(place)
        with self._turns:
            back = lineage(self._broker, at, offset, most=MOST, graph=self._graph)
            where, _ = parse_place(back.place)
            ahead = descendants(self._broker, self._graph, where, offset, EFFORT)
        nodes: dict[str, tuple[str, str, str, str]] = {}
        arrows: dict[tuple[str, str], PathArrow] = {}
        for one in _all(back, lambda node: [parent for _, parent in node.inputs]):
            nodes[one.place] = one.topic, key_text(one.key), one.state, one.error
            for _, parent in one.inputs:
                _join(arrows, parent.place, one.place, one.made)
        for output in _all(ahead.root, lambda node: node.outputs):
            nodes.setdefault(output.place, (output.topic, key_text(output.key), "present", output.error))
            for following in output.outputs:
                _join(arrows, output.place, following.place, following.made)
        places = placed(list(nodes), list(arrows))
        return {
            "root": back.place,
            "nodes": [PathNode(node, *nodes[node], *places[node]) for node in nodes],
            "arrows": list(arrows.values()),
            "back": list(tree(back)),
            "forward": list(descent_tree(ahead)),
            "ended": ahead.ended,
            "bounds": BOUNDS,
        }


def _join(arrows: dict[tuple[str, str], PathArrow], start: str, end: str, made: Provenance | None) -> None:
    if made is not None:
        arrows[start, end] = PathArrow(start, end, made.task, made.sequence)


def _all(root: _Node, next_of: Callable[[_Node], list[_Node]]) -> Iterator[_Node]:
    """Each node of a tree once, those near the root first."""
    met, due = {id(root)}, [root]
    while due:
        one = due.pop(0)
        yield one
        for following in next_of(one):
            if id(following) not in met:
                met.add(id(following))
                due.append(following)
