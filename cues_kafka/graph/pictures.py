"""A graph as a picture: as a tree of texts, as Mermaid, and as DOT, the language of Graphviz; and the same as data.

All show processors, feeds, topics, and what functions act on outside of Kafka. Names on the cluster such as backing
topics are not drawn; `cues-kafka plan --topics` lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from cues_kafka.errors import GraphError
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.processor import Processor
from cues_kafka.graph.topology import Edge, edges

Look: TypeAlias = Literal["source", "topic", "processor", "feed", "outside"]

_MERMAID: dict[Look, str] = {
    "source": '[("{}")]:::source',
    "topic": '[("{}")]',
    "processor": '["{}"]',
    "feed": '[/"{}"/]',
    "outside": '{{{{"{}"}}}}',
}

_DOT: dict[Look, str] = {
    "source": "shape=cylinder, style=bold",
    "topic": "shape=cylinder",
    "processor": "shape=box",
    "feed": "shape=parallelogram",
    "outside": "shape=hexagon",
}


class Branch(NamedTuple):
    """A text in a tree, and what is below it."""

    text: str
    below: tuple[Branch, ...] = ()


class Drawn(NamedTuple):
    """A node of a picture: its name, what is written on it, and how it looks."""

    name: str
    text: str
    look: Look


class Arrow(NamedTuple):
    """An arrow of a picture between two nodes, by name. Arrows of errors are dashed."""

    start: str
    end: str
    text: str
    dashed: bool = False


def mermaid(graph: Graph) -> str:
    """The graph as a flowchart in Mermaid, which GitHub, GitLab and most documentation tools draw."""
    drawn = list(_nodes(graph))
    ids = {one.name: f"n{number}" for number, one in enumerate(drawn)}
    lines = ["flowchart LR"]
    lines += [f"    {ids[one.name]}{_MERMAID[one.look].format(one.text)}" for one in drawn]
    for arrow in _arrows(graph):
        line = "-.->" if arrow.dashed else "-->"
        text = f'|"{arrow.text}"|' if arrow.text else ""
        lines.append(f"    {ids[arrow.start]} {line}{text} {ids[arrow.end]}")
    if any(one.look == "source" for one in drawn):
        lines.append("    classDef source stroke-width:3px")
    return "\n".join(lines)


def dot(graph: Graph) -> str:
    """The graph in DOT, from which Graphviz makes SVG, PDF and others."""
    lines = [f'digraph "{graph.name}" {{', "    rankdir=LR", '    node [fontname="sans-serif"]']
    lines += ['    edge [fontname="sans-serif", fontsize=10]']
    lines += [f'    "{one.name}" [label="{one.text}", {_DOT[one.look]}]' for one in _nodes(graph)]
    for arrow in _arrows(graph):
        looks = [f'label="{arrow.text}"'] if arrow.text else []
        looks += ["style=dashed"] if arrow.dashed else []
        lines.append(f'    "{arrow.start}" -> "{arrow.end}"' + (f" [{', '.join(looks)}]" if looks else ""))
    return "\n".join([*lines, "}"])


def to_data(graph: Graph) -> dict[str, Any]:
    """What the pictures show as data for JSON, and what `graph.topology` says of it."""
    shape = graph.topology
    try:
        order: list[str] | None = list(shape.order)
    except GraphError:
        order = None
    return {
        "graph": graph.name,
        "topics": [
            {"name": topic, "source": topic in graph.sources, "errors": topic in graph.error_topics()}
            for topic in graph.topics_used()
        ],
        "processors": [
            {"name": name, "kind": part.kind, "acts_on": dict(_outside(graph, name))}
            for name, part in graph.all_processors.items()
        ],
        "edges": [edge._asdict() for edge in edges(graph)],
        "dependencies": {node: sorted(shape.dependencies(node)) for node in shape.nodes},
        "in_nodes": sorted(shape.in_nodes),
        "out_nodes": sorted(shape.out_nodes),
        "order": order,
        "cycles": [list(cycle) for cycle in shape.cycles],
        "components": [list(piece.nodes) for piece in shape.components],
    }


def _nodes(graph: Graph) -> Iterator[Drawn]:
    for topic in dict.fromkeys([*graph.sources, *(edge.topic for edge in edges(graph))]):
        yield Drawn(f"topic {topic}", topic, "source" if topic in graph.sources else "topic")
    met: dict[str, Drawn] = {}
    for name, part in graph.all_processors.items():
        yield Drawn(f"processor {name}", f"{name} ({part.kind})", "feed" if name in graph.feeds else "processor")
        for outside in _outside(graph, name):
            text = ": ".join(outside)
            met[text] = Drawn(f"outside {text}", text, "outside")
    yield from met.values()


def _arrows(graph: Graph) -> Iterator[Arrow]:
    for edge in edges(graph):
        topic, processor = f"topic {edge.topic}", f"processor {edge.processor}"
        ends = (topic, processor) if edge.reads else (processor, topic)
        yield Arrow(*ends, _role(graph, edge), edge.role == "errors")
    for name in graph.all_processors:
        for outside in _outside(graph, name):
            yield Arrow(f"processor {name}", f"outside {': '.join(outside)}", "")


def _role(graph: Graph, edge: Edge) -> str:
    """What is written on an arrow: the binding where there are several, and the role where it is no usual one."""
    if edge.role in ("input", "output"):
        part = graph.all_processors[edge.processor]
        pairs: tuple[tuple[str, str], ...] = part.inputs if edge.reads else part.outputs
        named = len(pairs) > 1 or (not edge.reads and getattr(part, "output_shape", "one") == "many")
        return edge.binding if named else ""
    return f"{edge.role} {edge.binding}".strip()


def _outside(graph: Graph, name: str) -> Iterator[tuple[str, str]]:
    """What a processor acts on besides Kafka: names and classes, as in ("db", "Sql")."""
    part = graph.all_processors[name]
    if isinstance(part, Processor | DataFrameProcessor):
        for target, effect in part.targets.items():
            yield target, type(effect).__name__


# --- The tree


def tree(graph: Graph) -> Branch:
    """
    The graph as a tree that follows the messages, from where they enter.

    What was shown before is shown once more without what is below it, and marked as `above`. What is more than
    `MOST_DEEP` processors deep is marked as `below`, and stands there.
    """
    return Branch(graph.name, tuple(_Growing(graph).roots()))


MOST_DEEP: Final = 20
"""How many processors in a row a tree shows below each other; the rest stands further down, from the left again."""


class _Growing:
    """
    One walk along the messages.

    `_shown` has the topics and processors that were met, `_later` the topics that were too deep to go on with.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._edges = edges(graph)
        self._shown: set[str] = set()
        self._later: list[str] = []

    def roots(self) -> Iterator[Branch]:
        """Where messages enter, the errors topics with their readers, what is deep, and what only a cycle leads to."""
        written = {edge.topic for edge in self._edges if not edge.reads}
        read = dict.fromkeys(edge.topic for edge in self._edges if edge.reads)
        for topic in dict.fromkeys([*self._graph.sources, *(topic for topic in read if topic not in written)]):
            yield self._topic(topic)
        for name in self._graph.feeds:
            yield self._processor(name, "")
        for topic in self._graph.error_topics():
            writers = [edge.processor for edge in self._edges if edge.role == "errors" and edge.topic == topic]
            of_all = len(writers) == len(self._graph.all_processors) > 1
            yield self._topic(topic, "errors of all processors" if of_all else f"errors of {', '.join(writers)}")
        yield from self._deep()
        for edge in self._edges:
            if edge.role == "input" and edge.processor not in self._shown:
                yield self._topic(edge.topic)
                yield from self._deep()

    def _deep(self) -> Iterator[Branch]:
        while self._later:
            if f"topic {self._later[0]}" not in self._shown:
                yield self._topic(self._later[0])
            del self._later[0]

    def _topic(self, name: str, about: str = "", depth: int = 0) -> Branch:
        about = about or ("source" if name in self._graph.sources else "")
        readers = self._readers(name)
        text = f"{name} ({about})" if about else name
        if f"topic {name}" in self._shown:
            return Branch(f"{text}, above" if readers else text)
        if depth >= MOST_DEEP and readers:
            self._later += [] if name in self._later else [name]
            return Branch(f"{text}, below")
        self._shown.add(f"topic {name}")
        return Branch(text, tuple(self._processor(edge.processor, edge.role, depth + 1) for edge in readers))

    def _processor(self, name: str, role: str, depth: int = 1) -> Branch:
        part = self._graph.all_processors[name]
        text = f"{name} ({part.kind})" + (f", as a {role}" if role in ("table", "tailer") else "")
        if name in self._shown:
            return Branch(f"{text}, above")
        self._shown.add(name)
        outputs = (self._output(edge, depth) for edge in self._edges if self._is_output(edge, name))
        return Branch(text, (*outputs, *(Branch(f"{one}: {cls}") for one, cls in _outside(self._graph, name))))

    def _output(self, edge: Edge, depth: int) -> Branch:
        role = _role(self._graph, edge)
        found = self._topic(edge.topic, depth=depth)
        return found._replace(text=f"{role}: {found.text}") if role else found

    def _readers(self, topic: str) -> list[Edge]:
        return [edge for edge in self._edges if edge.reads and edge.topic == topic]

    @staticmethod
    def _is_output(edge: Edge, name: str) -> bool:
        return edge.processor == name and not edge.reads and edge.role != "errors"
