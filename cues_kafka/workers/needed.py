"""The topics that the tasks of a worker need beside their inputs, and what of them the cluster has lost.

An idle task touches none of them, so without a question it looks well until its next message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from cues_kafka.plan.processors import FeedPlan, ProcessorPlan
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.facts import ClusterFacts, Watermarks
from cues_kafka.ports.log import TopicPartition
from cues_kafka.state.stores import Cache
from cues_kafka.task.restoring import LOST
from cues_kafka.words import SERVER, count

AGAIN: Final = (
    "`cues-kafka plan MODULE:GRAPH --apply` creates it again, without what it held; `cues-kafka verify MODULE:GRAPH` "
    "names what is lost"
)
"""What helps where a topic was deleted."""


class Needed(NamedTuple):
    """
    A topic that is written, or that holds requests.

    Attributes:
        topic: its name.
        role: what it is to the processor.
        partitions: how many it had when the worker was made; None: each task needs its own one.
    """

    topic: str
    role: str
    partitions: int | None = None


class LostTopic(NamedTuple):
    """What a task needs and the cluster has lost, without a full stop, and what to do."""

    what: str
    remedy: str


def needed_by(planned: ProcessorPlan | FeedPlan, facts: ClusterFacts) -> tuple[Needed, ...]:
    """
    The topics that the tasks of a processor or feed need, without its inputs and changelogs, whose ids are compared.

    Args:
        planned: the processor or feed.
        facts: what the cluster said of the topics when the worker was made.
    """
    written = [*((topic, "output") for _, topic in planned.outputs)]
    written += [(planned.errors, "errors topic")] if planned.errors else []
    found = [Needed(topic, role, facts.topics[topic].partitions) for topic, role in written if topic in facts.topics]
    found.append(Needed(planned.backing, "backing topic"))
    if isinstance(planned, ProcessorPlan):
        found += [Needed(planned.replay, "replay topic")] if planned.replay else []
        found += [Needed(planned.journal, "journal of answers")] if planned.journal else []
    return tuple({one.topic: one for one in found}.values())


def lost_of(needed: Sequence[Needed], there: Mapping[str, int], partition: int) -> LostTopic | None:
    """
    What a task needs and the cluster has lost; None: nothing.

    Args:
        needed: see `needed_by`.
        there: partition counts of the topics that there are now.
        partition: of the task.
    """
    return next((lost for one in needed if (lost := _lost(one, there.get(one.topic), partition)) is not None), None)


def _lost(one: Needed, now: int | None, partition: int) -> LostTopic | None:
    if now is None:
        return LostTopic(f"{one.role} {one.topic!r} was deleted", AGAIN)
    least = partition + 1 if one.partitions is None else one.partitions
    if now >= least:
        return None
    has = f"{one.role} {one.topic!r} was deleted and recreated: it has {count(now, 'partition')}"
    if one.partitions is None:
        return LostTopic(
            f"{has}, and this task needs partition {partition}", AGAIN.replace("creates it again", "adds the rest")
        )
    add = f"`kafka-topics {SERVER} --alter --topic {one.topic} --partitions {one.partitions}` adds the rest"
    return LostTopic(
        f"{has}, and had {one.partitions}",
        f"{add}, and the worker is restarted; `cues-kafka verify MODULE:GRAPH` names what is lost",
    )


def trimmed(caches: Iterable[Cache], partition: int, marks: Mapping[TopicPartition, Watermarks]) -> LostTopic | None:
    """
    Which changelog has lost entries since the task read it; None: none has.

    Kafka's compaction leaves the begin of a log where it is. So what moves it has deleted entries, which the next start
    of the task would miss.

    Args:
        caches: the stores of the task.
        partition: of the task.
        marks: of the changelogs, now.
    """
    for one in caches:
        now = marks.get(TopicPartition(one.spec.changelog, partition))
        if now is not None and now.low > one.begins:
            return LostTopic(
                f"{one.spec.changelog}/{partition} was trimmed: its entries below offset {now.low} were deleted, and "
                "only this process still has them",
                f"stop the workers and {LOST}",
            )
    return None


def places_of(caches: Iterable[Cache], partition: int) -> Iterator[TopicPartition]:
    """The partitions of the changelogs that a task has read."""
    return (TopicPartition(one.spec.changelog, partition) for one in caches if one.place.topic_id)


def partitions_there(broker: Broker, needed: Sequence[Needed]) -> dict[str, int]:
    """
    Partition counts of the topics that there are now.

    Raises:
        BrokerError: the cluster does not answer.
    """
    return broker.partitions(sorted(one.topic for one in needed)) if needed else {}
