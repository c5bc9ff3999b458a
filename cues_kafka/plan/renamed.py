"""Which processors have a place on the cluster already: the guard against a renamed one that begins again in silence.

A processor's place is in its backing topic, under its name. Under another name it finds none, begins at its `start=`,
and delivers again what its inputs hold. Nothing on the cluster says whether a name is new or the old one changed. What
can be seen is a backing topic with records whose processor is gone, beside a processor that has no record yet. Then
a start is refused, until somebody says that the new one is another processor. Once that has a record of its own it is
known, so nothing is asked again, even if the old topic stays for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from cues_kafka.errors import ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, no_such_processor, quoted
from cues_kafka.plan.topics import orphans
from cues_kafka.ports import Broker, TopicPartition


def renamed(
    graph: Graph, broker: Broker, listed: Mapping[str, int], *, names: Collection[str], new: Collection[str]
) -> Iterator[str]:
    """
    Why processors must not start: they may be others of this graph under a new name. With the ways out.

    Args:
        graph: the graph.
        broker: the cluster.
        listed: partitions of all topics that can be seen there.
        names: of the processors that are to start.
        new: names that somebody said are of other processors.

    Raises:
        ConfigError: a name in `new` that the graph does not have.
        BrokerError: the cluster does not answer.
    """
    known = (*graph.processors, *graph.dataframes)
    if unknown := sorted(set(new) - set(known)):
        raise ConfigError(f"--new: {no_such_processor(graph.name, unknown, known)}")
    if not (left := orphans(graph, listed)):
        return
    left = {topic: name for topic, name in left.items() if _has_records(broker, topic, listed)}
    for name in known if left else ():
        if name in names and name not in new and not _has_records(broker, backing_topic(graph.name, name), listed):
            yield (
                f"{name!r} has no place on this cluster yet, and {quoted(left)} holds the place of "
                f"{quoted(left.values())}, which this graph does not have. A renamed processor begins again, so its "
                f"outputs repeat. If {name!r} is one of these under a new name, give it its old name back. If it is "
                f"another processor, say so once: --new {name}, or new=[{name!r}] of start()."
            )


def _has_records(broker: Broker, topic: str, listed: Mapping[str, int]) -> bool:
    places = [TopicPartition(topic, partition) for partition in range(listed.get(topic, 0))]
    return bool(places) and any(marks.high > 0 for marks in broker.watermarks(places).values())
