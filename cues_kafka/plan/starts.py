"""Where processors begin that have no record yet, and whose `start=` names offsets or a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic
from cues_kafka.graph.processor import Processor
from cues_kafka.graph.times import milliseconds_of
from cues_kafka.plan.inspectors import Findings, Terms
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import TopicPartition
from cues_kafka.words import count


def inspect_starts(graph: Graph, broker: Broker, terms: Terms) -> Findings:
    """
    Resolve each `start=` that names offsets or a time, and refuse what a task cannot begin at.

    Offsets are compared with the log only where nothing was written for a task yet. A task that has a record goes on at
    its positions (R5). One whose first record was aborted has none, so each gets its place.

    Raises:
        BrokerError: the cluster does not answer.
    """
    wanted = graph.all_processors if terms.names is None else terms.names
    named = [one for one in graph.all_processors.values() if one.name in wanted and not isinstance(one.start, str)]
    if not named:
        return Findings()
    sizes = broker.partitions()
    refusals, begins = list[str](), dict[str, dict[TopicPartition, int]]()
    for one in named:
        backing = backing_topic(graph.name, one.name)
        kept = broker.watermarks([TopicPartition(backing, p) for p in range(sizes.get(backing, 0))])
        ran = {place.partition for place, marks in kept.items() if marks.high > 0}
        begins[one.name] = {}
        for binding, topic in one.inputs:
            inputs = [TopicPartition(topic, p) for p in range(sizes.get(topic, 0))]
            fresh = [place for place in inputs if not _goes_on(one, place, ran)]
            if isinstance(one.start, datetime):
                # The ends first: what comes from now on is as new as the time, also before the tasks begin.
                ends = broker.watermarks(inputs)
                asked = broker.offsets_at(dict.fromkeys(inputs, milliseconds_of(one.start, "start=")))
                begins[one.name] |= {place: ends[place].stable if at is None else at for place, at in asked.items()}
            else:
                offsets = one.offsets_of(binding)
                begins[one.name] |= {TopicPartition(topic, p): offset for p, offset in offsets.items()}
                marks = broker.watermarks(fresh)
                refusals += _wrong(f"{one.label}, start=", topic, offsets, marks, len(inputs), added=bool(ran))
    return Findings(refusals=refusals, begins=begins)


def _goes_on(one: Processor | DataFrameProcessor, place: TopicPartition, ran: set[int]) -> bool:
    """Whether something was written for this input's task; slots of DataFrames begin together."""
    return place.partition in ran if isinstance(one, Processor) else bool(ran)


def _wrong(
    label: str,
    topic: str,
    start: Mapping[int, int],
    fresh: Mapping[TopicPartition, Watermarks],
    width: int,
    *,
    added: bool,
) -> Iterator[str]:
    """Sentences about offsets that are missing, or not in the log."""
    if unknown := sorted(set(start) - set(range(width))):
        yield (
            f"{label}: {topic!r} has {count(width, 'partition')}, so there is no partition "
            f"{', '.join(map(str, unknown))}. Leave it out."
        )
    missing = [place.partition for place in fresh if place.partition not in start]
    if missing and not added:
        yield (
            f"{label}: no offset of partition {', '.join(map(str, sorted(missing)))} of {topic!r}. "
            "Name all partitions; 0 means the first message of a partition that keeps all of them."
        )
    for place, marks in fresh.items():
        offset = start.get(place.partition)
        if offset is not None and not marks.low <= offset <= marks.stable:
            yield (
                f"{label}: {topic}/{place.partition} at {offset} is not in the log, which has "
                f"[{marks.low}, {marks.stable}). Give an offset in it: {marks.low} is the first message that is left."
            )
