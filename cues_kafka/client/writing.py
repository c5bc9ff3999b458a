"""Transactions of a client under one transactional id, each with a known outcome.

Non-obvious:

- All records are there before a transaction begins, so it is open for milliseconds: no user code runs inside (P5).
- An error before the commit means that nothing is committed, now or later: the request that commits was never made.
- After an error *of* the commit (K2), a new session takes the id, which decides what was open. Then the log says
  whether the first record is committed: its partition was chosen here, and the delivery report gave its offset.
- A record at that offset is ours: the brokers acknowledged it there.
- The session of an id is opened again after errors only (K1): that takes the id, maybe from a newer holder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from cues_kafka.client.access import Access
from cues_kafka.client.asking import ASK_S, read_decided
from cues_kafka.errors import BrokerError, ConfigError, FatalError, RetriableError, Unknown
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.clients import GroupMetadata, Session
from cues_kafka.ports.log import Outgoing, Sent, TopicPartition
from cues_kafka.task.calling.outputs import size_of

log = get_logger("cues_kafka.client")

INIT_TIMEOUT_S: Final = 30.0

ROUNDS: Final = 3
"""How often a transaction is written: again only when it is certain that the attempt before is not committed."""

_NOT_AGAIN: Final = {
    "INVALID_RECORD",
    "INVALID_TIMESTAMP",
    "MSG_SIZE_TOO_LARGE",
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_PARTITION",
    "_UNKNOWN_TOPIC",
}
"""Errors that another attempt would meet again."""

Decide: TypeAlias = "Callable[[], bool | None]"

RECORD_BYTES: Final = 100
"""What a record may need in a batch beside its key, value and headers."""


class IdWriter:
    """
    Writes transactions with one transactional id, one after the other. Threads may share it.

    Args:
        access: of the client.
        transactional_id: the id.
        who: what has the id, for errors: ``the client 'billing-1'``.
        regained: called when the id was taken again after an error; raises an error that is `fenced` if the id has
            another holder. Then nothing is written any more.
    """

    def __init__(
        self,
        access: Access,
        transactional_id: str,
        *,
        who: str,
        regained: Callable[[], None] = lambda: None,
    ) -> None:
        self._access = access
        self._id = transactional_id
        self._who = who
        self._regained = regained
        self._session: Session | None = None
        self._lost: BrokerError | None = None
        self._used = self._closed = False
        self._lock = threading.RLock()

    def open(self) -> None:
        """
        Take the id: ends the transaction that a former holder left open, and fences it.

        Raises:
            BrokerError: the cluster does not answer, or this user may not.
        """
        with self._lock:
            self._ready()

    def write(
        self,
        records: Sequence[Outgoing],
        *,
        batch_bytes: int | None = None,
        offsets: Mapping[TopicPartition, int] | None = None,
        group: str = "",
        decide: Decide | None = None,
    ) -> Sent:
        """
        Write a transaction, and know its outcome when this returns or raises.

        Args:
            records: at least one; the first one names its partition.
            batch_bytes: the largest batch of records that all topics take; None: not known.
            offsets: the next offsets of a group, for lag tools.
            group: the group.
            decide: says after an error of the commit whether it is committed; without it, or if it gives None, the
                first record says it.

        Returns:
            The place of the first record.

        Raises:
            ConfigError: the first record names no partition; nothing is written.
            BrokerError: nothing of it is written.
            Unknown: it cannot be told whether it is.
        """
        with self._lock:
            for left in reversed(range(ROUNDS)):
                try:
                    return self._attempt(records, batch_bytes, offsets, group, decide)
                except BrokerError as error:
                    if self._lost or error.forbidden or error.code in _NOT_AGAIN or not left:
                        raise
                    log.info("transaction again", id=self._id, error=str(error))
            raise AssertionError("the last round returns or raises")

    def close(self) -> None:
        """Release the session. The id is not taken again: another run may have it by then (K1)."""
        with self._lock:
            self._closed = True
            session, self._session = self._session, None
            if session is not None:
                session.close()

    def _attempt(
        self,
        records: Sequence[Outgoing],
        batch_bytes: int | None,
        offsets: Mapping[TopicPartition, int] | None,
        group: str,
        decide: Decide | None,
    ) -> Sent:
        session = self._ready()
        first, offset = records[0], None
        partition = self._partition_of(first)
        try:
            session.begin()
            if offsets:
                session.send_offsets(offsets, GroupMetadata.outside(group))
            for some in self._batches(records, batch_bytes):
                session.produce(some)
                offset = session.flush().first_offset
            if offset is None:
                raise RetriableError("the client has acknowledged all records, and did not say where the first one is")
        except BrokerError as error:
            self._drop()
            raise self._not_written(error) from error
        except BaseException:
            self._drop()
            raise
        place = Sent(first.topic, partition, offset)
        try:
            suspect = session.commit()
        except BrokerError as error:
            self._drop()
            if not self._committed(error, place, decide):
                raise self._not_written(error) from error
        except BaseException:
            self._drop()
            raise
        else:
            if suspect:
                log.info("suspect commit", id=self._id, why=suspect)
                self._drop()
        return place

    def _partition_of(self, first: Outgoing) -> int:
        """The partition of the first record, whose place says later whether a transaction is committed."""
        if first.partition is None:
            raise ConfigError(
                f"{self._who}: the first message of a transaction, to {first.topic!r}, has neither a key nor a "
                "partition, so after a commit without an answer the client could not find out whether it succeeded. "
                "Give the message a key, or partition="
            )
        return first.partition

    def _committed(self, error: BrokerError, place: Sent, decide: Decide | None) -> bool:
        """Whether the transaction whose commit failed is committed."""
        try:
            try:
                self._ready()
            except BrokerError:
                if not self._lost:
                    raise
            # A later holder has decided it by taking the id, or is about to.
            decided = decide() if decide else None
            return self._is_there(place) if decided is None else decided
        except BrokerError as problem:
            raise Unknown(
                f"{self._who}: the commit of a transaction failed ({error}), and the client cannot read the log to "
                f"find out whether it succeeded: {problem}. If it did, its first message is at "
                f"{place.topic}/{place.partition}, offset {place.offset}"
            ) from problem

    def _is_there(self, sent: Sent) -> bool:
        place = TopicPartition(sent.topic, sent.partition)
        topic = self._access.topic(sent.topic)
        ranges = {place: (sent.offset, sent.offset + 1)}
        found = read_decided(self._access.broker, ranges, self._access.clock, ASK_S, group=topic.group)
        there = any(message.offset() == sent.offset for message in found)
        if not there and topic.target.compacted:
            raise Unknown(
                f"{self._who}: the commit of a transaction failed. The message at partition {sent.partition}, offset "
                f"{sent.offset} of {sent.topic!r} is gone, but the topic is compacted, so it is not known whether the "
                "commit succeeded. Read the newest message of its key, and decide"
            )
        return there

    def _batches(self, records: Sequence[Outgoing], most: int | None) -> Iterator[Sequence[Outgoing]]:
        """Runs of records that fit a batch of every topic, where the client's own limit is above it."""
        if most is None or most >= self._access.broker.max_bytes:
            yield records
            return
        start, size = 0, 0
        for index, record in enumerate(records):
            own = len(record.key or b"") + len(record.value or b"") + size_of(record.headers or []) + RECORD_BYTES
            if size + own > most and index > start:
                yield records[start:index]
                start, size = index, 0
            size += own
        yield records[start:]

    def _ready(self) -> Session:
        """The session, with the id taken."""
        if self._closed:
            raise RuntimeError(f"{self._who} is closed and can no longer write")
        if self._lost:
            raise self._lost
        if self._session is None:
            session = self._access.broker.session(self._id, brief=True)
            try:
                session.init(timeout_s=INIT_TIMEOUT_S)
                if self._used:
                    self._check_holder()
            except BaseException:
                session.abandon()
                raise
            self._session, self._used = session, True
        return self._session

    def _check_holder(self) -> None:
        try:
            self._regained()
        except BrokerError as error:
            if error.fenced:
                self._lost = FatalError(
                    f"{self._who} was opened by another program or run, which replaced this one: {error}. This client "
                    "can no longer write. Give each program its own name",
                    code=error.code,
                )
                raise self._lost from error
            raise

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.abandon()

    def _not_written(self, error: BrokerError) -> BrokerError:
        if self._lost:
            return self._lost
        text = f"{self._who}: {error}; nothing of this transaction is written"
        return type(error)(text, code=error.code, at=error.at, remedy=error.remedy)
