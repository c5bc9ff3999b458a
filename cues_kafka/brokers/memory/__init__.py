"""The reference broker: what the protocol needs of Kafka, in memory, deterministic, under the same contract suite.

It carries the fast tests, `Tester`, the checkers and the simulation. What it simulates: logs whose offsets are taken by
commit and abort markers too, transactional ids with epochs and fencing, transactions with their offsets and time-outs,
read_committed up to the last stable offset, end-of-partition events, generations, cooperative and eager rebalances with
acknowledged revocations, static members, sessions that end, compaction, trimming, topic ids, murmur2 partitioning.

What it does NOT simulate:

- Several replicas: nothing acknowledged is ever lost, the high watermark is the log's end, there are no leader epochs,
  no truncation, no stale leaders or coordinators.
- Time on the way: a request is applied at once or (by `Faults`) not at all, or its reply is lost. Late or reordered
  requests, such as an EndTxn that ends the next transaction (KAFKA-17754), need a real broker. Markers are written
  before `commit` returns; Kafka writes them shortly after.
- Idempotence as a mechanism: producer ids, sequences and their expiry. Nothing is retried, so nothing is repeated.
  Expiry of transactional ids and of group offsets. Epochs do not overflow.
- A cooperative rebalance that waits for silent members: it is complete at once, and only what they hold waits for
  their session. Heartbeats between polls: a member that lives is given `max_poll_interval_s`. The consumer protocol
  (KIP-848). Subscriptions to more than one topic.
- Retention, segments, tiered storage, quotas, ACLs, TLS; compaction and the removal of tombstones happen on demand
  only. Batches: there is no limit on requests, only `max.message.bytes` for values. Compression.
- A full producer queue, delivery time-outs, and messages written by anybody who is not in this process.

A process that dies: forget its sessions and readers, `kill()` its members (or `expire` them here), and make new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from cues_kafka.brokers.memory.clients import Faults, MemoryMember, MemoryReader, MemorySender, MemorySession, NoFaults
from cues_kafka.brokers.memory.cluster import Cluster
from cues_kafka.brokers.memory.log import MemoryMessage
from cues_kafka.ports import Clock, ClusterFacts, Listener, NewTopic, TopicPartition, Watermarks, WireMessage

__all__ = [
    "Faults",
    "MemoryBroker",
    "MemoryMember",
    "MemoryMessage",
    "MemoryReader",
    "MemorySender",
    "MemorySession",
]

_Answer = TypeVar("_Answer")


class MemoryBroker:
    """
    A cluster in memory; implements `ports.Broker`, and offers tests what only an operator or time does to a real one.

    Args:
        clock: virtual time; then no call ever waits, and time-outs happen when the clock has passed them and something
            is asked of the broker. None: the machine's clock.
        seed: of the topic ids.
        brokers: how many brokers the cluster says it has.
        cooperative: how groups rebalance; False is eager.
        transaction_timeout_s: of every session.
        session_timeout_s: how long the place of a killed member, or of a static one that closed, is kept.
        max_poll_interval_s: how long a member may live without polling.
        faults: what goes wrong on the way to the cluster.
    """

    cluster_type: type[Cluster] = Cluster
    session_type: type[MemorySession] = MemorySession
    reader_type: type[MemoryReader] = MemoryReader
    member_type: type[MemoryMember] = MemoryMember

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        seed: int = 0,
        brokers: int = 1,
        cooperative: bool = True,
        transaction_timeout_s: float = 60.0,
        session_timeout_s: float = 10.0,
        max_poll_interval_s: float = 300.0,
        faults: Faults | None = None,
    ) -> None:
        self._cluster = self.cluster_type(
            clock,
            seed=seed,
            brokers=brokers,
            cooperative=cooperative,
            session_timeout_s=session_timeout_s,
            max_poll_interval_s=max_poll_interval_s,
        )
        self._transaction_timeout_s = transaction_timeout_s
        self._faults: Faults = faults or NoFaults()

    # ---- the port

    def facts(self, topics: Collection[str]) -> ClusterFacts:
        """What the cluster says of itself and of these topics."""
        return self._ask("facts", "", lambda: self._cluster.facts(topics))

    def partitions(self, topics: Collection[str] | None = None) -> dict[str, int]:
        """Partition counts of these topics, or of all."""
        return self._ask("partitions", "", lambda: self._cluster.partitions(topics))

    def create(self, topics: Sequence[NewTopic]) -> None:
        """Create those that are not there."""
        self._cluster.create(topics)

    def add_partitions(self, topic: str, total: int) -> None:
        """Raise a topic's partition count to `total`."""
        self._cluster.add_partitions(topic, total)

    def delete(self, topics: Sequence[str]) -> None:
        """Delete those that are there."""
        self._cluster.delete(topics)

    def trim(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete the records below these offsets."""
        self._cluster.trim(offsets)

    def watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Low, last stable and high offset of each partition."""
        return self._ask("watermarks", "", lambda: self._cluster.watermarks(partitions))

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or past a time, by partition."""
        return self._ask("offsets_at", "", lambda: self._cluster.offsets_at(times))

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's stable offsets."""
        return self._ask("committed", group, lambda: self._cluster.committed(group, partitions))

    def members(self, group: str) -> list[str]:
        """Names of the group's members."""
        return self._cluster.members(group)

    def unowned(self, group: str, topic: str, partitions: int) -> set[int]:
        """None: a static member whose predecessor died between two rounds of a rebalance is given all that it lacks."""
        return set()

    max_bytes = 1_000_000

    def expect(self, transactional_ids: Sequence[str], *, batch_bytes: int | None = None) -> None:
        """Nothing has to connect here."""

    def session(self, transactional_id: str, *, batch_bytes: int | None = None) -> MemorySession:
        """A new transactional producer."""
        return self.session_type(
            self._cluster,
            transactional_id,
            transaction_timeout_s=self._transaction_timeout_s,
            faults=self._faults,
        )

    def reader(self, name: str, *, prompt: bool = False) -> MemoryReader:
        """A new reader; each says at once where a partition ends."""
        return self.reader_type(self._cluster)

    def member(self, group: str, topic: str, listener: Listener, *, instance: str | None = None) -> MemoryMember:
        """A new member of a group."""
        return self.member_type(self._cluster, group, topic, listener, instance)

    def sender(self, name: str, *, batch_bytes: int | None = None) -> MemorySender:
        """A new producer for applications."""
        return MemorySender(self._cluster, name, self._faults)

    def close(self) -> None:
        """Nothing is held; the logs stay as long as this object."""

    def _ask(self, operation: str, client: str, question: Callable[[], _Answer]) -> _Answer:
        self._faults.before(operation, client)
        answer = question()
        self._faults.after(operation, client)
        return answer

    # ---- what operators and time do

    def compact(self, topic: str, *, tombstones: bool = False) -> None:
        """
        Compact a topic now: below the last stable offset only the newest message of each key stays, at its offset.

        Args:
            topic: its name.
            tombstones: remove newest messages without a value, too.
        """
        self._cluster.compact(topic, tombstones=tombstones)

    def expire(self, group: str, name: str | None = None) -> None:
        """
        End the session of the member with this name, or of all members of the group.

        Raises:
            BrokerError: there is no such member.
        """
        self._cluster.expire(group, name)

    def forget_offsets(self, group: str) -> None:
        """Let a group's committed offsets expire, as they do some time after its last member has gone."""
        self._cluster.forget_offsets(group)

    def messages(self, topic: str) -> list[WireMessage]:
        """All committed messages of a topic, by partition and offset; empty where it does not exist."""
        return self._cluster.messages(topic)
