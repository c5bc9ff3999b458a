"""The reference broker: what the protocol needs of Kafka, in memory, deterministic, under the same contract suite.

It carries the fast tests, `Tester`, the checkers and the simulation. What it simulates: logs in which commit and abort
markers take offsets, too; transactional ids with epochs and fencing; transactions with their offsets and time-outs;
read_committed up to the last stable offset; end-of-partition events; generations; cooperative and eager rebalances with
acknowledged revocations; static members; sessions that end; compaction, trimming, topic ids, murmur2 partitioning.

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
- A full producer queue, delivery time-outs, and messages of other processes.

To let a process die, forget its sessions and readers, `kill()` its members (or `expire` them here), and make new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from cues_kafka.brokers.examination import Examination, GroupHealth, TopicHealth
from cues_kafka.brokers.memory.clients import (
    Faults,
    MemoryLooseSession,
    MemoryMember,
    MemoryReader,
    MemorySender,
    MemorySession,
    ask,
)
from cues_kafka.brokers.memory.cluster import Cluster
from cues_kafka.brokers.memory.log import MemoryMessage
from cues_kafka.errors import BrokerError
from cues_kafka.ports.clients import Listener
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import ClusterFacts, Watermarks
from cues_kafka.ports.log import TopicPartition

__all__ = [
    "Faults",
    "MemoryBroker",
    "MemoryLooseSession",
    "MemoryMember",
    "MemoryMessage",
    "MemoryReader",
    "MemorySender",
    "MemorySession",
]

BRIEF_S: Final = 30.0
"""The transaction time-out of brief sessions: three times the socket time-out that `Kafka` has by default."""

_Answer = TypeVar("_Answer")


class MemoryBroker(Cluster):
    """
    A cluster in memory; implements `Broker`, and offers tests what only an operator or time does to a real one.

    Args:
        clock, seed, brokers, cooperative, session_timeout_s, max_poll_interval_s: see `Cluster`.
        transaction_timeout_s: of every session.
        faults: what goes wrong on the way to the cluster.
    """

    session_type = MemorySession
    reader_type = MemoryReader
    member_type = MemoryMember
    sender_type = MemorySender

    max_bytes = 1_000_000

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
        super().__init__(
            clock,
            seed=seed,
            brokers=brokers,
            cooperative=cooperative,
            session_timeout_s=session_timeout_s,
            max_poll_interval_s=max_poll_interval_s,
        )
        self._transaction_timeout_s = transaction_timeout_s
        self._faults = faults or Faults()

    # ---- questions that faults may meet

    def facts(self, topics: Collection[str]) -> ClusterFacts:
        return self._ask("facts", "", super().facts, topics)

    def partitions(self, topics: Collection[str] | None = None) -> dict[str, int]:
        return self._ask("partitions", "", super().partitions, topics)

    def watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        return self._ask("watermarks", "", super().watermarks, partitions)

    def stable_ends(
        self, partitions: Collection[TopicPartition], *, timeout_s: float = 2.0
    ) -> dict[TopicPartition, int]:
        return {place: marks.stable for place, marks in self.watermarks(partitions).items()}

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return self._ask("offsets_at", "", super().offsets_at, times)

    def open_since(self, partitions: Collection[TopicPartition], *, group: str) -> dict[TopicPartition, float]:
        return self._ask("open_since", "", lambda: super(MemoryBroker, self).open_since(partitions, group=group))

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        return self._ask("committed", group, self.groups.committed, group, partitions)

    def members(self, group: str) -> list[str]:
        return self.groups.members(group)

    def forget(self, group: str, topics: Collection[str]) -> bool:
        return self.groups.forget(group, topics)

    def _ask(self, operation: str, client: str, question: Callable[..., _Answer], *args: Any) -> _Answer:
        return ask(self._faults, operation, client, lambda: question(*args))[0]

    # ---- what time or an operator does to groups

    def expire(self, group: str, name: str | None = None) -> None:
        """End the session of the member with this name, or of all members of the group."""
        self.groups.end_sessions(group, name)

    def forget_offsets(self, group: str) -> None:
        """Let the committed offsets of a group expire."""
        self.groups.forget_offsets(group)

    # ---- clients

    def unowned(self, group: str, topic: str, partitions: int) -> set[int]:
        """None: a static member whose predecessor died between two rounds of a rebalance is given all that it lacks."""
        return set()

    def examine(self, topics: Collection[str], groups: Collection[str]) -> Examination:
        """See `Examinable.examine`: it has no nodes, keeps all replicas, and allows everything."""
        health = {
            name: TopicHealth((), (one.replication,) * one.partitions, (one.replication,) * one.partitions, None)
            for name, one in self.facts(topics).topics.items()
        }
        known = tuple(sorted(self.groups.groups))
        found = {}
        for group in groups:
            members = tuple(self.members(group))
            state = "" if group not in known else "Stable" if members else "Empty"
            found[group] = GroupHealth(state, members, None)
        return Examination((), health, found, known, None)

    def expect(self, transactional_ids: Sequence[str], *, batch_bytes: int | None = None) -> None:
        """Nothing to do: sessions do not connect."""

    def fence(self, transactional_ids: Collection[str], *, timeout_s: float) -> dict[str, BrokerError]:
        failed = {}
        for one in transactional_ids:
            session = self.session(one)
            try:
                session.init(timeout_s=timeout_s)
            except BrokerError as error:
                failed[one] = error
            session.abandon()
        return failed

    def session(self, transactional_id: str, *, batch_bytes: int | None = None, brief: bool = False) -> MemorySession:
        timeout_s = min(self._transaction_timeout_s, BRIEF_S) if brief else self._transaction_timeout_s
        return self.session_type(self, transactional_id, transaction_timeout_s=timeout_s, faults=self._faults)

    def loose_session(self, name: str, *, batch_bytes: int | None = None) -> MemoryLooseSession:
        return MemoryLooseSession(self, name, self._faults)

    def reader(self, name: str, *, prompt: bool = False) -> MemoryReader:
        return self.reader_type(self)

    def member(self, group: str, topic: str, listener: Listener, *, instance: str | None = None) -> MemoryMember:
        return self.member_type(self, group, topic, listener, instance)

    def sender(self, name: str, *, batch_bytes: int | None = None) -> MemorySender:
        return self.sender_type(self, name, self._faults)

    def close(self) -> None:
        """Nothing to release: the logs stay as long as this object."""
