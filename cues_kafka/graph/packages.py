"""Which packages of extras a graph needs, so that a command can say so before it connects to anything."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cues_kafka.extras import ARROW, Package, require
from cues_kafka.graph.definition import Graph


def require_packages(graph: Graph, names: Collection[str] | None = None) -> None:
    """
    Ask for all packages that native workers need to run a graph.

    Args:
        graph: what is to run.
        names: of the processors and feeds that run here; None: all.

    Raises:
        MissingExtra: some are not installed; the text has all of them.
    """
    require(f"graph {graph.name!r}", packages_of(graph, names))


def packages_of(graph: Graph, names: Collection[str] | None = None) -> Iterator[Package]:
    """The packages of effects, stores, sources and codecs; one may come several times."""
    for processor in graph.processors.values():
        if names is None or processor.name in names:
            if processor.columnar:
                yield from ARROW
            for effect in processor.targets.values():
                yield from effect.packages()
            for store in processor.state.values():
                yield from store.packages()
            by_hand = [topic for _, topic in (*processor.tailers.items(), *processor.appenders.items())]
            yield from codecs_of(graph, {*processor.read_topics, *processor.output_topics, *by_hand})
    for feed in graph.feeds.values():
        if names is None or feed.name in names:
            yield from feed.packages()
            yield from codecs_of(graph, {feed.into})


def codecs_of(graph: Graph, topics: Collection[str]) -> Iterator[Package]:
    """The packages of the codecs of some topics."""
    for topic in sorted(topics):
        settings = graph.topic(topic)
        for codec in (settings.key_codec, settings.value):
            if codec is not None:
                yield from codec.packages()
