"""What each edge of a graph guarantees: from applications into Kafka, from Kafka to Kafka, and out of Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from cues_kafka.graph.definition import Graph
from cues_kafka.graph.processor import DataFrameProcessor, Processor

EXACTLY_ONCE: Final = "exactly once"
AT_LEAST_ONCE: Final = "at least once"
AT_MOST_ONCE: Final = "at most once"

INSIDE: Final = {
    "exactly-once": (EXACTLY_ONCE, "from Kafka to Kafka: one transaction with the place in the input"),
    "at-least-once": (AT_LEAST_ONCE, "from Kafka to Kafka, by strategy=: written before its place; a crash repeats"),
    "at-most-once": (AT_MOST_ONCE, "from Kafka to Kafka, by strategy=: its place is committed first; a crash drops"),
}
"""By strategy: the level of what goes from Kafka to Kafka, and why."""


class Guarantee(NamedTuple):
    """
    One edge of a graph.

    Attributes:
        where: what it joins, such as `ledger -> database db`.
        level: `exactly once`, `at least once` or `at most once`.
        why: what gives this level, and what it asks for.
    """

    where: str
    level: str
    why: str


def edges_of(graph: Graph) -> Iterator[Guarantee]:
    """The edges of a graph, in the order of declaration."""
    for source in graph.sources:
        yield Guarantee(
            f"applications -> {source}",
            AT_LEAST_ONCE,
            "a send repeated after a crash is a second message; give it an id",
        )
    for feed in graph.feeds.values():
        yield Guarantee(
            f"{type(feed.source).__name__} -> {feed.into}",
            EXACTLY_ONCE,
            feed.rests_on,
        )
    inside = {name: graph.strategy_of(name) for name, one in graph.processors.items() if one.outputs or one.state}
    inside |= {name: "exactly-once" for name, one in graph.dataframes.items() if one.outputs}
    for strategy, (level, why) in INSIDE.items():
        if names := [name for name, one in inside.items() if one == strategy]:
            yield Guarantee(", ".join(names), level, why)
    for processor in graph.processors.values():
        yield from _out_of_kafka(processor, graph.strategy_of(processor))
    for frame in graph.dataframes.values():
        yield from _out_of_spark(frame)


def _out_of_kafka(processor: Processor, strategy: str) -> Iterator[Guarantee]:
    for name, one in processor.targets.items():
        yield Guarantee(f"{processor.name} -> {one.title(name)}", one.level, one.why)
    if processor.has_effects and strategy == "at-most-once":
        yield Guarantee(
            f"{processor.name} -> its effects",
            AT_MOST_ONCE,
            "the function is never called twice for a message; a crash may leave some uncalled, which verify counts",
        )
    elif processor.has_effects and not processor.targets:
        yield Guarantee(
            f"{processor.name} -> its effects",
            AT_LEAST_ONCE,
            "the function may be called again after a crash; step.hash is the same then: an idempotency key",
        )


def _out_of_spark(frame: DataFrameProcessor) -> Iterator[Guarantee]:
    for name, one in frame.targets.items():
        why = "one entry of a log in the store commits all files of a batch; the store must refuse to overwrite"
        yield Guarantee(f"{frame.name} -> {one.title(name)}", one.level, why)
