"""What a reader of a plan should know, though nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cues_kafka.graph.definition import Graph
from cues_kafka.graph.ready import by_of, first, keyed


def notes_of(graph: Graph, sizes: Mapping[str, int | None]) -> Iterator[str]:
    """
    Notes, each of them in full sentences.

    Args:
        graph: the graph.
        sizes: how many partitions each topic has; None: not known.
    """
    for processor in graph.processors.values():
        by, topic = by_of(processor), processor.lead
        if processor.fn is not first or not isinstance(by, str) or sizes[topic] == 1:
            continue
        if (key := _key_of(graph, topic)) == by:
            continue
        told = "has no declared key" if key is None else f"has the key {key!r}"
        line = f'rekey("by-{by}", inputs="{topic}", outputs="{topic}.by-{by}", by="{by}")'
        declare = f" If {by!r} is its key, declare Topic(key={by!r})." if key is None else ""
        yield (
            f"{processor.name} drops repeated messages by {by!r}, but {topic!r} {told}: messages with one {by!r} may "
            f"be in several partitions, and each task knows those of its own only. Put {line} in front.{declare}"
        )


def _key_of(graph: Graph, topic: str) -> str | None:
    """The field whose value is the key of a topic's messages; None: the graph does not tell."""
    seen: set[str] = set()
    while topic not in seen:
        seen.add(topic)
        writers = [one for one in graph.all_processors.values() if topic in one.output_topics]
        fields = [by_of(one) if one.fn is keyed else None for one in writers]
        if fields and isinstance(fields[0], str) and all(field == fields[0] for field in fields):
            return fields[0]
        if (declared := graph.topic(topic).key) is not None:
            return declared
        if len(writers) == 1 and writers[0].fn is first:  # it keeps the key of its input
            topic = writers[0].inputs[0][1]
    return None
