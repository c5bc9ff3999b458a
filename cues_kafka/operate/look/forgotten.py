"""Names tailers that a graph does not declare any more: their tasks forget where they stood (L2)."""

from __future__ import annotations

from collections.abc import Iterator

from cues_kafka.core.records import Record
from cues_kafka.errors import BrokerError, CodecError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, group_id
from cues_kafka.graph.processor import Processor
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import record_below
from cues_kafka.task.clock import SystemClock


def forgotten_tailers(graph: Graph, broker: Broker, clock: Clock | None = None) -> Iterator[str]:
    """
    Compare the tailers of each processor with those that the newest record of its first task knows.

    Returns:
        A warning for each tailer that is gone, or reads another topic.

    Raises:
        BrokerError: the cluster does not answer.
    """
    sizes = broker.partitions()
    places = {
        name: TopicPartition(backing_topic(graph.name, name), 0)
        for name in graph.processors
        if backing_topic(graph.name, name) in sizes
    }
    marks = broker.watermarks(list(places.values())) if places else {}
    unread = list[str]()
    for name, place in places.items():
        low, stable, _ = marks[place]
        if low == stable:
            continue
        processor = graph.processors[name]
        try:
            group = group_id(graph.name, name)
            record = record_below(broker, place, low, stable, clock or SystemClock(), group=group)
        except (BrokerError, CodecError) as error:
            if isinstance(error, BrokerError) and error.forbidden:
                unread.append(name)
                continue
            yield f"Not checked: whether {name} had other tailers before: {error}"
            continue
        yield from _gone(processor, record)
    if unread:
        yield (
            f"Not checked: whether {', '.join(unread)} had other tailers before, for this user may not read the "
            "records of tasks. The user of a worker may: run `cues-kafka plan MODULE:GRAPH` as that one."
        )


def _gone(processor: Processor, record: Record | None) -> Iterator[str]:
    for was in record.tails if record else ():
        topic = processor.tailers.get(was.binding)
        if topic is None:
            yield (
                f"{processor.name} no longer has the tailer {was.binding!r}. Its tasks forget its position in "
                f"{was.topic!r}; if it is declared again, it begins at start=."
            )
        elif topic != was.topic:
            yield (
                f"The tailer {was.binding!r} of {processor.name} has read {was.topic!r} so far, and now reads "
                f"{topic!r}: it begins there at start=, and its place in {was.topic!r} is forgotten."
            )
