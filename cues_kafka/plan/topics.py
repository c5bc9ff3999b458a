"""The topics of a graph, with their partitions and settings."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, control_topic, status_topic
from cues_kafka.graph.topic import LEAST_COPIES
from cues_kafka.ports.facts import ClusterFacts

REPLICATION = LEAST_COPIES
"""Copies of every partition where the cluster has that many brokers: with two in sync one may be lost."""

MIN_IN_SYNC = 2
"""Copies that must have a record before it is acknowledged, so that losing one broker loses no data."""

DAY_MS = 24 * 60 * 60 * 1000

SEGMENT_BYTES = 16 * 1024 * 1024
"""Compaction leaves the newest segment alone, so this bounds what a task keeps: 60,000 records of 256 bytes."""


STATUS_SEGMENT_BYTES = 1024 * 1024
"""The same for the status topic, which `cues-kafka status` reads as a whole."""


class Sides(NamedTuple):
    """
    Which topics a graph has that it can work without; the settings of the cluster say it.

    Attributes:
        status: workers tell the state of their tasks on `<graph>.status`.
        control: workers follow `<graph>.control`; those of a graph with cuts do so anyway.
    """

    status: bool = False
    control: bool = False

    @classmethod
    def of(cls, cluster: Any) -> Sides:
        """What `Kafka(...)` or `Memory(...)` says; None: a graph without a cluster has none."""
        return cls(getattr(cluster, "status_every_s", 0.0) > 0, bool(getattr(cluster, "control", False)))

    def of_graph(self, graph: Graph) -> Sides:
        """Those that this graph has. A graph without processors has no tasks."""
        if not graph.all_processors:
            return Sides()
        return Sides(self.status, graph.cuts is not None or self.control)

    def topics(self, graph: Graph) -> tuple[str, ...]:
        """Their names; the control topic of a graph with cuts is not among them, because that graph needs it."""
        found = self.of_graph(graph)
        status = (status_topic(graph.name),) if found.status else ()
        return (*status, control_topic(graph.name)) if found.control and graph.cuts is None else status


NO_SIDES = Sides()


class Growth(NamedTuple):
    """A topic of the framework's own that needs more partitions, because its input was given more."""

    topic: str
    partitions: int
    wanted: int


class NewSetting(NamedTuple):
    """A setting of a topic of the framework's own that has to change."""

    topic: str
    name: str
    was: str
    wanted: str


CLOCKS_MS = 60 * 60 * 1000
"""By how much the clocks of brokers and tools may differ, where a cut's age is compared with what compaction keeps."""

KEEPS = "min.compaction.lag.ms"
"""So long after a change compaction leaves alone what it replaced, and the changelog can be read up to a cut."""


def kept_for_cuts(graph: Graph) -> dict[str, str]:
    """Settings of the changelogs of a graph with cuts."""
    return {} if graph.cuts_ms is None else {KEEPS: str(graph.cuts_ms + CLOCKS_MS)}


def topics_to_ask(graph: Graph) -> tuple[str, ...]:
    """The topics whose facts `plan` needs: those that the user named, and the framework's own."""
    return (*graph.topics_used(), *graph.internal_topics())


def backing_config(brokers: int | None) -> dict[str, str]:
    """
    Settings of backing topics (O5).

    Args:
        brokers: how many brokers there are; None: not known, so it counts as three.
    """
    return {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": str(in_sync(brokers)),
        "segment.bytes": str(SEGMENT_BYTES),
        "unclean.leader.election.enable": "false",
    }


MAY_LACK = ("segment.bytes", "unclean.leader.election.enable", "min.insync.replicas")
"""Settings that we choose for new topics, and that a managed cluster may keep to itself, in the order in which they are
left out. The first one bounds what a start reads. What the cluster has in place of the others is checked as soon as the
topic is there (`unsafe_settings`)."""


def may_lack(config: Mapping[str, str], declared: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Those of a new topic that its user did not declare."""
    return tuple(name for name in MAY_LACK if name in config and name not in (declared or {}))


def status_config(brokers: int | None) -> dict[str, str]:
    """Settings of the status topic; see `backing_config`."""
    return backing_config(brokers) | {"segment.bytes": str(STATUS_SEGMENT_BYTES)}


def partitions_of(graph: Graph, topic: str, facts: ClusterFacts | None) -> int | None:
    """How many partitions a topic has, or will have when it is created; None: not known."""
    if facts is not None and topic in facts.topics:
        return facts.topics[topic].partitions
    if topic in graph.topics or topic in graph.topics_written():
        return graph.topic(topic).partitions
    return None


def replication(graph: Graph, topic: str, brokers: int | None) -> int:
    """Copies of each partition of a new topic on a cluster of this many brokers; None: not known."""
    declared = graph.defaults if topic in graph.internal_topics() else graph.topic(topic)
    wanted = declared.replication or REPLICATION
    return wanted if brokers is None else min(wanted, brokers)


def in_sync(brokers: int | None) -> int:
    """`min.insync.replicas` on a cluster of this many brokers; None: not known."""
    return MIN_IN_SYNC if brokers is None else min(MIN_IN_SYNC, brokers)


def config_of(graph: Graph, topic: str, facts: ClusterFacts) -> Mapping[str, str]:
    """A topic's settings; where it does not exist yet, those that are declared."""
    known = facts.topics.get(topic)
    return graph.topic(topic).config if known is None else known.config


def retention_ms(graph: Graph, topic: str, facts: ClusterFacts) -> float:
    """How long a topic keeps messages, by their timestamps; the brokers' default where it is not known."""
    config = config_of(graph, topic, facts)
    unlimited = "delete" not in config.get("cleanup.policy", "delete") or config.get("retention.ms") == "-1"
    return math.inf if unlimited else int(config.get("retention.ms", 7 * DAY_MS))


def orphans(graph: Graph, listed: Collection[str]) -> dict[str, str]:
    """The processor of each backing topic under this graph's name that is not in the graph: renamed, or removed."""
    known = {backing_topic(graph.name, name) for name in graph.all_processors}
    prefix, suffix = backing_topic(graph.name, "|").split("|")
    found = {topic: topic.removeprefix(prefix).removesuffix(suffix) for topic in sorted(set(listed) - known)}
    return {topic: name for topic, name in found.items() if topic == f"{prefix}{name}{suffix}" and "." not in name}
