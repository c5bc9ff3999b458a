"""What `doctor` asks a cluster besides what a graph needs to run: its nodes, the health of topics, groups, and rights.

It is a question of its own, not one of `ports.broker.Broker`: no task needs the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol


class NodeFacts(NamedTuple):
    """
    One broker of a cluster, as seen from this machine.

    Attributes:
        number: its id.
        address: HOST:PORT that it gives clients.
        apis: the newest version of each request that it takes, by the number of the request in Kafka's protocol; empty:
            it does not tell; None: the address does not answer from here.
    """

    number: int
    address: str
    apis: Mapping[int, int] | None


class TopicHealth(NamedTuple):
    """
    The partitions of a topic.

    Attributes:
        leaderless: partitions that no broker leads, so that they are neither written nor read.
        in_sync: for each partition, how many replicas are in sync.
        replicas: for each partition, how many there are.
        allowed: the operations that this user may do on it; None: not known.
    """

    leaderless: tuple[int, ...]
    in_sync: tuple[int, ...]
    replicas: tuple[int, ...]
    allowed: frozenset[str] | None


class GroupHealth(NamedTuple):
    """
    A consumer group.

    Attributes:
        state: Kafka's name of it, such as `Stable`; empty: the group does not exist.
        members: names (client id or instance id) of its members.
        allowed: the operations that this user may do on it; None: not known.
    """

    state: str
    members: tuple[str, ...]
    allowed: frozenset[str] | None


class Examination(NamedTuple):
    """
    The answers of a cluster.

    Attributes:
        nodes: the brokers; empty: they are no nodes of a network.
        topics: the health of each topic that was asked for and exists.
        groups: the health of each group that was asked for.
        listed: all groups that this user sees.
        settings: the settings of one broker; None: this user may not read them.
    """

    nodes: tuple[NodeFacts, ...]
    topics: Mapping[str, TopicHealth]
    groups: Mapping[str, GroupHealth]
    listed: tuple[str, ...]
    settings: Mapping[str, str] | None


class Examinable(Protocol):
    """A cluster that can be examined."""

    def examine(self, topics: Collection[str], groups: Collection[str]) -> Examination:
        """
        Ask for the nodes, these topics and groups, and all groups.

        Raises:
            BrokerError: the cluster does not answer, or this user may not see one of the topics.
        """
        ...
