"""What an observer of a whole run is told of its graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cues_kafka.brokers.options import Options
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.topic import fields_of
from cues_kafka.graph.topology import edges
from cues_kafka.ports.observer import PartFacts, RunFacts
from cues_kafka.words import summary


def run_facts(graph: Graph, names: Iterable[str], *, cluster: Options, runtime: str) -> RunFacts:
    """The facts of a run of some processors of a graph."""
    servers = str(getattr(cluster, "bootstrap", ""))
    fields = {topic: fields_of(graph.topic(topic).value)[1] for topic in graph.topics_used()}
    return RunFacts(
        graph.name,
        servers.split(",", maxsplit=1)[0].strip(),
        runtime,
        tuple(_parts(graph, set(names))),
        {topic: found for topic, found in fields.items() if found and topic not in graph.error_topics()},
    )


def _parts(graph: Graph, names: set[str]) -> Iterator[PartFacts]:
    for name, part in graph.all_processors.items():
        if name in names:
            own = [edge for edge in edges(graph) if edge.processor == name]
            reads = dict.fromkeys(edge.topic for edge in own if edge.reads)
            writes = dict.fromkeys(edge.topic for edge in own if not edge.reads)
            errors = next((edge.topic for edge in own if edge.role == "errors"), None)
            yield PartFacts(name, part.kind, summary(part.fn), tuple(reads), tuple(writes), errors)
