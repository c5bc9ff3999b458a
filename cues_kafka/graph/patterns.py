"""Sources that read all topics whose names match a pattern.

A graph with such a source is a template. `resolve` makes the graph of the topics that are there: each processor that
reads the source becomes one processor for each topic, its *copy*, with a place, a group and state of its own. So a
topic that appears later adds tasks, and changes nothing about those of the others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from cues_kafka.errors import GraphError
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.graph_parts import GraphParts
from cues_kafka.graph.merging import Arguments, rebound_place
from cues_kafka.graph.names import MAX_NAME_CHARS, check_written_topic, control_topic, quoted, status_topic
from cues_kafka.graph.processor import Declaration, Processor, Source
from cues_kafka.words import count

DIGEST_BYTES: Final = 4
"""The size of the digest in the name of a copy that would be too long."""


class Copy(NamedTuple):
    """
    A processor for one topic of a pattern.

    Attributes:
        template: the processor as it was declared.
        topic: the topic that it reads.
    """

    template: str
    topic: str


def copy_name(processor: str, topic: str) -> str:
    """
    The name of the copy of a processor for a topic: `check_sensors_berlin` for the topic `sensors.berlin`.

    Kafka refuses two topics that differ in dots and underscores only, so two topics have two names.
    """
    name = f"{processor}_{topic.replace('.', '_')}"
    if len(name) <= MAX_NAME_CHARS:
        return name
    mark = _mark(topic)
    return f"{name[: MAX_NAME_CHARS - len(mark) - 1]}_{mark}"


def copies(graph: GraphParts, topics: Collection[str]) -> dict[str, Copy]:
    """The copies that `resolve` makes for these topics, by name."""
    matched = _matched(graph, topics)
    return {
        copy_name(one.name, topic): Copy(one.name, topic)
        for one in graph.processors.values()
        for topic in matched.get(one.lead, ())
    }


def expanded(graph: GraphParts, topics: Collection[str], names: Collection[str]) -> list[str]:
    """Names of processors, with all its copies in the place of a template."""
    of_templates: dict[str, list[str]] = {}
    for name, one in copies(graph, topics).items():
        of_templates.setdefault(one.template, []).append(name)
    templates = {one.name for one in graph.processors.values() if one.lead in graph.patterns}
    return [made for name in names for made in (of_templates.get(name, []) if name in templates else [name])]


def resolved(graph: GraphParts, topics: Collection[str]) -> Arguments:
    """
    What `Graph.resolve` makes a graph of.

    Raises:
        GraphError: nothing matches and nothing else is in the graph, or a pattern matches a topic that it writes.
    """
    matched = _matched(graph, topics)
    written = {*graph.topics_written()} - {*graph.sources}
    for name, found in matched.items():
        if looped := sorted(written.intersection(found)):
            raise GraphError(
                f"Graph {graph.name!r}: the pattern of Source({name!r}) matches {quoted(looped)}, which the graph "
                "writes: it would read its own outputs. Narrow the pattern, or write to topics that it does not match."
            )
    parts = [made for part in graph.parts for made in _made_of(part, graph.patterns, matched)]
    declared = {one.topic for one in parts if isinstance(one, Source)}
    for name, found in matched.items():
        new = [topic for topic in found if topic not in declared]
        declared.update(new)
        parts[:0] = [Source(topic, level=graph.patterns[name].level) for topic in new]
    if not parts:
        patterns = ", ".join(repr(one.pattern) for one in graph.patterns.values())
        raise GraphError(
            f"Graph {graph.name!r}: no topic matches {patterns}, and the graph has nothing else to do. Create the "
            "first topic, or correct the pattern: it must match a whole name."
        )
    return parts, {**graph.settings(), "topics": _settings(graph, matched)}


def check_patterns(graph: GraphParts) -> None:
    """
    Check who reads and writes the sources with a pattern.

    Raises:
        GraphError: what reads one cannot be copied for each topic, or something writes to it.
    """
    label = f"Graph {graph.name!r}"
    if graph.patterns and graph.cuts is not None:
        raise GraphError(
            f"{label}: cuts= with a pattern: a cut holds the place of each task, and a topic that appears later has "
            "none. Leave cuts= out, or name the topics, each as a Source(...)."
        )
    for part in graph.all_processors.values():
        if taken := sorted(set(part.output_topics) & set(graph.patterns)):
            raise GraphError(
                f"{label}: {part.label} writes to {quoted(taken)}, which stands for the topics of a pattern. Name a "
                "topic."
            )
        why = _cannot_copy(part, graph.patterns)
        if why:
            read = sorted(set(part.read_topics) & set(graph.patterns))
            raise GraphError(f"{label}: {part.label} reads {quoted(read)}, a pattern: {why}")


def _cannot_copy(part: Processor | Any, patterns: Mapping[str, Source]) -> str:
    """Why a part that reads a pattern cannot have a copy for each topic; empty: it can, or reads none."""
    if isinstance(part, Feed) or set(part.read_topics).isdisjoint(patterns):
        return ""
    if not isinstance(part, Processor):
        return (
            "the place of a processor of DataFrames names its inputs, so a topic that appears later would stop it. "
            "Have a Processor bring the topics into one, and read that."
        )
    if part.input_shape != "single" or not set(part.read_topics[1:]).isdisjoint(patterns):
        return (
            "it has a task for each partition of each topic, so it can only be the one input of a processor. Read it "
            "alone, and join in a later processor."
        )
    if part.start == "latest":
        return (
            "with start='latest', what is written to a new topic before it is found would be lost. Leave start= out, "
            "or give a time: start=datetime(2026, 12, 1, tzinfo=UTC)."
        )
    if isinstance(part.start, Mapping):
        return "start= names offsets of one topic. Leave start= out, or give a time."
    return ""


def _matched(graph: GraphParts, topics: Collection[str]) -> dict[str, list[str]]:
    """For each source with a pattern its topics, sorted; those of the brokers and of the framework are left out."""
    own = {status_topic(graph.name), control_topic(graph.name)}
    there = sorted(topic for topic in topics if topic not in own and _may_be_read(topic))
    return {
        name: [topic for topic in there if re.fullmatch(source.pattern, topic)]
        for name, source in graph.patterns.items()
    }


def _may_be_read(topic: str) -> bool:
    try:
        return not check_written_topic(topic, "").startswith("__")
    except GraphError:
        return False


def _made_of(
    part: Declaration, patterns: Mapping[str, Source], matched: Mapping[str, Collection[str]]
) -> Iterator[Declaration]:
    """What comes in the place of a part: nothing for a pattern, and the copies of what reads it."""
    if isinstance(part, Source):
        if not part.pattern:
            yield part
    elif isinstance(part, Processor) and part.lead in patterns:
        for topic in matched[part.lead]:
            before = part.renamed_from
            yield part.replace(
                name=copy_name(part.name, topic),
                inputs=rebound_place(part.arguments()["inputs"], {part.lead: topic}),
                renamed_from=copy_name(before, topic) if before else None,
            )
    else:
        yield part


def _settings(graph: GraphParts, matched: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """The settings of single topics: those of a pattern are those of each of its topics without some of its own."""
    found = {name: one for name, one in graph.topics.items() if name not in graph.patterns}
    for name, topics in matched.items():
        if name in graph.topics:
            found = {**dict.fromkeys(topics, graph.topics[name]), **found}
    return found


def unresolved(graph: GraphParts) -> str:
    """Why a graph cannot be planned as it is; empty: it can."""
    if not graph.patterns:
        return ""
    return (
        f"graph {graph.name!r} reads {count(len(graph.patterns), 'pattern')} ({quoted(graph.patterns)}), and only the "
        "cluster knows the topics that match. Ask with the cluster, without --offline; or name topics: "
        "graph.resolve(['sensors.berlin'])"
    )


def new_copies(graph: GraphParts, topics: Collection[str], left: Collection[str]) -> list[str]:
    """
    The copies that are new because their topic is, or may be. The others may be those of a renamed template.

    Args:
        graph: the template.
        topics: of the cluster.
        left: processors that have a backing topic there and are not in the graph any more.
    """
    made = copies(graph, topics)
    templates = tuple(f"{one.template}_" for one in made.values())
    others = [name for name in left if not name.startswith(templates)]
    return [name for name, one in made.items() if not any(other.endswith(_ends(one.topic)) for other in others)]


def _ends(topic: str) -> tuple[str, str]:
    """How the names of copies for a topic end, the second one where they would be too long."""
    return copy_name("", topic)[:MAX_NAME_CHARS], f"_{_mark(topic)}"


def _mark(topic: str) -> str:
    return blake2b(topic.encode(), digest_size=DIGEST_BYTES).hexdigest()
