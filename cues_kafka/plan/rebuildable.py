"""Says of which processors `rebuild` cannot make the stores again, so that a reader knows it before the first start."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from cues_kafka.graph.definition import Graph
from cues_kafka.graph.handler import Handler
from cues_kafka.graph.names import backing_topic
from cues_kafka.graph.processor import Processor

FRESH: Final = (
    "Give the processor a new name= instead: under it the stores are built from start= on, and outputs repeat"
)


def obstacle(processor: Processor, *, pure: bool) -> str | None:
    """Why a processor's stores cannot be made again, with the remedy; None: they can."""
    name = processor.name
    if not processor.state:
        return f"{name!r} has no stores, so there is nothing to rebuild"
    if handlers := [one for one, store in processor.state.items() if isinstance(store, Handler)]:
        return f"{name!r} has state handlers ({', '.join(handlers)}), whose entries only they know. {FRESH}"
    if processor.timers:
        return f"{name!r} has timers, whose calls came between those of its messages. {FRESH}"
    if processor.tables:
        topics = ", ".join(map(repr, processor.tables))
        return f"{name!r} looks things up in {topics}, which may have changed since. {FRESH}"
    if processor.tailers:
        topics = ", ".join(map(repr, processor.tailers))
        return f"{name!r} reads {topics} by itself, and what it saw there is not kept. {FRESH}"
    if processor.input_shape == "join":
        return f"{name!r} is a join, which pairs messages from the beginning of its inputs. {FRESH}"
    if processor.target:
        return f"{name!r} has a database, whose rows a call would write again. {FRESH}"
    if processor.calls:
        return f"{name!r} calls {', '.join(processor.calls)}, and a call might repeat what it does there. {FRESH}"
    if processor.has_effects and not pure:
        kind = "effects=True" if processor.effects else "no outputs, so it counts as a sink"
        return f"{name!r} has {kind}: a call might repeat its effects. If it does no harm, add --pure"
    if processor.retry and not pure:
        return f"{name!r} has retry=, so its function depends on something outside. If a call does no harm, add --pure"
    return None


def cannot_grow(graph: Graph, there: Collection[str]) -> Iterator[str]:
    """
    Name the processors whose inputs can never get more partitions, as long as these have not started.

    With more partitions keys move to other tasks, and only `rebuild` moves the entries of stores after them.

    Args:
        graph: the graph.
        there: the topics of the cluster.
    """
    for name, processor in graph.processors.items():
        if backing_topic(graph.name, name) in there or all(store.per_task for store in processor.state.values()):
            continue
        if why := obstacle(processor, pure=True):
            reason = why.removesuffix(f". {FRESH}")
            yield (
                f"{reason}. So `rebuild` cannot divide its stores, and its inputs can never get more "
                f"partitions. Before the first start, give {processor.lead!r} as many partitions as it will ever need; "
                "or do what needs the store in a processor of its own."
            )
