"""The broker side: topics, logs, transactions and groups behind one lock.

Every rule of the brokers that the protocol leans on is one small method here, so that the contract suite can break it
alone (tests/contract/broken.py). Public methods take the lock; those that begin with an underscore expect it held.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from cues_kafka.brokers.memory.groups import UNKNOWN_MEMBER, Group, Membership
from cues_kafka.brokers.memory.log import Log, MemoryMessage, now_at
from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.errors import AbortableError, BrokerError, FatalError, UnstableOffsets
from cues_kafka.ports import (
    Clock,
    ClusterFacts,
    GroupMetadata,
    NewTopic,
    Sent,
    TopicFacts,
    TopicPartition,
    Watermarks,
    WireMessage,
)

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_DEFAULTS = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": str((1 << 63) - 1),
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


@dataclass(slots=True, eq=False)
class Transaction:
    """An open transaction: the logs that it wrote to, the groups whose offsets it holds, and when it times out."""

    number: int
    deadline: float
    logs: set[Log] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class TransactionalId:
    """What the transaction coordinator keeps of one id."""

    producer_id: int
    timeout_s: float
    epoch: int = -1
    open: Transaction | None = None


class Cluster:
    """
    All that outlives the clients.

    Args:
        clock: virtual time; None: the machine's. Under virtual time nothing ever waits.
        seed: of the topic ids.
        brokers: how many brokers the cluster says it has.
        cooperative: how groups rebalance; False is eager.
        session_timeout_s: after this long without a sign a silent member (killed, or closed without leaving) is out.
        max_poll_interval_s: after this long without a poll a living one is out.
    """

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
        self.waits = clock is None
        self.changed = threading.Condition(threading.Lock())
        self._random = random.Random(seed)  # noqa: S311 - ids of topics, not secrets
        self._brokers = brokers
        self._cooperative = cooperative
        self._session_timeout_s = session_timeout_s
        self._max_poll_interval_s = max_poll_interval_s
        self._topics: dict[str, TopicFacts] = {}
        self._logs: dict[tuple[str, int], Log] = {}
        self._ids: dict[str, TransactionalId] = {}
        self._groups: dict[str, Group] = {}
        self._numbers = 0
        self._keyless = 0
        self._deadline = inf
        """Nothing times out before this; may be too early, never too late."""

    # ---- topics

    def create(self, topics: Sequence[NewTopic]) -> None:
        """Create those that are not there."""
        with self.changed:
            for topic in topics:
                if topic.name not in self._topics:
                    self._create(topic)
            self.changed.notify_all()

    def _create(self, topic: NewTopic) -> None:
        if not _LEGAL_NAME.fullmatch(topic.name):
            raise BrokerError(f"{topic.name!r} is no legal topic name", code="TOPIC_EXCEPTION")
        if topic.partitions < 1:
            raise BrokerError(f"{topic.name}: a topic needs at least one partition", code="INVALID_PARTITIONS")
        replication = topic.replication or min(3, self._brokers)
        if replication > self._brokers:
            raise BrokerError(
                f"{topic.name}: {replication} replicas on {self._brokers} brokers", code="INVALID_REPLICATION_FACTOR"
            )
        config = _DEFAULTS | dict(topic.config)
        facts = TopicFacts(topic.name, self._new_topic_id(topic.name), 0, replication, config)
        self._topics[topic.name] = facts
        self._set_partitions(topic.name, topic.partitions)

    def _new_topic_id(self, name: str) -> bytes:
        """Another one for each topic ever made, also under the same name (KIP-516)."""
        return self._random.randbytes(16)

    def add_partitions(self, topic: str, total: int) -> None:
        """Raise the number of partitions to `total`; a smaller number changes nothing."""
        with self.changed:
            self._facts_of(topic)
            self._set_partitions(topic, total)
            self.changed.notify_all()

    def _set_partitions(self, topic: str, total: int) -> None:
        facts = self._topics[topic]
        for partition in range(facts.partitions, total):
            self._logs[topic, partition] = Log(
                topic,
                partition,
                compacted="compact" in facts.config["cleanup.policy"],
                append_time=facts.config["message.timestamp.type"] == "LogAppendTime",
                max_bytes=int(facts.config["max.message.bytes"]),
                older_ms=int(facts.config["message.timestamp.before.max.ms"]),
                newer_ms=int(facts.config["message.timestamp.after.max.ms"]),
            )
        self._topics[topic] = TopicFacts(
            facts.name, facts.topic_id, max(total, facts.partitions), facts.replication, facts.config
        )
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
        """Those of `topics` that exist."""
        with self.changed:
            return ClusterFacts(self._brokers, {name: self._topics[name] for name in topics if name in self._topics})

    def partitions(self, topics: Collection[str] | None) -> dict[str, int]:
        """Partition counts of these topics that exist; None: of all."""
        with self.changed:
            wanted = self._topics if topics is None else topics
            return {name: self._topics[name].partitions for name in wanted if name in self._topics}

    def _facts_of(self, topic: str) -> TopicFacts:
        try:
            return self._topics[topic]
        except KeyError:
            raise unknown_topic(topic) from None

    def log_of(self, place: tuple[str, int]) -> Log:
        """
        The log of a partition; the lock is held.

        Raises:
            BrokerError: ``UNKNOWN_TOPIC_OR_PART``.
        """
        try:
            return self._logs[place]
        except KeyError:
            raise unknown_topic(f"{place[0]}/{place[1]}", at=place) from None

    # ---- logs

    def watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Low, last stable and high offset."""
        with self.changed:
            self.tick()
            return {place: self._watermarks_of(self.log_of(place)) for place in partitions}

    def _watermarks_of(self, log: Log) -> Watermarks:
        return log.watermarks()

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or past a time."""
        with self.changed:
            self.tick()
            return {place: self._offset_at(self.log_of(place), time_ms) for place, time_ms in times.items()}

    def _offset_at(self, log: Log, time_ms: int) -> int | None:
        return next((m.offset() for m in log.messages if m.timestamp()[1] >= time_ms), None)

    def readable_end(self, log: Log) -> int:
        """Where a read_committed reader has to stop: the last stable offset."""
        return log.stable

    def end_reported(self, log: Log, position: int) -> int | None:
        """The offset of the end-of-partition event for a reader at `position`, None before the end."""
        return position if position >= self.readable_end(log) else None

    def start_for(self, log: Log, position: int) -> int:
        """
        Where a reader at `position` goes on.

        Raises:
            BrokerError: ``_AUTO_OFFSET_RESET``: the offset is out of range, and guessing would skip or repeat data.
        """
        if log.start <= position <= log.end:
            return position
        raise BrokerError(
            f"{log.topic}/{log.partition}: offset {position} is out of range [{log.start}, {log.end}]",
            code="_AUTO_OFFSET_RESET",
            at=TopicPartition(log.topic, log.partition),
        )

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
                self._trim(log, log.end if offset < 0 else offset)
            self.changed.notify_all()

    def messages(self, topic: str) -> list[WireMessage]:
        """All committed messages of a topic."""
        with self.changed:
            self.tick()
            facts = self._topics.get(topic)
            logs = [self._logs[topic, partition] for partition in range(facts.partitions if facts else 0)]
            return [message for log in logs for message in log.read(log.start, log.stable, len(log.offsets))[0]]

    def _trim(self, log: Log, offset: int) -> None:
        log.trim(offset)

    def compact(self, topic: str, *, tombstones: bool = False) -> None:
        """Compact every partition of a topic now; see `Log.compact`."""
        with self.changed:
            for partition in range(self._facts_of(topic).partitions):
                self._compact(self._logs[topic, partition], tombstones=tombstones)

    def _compact(self, log: Log, *, tombstones: bool) -> None:
        log.compact(tombstones=tombstones)

    def send(self, records: Sequence[tuple[Any, ...]]) -> list[Sent]:
        """Append outside of any transaction."""
        with self.changed:
            self.tick()
            try:
                return [Sent(m.topic(), m.partition(), m.offset()) for m in self._append(records, None)]
            finally:
                self.changed.notify_all()

    def _append(self, records: Iterable[tuple[Any, ...]], transaction: Transaction | None) -> list[MemoryMessage]:
        """Append in order; what stands before a refused record stays, as with a real broker."""
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
            if log.compacted and key is None:
                raise AbortableError(
                    f"{topic}: a compacted topic takes no message without a key", code="INVALID_RECORD"
                )
            if value is not None and len(value) > log.max_bytes:
                raise AbortableError(
                    f"{topic}: a value of {len(value)} bytes is over max.message.bytes={log.max_bytes}",
                    code="MSG_SIZE_TOO_LARGE",
                )
            if timestamp_ms > 0 and not log.append_time:
                ago_ms = now[0][1] - timestamp_ms
                if ago_ms > log.older_ms or -ago_ms > log.newer_ms:
                    raise AbortableError(
                        f"{topic}: the timestamp {timestamp_ms} is outside of message.timestamp.before.max.ms and "
                        "message.timestamp.after.max.ms",
                        code="INVALID_TIMESTAMP",
                    )
            appended.append(log.append(key, value, headers, timestamp_ms, now, number))
        return appended

    def _partition_of(self, topic: str, key: bytes | None) -> int:
        partitions = self._facts_of(topic).partitions
        if key is not None:
            return self._hashed(key, partitions)
        self._keyless += 1
        return self._keyless % partitions

    def _hashed(self, key: bytes, partitions: int) -> int:
        return partition_for(key, partitions)

    # ---- transactions

    def init(self, name: str, timeout_s: float) -> int:
        """Fence every earlier producer of this id, abort its open transaction, and give the new epoch (R1)."""
        with self.changed:
            self.tick()
            state = self._ids.setdefault(name, TransactionalId(len(self._ids) + 1, timeout_s))
            state.timeout_s = timeout_s
            self._fence(state)
            self._end_left_open(state)
            self.changed.notify_all()
            return state.epoch

    def _fence(self, state: TransactionalId) -> None:
        state.epoch += 1

    def _end_left_open(self, state: TransactionalId) -> None:
        self._decide(state, commit=False)

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
            self._check_membership(group, metadata)
            self._check_offsets(group, offsets)
            transaction.groups.add(group.name)
            group.pending.setdefault(transaction.number, {}).update(offsets)

    def _check_membership(self, group: Group, metadata: GroupMetadata) -> None:
        code = group.check(metadata)
        if code:
            raise AbortableError(
                f"group {group.name} is at generation {group.generation} and refuses offsets of {metadata}: {code}",
                code=code,
            )

    def _check_offsets(self, group: Group, offsets: Mapping[TopicPartition, int]) -> None:
        for place in offsets:
            self.log_of(place)  # the topic must exist; the group need not subscribe to it

    def end(self, name: str, epoch: int, *, commit: bool) -> None:
        """Commit or abort; markers are written and offsets decided when this returns."""
        with self.changed:
            self.tick()
            state = self._owned(name, epoch)
            if state.open is None:
                raise FatalError(f"{name}: no transaction is open (any more)", code="INVALID_TXN_STATE")
            if commit:
                self._check_commit(state.open)
            self._decide(state, commit=commit)
            self.changed.notify_all()

    def _check_commit(self, transaction: Transaction) -> None:
        """Nothing: a rebalance after the offsets call does not stop a commit (M2)."""

    def _owned(self, name: str, epoch: int) -> TransactionalId:
        state = self._ids.get(name)
        if state is None or state.epoch != epoch:
            raise FatalError(f"{name}: another producer with this transactional id took its place", code="_FENCED")
        return state

    def _transaction(self, name: str, epoch: int) -> Transaction:
        """The open transaction of an id; opened by its first write, which starts the clock of its timeout."""
        state = self._owned(name, epoch)
        if state.open is None:
            self._numbers += 1
            state.open = Transaction(self._numbers, self.clock.monotonic() + state.timeout_s)
            self._deadline = min(self._deadline, state.open.deadline)
        return state.open

    def _decide(self, state: TransactionalId, *, commit: bool) -> None:
        """Write the markers, release or remove the messages, apply or drop the offsets."""
        transaction, state.open = state.open, None
        if transaction is None:
            return
        for log in transaction.logs:
            first = log.open.pop(transaction.number)
            if not commit:
                self._discard(log, transaction.number, first)
            self._mark(log)
        for name in transaction.groups:
            self._groups[name].decide(transaction.number, commit=commit)

    def _discard(self, log: Log, transaction: int, first: int) -> None:
        log.discard(transaction, first)

    def _mark(self, log: Log) -> None:
        log.mark()

    # ---- groups

    def _group(self, name: str) -> Group:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = self._new_group(name)
        return group

    def _new_group(self, name: str) -> Group:
        return Group(name, self._partition_count, cooperative=self._cooperative)

    def _partition_count(self, topic: str) -> int:
        facts = self._topics.get(topic)
        return facts.partitions if facts else 0

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """
        Stable committed offsets.

        Raises:
            UnstableOffsets: an open transaction holds one of them.
        """
        with self.changed:
            self.tick()
            known = self._groups.get(group)
            if known is None:
                return dict.fromkeys(partitions)
            for place in partitions:
                self._check_stable(known, place)
            return {place: known.offsets.get(place) for place in partitions}

    def _check_stable(self, group: Group, place: TopicPartition) -> None:
        if group.unstable(place):
            raise UnstableOffsets(
                f"an open transaction holds an offset of {place.topic}/{place.partition} in group {group.name}",
                code="UNSTABLE_OFFSET_COMMIT",
            )

    def members(self, group: str) -> list[str]:
        """Names of a group's members."""
        with self.changed:
            self.tick()
            return [member.name for member in self._groups[group].members] if group in self._groups else []

    def join(self, group: str, topic: str, instance: str | None) -> Membership:
        """A new member of a group."""
        with self.changed:
            self.tick()
            self._numbers += 1
            member = Membership(f"{group}-{self._numbers}", instance, topic, self.clock.monotonic())
            self._deadline = min(self._deadline, member.seen + self._session_timeout_s)
            self._group(group).join(member)
            return member

    def heartbeat(self, group: str, member: Membership) -> tuple[set[int], set[int], bool]:
        """
        A member polls: what it gives back first, what it gets else, and whether it is told its first assignment.

        Raises:
            BrokerError: it is no member any more; the code says why.
        """
        with self.changed:
            self.tick()
            if member.gone:
                raise FatalError(f"group {group} does not know {member.name} any more", code=member.gone)
            member.seen = self.clock.monotonic()
            revoked, assigned, first = self._groups[group].changes(member)
            if not revoked:
                member.held |= assigned  # at once: between here and the callback another rebalance may come
            return revoked, assigned, first

    def acknowledge(self, group: str, member: Membership, partitions: set[int]) -> None:
        """The member has given these back."""
        with self.changed:
            self._groups[group].acknowledge(member, partitions)

    def leave(self, group: str, member: Membership) -> None:
        """The member goes for good."""
        with self.changed:
            if not member.gone:
                self._groups[group].remove(member)

    def silence(self, member: Membership) -> None:
        """The member's process is gone, its place is kept until the session timeout."""
        with self.changed:
            member.silent = True
            member.seen = self.clock.monotonic()
            self._deadline = min(self._deadline, member.seen + self._session_timeout_s)

    def expire(self, group: str, name: str | None) -> None:
        """End the session of one member by its name, or of all."""
        with self.changed:
            known = self._groups.get(group)
            doomed = [member for member in known.members if name in (None, member.name)] if known else []
            if name is not None and not doomed:
                raise BrokerError(f"group {group} has no member {name}", code=UNKNOWN_MEMBER)
            for member in doomed:
                self._groups[group].remove(member)

    def forget_offsets(self, group: str) -> None:
        """A group's committed offsets expire; those of open transactions are decided later."""
        with self.changed:
            if group in self._groups:
                self._groups[group].offsets.clear()

    # ---- time

    def wait(self, until: float) -> None:
        """Release the lock until something changes, something times out, or `until` on the machine's clock."""
        self.changed.wait(max(0.0, min(until, self._deadline) - self.clock.monotonic()))

    def tick(self) -> None:
        """Abort the transactions and expel the members whose time is over. The lock is held."""
        now = self.clock.monotonic()
        if now < self._deadline:
            return
        self._deadline = inf
        for state in self._ids.values():
            if state.open is not None and state.open.deadline <= now:
                self._time_out(state)
            if state.open is not None:
                self._deadline = min(self._deadline, state.open.deadline)
        session_s, poll_s = self._session_timeout_s, self._max_poll_interval_s
        for group in self._groups.values():
            for member in group.expired(now, session_s=session_s, poll_s=poll_s):
                group.remove(member)
            for _, deadline in group.deadlines(session_s=session_s, poll_s=poll_s):
                self._deadline = min(self._deadline, deadline)

    def _time_out(self, state: TransactionalId) -> None:
        """The coordinator aborts with a new epoch, so that a late commit of the owner is refused."""
        state.epoch += 1
        self._decide(state, commit=False)
        self.changed.notify_all()


def unknown_topic(
    what: str, kind: type[BrokerError] = BrokerError, *, at: tuple[str, int] | None = None
) -> BrokerError:
    """The error for a topic or partition that is not there."""
    return kind(f"{what} does not exist", code="UNKNOWN_TOPIC_OR_PART", at=at)
