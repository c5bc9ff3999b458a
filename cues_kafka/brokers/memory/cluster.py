"""The broker side: topics, logs, transactions and groups behind one lock.

Each rule of the brokers that the protocol leans on is one small method of a part, a log or a group, so that the
contract suite can break it alone (tests/contract/broken.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cues_kafka.brokers.memory.group_coordinator import GroupCoordinator
from cues_kafka.brokers.memory.groups import Group
from cues_kafka.brokers.memory.log import Log
from cues_kafka.brokers.memory.monitor import Monitor
from cues_kafka.brokers.memory.topics import Topics
from cues_kafka.brokers.memory.transaction_coordinator import TransactionCoordinator
from cues_kafka.errors import BrokerError
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import ClusterFacts, NewTopic, Watermarks
from cues_kafka.ports.log import Sent, TopicPartition, WireMessage


class Cluster:
    """
    Everything that outlives the clients.

    Args:
        clock: virtual time; None: the machine's clock. Under virtual time no call waits, and a time-out happens when
            the clock has passed it and a client asks the cluster something.
        seed: decides the topic ids.
        brokers: how many brokers the cluster says it has.
        cooperative: how groups rebalance; False is eager.
        session_timeout_s: how long the group keeps the place of a silent member (killed, or closed without leaving).
        max_poll_interval_s: how long a living member may go without a poll.

    Attributes:
        monitor: the lock of all parts, and their clock.
        topics: with their logs.
        groups: what members ask.
        transactions: what sessions ask.
    """

    log_type: type[Log] = Log
    group_type: type[Group] = Group
    topics_type: type[Topics] = Topics
    groups_type: type[GroupCoordinator] = GroupCoordinator
    transactions_type: type[TransactionCoordinator] = TransactionCoordinator

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        seed: int = 0,
        brokers: int = 1,
        cooperative: bool = True,
        session_timeout_s: float = 10.0,
        max_poll_interval_s: float = 300.0,
    ) -> None:
        self._brokers = brokers
        self.monitor: Monitor = Monitor(clock)
        self.topics: Topics = self.topics_type(seed=seed, brokers=brokers, log_type=self.log_type)
        self.groups: GroupCoordinator = self.groups_type(
            self.monitor,
            self.topics,
            self.group_type,
            cooperative=cooperative,
            session_timeout_s=session_timeout_s,
            max_poll_interval_s=max_poll_interval_s,
        )
        self.transactions: TransactionCoordinator = self.transactions_type(self.monitor, self.topics, self.groups)
        self.monitor.timed = (self.transactions.expire, self.groups.expire)

    # ---- topics

    def create(self, topics: Sequence[NewTopic]) -> None:
        with self.monitor.changed:
            for topic in topics:
                if topic.name not in self.topics.facts:
                    self.topics.create(topic)
                    self.groups.rebalance(topic.name)
            self.monitor.changed.notify_all()

    def add_partitions(self, topic: str, total: int) -> None:
        with self.monitor.changed:
            self.topics.set_partitions(topic, total)
            self.groups.rebalance(topic)
            self.monitor.changed.notify_all()

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        with self.monitor.changed:
            self.topics.configure(topic, settings)

    def delete(self, topics: Sequence[str]) -> None:
        """Delete topics with their logs and the offsets that groups hold of them."""
        with self.monitor.changed:
            for topic in topics:
                self.transactions.forget(self.topics.delete(topic))
                self.groups.forget_topic(topic)
                self.groups.rebalance(topic)
            self.monitor.changed.notify_all()

    def facts(self, topics: Collection[str]) -> ClusterFacts:
        with self.monitor.changed:
            known = self.topics.facts
            return ClusterFacts(self._brokers, {name: known[name] for name in topics if name in known})

    def partitions(self, topics: Collection[str] | None) -> dict[str, int]:
        with self.monitor.changed:
            known = self.topics.facts
            wanted = known if topics is None else topics
            return {name: known[name].partitions for name in wanted if name in known}

    # ---- logs

    def watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        with self.monitor.changed:
            self.monitor.tick()
            return {place: self.topics.log_of(place).watermarks() for place in partitions}

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        with self.monitor.changed:
            self.monitor.tick()
            return {place: self.topics.log_of(place).offset_at(time_ms) for place, time_ms in times.items()}

    def open_since(self, partitions: Collection[TopicPartition], *, group: str) -> dict[TopicPartition, float]:
        with self.monitor.changed:
            self.monitor.tick()
            logs = {place: log for place in partitions if (log := self.topics.log_of(place)).open}
            firsts = {place: log.read(log.stable, log.end, 1)[0] for place, log in logs.items()}
            return {place: messages[0].timestamp()[1] / 1000 for place, messages in firsts.items() if messages}

    def damage(self, place: TopicPartition, start: int, end: int) -> None:
        """Let the offsets `[start, end)` be a batch that no client can unpack."""
        with self.monitor.changed:
            self.topics.log_of(place).refused.append((start, end))
            self.monitor.changed.notify_all()

    def trim(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Move log starts; -1 is the high watermark."""
        with self.monitor.changed:
            for place, offset in offsets.items():
                log = self.topics.log_of(place)
                if offset > log.end:
                    raise BrokerError(
                        f"{place.topic}/{place.partition}: cannot trim to {offset}, the end is {log.end}",
                        code="OFFSET_OUT_OF_RANGE",
                    )
                log.trim(log.end if offset < 0 else offset)
            self.monitor.changed.notify_all()

    def messages(self, topic: str) -> list[WireMessage]:
        """All committed messages of a topic, by partition and offset; empty if it does not exist."""
        with self.monitor.changed:
            self.monitor.tick()
            logs = self.topics.logs_of(topic)
            return [message for log in logs for message in log.read(log.start, log.stable, len(log.offsets))[0]]

    def compact(self, topic: str, *, tombstones: bool = False) -> None:
        """Compact a topic now; see `Log.compact`."""
        with self.monitor.changed:
            self.topics.facts_of(topic)  # it must exist
            for log in self.topics.logs_of(topic):
                log.compact(tombstones=tombstones)

    def send(self, records: Sequence[tuple[Any, ...]]) -> list[Sent]:
        with self.monitor.changed:
            self.monitor.tick()
            try:
                appended = self.topics.append(records, None, self.monitor.clock.time())
                return [Sent(one.topic(), one.partition(), one.offset()) for one in appended]
            finally:
                self.monitor.changed.notify_all()
