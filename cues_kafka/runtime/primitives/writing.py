"""Transactions of a client under one transactional id, each with a known outcome.

Non-obvious:

- All records are there before a transaction begins, so it is open for milliseconds: no user code runs inside (P5).
- An error before the commit means that nothing is committed, now or later: the request that commits was never made.
- After an error *of* the commit, a new session takes the id, which decides what was open. Then the log says whether the
  first record is committed: its partition was chosen here, and its offset is known from the delivery report.
- A record at that offset is ours: the brokers acknowledged it there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from cues_kafka.errors import BrokerError, FatalError, Unknown
from cues_kafka.observe.log import get_logger
from cues_kafka.ports import GroupMetadata, Outgoing, Sent, Session, TopicPartition
from cues_kafka.runtime.primitives.access import Access
from cues_kafka.runtime.primitives.asking import ASK_S, read_decided

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

Decide = Callable[[], bool]


class IdWriter:
    """
    Writes transactions with one transactional id, one after the other. Threads may share it.

    Args:
        access: of the client.
        transactional_id: the id.
        who: what has the id, for errors: ``the client 'billing-1'``.
        regained: called with the id taken again after an error; raises if another holder wrote meanwhile.
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
        self._batch_bytes: int | None = None
        self._fenced: BrokerError | None = None
        self._used = False
        self._lock = threading.RLock()

    def open(self) -> None:
        """
        Take the id: ends the transaction that a former holder left open, and fences it.

        Raises:
            BrokerError: the cluster does not answer, or this user may not.
        """
        with self._lock:
            self._ready(None)

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
            batch_bytes: see `Broker.session`.
            offsets: the next offsets of a group, for lag tools.
            group: the group.
            decide: says after an error of the commit whether it is committed; None: the first record says it.

        Returns:
            The place of the first record.

        Raises:
            BrokerError: nothing of it is written.
            Unknown: it cannot be told whether it is.
        """
        with self._lock:
            for left in reversed(range(ROUNDS)):
                try:
                    return self._attempt(records, batch_bytes, offsets, group, decide)
                except BrokerError as error:
                    if self._fenced or error.forbidden or error.code in _NOT_AGAIN or not left:
                        raise
                    log.info("transaction again", id=self._id, error=str(error))
            raise AssertionError("the last round returns or raises")

    def close(self) -> None:
        """Release the session."""
        with self._lock:
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
        session = self._ready(batch_bytes)
        first = records[0]
        assert first.partition is not None, "the place of the first record decides"
        try:
            session.begin()
            if offsets:
                session.send_offsets(offsets, GroupMetadata.outside(group))
            session.produce(records)
            offset = session.flush().first_offset
        except BrokerError as error:
            self._drop()
            raise self._not_written(error) from error
        except BaseException:
            self._drop()
            raise
        assert offset is not None, "a flushed transaction has a report for its first record"
        place = Sent(first.topic, first.partition, offset)
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

    def _committed(self, error: BrokerError, place: Sent, decide: Decide | None) -> bool:
        """Whether the transaction whose commit failed is committed."""
        try:
            if error.fenced:
                self._note_fence(error)  # the other session decided it, or is about to
            else:
                self._ready(None)
            return decide() if decide else self._is_there(place)
        except Unknown:
            raise
        except BrokerError as problem:
            raise Unknown(
                f"{self._who}: the commit of a transaction failed ({error}), and the log cannot be asked: {problem}. "
                f"Its first record is at {place.topic}/{place.partition}, offset {place.offset}, if it is committed"
            ) from problem

    def _is_there(self, sent: Sent) -> bool:
        place = TopicPartition(sent.topic, sent.partition)
        topic = self._access.topic(sent.topic)
        ranges = {place: (sent.offset, sent.offset + 1)}
        found = read_decided(self._access.broker, ranges, self._access.clock, ASK_S, group=topic.group)
        there = any(message.offset() == sent.offset for message in found)
        if not there and topic.target.compacted:
            raise Unknown(
                f"{self._who}: the commit of a transaction failed, and {sent.topic!r} is compacted: that its record at "
                f"partition {sent.partition}, offset {sent.offset} is gone says nothing. Read the newest record of its "
                "key, and decide"
            )
        return there

    def _ready(self, batch_bytes: int | None) -> Session:
        """The session, with the id taken; another one where the topics take smaller batches than those before."""
        if self._fenced:
            raise self._fenced
        smaller = batch_bytes is not None and (self._batch_bytes is None or batch_bytes < self._batch_bytes)
        if smaller:
            self._batch_bytes = batch_bytes
            self.close()
        if self._session is None:
            session = self._access.broker.session(self._id, batch_bytes=self._batch_bytes, brief=True)
            try:
                session.init(timeout_s=INIT_TIMEOUT_S)
                if self._used:
                    self._regained()
            except BaseException as error:
                session.abandon()
                if isinstance(error, BrokerError) and error.fenced:
                    raise self._note_fence(error) from error
                raise
            self._session, self._used = session, True
        return self._session

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.abandon()

    def _not_written(self, error: BrokerError) -> BrokerError:
        if error.fenced:
            return self._note_fence(error)
        text = f"{error}; nothing of this transaction is written"
        return type(error)(text, code=error.code, at=error.at, remedy=error.remedy)

    def _note_fence(self, error: BrokerError) -> BrokerError:
        self._fenced = self._fenced or FatalError(
            f"{self._who} was opened again after this one, which took its place. Nothing of this transaction is "
            f"written. Give each program a name of its own; if this one was only silent for too long, open it again: "
            f"{error}",
            code=error.code,
        )
        return self._fenced
