"""Where processors begin that have no record yet, and whose `start=` names offsets or a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TypeAlias

from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic
from cues_kafka.graph.processor import Processor
from cues_kafka.plan.inspectors import Findings, Terms
from cues_kafka.ports import Broker, TopicPartition, Watermarks
from cues_kafka.words import count

Begins: TypeAlias = Mapping[int, int | str]
"""By partition: an offset, or `latest` where no message is as new as the time that was asked for."""


def inspect_starts(graph: Graph, broker: Broker, terms: Terms) -> Findings:
    """
    Resolve each `start=` that names offsets or a time, and refuse what a task cannot begin at.

    Only tasks without a record are looked at: the others go on at their positions (R5).

    Raises:
        BrokerError: the cluster does not answer.
    """
    wanted = graph.processors if terms.names is None else terms.names
    named = [p for p in graph.processors.values() if p.name in wanted and not isinstance(p.start, str)]
    if not named:
        return Findings()
    sizes = broker.partitions()
    refusals, begins = list[str](), dict[str, Begins]()
    for processor in named:
        topic, backing = processor.lead, backing_topic(graph.name, processor.name)
        inputs = [TopicPartition(topic, p) for p in range(sizes.get(topic, 0))]
        kept = broker.watermarks([TopicPartition(backing, p) for p in range(sizes.get(backing, 0))])
        ran = {place.partition for place, marks in kept.items() if marks.high > 0}
        fresh = {place: marks for place, marks in broker.watermarks(inputs).items() if place.partition not in ran}
        if isinstance(processor.start, datetime):
            begins[processor.name] = _at(broker, processor.start, fresh)
        elif isinstance(processor.start, Mapping):
            begins[processor.name] = processor.start
            refusals += _wrong(processor, processor.start, topic, fresh, len(inputs), added=bool(ran))
    return Findings(refusals=refusals, begins=begins)


def _at(broker: Broker, when: datetime, fresh: Mapping[TopicPartition, Watermarks]) -> Begins:
    """The first message of each partition that is not older; a partition that is added later begins at its first."""
    asked = broker.offsets_at(dict.fromkeys(fresh, round(when.timestamp() * 1000)))
    return {place.partition: "latest" if offset is None else offset for place, offset in asked.items()}


def _wrong(
    processor: Processor,
    start: Mapping[int, int],
    topic: str,
    fresh: Mapping[TopicPartition, Watermarks],
    width: int,
    *,
    added: bool,
) -> Iterator[str]:
    """Sentences about offsets that are missing, or not in the log."""
    if unknown := sorted(set(start) - set(range(width))):
        yield (
            f"{processor.label}, start=: {topic!r} has {count(width, 'partition')}, so there is no partition "
            f"{', '.join(map(str, unknown))}. Leave it out."
        )
    missing = [place.partition for place in fresh if place.partition not in start]
    if missing and not added:
        yield (
            f"{processor.label}, start=: no offset of partition {', '.join(map(str, sorted(missing)))} of {topic!r}. "
            "Name all partitions; 0 means the first message of a partition that keeps all of them."
        )
    for place, marks in fresh.items():
        offset = start.get(place.partition)
        if offset is not None and not marks.low <= offset <= marks.stable:
            yield (
                f"{processor.label}, start=: {topic}/{place.partition} at {offset} is not in the log, which has "
                f"[{marks.low}, {marks.stable}). Give an offset in it: {marks.low} is the first message that is left."
            )
