"""What each edge of a graph guarantees: into Kafka, from Kafka to Kafka, and out of Kafka; and which one is weakest.

`graph/levels.py` has the kinds of edges, with level, condition and remedy. A pipeline is as strong as its weakest edge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias, cast

from cues_kafka.errors import ConfigError
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.levels import (
    ANYTHING,
    INSIDE,
    LEVELS,
    NEVER_TWICE,
    ON_SPARK,
    SEND,
    SEND_WITH_ID,
    EdgeKind,
    Level,
    level_of,
    satisfies,
)
from cues_kafka.graph.names import hint, quoted
from cues_kafka.graph.processor import Processor


class Guarantee(NamedTuple):
    """
    One edge of a graph.

    Attributes:
        where: what it joins, such as `ledger -> database db`.
        level: `exactly once`, `at least once` or `at most once`, or once on a condition.
        why: what gives this level, and what it asks for.
        shown_by: the command that shows it, in a clone of the project.
        guarantee: the level that `plan --require` compares.
        remedy: what makes it exactly once, as a full sentence; empty: it is.
        parts: the processors and feeds that the edge belongs to; of a source, those that read it.
    """

    where: str
    level: str
    why: str
    shown_by: str
    guarantee: Level
    remedy: str
    parts: tuple[str, ...]


Edges: TypeAlias = tuple[Guarantee, ...]


def edges_of(graph: Graph) -> Iterator[Guarantee]:
    """The edges of a graph, in the order of declaration."""
    everyone = graph.all_processors.values()
    for topic, source in graph.sources.items():
        readers = tuple(one.name for one in everyone if topic in one.read_topics)
        yield _edge(f"applications -> {topic}", SEND_WITH_ID if source.level == "exactly-once" else SEND, *readers)
    for feed in graph.feeds.values():
        yield _edge(f"{type(feed.source).__name__} -> {feed.into}", feed.edge, feed.name)
    inside = {name: graph.strategy_of(name) for name, one in graph.processors.items() if one.outputs or one.state}
    for strategy, kind in INSIDE.items():
        if names := [name for name, one in inside.items() if one == strategy]:
            yield _edge(", ".join(names), kind, *names)
    if names := [name for name, one in graph.dataframes.items() if one.outputs]:
        yield _edge(", ".join(names), ON_SPARK, *names)
    for processor in graph.processors.values():
        yield from _out_of_kafka(processor, graph.strategy_of(processor))
    for frame in graph.dataframes.values():
        yield from _out_of_spark(frame)


def weakest(edges: Iterable[Guarantee]) -> Edges:
    """The edges of the weakest level; none if all are exactly once."""
    edges = tuple(edges)
    last = max((LEVELS.index(one.guarantee) for one in edges), default=0)
    return tuple(one for one in edges if last and one.guarantee == LEVELS[last])


def too_weak(edges: Iterable[Guarantee], required: Level, names: Collection[str] | None = None) -> Iterator[str]:
    """
    Why a graph does not keep what is required: for each edge that is weaker a sentence, its condition and the remedy.

    Args:
        edges: of the graph.
        required: what each edge must keep.
        names: of the processors and feeds that count; None: all.
    """
    for one in edges:
        counts = names is None or not one.parts or not set(names).isdisjoint(one.parts)
        if counts and not satisfies(one.guarantee, required):
            yield (
                f"{required} is required, and the edge {one.where!r} is {one.level}. Condition: {one.why}. "
                f"Remedy: {one.remedy or NO_REMEDY}"
            )


def refuse_weaker(graph: Graph, required: Level, names: Collection[str] | None = None) -> None:
    """
    Refuse a graph that does not keep what is required; see `too_weak`.

    Raises:
        ConfigError: with all edges that are weaker.
    """
    if reasons := [f"\n  - {text}" for text in too_weak(edges_of(graph), required, names)]:
        raise ConfigError(f"Graph {graph.name!r} must not run:{''.join(reasons)}")


NO_REMEDY: Final = "Take the messages another way, whose edge is stronger; docs/edges.md lists all edges."


def required_level(text: str, *, where: str = "--require") -> Level:
    """
    Read what a user requires.

    Args:
        text: a level.
        where: how the user has given it, for the error.

    Raises:
        ConfigError: it is not a level.
    """
    if text not in LEVELS:
        raise ConfigError(f"{where} {text!r} is not known{hint(text, LEVELS)}. Choose one of {quoted(LEVELS)}.")
    return cast("Level", text)


def _edge(where: str, kind: EdgeKind, *parts: str) -> Guarantee:
    return Guarantee(where, kind.level, kind.why, kind.shown_by, level_of(kind.level), kind.remedy, parts)


def _out_of_kafka(processor: Processor, strategy: str) -> Iterator[Guarantee]:
    """What a target guarantees by itself holds exactly-once only. Otherwise the strategy says what holds (W8)."""
    kind = NEVER_TWICE if strategy == "at-most-once" else ANYTHING
    if strategy == "at-least-once":
        kind = kind._replace(remedy=f"{INSIDE[strategy].remedy} {kind.remedy}")
    for name, one in processor.targets.items():
        own = one.edge if strategy == "exactly-once" else kind
        yield _edge(f"{processor.name} -> {one.title(name)}", own, processor.name)
    if processor.has_effects and not processor.targets:
        yield _edge(f"{processor.name} -> its effects", kind, processor.name)


def _out_of_spark(frame: DataFrameProcessor) -> Iterator[Guarantee]:
    for name, one in frame.targets.items():
        kind = one.edge if one.frames is None else one.frames.edge
        yield _edge(f"{frame.name} -> {one.title(name)}", kind, frame.name)
