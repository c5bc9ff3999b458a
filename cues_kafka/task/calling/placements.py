"""What looks whether the messages of a task are in the partitions of their keys, where its processor counts on that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cues_kafka.brokers.placement import Misplaced, Placement
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.placed import keyed_topics
from cues_kafka.graph.processor import Processor
from cues_kafka.ports.facts import ClusterFacts


class Placements:
    """What a task has seen of the keys of its inputs, by the index of the binding."""

    def __init__(self, inputs: Sequence[Placement], pairing: str) -> None:
        self._inputs, self._alts = tuple(inputs), pairing == "alts"

    def first(self, steps: Sequence[Any]) -> tuple[int, Misplaced] | None:
        """The first of these steps whose message is in a wrong partition, as far as it is looked at."""
        if not self._alts:
            at = self._inputs[0].look(steps)
            return None if at is None else (at, _found(self._inputs[0]))
        wrong = []
        for binding, placement in enumerate(self._inputs):
            rows = [(index, message) for index, (of, message) in enumerate(steps) if of == binding]
            if (at := placement.look([message for _, message in rows])) is not None:
                wrong.append((rows[at][0], _found(placement)))
        return min(wrong, default=None)


def _found(placement: Placement) -> Misplaced:
    assert placement.found is not None
    return placement.found


def placements_of(
    graph: Graph, processor: Processor, facts: ClusterFacts, partition: int, known_ms: int
) -> Placements | None:
    """
    What looks at the inputs of one task; None: nothing of the processor counts on keys.

    Args:
        graph: what runs.
        processor: whose task it is.
        facts: of its topics.
        partition: of the task.
        known_ms: see `Placement`.
    """
    keyed = keyed_topics(processor)
    if not keyed:
        return None
    inputs = [
        placement_of(graph, processor, topic, facts, partition, known_ms=known_ms) for _, topic in processor.inputs
    ]
    return Placements(inputs, processor.input_shape)


def placement_of(
    graph: Graph, processor: Processor, topic: str, facts: ClusterFacts, partition: int, *, known_ms: int | None = None
) -> Placement:
    """What looks at one partition of a topic of `keyed_topics`."""
    width, why = facts.topics[topic].partitions, keyed_topics(processor)[topic]
    table = topic not in processor.input_topics
    return Placement(topic, partition, width, graph.topic(topic).partitioner, why, table=table, known_ms=known_ms)
