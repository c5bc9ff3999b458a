"""Which consumer groups of others read topics that are about to be deleted: other graphs, and other applications."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from cues_kafka.errors import BrokerError, UnstableOffsets
from cues_kafka.ports.log import TopicPartition
from cues_kafka.words import count


class OtherReaders(NamedTuple):
    """
    Who else reads some topics.

    Attributes:
        topics: by group, the topics in which it has committed offsets.
        unseen: how many groups this user may not look at.
    """

    topics: Mapping[str, tuple[str, ...]] = {}
    unseen: int = 0

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is said of them before the deletion, in full sentences."""
        found = [
            f"group {group}, which is not of this graph, reads {', '.join(topics)}. It loses what it has not read, and "
            "the topic that is created again is another one."
            for group, topics in self.topics.items()
        ]
        if self.unseen:
            groups = count(self.unseen, "consumer group")
            found.append(f"{groups} of others cannot be seen by this user, and may read the topics.")
        return tuple(found)


def other_readers(broker: Any, topics: Collection[str], own: Collection[str]) -> OtherReaders:
    """
    Find the groups that have committed offsets in these topics.

    Args:
        broker: the cluster.
        topics: those of the user that would be deleted.
        own: the groups of the graph.

    Raises:
        BrokerError: the cluster does not answer.
    """
    sizes = broker.partitions(sorted(topics)) if topics else {}
    places = [TopicPartition(topic, p) for topic, width in sizes.items() for p in range(width)]
    found: dict[str, tuple[str, ...]] = {}
    unseen = 0
    for group in broker.examine((), ()).listed if places else ():
        if group in own:
            continue
        try:
            held = broker.committed(group, places)
        except UnstableOffsets:
            found[group] = tuple(sorted(sizes))  # its open transaction holds offsets of some of them
        except BrokerError as error:
            if not error.forbidden:
                raise
            unseen += 1
        else:
            if read := sorted({place.topic for place, offset in held.items() if offset is not None}):
                found[group] = tuple(read)
    return OtherReaders(found, unseen)
