"""What each edge of a graph guarantees: from applications into Kafka, from Kafka to Kafka, and out of Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cues_kafka.graph.definition import Graph
from cues_kafka.graph.levels import ANYTHING, FILES_OF_SPARK, INSIDE, NEVER_TWICE, ON_SPARK, SEND, EdgeKind
from cues_kafka.graph.processor import DataFrameProcessor, Processor


class Guarantee(NamedTuple):
    """
    One edge of a graph.

    Attributes:
        where: what it joins, such as `ledger -> database db`.
        level: `exactly once`, `at least once` or `at most once`, or once on a condition.
        why: what gives this level, and what it asks for.
        shown_by: the command that shows it, in a clone of the project.
    """

    where: str
    level: str
    why: str
    shown_by: str


def edges_of(graph: Graph) -> Iterator[Guarantee]:
    """The edges of a graph, in the order of declaration."""
    for source in graph.sources:
        yield _edge(f"applications -> {source}", SEND)
    for feed in graph.feeds.values():
        yield _edge(f"{type(feed.source).__name__} -> {feed.into}", feed.edge)
    inside = {name: graph.strategy_of(name) for name, one in graph.processors.items() if one.outputs or one.state}
    for strategy, kind in INSIDE.items():
        if names := [name for name, one in inside.items() if one == strategy]:
            yield _edge(", ".join(names), kind)
    if names := [name for name, one in graph.dataframes.items() if one.outputs]:
        yield _edge(", ".join(names), ON_SPARK)
    for processor in graph.processors.values():
        yield from _out_of_kafka(processor, graph.strategy_of(processor))
    for frame in graph.dataframes.values():
        yield from _out_of_spark(frame)


def _edge(where: str, kind: EdgeKind) -> Guarantee:
    return Guarantee(where, kind.level, kind.why, kind.shown_by)


def _out_of_kafka(processor: Processor, strategy: str) -> Iterator[Guarantee]:
    """What a target guarantees by itself holds exactly-once only. Otherwise the strategy says what holds (W8)."""
    kind = NEVER_TWICE if strategy == "at-most-once" else ANYTHING
    for name, one in processor.targets.items():
        yield _edge(f"{processor.name} -> {one.title(name)}", one.edge if strategy == "exactly-once" else kind)
    if processor.has_effects and not processor.targets:
        yield _edge(f"{processor.name} -> its effects", kind)


def _out_of_spark(frame: DataFrameProcessor) -> Iterator[Guarantee]:
    for name, one in frame.targets.items():
        yield _edge(f"{frame.name} -> {one.title(name)}", FILES_OF_SPARK)
