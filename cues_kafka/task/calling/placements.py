"""What looks whether the messages of a task are in the partitions of their keys, where its processor counts on that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cues_kafka.brokers.partitioners import place_of
from cues_kafka.brokers.placement import Misplaced, Placement
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.placed import keyed_topics
from cues_kafka.graph.processor import Processor
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.log import TopicPartition


class Placements:
    """What a task has seen of the keys of its inputs, by the index of the binding."""

    def __init__(self, inputs: Sequence[Placement], pairing: str) -> None:
        self._inputs, self._alts = tuple(inputs), pairing == "alts"

    def began(self, born: int | None) -> None:
        """Say how many partitions there were when the processor began; see `Placement.began`."""
        for placement in self._inputs:
            placement.began(born)

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
    table = any(one.kind == "table" for one in processor.tables.values())
    return Placement(topic, partition, width, graph.topic(topic).partitioner, why, table=table, known_ms=known_ms)


def moved_key(graph: Graph, processor: Processor, tasks: int, place: TopicPartition, key: bytes | None) -> str:
    """
    Say why a message that failed must not be called again by the task that failed: its key is another task's by now.

    Where an input got more partitions, `rebuild` gives the entries of a key to the task that gets its next messages.
    The former task has none, so the call would begin a second entry, find nothing in a table, or replace a newer row.

    Args:
        graph: what runs.
        processor: whose task it is.
        tasks: how many tasks the processor has by now.
        place: where the message is.
        key: the message's; None: it has none, or it is not known.

    Returns:
        The reason, with the remedy; empty: the processor counts on no key, or the key is still this task's.
    """
    topic, partition = place
    why, rule = keyed_topics(processor).get(topic), place_of(graph.topic(topic).partitioner)
    if why is None or rule is None or not key or (home := rule(key, tasks)) == partition:
        return ""
    return (
        f"its key belongs to {processor.name}/{home} by now, because {topic!r} got more partitions, and {why} of "
        f"{processor.name}/{partition} has nothing of it. Drop the error message, and send the message again"
    )
