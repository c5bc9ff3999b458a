"""The graphs as they run without a database: the browser view shows no ledger that never starts."""

from __future__ import annotations

from cues_kafka import Graph
from examples.flights import graph as whole
from examples.flights.database import LEDGER


def _without(given: Graph) -> Graph:
    parts = [part for part in given.parts if getattr(part, "name", "") != LEDGER]
    kept = given.settings()
    outputs = given.processors[LEDGER].output_topics
    kept["topics"] = {name: topic for name, topic in given.topics.items() if name not in outputs}
    return Graph(given.name, *parts, **kept)


plain = _without(whole.plain)
graph = _without(whole.graph)
