"""Say what a change of a processor touches: everything that its messages can reach, and whom to ask before.

    python examples/impact.py examples/flights/graph.py:graph clean

It asks no cluster, so it can comment on a change before it is merged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from cues_kafka import Graph
from cues_kafka.cli.loading import load_graph


def impact(graph: Graph, name: str) -> Iterator[str]:
    """A line for each processor behind this one, in the order of the messages, with the topics that it writes."""
    shape = graph.topology
    touched = shape.transitive_dependents(name) | {name}
    around = [cycle for cycle in shape.cycles if name in cycle]
    reached = shape.remove(*(node for node in shape.nodes if node not in touched))
    nodes = reached.nodes if reached.cycles else reached.order
    for node in nodes:
        writes = graph.all_processors[node].output_topics if node in graph.all_processors else (node,)
        mark = "changed" if node == name else "reached"
        yield f"{mark}: {node} -> {', '.join(writes) or 'outside of Kafka'}"
    for cycle in around:
        yield f"careful: {', '.join(cycle)} feed each other"
    untouched = [piece for piece in shape.components if not touched & set(piece.nodes)]
    yield f"not connected: {sum(len(piece.nodes) for piece in untouched)} of {len(shape.nodes)} parts"


if __name__ == "__main__":
    target, processor = sys.argv[1:]
    print("\n".join(impact(load_graph(target), processor)))
