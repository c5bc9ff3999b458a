"""Graphs from graphs: merged into one, and bound to other topics, options and names, so that they serve as catalogs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from cues_kafka.errors import GraphError
from cues_kafka.graph.error_message import Errors, errors_topic
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.graph_parts import GraphParts
from cues_kafka.graph.names import check_name, check_topic, hint, no_such_processor, quoted
from cues_kafka.graph.processor import Declaration, Processor, Source
from cues_kafka.graph.topic import Topic

Arguments: TypeAlias = tuple[Iterable[Declaration], dict[str, Any]]
"""What a graph is constructed of besides its name: its parts and its settings."""


def merged(graphs: Sequence[GraphParts], label: str, *, override: bool) -> Arguments:
    """
    What `Graph.merge` makes a graph of: the settings of the first graph, and all parts, which keep those of theirs.

    Raises:
        GraphError: see `Graph.merge`; `label` says which merge.
    """
    first = graphs[0]
    parts: dict[str, Declaration] = {}
    system: dict[str, Callable[[], Any]] = {}
    for graph in graphs:
        for part in graph.parts:
            key = f"Source({part.topic!r})" if isinstance(part, Source) else repr(part.name)
            fixed = _fixed(part, graph, first)
            if parts.setdefault(key, fixed) != fixed and not override:
                raise GraphError(
                    f"{label}: {key} is declared twice, differently. Rename one of them with bind(names=...), or "
                    "have the later one win with override=True."
                )
            parts[key] = fixed
        for key, factory in graph.system.items():
            if system.setdefault(key, factory) != factory and not override:
                raise GraphError(
                    f"{label}: system has two factories for {key!r}. Rename one of them, or have the later one win "
                    "with override=True."
                )
            system[key] = factory
    used = {*_topics_of(parts.values(), first.errors)}
    topics: dict[str, Topic] = {}
    for topic, of in _declaring(graphs, override=override):
        if topic in used:
            _merge_topic(topics, topic, of, graphs, label, override=override)
    return parts.values(), {**first.settings(), "topics": topics, "system": system}


def _fixed(part: Declaration, graph: GraphParts, first: GraphParts) -> Declaration:
    """A part that behaves with the first graph's settings as it does in its own graph."""
    if isinstance(part, Feed) and graph.errors != first.errors:
        return Feed(**{**part.arguments(), "errors": graph.declared_errors(part) or False})
    if not isinstance(part, Processor):
        return part
    changes: dict[str, Any] = {}
    if graph.errors != first.errors:
        changes["errors"] = graph.declared_errors(part) or False
    if graph.strategy != first.strategy:
        changes["strategy"] = graph.strategy_of(part)
    return part.replace(**changes) if changes else part


def _topics_of(parts: Iterable[Declaration], errors: str | Errors | None) -> Iterator[str]:
    """The topics that these parts use; a part that another one took the place of has left its own."""
    for part in parts:
        if isinstance(part, Source):
            yield part.topic
            continue
        yield from (*part.read_topics, *part.output_topics)
        own = getattr(part, "errors", None)
        yield from filter(None, [errors_topic(errors if own is None else own)])


def _declaring(graphs: Sequence[GraphParts], *, override: bool) -> Iterator[tuple[str, GraphParts]]:
    """
    Topics with the graphs whose settings of them count.

    With `override` one graph for each topic: the last that has it in `topics=`, else the first that uses it.
    """
    for graph in graphs:
        for topic in graph.topics_used():
            declared = [one for one in graphs if topic in one.topics]
            counts = declared[-1] if declared else next(one for one in graphs if topic in one.topics_used())
            if not override or graph is counts:
                yield topic, graph


def _merge_topic(
    topics: dict[str, Topic], topic: str, graph: GraphParts, graphs: Sequence[GraphParts], label: str, *, override: bool
) -> None:
    wanted = graph.topic(topic)
    for other in graphs if not override else ():
        if other is not graph and topic in other.topics_used() and other.topic(topic).settings() != wanted.settings():
            raise GraphError(
                f"{label}: topic {topic!r} has different settings in {graph.name!r} and in {other.name!r}. "
                "Give it the same Topic(...) in topics= of both, or have the later one win with override=True."
            )
    own = graph.topics.get(topic)
    if graph.defaults == graphs[0].defaults:
        if own is not None:
            topics[topic] = own
    elif topic not in topics:
        topics[topic] = Topic(**wanted.settings())


def rebound(
    graph: GraphParts,
    topics: Mapping[str, str],
    opts: Mapping[str, Mapping[str, Any]],
    names: Mapping[str, str],
) -> Arguments:
    """
    What `Graph.bind` makes a graph of.

    Raises:
        GraphError: see `Graph.bind`.
    """
    label = f"Graph {graph.name!r}"
    used = graph.topics_used()
    for old, new in topics.items():
        check_topic(new, f"{label}, bind")
        if old not in used:
            raise GraphError(f"{label} has no topic {old!r}{hint(old, used)}. Topics: {quoted(used)}.")
    for given, known in ((opts, graph.processors), (names, graph.all_processors)):
        if unknown := given.keys() - known.keys():
            raise GraphError(no_such_processor(graph.name, unknown, known))
    for new in names.values():
        check_name(new, f"{label}, bind(names=)")
    _check_apart(graph, topics, label)
    settings = graph.settings()
    settings["errors"] = rebound_place(graph.errors, topics)
    settings["topics"] = {topics.get(name, name): topic for name, topic in graph.topics.items()}
    return [_rebound(part, topics, opts, names) for part in graph.parts], settings


def _check_apart(graph: GraphParts, topics: Mapping[str, str], label: str) -> None:
    """Refuse to make one topic of two that have different settings: one of them would be forgotten."""
    bound: dict[str, str] = {}
    for old in graph.topics_used():
        other = bound.setdefault(topics.get(old, old), old)
        alike = (other in graph.error_topics()) == (old in graph.error_topics())  # else `wiring` refuses the graph
        if alike and graph.topic(other).settings() != graph.topic(old).settings():
            raise GraphError(
                f"{label}: bind makes one topic, {topics.get(old, old)!r}, of {other!r} and {old!r}, which have "
                "different settings. Give both the same Topic(...) in topics=, or bind one of them to another name."
            )


def rebound_place(bound: Any, topics: Mapping[str, str]) -> Any:
    """Where a part reads or writes, with the new names of topics."""
    match bound:
        case str():
            return topics.get(bound, bound)
        case Errors():
            return replace(bound, topic=topics.get(bound.topic, bound.topic))
        case Mapping():
            return {binding: topics.get(topic, topic) for binding, topic in bound.items()}
    return bound


def _rebound(
    part: Declaration,
    topics: Mapping[str, str],
    opts: Mapping[str, Mapping[str, Any]],
    names: Mapping[str, str],
) -> Declaration:
    if isinstance(part, Source):
        return replace(part, topic=topics.get(part.topic, part.topic))
    arguments = {**part.arguments(), "name": names.get(part.name, part.name)}
    for place in ("inputs", "alts", "outputs", "tailers", "appenders", "trail", "errors", "into"):
        if place in arguments:
            arguments[place] = rebound_place(arguments[place], topics)
    if isinstance(part, Processor) and part.tables:
        arguments["tables"] = {
            name: replace(one, topic=topics.get(one.topic, one.topic)) for name, one in part.tables.items()
        }
    if isinstance(part, Processor) and part.name in opts:
        arguments["opts"] = {**part.opts, **opts[part.name]}
    return type(part)(**arguments)
