"""What the checks of `doctor` share: the graph that is examined, and the form of what they find."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from cues_kafka.brokers.examination import Examination
from cues_kafka.graph.definition import Graph
from cues_kafka.operate.look.held_offsets import HeldOffsets
from cues_kafka.operate.look.seen import GraphStatus
from cues_kafka.plan.acls import Role
from cues_kafka.plan.plan import Plan
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import ClusterFacts, Watermarks
from cues_kafka.ports.log import TopicPartition
from cues_kafka.words import count

SHOWN: Final = 4
"""How many partitions a sentence names."""

DAY_S: Final = 86_400

Found: TypeAlias = Iterator[tuple[bool, str, str]]
"""Wrong or worth knowing, the sentence, the remedy."""


class Look(NamedTuple):
    """The ends of all partitions at one moment."""

    at_s: float
    marks: Mapping[TopicPartition, Watermarks]


@dataclass(slots=True)
class Patient:
    """
    A graph on a cluster, with what was asked once for all checks.

    Attributes:
        graph: the graph.
        broker: the cluster.
        facts: what it says of the graph's topics.
        found: what it says besides.
        planned: the plan of the graph there.
        clock: time.
        role: whose rights are compared.
        address: of the cluster, for commands.
        cluster: its options.
        first, last: two looks, some seconds apart where something was seen to be watched.
        lags: by input partition of each processor where messages wait, the offset of its group.
        seen: the status of the graph, once a check has asked for it.
        held: by processor, the transaction that holds offsets of its group at the first look.
    """

    graph: Graph
    broker: Broker
    facts: ClusterFacts
    found: Examination
    planned: Plan
    clock: Clock
    role: Role
    address: str
    cluster: Any
    first: Look
    last: Look
    lags: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    held: dict[str, HeldOffsets] = field(default_factory=dict)
    seen: GraphStatus | None = None


def wrong(what: str, remedy: str = "") -> tuple[bool, str, str]:
    """What keeps the graph from working, or endangers its guarantee."""
    return True, what, remedy


def note(what: str, remedy: str = "") -> tuple[bool, str, str]:
    """What is worth knowing."""
    return False, what, remedy


def partitions(places: Sequence[TopicPartition]) -> str:
    """The first of these partitions, and how many others there are."""
    shown = ", ".join(f"{place.topic}/{place.partition}" for place in places[:SHOWN])
    return shown if len(places) <= SHOWN else f"{shown} and {count(len(places) - SHOWN, 'other partition')}"
