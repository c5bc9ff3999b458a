"""Checks of a whole graph: which processor reads and writes which topic, and the settings of its topics."""

from __future__ import annotations

from collections.abc import Iterable

from cues_kafka.errors import GraphError
from cues_kafka.graph.annotations import check_annotations
from cues_kafka.graph.blobs import Blobs
from cues_kafka.graph.columnar import check_columnar
from cues_kafka.graph.error_message import ErrorMessages
from cues_kafka.graph.graph_parts import GraphParts
from cues_kafka.graph.keys import check_keys
from cues_kafka.graph.names import MAX_TOPIC_CHARS, check_topic, control_topic, hint, quoted, status_topic
from cues_kafka.graph.ready import check_by
from cues_kafka.graph.sink import check_columns
from cues_kafka.graph.value_annotations import check_values


def check_wiring(graph: GraphParts) -> None:
    """
    Check what processors read and write against each other.

    Raises:
        GraphError: outputs on an errors topic, a processor that reads its own errors, or the framework's own topics;
            a processor of DataFrames that reads a topic with `meta=`; a log of files with the name of their marker.
    """
    label = f"Graph {graph.name!r}"
    error_topics = graph.error_topics()
    internal = set(graph.internal_topics())
    for source in graph.sources:
        if source in error_topics:
            raise GraphError(f"{label}: Source({source!r}) is an errors topic as well. Give one of them another topic.")
    shared = {control_topic(graph.name), status_topic(graph.name)}.intersection(graph.topics_used())
    if owned := sorted(shared | internal.intersection(graph.topics_written())):
        raise GraphError(f"{label}: only the framework writes {quoted(owned)}. Choose other topics.")
    _check_trails(graph, label)
    for p in graph.all_processors.values():
        for topic in p.output_topics:
            if topic in error_topics:
                raise GraphError(
                    f"{label}: processor {p.name!r} writes its outputs to {topic!r}, an errors topic, but error "
                    "messages have their own schema. Give outputs or errors another topic."
                )
        for topic in p.read_topics:
            if topic in internal:
                raise GraphError(
                    f"{label}: processor {p.name!r} reads {topic!r}, which is the framework's own. Read another topic."
                )
    _check_frames(graph, label)
    _check_logs(graph, label)
    for processor in graph.processors.values():
        check_annotations(processor)
        check_values(processor, graph.topic)
        check_columnar(processor, graph.topic, graph.strategy_of(processor))
        check_keys(processor, graph.topic)
        check_by(processor, graph.topic(processor.lead))
        check_columns(processor, graph.topic(processor.lead))
        errors = graph.errors_of(processor)
        if errors in processor.read_topics:
            raise GraphError(
                f"{label}: processor {processor.name!r} reads {errors!r}, its own errors topic: one failure would "
                "come back endlessly. Give it errors=False, or an errors topic of its own."
            )


def _check_trails(graph: GraphParts, label: str) -> None:
    """A trail has records of its own form alone, and the framework sets its codec."""
    others = {*graph.sources, *(topic for p in graph.all_processors.values() for _, topic in p.outputs)}
    others |= {topic for p in graph.processors.values() for topic in p.appenders.values()}
    if written := sorted(others & {*graph.trails()}):
        raise GraphError(
            f"{label}: {quoted(written)} is a trail=, and messages of another form are written there. Give the trail a "
            "topic of its own."
        )
    for p in graph.processors.values():
        if p.trail is not None and (strategy := graph.strategy_of(p)) != "exactly-once":
            raise GraphError(
                f"{label}: processor {p.name!r} has trail= with strategy={strategy!r}: its records would not be "
                "committed with their steps. Drop trail=, or give the processor strategy='exactly-once'."
            )
    for name in graph.trails():
        given = graph.topics[name].given if name in graph.topics else {}
        if given.keys() & {"value", "key", "key_codec"}:
            raise GraphError(
                f"{label}: {name!r} is a trail=; the framework sets its codec. Drop value=, key= and key_codec=."
            )


def _check_frames(graph: GraphParts, label: str) -> None:
    """Refuse processors of DataFrames whose inputs ask for metadata, which their rows do not pass on."""
    for frame in graph.dataframes.values():
        if marked := [topic for topic in frame.input_topics if graph.topic(topic).meta]:
            raise GraphError(
                f"{label}: {frame.label} reads {quoted(marked)} with meta=, and rows of DataFrames pass no metadata "
                f"on. Write topics={{{marked[0]!r}: Topic(meta=())}}: the column _cues has topic, partition and "
                "offset. Or write a Processor."
            )


def _check_logs(graph: GraphParts, label: str) -> None:
    """The log of a processor is a directory of its store, named `<graph>.<processor>`; beside it is `store.json`."""
    for name, targets in graph.targets.items():
        if f"{graph.name}.{name}" == "store.json" and any(isinstance(one.home, Blobs) for one in targets.values()):
            raise GraphError(
                f"{label}: processor {name!r} writes files, and its log of commits would have the name of the marker "
                "of the store, _cues/store.json. Give the processor or the graph another name."
            )


def check_topics(graph: GraphParts) -> None:
    """
    Check the settings and names of all topics.

    Raises:
        GraphError: settings that are not used or contradict each other, a name that Kafka refuses.
    """
    label = f"Graph {graph.name!r}"
    used = graph.topics_used()
    for name, settings in graph.topics.items():
        check_topic(name, f"{label}, topics=")
        if name not in used:
            raise GraphError(
                f"{label}: topics= has settings for {name!r}, which no part uses{hint(name, used)}. "
                f"Topics: {quoted(used)}."
            )
        if name in graph.error_topics() and not (
            isinstance(settings.given.get("value", ErrorMessages()), ErrorMessages) and settings.key is None
        ):
            raise GraphError(
                f"{label}: {name!r} is an errors topic; the framework sets its codec and key. Drop value= and key=."
            )
        _check_over_defaults(label, name, graph)
    for name in graph.internal_topics():
        if len(name) > MAX_TOPIC_CHARS:
            raise GraphError(
                f"{label}: the topic {name!r} would have {len(name)} characters, Kafka allows {MAX_TOPIC_CHARS}. "
                "Shorten the names of graph, processor or store."
            )
    _check_collisions(label, (*used, *graph.internal_topics()))


def _check_over_defaults(label: str, name: str, graph: GraphParts) -> None:
    """Check settings merged over the graph's defaults: a default key may be missing in this topic's class."""
    try:
        graph.topic(name)
    except GraphError as error:
        raise GraphError(
            f"{label}: the settings of {name!r}, over the graph's defaults: {error} Or give {name!r} its own key=: "
            "another field, or None, and then each message has the key that it is sent with."
        ) from error


def _check_collisions(label: str, topics: Iterable[str]) -> None:
    """Kafka refuses two topics whose names differ only in ``.`` and ``_``, because their metrics would collide."""
    seen: dict[str, str] = {}
    for topic in topics:
        metric = topic.replace(".", "_")
        if seen.setdefault(metric, topic) != topic:
            raise GraphError(
                f"{label}: topics {seen[metric]!r} and {topic!r} differ in '.' and '_' only, which Kafka refuses. "
                "Rename one of them."
            )
