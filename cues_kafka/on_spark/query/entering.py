"""D6: before a query starts, no other process runs its processor, and every slot has a record.

Each slot takes its transactional id once. That ends the open transaction of a dead predecessor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from cues_kafka.errors import ConfigError, TaskStopped
from cues_kafka.graph.names import backing_topic, group_id, transactional_id
from cues_kafka.on_spark.query.jobs import AT_ONCE
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.plan.topics import backing_config, may_lack
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.facts import NewTopic

FENCE_S: Final = 30.0
"""How long the ids of all tasks may take."""


def claim(broker: Broker, graph: str, processor: str, width: int) -> int:
    """
    Check that no worker runs a processor, and create its backing topic if it does not exist.

    Args:
        broker: the cluster.
        graph: name of the graph.
        processor: name of the processor.
        width: partitions of a backing topic that is created.

    Returns:
        The number of partitions of the backing topic.

    Raises:
        ConfigError: the group has members.
    """
    backing, group = backing_topic(graph, processor), group_id(graph, processor)
    facts = broker.facts([backing])
    known = facts.topics.get(backing)
    if known is None:
        config = backing_config(facts.brokers)
        broker.create([NewTopic(backing, width, min(3, facts.brokers), config, may_lack(config))])
    if members := broker.members(group):
        raise ConfigError(f"group {group!r} has members {members}: stop them first")
    return width if known is None else known.partitions


def end_all(broker: Broker, graph: str, processor: str, width: int) -> None:
    """
    J8: end what a worker left open under the id of any task, because it may hold the offsets of several tasks.

    Raises:
        BrokerError: an id cannot be taken.
    """
    ids = [transactional_id(graph, processor, task) for task in range(width)]
    for error in broker.fence(ids, timeout_s=FENCE_S).values():
        raise error


def enter_all(enter: Callable[[int], Outcome], width: int) -> list[Outcome]:
    """Enter the slots of a processor, many at a time; return where each stands, or why it stopped."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="enter") as pool:
        return list(pool.map(enter, range(width)))


def refuse(outcomes: Sequence[Outcome]) -> None:
    """
    Raise if a slot stopped.

    Raises:
        TaskStopped: with the cause and remedy of each stopped slot.
    """
    if stops := [outcome for outcome in outcomes if outcome.kind]:
        raise stopped_tasks(stops)


def stopped_tasks(stops: Sequence[Outcome]) -> TaskStopped:
    """The exception that tells the user which tasks stopped."""
    return TaskStopped("; ".join(f"{stop.task}: {stop.text}. Remedy: {stop.remedy}" for stop in stops))
