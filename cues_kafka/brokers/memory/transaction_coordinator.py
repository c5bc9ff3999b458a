"""The coordinator of transactions: ids with their epochs, and the one transaction that each may have open."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

from cues_kafka.brokers.memory.group_coordinator import GroupCoordinator
from cues_kafka.brokers.memory.log import Log
from cues_kafka.brokers.memory.monitor import Monitor
from cues_kafka.brokers.memory.topics import Topics
from cues_kafka.brokers.memory.transactions import Transaction, TransactionalId
from cues_kafka.errors import AbortableError, FatalError
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.log import TopicPartition


class TransactionCoordinator:
    """
    What sessions ask. Public methods take the lock, except `forget` and `expire`, which expect that it is held.

    Args:
        monitor: the lock and the clock.
        topics: that transactions write to.
        groups: whose offsets transactions commit.
    """

    def __init__(self, monitor: Monitor, topics: Topics, groups: GroupCoordinator) -> None:
        self.ids: dict[str, TransactionalId] = {}
        self._monitor = monitor
        self._topics = topics
        self._groups = groups

    def init(self, name: str, timeout_s: float) -> int:
        """Fence each earlier producer of this id, abort its open transaction, and give the new epoch (R1)."""
        with self._monitor.changed:
            self._monitor.tick()
            state = self.ids.setdefault(name, TransactionalId(timeout_s))
            state.timeout_s = timeout_s
            state.epoch += 1
            self._decide(state, commit=False)
            self._monitor.changed.notify_all()
            return state.epoch

    def produce(self, name: str, epoch: int, records: Sequence[tuple[Any, ...]]) -> int:
        """Append in the transaction of this id; gives the offset of the first."""
        with self._monitor.changed:
            self._monitor.tick()
            transaction = self._transaction(name, epoch)
            return self._topics.append(records, transaction, self._monitor.clock.time())[0].offset()

    def add_offsets(
        self, name: str, epoch: int, offsets: Mapping[TopicPartition, int], metadata: GroupMetadata
    ) -> None:
        """Put offsets of a group into the transaction of this id, if the proof of membership holds (KIP-447)."""
        with self._monitor.changed:
            self._monitor.tick()
            transaction = self._transaction(name, epoch)
            group = self._groups.named(metadata.group)
            code = group.check(metadata)
            if code:
                raise AbortableError(
                    f"group {group.name} is at generation {group.generation} and refuses offsets of {metadata}: {code}",
                    code=code,
                )
            for place in offsets:
                self._topics.log_of(place)  # the topic must exist; the group need not subscribe to it
            transaction.groups.add(group.name)
            group.pending.setdefault(transaction.number, {}).update(offsets)

    def end(self, name: str, epoch: int, *, commit: bool) -> None:
        """
        Commit or abort; markers are written and offsets decided when this returns.

        A rebalance after the offsets call does not stop a commit (M2).
        """
        with self._monitor.changed:
            self._monitor.tick()
            state = self._owned(name, epoch)
            if state.open is None:
                raise FatalError(f"{name}: no transaction is open (any more)", code="INVALID_TXN_STATE")
            self._decide(state, commit=commit)
            self._monitor.changed.notify_all()

    def _owned(self, name: str, epoch: int) -> TransactionalId:
        state = self.ids.get(name)
        if state is None or state.epoch != epoch:
            raise FatalError(f"{name}: another producer with this transactional id took its place", code="_FENCED")
        return state

    def _transaction(self, name: str, epoch: int) -> Transaction:
        """The open transaction of an id; opened by its first write, which starts the clock of its timeout."""
        state = self._owned(name, epoch)
        if state.open is None:
            deadline = self._monitor.clock.monotonic() + state.timeout_s
            state.open = Transaction(next(self._monitor.numbers), deadline)
            self._monitor.expect(deadline)
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
            self._groups.groups[name].decide(transaction.number, commit=commit)

    def forget(self, logs: Collection[Log]) -> None:
        """Take the logs of a deleted topic out of open transactions."""
        for state in self.ids.values():
            if state.open is not None:
                state.open.logs.difference_update(logs)

    def expire(self, now: float) -> float:
        """Abort the transactions whose time is over; gives when the next one's is."""
        for state in self.ids.values():
            if state.open is not None and state.open.deadline <= now:
                self._time_out(state)
        return min((state.open.deadline for state in self.ids.values() if state.open is not None), default=inf)

    def _time_out(self, state: TransactionalId) -> None:
        """Abort with a new epoch, so that a late commit of the owner is refused."""
        state.epoch += 1
        self._decide(state, commit=False)
        self._monitor.changed.notify_all()
