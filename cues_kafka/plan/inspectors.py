"""Inspectors: what a plan asks of systems outside before a graph starts. The cluster is the first of them.

An inspector gets the graph, the broker and the terms of the start, and gives `Findings`.
`task.making.prepare.INSPECTORS` lists all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from cues_kafka.errors import BrokerError, ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, group_id, no_such_processor
from cues_kafka.plan.topics import Sides, topics_to_ask
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.log import TopicPartition


@dataclass(frozen=True, slots=True)
class Terms:
    """
    What a start may do on a cluster.

    Attributes:
        names: the processors that it starts; None: not said, so none of them counts as renamed.
        new: processors that the user says are new, not renamed ones.
        create_topics: whether it may create what is missing.
        accept_unchecked: whether it runs although the settings of topics may not be read.
        cluster: the options of the cluster, where inspectors and codecs find what belongs to it, such as a registry.
    """

    names: Sequence[str] | None = None
    new: Sequence[str] = ()
    create_topics: bool = True
    accept_unchecked: bool = False
    cluster: Any = None


class Findings(NamedTuple):
    """
    What an inspector found.

    Attributes:
        facts: what the cluster says; from the cluster's inspector only.
        refusals: why the graph must not start, in full sentences with the remedy.
        warnings: what is allowed but weakens something, in full sentences.
        changes: what has to change in the system, each with the command that does it.
        begins: where processors without a record begin on their inputs, if their `start=` names offsets or a time.
    """

    facts: ClusterFacts | None = None
    refusals: Sequence[str] = ()
    warnings: Sequence[str] = ()
    changes: Sequence[str] = ()
    begins: Mapping[str, Mapping[TopicPartition, int]] = {}


Inspector: TypeAlias = Callable[[Graph, Broker, Terms], Findings]
"""
Asks one system outside.

Raises:
    ConfigError: the terms do not fit the graph.
    CuesError: the system does not answer.
"""


def inspect_cluster(graph: Graph, broker: Broker, terms: Terms) -> Findings:
    """
    Ask the cluster for the topics of a graph, and for processors that may have been given another prefix.

    Raises:
        ConfigError: a name in `terms.new` that the graph does not have.
        BrokerError: the cluster does not answer.
    """
    facts = facts_of(graph, broker, Sides.of(terms.cluster))
    if terms.names is None:
        return Findings(facts)
    if unknown := sorted(set(terms.new) - set(graph.all_processors)):
        raise ConfigError(f"--new: {no_such_processor(graph.name, unknown, graph.all_processors)}")
    return Findings(facts, tuple(_under_other_prefix(graph, broker, terms, broker.partitions())))


def facts_of(graph: Graph, broker: Broker, sides: Sides) -> ClusterFacts:
    """
    Ask for the topics of a graph. One that it can work without, and may not look at, counts as missing.

    Raises:
        BrokerError: the cluster does not answer.
    """
    needed, more = topics_to_ask(graph), sides.topics(graph)
    try:
        return broker.facts((*needed, *more))
    except BrokerError as error:
        if not (more and error.forbidden):
            raise
        return broker.facts(needed)


def _under_other_prefix(graph: Graph, broker: Broker, terms: Terms, listed: Mapping[str, int]) -> Iterator[str]:
    """Processors without a place that have one under another prefix, with offsets on the same inputs."""
    own = graph.name.removeprefix(graph.prefix)
    for name, part in graph.all_processors.items():
        if name not in set(terms.names or ()) - set(terms.new) or not part.read_topics:
            continue
        mine, ending = backing_topic(graph.name, name), backing_topic(own, name)
        others = [one for one in listed if one != mine and one.endswith(ending) and _is_prefix(one, ending)]
        if not others or _has_records(broker, mine, listed):
            continue
        for other in sorted(others):
            group = group_id(f"{other.removesuffix(ending)}{own}", name)
            if _has_records(broker, other, listed) and _reads(broker, group, part.read_topics, listed):
                yield (
                    f"{name!r} has no place on this cluster yet, and {other!r} holds the place of a processor of this "
                    f"name on the same inputs under prefix={other.removesuffix(ending)!r}. Under another prefix it "
                    f"starts again, so its outputs repeat. If this is the same graph, give it that prefix back. If it "
                    f"is another one, say so once: --new {name}, or new=[{name!r}] of start()."
                )


def _is_prefix(topic: str, ending: str) -> bool:
    prefix = topic.removesuffix(ending)
    return not prefix or prefix.endswith((".", "-", "_"))


def _reads(broker: Broker, group: str, topics: Sequence[str], listed: Mapping[str, int]) -> bool:
    """Whether a group has offsets on one of these topics; a user who may not see it is not told."""
    places = [TopicPartition(topic, partition) for topic in topics for partition in range(listed.get(topic, 0))]
    try:
        return any(offset is not None for offset in broker.committed(group, places).values())
    except BrokerError as error:
        if not error.forbidden:
            raise
        return False


def _has_records(broker: Broker, topic: str, listed: Mapping[str, int]) -> bool:
    places = [TopicPartition(topic, partition) for partition in range(listed.get(topic, 0))]
    return bool(places) and any(marks.high > 0 for marks in broker.watermarks(places).values())
