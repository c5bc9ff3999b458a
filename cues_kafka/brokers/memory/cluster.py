"""The broker side: topics, logs, transactions and groups behind one lock.

Each rule of the brokers that the protocol leans on is one small method, here or of a log or a group, so that the
contract suite can break it alone (tests/contract/broken.py). Public methods take the lock; methods that begin with an
underscore expect that the lock is held.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from cues_kafka.brokers.memory.groups import UNKNOWN_MEMBER, Group, Membership
from cues_kafka.brokers.memory.log import DEFAULTS, Log, MemoryMessage, now_at
from cues_kafka.brokers.memory.transactions import Transaction, TransactionalId
from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.errors import AbortableError, BrokerError, FatalError, UnstableOffsets
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import ClusterFacts, NewTopic, TopicFacts, Watermarks
from cues_kafka.ports.log import Sent, TopicPartition, WireMessage

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


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
    """

    log_type = Log
    group_type = Group

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
        self.clock: Clock = clock or time
        self.waits: bool = clock is None
        self.changed: threading.Condition = threading.Condition(threading.Lock())  # guards all below; `_...` hold it
        self._random = random.Random(seed)  # noqa: S311 - ids of topics, not secrets
        self._brokers = brokers
        self._cooperative = cooperative
        self._session_timeout_s = session_timeout_s
        self._max_poll_interval_s = max_poll_interval_s
        self._topics: dict[str, TopicFacts] = {}
        self._logs: dict[tuple[str, int], Log] = {}
        self._ids: dict[str, TransactionalId] = {}
        self._groups: dict[str, Group] = {}
        self._last_number = 0
        self._keyless_messages = 0
        self._next_deadline = inf
        """Nothing times out before this moment; it may be too early, never too late."""

    # ---- topics

    def create(self, topics: Sequence[NewTopic]) -> None:
        with self.changed:
            for topic in topics:
                if topic.name not in self._topics:
                    self._create(topic)
            self.changed.notify_all()

    def _create(self, topic: NewTopic) -> None:
        if not _LEGAL_NAME.fullmatch(topic.name):
            raise BrokerError(f"{topic.name!r} is not a legal topic name", code="TOPIC_EXCEPTION")
        if topic.partitions < 1:
            raise BrokerError(f"{topic.name}: a topic needs at least one partition", code="INVALID_PARTITIONS")
        replication = topic.replication or min(3, self._brokers)
        if replication > self._brokers:
            raise BrokerError(
                f"{topic.name}: {replication} replicas on {self._brokers} brokers", code="INVALID_REPLICATION_FACTOR"
            )
        topic_id = self._random.randbytes(16)  # a recreated topic gets another one (KIP-516)
        self._topics[topic.name] = TopicFacts(topic.name, topic_id, 0, replication, DEFAULTS | dict(topic.config))
        self._set_partitions(topic.name, topic.partitions)

    def add_partitions(self, topic: str, total: int) -> None:
        with self.changed:
            self._facts_of(topic)
            self._set_partitions(topic, total)
            self.changed.notify_all()

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        with self.changed:
            facts = self._facts_of(topic)
            self._topics[topic] = replace(facts, config={**facts.config, **settings})

    def _set_partitions(self, topic: str, total: int) -> None:
        facts = self._topics[topic]
        for partition in range(facts.partitions, total):
            self._logs[topic, partition] = self.log_type(topic, partition, facts.config)
        self._topics[topic] = replace(facts, partitions=max(total, facts.partitions))
        self._rebalance_subscribers(topic)

    def delete(self, topics: Sequence[str]) -> None:
        """Delete topics with their logs and the offsets that groups hold of them."""
        with self.changed:
            for topic in topics:
                facts = self._topics.pop(topic, None)
                for partition in range(facts.partitions if facts else 0):
                    log = self._logs.pop((topic, partition))
                    for state in self._ids.values():
                        if state.open is not None:
                            state.open.logs.discard(log)
                for group in self._groups.values():
                    group.forget(topic)
                self._rebalance_subscribers(topic)
            self.changed.notify_all()

    def _rebalance_subscribers(self, topic: str) -> None:
        for group in self._groups.values():
            if any(member.topic == topic for member in group.members):
                group.rebalance()

    def facts(self, topics: Collection[str]) -> ClusterFacts:
        with self.changed:
            return ClusterFacts(self._brokers, {name: self._topics[name] for name in topics if name in self._topics})

    def partitions(self, topics: Collection[str] | None) -> dict[str, int]:
        with self.changed:
            wanted = self._topics if topics is None else topics
            return {name: self._topics[name].partitions for name in wanted if name in self._topics}

    def _facts_of(self, topic: str) -> TopicFacts:
        try:
            return self._topics[topic]
        except KeyError:
            raise unknown_topic(topic) from None

    def log_of(self, place: tuple[str, int]) -> Log:
        """The log of a partition; the lock is held."""
        try:
            return self._logs[place]
        except KeyError:
            raise unknown_topic(f"{place[0]}/{place[1]}", at=place) from None

    # ---- logs

    def watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        with self.changed:
            self.tick()
            return {place: self.log_of(place).watermarks() for place in partitions}

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        with self.changed:
            self.tick()
            return {place: self.log_of(place).offset_at(time_ms) for place, time_ms in times.items()}

    def open_since(self, partitions: Collection[TopicPartition], *, group: str) -> dict[TopicPartition, float]:
        with self.changed:
            self.tick()
            logs = {place: log for place in partitions if (log := self.log_of(place)).open}
            firsts = {place: log.read(log.stable, log.end, 1)[0] for place, log in logs.items()}
            return {place: messages[0].timestamp()[1] / 1000 for place, messages in firsts.items() if messages}

    def readable_end(self, log: Log) -> int:
        """Where a read_committed reader stops: the last stable offset."""
        return log.stable

    def end_reported(self, log: Log, position: int) -> int | None:
        """The offset of the end-of-partition event for a reader at `position`, None before the end."""
        return position if position >= self.readable_end(log) else None

    def start_for(self, log: Log, position: int) -> int:
        """
        Where a reader at `position` goes on.

        Raises:
            BrokerError: ``_AUTO_OFFSET_RESET``: the offset is out of range; a guess would skip or repeat data.
        """
        if log.start <= position <= log.end:
            return position
        raise BrokerError(
            f"{log.topic}/{log.partition}: offset {position} is out of range [{log.start}, {log.end}]",
            code="_AUTO_OFFSET_RESET",
            at=TopicPartition(log.topic, log.partition),
        )

    def damage(self, place: TopicPartition, start: int, end: int) -> None:
        """Let the offsets `[start, end)` be a batch that no client can unpack."""
        with self.changed:
            self.log_of(place).refused.append((start, end))
            self.changed.notify_all()

    def trim(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Move log starts; -1 is the high watermark."""
        with self.changed:
            for place, offset in offsets.items():
                log = self.log_of(place)
                if offset > log.end:
                    raise BrokerError(
                        f"{place.topic}/{place.partition}: cannot trim to {offset}, the end is {log.end}",
                        code="OFFSET_OUT_OF_RANGE",
                    )
                log.trim(log.end if offset < 0 else offset)
            self.changed.notify_all()

    def messages(self, topic: str) -> list[WireMessage]:
        """All committed messages of a topic, by partition and offset; empty if it does not exist."""
        with self.changed:
            self.tick()
            facts = self._topics.get(topic)
            logs = [self._logs[topic, partition] for partition in range(facts.partitions if facts else 0)]
            return [message for log in logs for message in log.read(log.start, log.stable, len(log.offsets))[0]]

    def compact(self, topic: str, *, tombstones: bool = False) -> None:
        """Compact a topic now; see `Log.compact`."""
        with self.changed:
            for partition in range(self._facts_of(topic).partitions):
                self._logs[topic, partition].compact(tombstones=tombstones)

    def send(self, records: Sequence[tuple[Any, ...]]) -> list[Sent]:
        with self.changed:
            self.tick()
            try:
                return [Sent(m.topic(), m.partition(), m.offset()) for m in self._append(records, None)]
            finally:
                self.changed.notify_all()

    def _append(self, records: Iterable[tuple[Any, ...]], transaction: Transaction | None) -> list[MemoryMessage]:
        """Append in order; the records before a refused one stay, as with a real broker."""
        logs = self._logs
        appended: list[MemoryMessage] = []
        now = now_at(self.clock.time())
        number = transaction.number if transaction else 0
        for topic, wanted, key, value, headers, timestamp_ms in records:
            partition = self._partition_of(topic, key) if wanted is None else wanted
            log = logs.get((topic, partition))
            if log is None:
                raise unknown_topic(f"{topic}/{partition}", AbortableError, at=(topic, partition))
            if transaction is not None and log not in transaction.logs:
                transaction.logs.add(log)
                log.open[number] = log.end
            appended.append(log.append(key, value, headers, timestamp_ms, now, number))
        return appended

    def _partition_of(self, topic: str, key: bytes | None) -> int:
        partitions = self._facts_of(topic).partitions
        if key is not None:
            return partition_for(key, partitions)
        self._keyless_messages += 1
        return self._keyless_messages % partitions

    # ---- transactions

    def init(self, name: str, timeout_s: float) -> int:
        """Fence each earlier producer of this id, abort its open transaction, and give the new epoch (R1)."""
        with self.changed:
            self.tick()
            state = self._ids.setdefault(name, TransactionalId(timeout_s))
            state.timeout_s = timeout_s
            state.epoch += 1
            self._decide(state, commit=False)
            self.changed.notify_all()
            return state.epoch

    def produce(self, name: str, epoch: int, records: Sequence[tuple[Any, ...]]) -> int:
        """Append in the transaction of this id; gives the offset of the first."""
        with self.changed:
            self.tick()
            return self._append(records, self._transaction(name, epoch))[0].offset()

    def add_offsets(
        self, name: str, epoch: int, offsets: Mapping[TopicPartition, int], metadata: GroupMetadata
    ) -> None:
        """Put offsets of a group into the transaction of this id, if the proof of membership holds (KIP-447)."""
        with self.changed:
            self.tick()
            transaction = self._transaction(name, epoch)
            group = self._group(metadata.group)
            code = group.check(metadata)
            if code:
                raise AbortableError(
                    f"group {group.name} is at generation {group.generation} and refuses offsets of {metadata}: {code}",
                    code=code,
                )
            for place in offsets:
                self.log_of(place)  # the topic must exist; the group need not subscribe to it
            transaction.groups.add(group.name)
            group.pending.setdefault(transaction.number, {}).update(offsets)

    def commit_offsets(self, offsets: Mapping[TopicPartition, int], metadata: GroupMetadata) -> str:
        """Commit offsets of a member without a transaction; gives why they are refused, or an empty text."""
        with self.changed:
            self.tick()
            group = self._group(metadata.group)
            if code := group.check(metadata):
                return f"group {group.name} is at generation {group.generation} and refuses {metadata}: {code}"
            group.offsets.update(offsets)
            return ""

    def end(self, name: str, epoch: int, *, commit: bool) -> None:
        """
        Commit or abort; markers are written and offsets decided when this returns.

        A rebalance after the offsets call does not stop a commit (M2).
        """
        with self.changed:
            self.tick()
            state = self._owned(name, epoch)
            if state.open is None:
                raise FatalError(f"{name}: no transaction is open (any more)", code="INVALID_TXN_STATE")
            self._decide(state, commit=commit)
            self.changed.notify_all()

    def _owned(self, name: str, epoch: int) -> TransactionalId:
        state = self._ids.get(name)
        if state is None or state.epoch != epoch:
            raise FatalError(f"{name}: another producer with this transactional id took its place", code="_FENCED")
        return state

    def _transaction(self, name: str, epoch: int) -> Transaction:
        """The open transaction of an id; opened by its first write, which starts the clock of its timeout."""
        state = self._owned(name, epoch)
        if state.open is None:
            self._last_number += 1
            state.open = Transaction(self._last_number, self.clock.monotonic() + state.timeout_s)
            self._next_deadline = min(self._next_deadline, state.open.deadline)
        return state.open

    def _decide(self, state: TransactionalId, *, commit: bool) -> None:
        """Write the markers, release or remove the messages, apply or drop the offsets."""
        transaction, state.open = state.open, None
        if transaction is None:
            return
        for log in transaction.logs:
            first = log.open.pop(transaction.number)
            if not commit:
                log.discard(transaction.number, first)
            log.mark()
        for name in transaction.groups:
            self._groups[name].decide(transaction.number, commit=commit)

    # ---- groups

    def _group(self, name: str) -> Group:
        if name not in self._groups:
            self._groups[name] = self.group_type(name, self._partition_count, cooperative=self._cooperative)
        return self._groups[name]

    def _partition_count(self, topic: str) -> int:
        facts = self._topics.get(topic)
        return facts.partitions if facts else 0

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        with self.changed:
            self.tick()
            known = self._groups.get(group)
            if known is None:
                return dict.fromkeys(partitions)
            for place in partitions:
                if known.unstable(place):
                    raise UnstableOffsets(
                        f"an open transaction holds an offset of {place.topic}/{place.partition} in group {group}",
                        code="UNSTABLE_OFFSET_COMMIT",
                    )
            return {place: known.offsets.get(place) for place in partitions}

    def members(self, group: str) -> list[str]:
        with self.changed:
            self.tick()
            return [member.name for member in self._groups[group].members] if group in self._groups else []

    def forget(self, group: str, topics: Collection[str]) -> bool:
        with self.changed:
            self.tick()
            known = self._groups.get(group)
            if known is not None and known.members:
                raise FatalError(f"deleting group {group}: it has members", code="NON_EMPTY_GROUP")
            if known is not None and {place.topic for place in known.offsets} - set(topics):
                return False
            self._groups.pop(group, None)
            return True

    def join(self, group: str, topic: str, instance: str | None) -> Membership:
        with self.changed:
            self.tick()
            self._last_number += 1
            member = Membership(f"{group}-{self._last_number}", instance, topic, self.clock.monotonic())
            self._next_deadline = min(self._next_deadline, member.seen + self._session_timeout_s)
            self._group(group).join(member)
            return member

    def heartbeat(self, group: str, member: Membership) -> tuple[set[int], set[int], bool]:
        """
        Serve a member's poll: what it gives back; if nothing, what it gets; and whether this is its first assignment.

        Raises:
            FatalError: it is no longer a member; the code says why.
        """
        with self.changed:
            self.tick()
            if member.gone:
                raise FatalError(f"{member.name} is no longer a member of group {group}", code=member.gone)
            member.seen = self.clock.monotonic()
            revoked, assigned, first = self._groups[group].changes(member)
            if not revoked:
                member.held |= assigned  # at once: between here and the callback another rebalance may come
            return revoked, assigned, first

    def acknowledge(self, group: str, member: Membership, partitions: set[int]) -> None:
        """Note that the member has given these partitions back."""
        with self.changed:
            self._groups[group].acknowledge(member, partitions)

    def leave(self, group: str, member: Membership) -> None:
        """Take a member out that goes for good."""
        with self.changed:
            if not member.gone:
                self._groups[group].remove(member)

    def silence(self, member: Membership) -> None:
        """Note that the member's process is gone; its place is kept until the session timeout."""
        with self.changed:
            member.silent = True
            member.seen = self.clock.monotonic()
            self._next_deadline = min(self._next_deadline, member.seen + self._session_timeout_s)

    def expire(self, group: str, name: str | None = None) -> None:
        """
        End the session of the member with this name, or of all members of the group.

        Raises:
            BrokerError: the group has no such member.
        """
        with self.changed:
            known = self._groups.get(group)
            doomed = [member for member in known.members if name in (None, member.name)] if known else []
            if name is not None and not doomed:
                raise BrokerError(f"group {group} has no member {name}", code=UNKNOWN_MEMBER)
            for member in doomed:
                self._groups[group].remove(member)

    def forget_offsets(self, group: str) -> None:
        """Let a group's committed offsets expire, as they do some time after its last member has gone."""
        with self.changed:
            if group in self._groups:
                self._groups[group].offsets.clear()

    # ---- time

    def wait(self, until: float) -> None:
        """Release the lock until something changes, something times out, or `until` on the machine's clock."""
        self.changed.wait(max(0.0, min(until, self._next_deadline) - self.clock.monotonic()))

    def tick(self) -> None:
        """Abort the transactions and remove the members whose time is over. The lock is held."""
        now = self.clock.monotonic()
        if now < self._next_deadline:
            return
        for state in self._ids.values():
            if state.open is not None and state.open.deadline <= now:
                self._time_out(state)
        for group in self._groups.values():
            for member in [member for member in group.members if self._end_of(member) <= now]:
                group.remove(member)
        ends = [state.open.deadline for state in self._ids.values() if state.open is not None]
        ends += [self._end_of(member) for group in self._groups.values() for member in group.members]
        self._next_deadline = min(ends, default=inf)

    def _end_of(self, member: Membership) -> float:
        """When the time of a member that is not heard of again is over."""
        return member.seen + (self._session_timeout_s if member.silent else self._max_poll_interval_s)

    def _time_out(self, state: TransactionalId) -> None:
        """Abort with a new epoch, so that a late commit of the owner is refused."""
        state.epoch += 1
        self._decide(state, commit=False)
        self.changed.notify_all()


def unknown_topic(
    what: str, kind: type[BrokerError] = BrokerError, *, at: tuple[str, int] | None = None
) -> BrokerError:
    """The error for a topic or partition that does not exist."""
    return kind(f"{what} does not exist", code="UNKNOWN_TOPIC_OR_PART", at=at)
