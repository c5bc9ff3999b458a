"""Follows a processor that has left error messages to the name under which its tasks go on since a `rename` (X5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cues_kafka.errors import BrokerError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, quoted, tools_group
from cues_kafka.operate.look.newest import NewestRecords
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.history import History, read_history
from cues_kafka.records.requests import settled_in
from cues_kafka.records.scanning import read_all


class FormerName(NamedTuple):
    """
    What is known of a processor that the graph does not declare.

    Attributes:
        now: the name that all of its tasks have now; empty: the graph declares no such processor.
        why: why it takes no requests; empty: its tasks under the name of now do.
        settled: what its tasks have settled, by key, under each name that they had. No task settles anything under
            these any more.
    """

    now: str
    why: str
    settled: Mapping[bytes, bytes]


def follow(graph: Graph, broker: Broker, name: str, clock: Clock) -> FormerName:
    """
    Find out what became of a processor.

    Its tasks may have settled some of its error messages before they left. These must not be asked for again, so a
    processor takes no requests if that cannot be read. It does not change any more: a task that has said `moved_to` was
    the last writer of its backing partition.

    Raises:
        BrokerError: the cluster does not answer.
    """
    try:
        return _followed(graph, broker, name, clock)
    except BrokerError as error:
        if not error.forbidden:
            raise
        return FormerName("", f"graph {graph.name!r} no longer has a processor {name!r}; {error}", {})


def arrivals(graph: Graph, broker: Broker, clock: Clock) -> Mapping[str, str]:
    """
    The former names of the graph's processors, each with the name of now, as their histories say (X6).

    What is settled under a former name stands under the name of now, too, whatever became of the former one's topics.
    One without an errors topic settles nothing, so an operator needs no right to read its records.

    Raises:
        BrokerError: the cluster does not answer, or this user may not read the records of a processor with an errors
            topic.
    """
    sizes = broker.partitions()
    found: dict[str, str] = {}
    for name, processor in graph.processors.items():
        topic = backing_topic(graph.name, name)
        if not sizes.get(topic):
            continue
        try:
            history = _history(broker, TopicPartition(topic, 0), clock, group=tools_group(graph.name))
        except BrokerError as error:
            if not error.forbidden or graph.errors_of(processor) is not None:
                raise
            continue
        found |= dict.fromkeys(history.names, name)
    return found


def _history(broker: Broker, place: TopicPartition, clock: Clock, *, group: str) -> History:
    low, stable, _ = broker.watermarks([place])[place]
    return read_history(broker, place, low, stable, clock, group=group)


def _followed(graph: Graph, broker: Broker, name: str, clock: Clock) -> FormerName:
    settled: dict[bytes, bytes] = {}
    now, passed = name, list[str]()
    while now not in graph.processors:
        if not passed and (arrived := arrivals(graph, broker, clock).get(now)):
            return FormerName(arrived, "", {})
        passed.append(now)
        went, why = _moved_to(graph, broker, now, clock)
        if went in passed:
            why = f"{quoted(passed)} were renamed in a circle"
        topic = backing_topic(graph.name, now)
        width = broker.partitions([topic]).get(topic, 0)
        settled.update(settled_in(read_all(broker, topic, width, group=tools_group(graph.name))) if width else ())
        if why:
            return FormerName("", why, settled)
        now = went
    return FormerName(now, "", settled)


def _moved_to(graph: Graph, broker: Broker, name: str, clock: Clock) -> tuple[str, str]:
    """The name that all tasks of a processor have moved to, or why that is not known."""
    topic = backing_topic(graph.name, name)
    width = broker.partitions([topic]).get(topic, 0)
    gone = f"graph {graph.name!r} no longer has a processor {name!r}"
    if not width:
        return "", f"{gone}, and topic {topic!r}, which says what is settled, is deleted"
    marks = broker.watermarks([TopicPartition(topic, partition) for partition in range(width)])
    found = NewestRecords(broker, tools_group(graph.name), clock).look(marks)
    if why := next((one.why for one in found.values() if one.why), ""):
        return "", f"{gone}, and where its tasks went cannot be read: {why}"
    names = {"" if one.record is None else one.record.moved_to for one in found.values()}
    if len(names) == 1 and (to := names.pop()):
        return to, ""
    if to := next(filter(None, names), ""):
        return "", f"{gone}; run `cues-kafka rename MODULE:GRAPH {name} {to} --yes` to its end, and ask again"
    new = next((one.name for one in graph.processors.values() if one.renamed_from == name), "")
    if new:
        return "", f"{gone}; run `cues-kafka rename MODULE:GRAPH {name} {new} --yes`, and ask again"
    return "", f"{gone}. Declare it again with its former name="
