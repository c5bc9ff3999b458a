"""Read the newest record of a task (R4), and tell what the records of several tasks mean together.

The search for the newest record goes backwards from the high watermark, in doubling windows. It usually takes one
fetch, because the record stands two offsets before the end, and its marker one. The cost depends on the distance
between the newest record of the key and the end, and not on the age of the topic.
"""

from __future__ import annotations

from collections.abc import Sequence

from cues_kafka.core.records import KEY, Record, Snapshot, Staged
from cues_kafka.core.spec import Spec
from cues_kafka.errors import CodecError, RetriableError
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.records.bytes import decode_record
from cues_kafka.records.extents import offsets_of

FIRST_WINDOW = 16
"""Offsets of the first window, with room for a few aborted records and their markers."""

OPEN_TRANSACTION = "OPEN_TRANSACTION"
"""The code of the error that says that a record was not reached in time."""

PATIENCE_S = 3.0
"""After this time without progress an open transaction hides the rest: that of a zombie that initialised late (R4)."""


def newest(
    broker: Broker,
    partition: TopicPartition,
    low: int,
    high: int,
    clock: Clock,
    *,
    group: str,
    key: bytes = KEY,
    patience_s: float = PATIENCE_S,
) -> WireMessage | None:
    """
    Read the newest committed record with this key below `high`, or None.

    Args:
        broker: where to read; a reader is opened and closed.
        partition: of a backing topic.
        low: where it begins.
        high: the high watermark, never the last stable offset: below the latter newer records may be hidden (R3).
        clock: bounds the wait.
        group: a group that the caller may describe; the reader does not join it or commit there.
        key: the record's key.
        patience_s: after how long without progress to give up.

    Raises:
        RetriableError: no progress up to `high`, for example because of an open transaction, or of slow brokers.
        BrokerError: the partition cannot be read.
    """
    if high <= low:
        return None
    reader = broker.reader(group, prompt=True)
    try:
        window, end = FIRST_WINDOW, high
        while end > low:
            start = max(low, high - window)
            found = _last_in(reader, partition, start, high, clock=clock, key=key, patience_s=patience_s)
            if found is not None or start == low:
                return found
            window, end = window * 8, start
        return None
    finally:
        reader.close()


def _last_in(
    reader: Reader, partition: TopicPartition, start: int, high: int, *, clock: Clock, key: bytes, patience_s: float
) -> WireMessage | None:
    """The last record with this key in `[start, high)`. The whole range is read, because the last one counts."""
    found: WireMessage | None = None
    reader.assign({partition: start})
    try:
        deadline = clock.monotonic() + patience_s
        while clock.monotonic() < deadline:
            for fetched in reader.poll(0.2):
                deadline = clock.monotonic() + patience_s if fetched.messages else deadline
                for message in fetched.messages:
                    if message.offset() >= high:
                        return found
                    if message.key() == key:
                        found = message
                if fetched.eof is not None and fetched.eof >= high:
                    return found
                if fetched.messages and fetched.messages[-1].offset() == high - 1:
                    return found
    finally:
        reader.unassign([partition])
    raise RetriableError(
        f"nothing new below {high} of {partition.topic}/{partition.partition} for {patience_s:g} s: an open "
        "transaction hides it, or the brokers are slow. If this lasts, find the transaction with `kafka-transactions "
        f"--bootstrap-server BOOTSTRAP find-hanging --topic {partition.topic} --partition {partition.partition}`, end "
        "it with its `abort`",
        code=OPEN_TRANSACTION,
    )


def read_record(message: WireMessage) -> Record:
    """
    Return the task record in a message of a backing topic.

    Raises:
        CodecError: the message is no task record, or has a version that this release does not know.
    """
    value = message.value()
    if value is None:
        raise CodecError("there is a tombstone instead of a task record: only the task may write to this topic")
    return decode_record(value)


def records_of(messages: Sequence[WireMessage]) -> list[Record]:
    """Task records among messages of a backing topic, in order."""
    return [read_record(message) for message in messages if message.key() == KEY]


def has_reached(record: Record | None, batch: Staged) -> bool:
    """Whether a slot's newest record says that its part of this batch, or of a later one, is published."""
    if record is None or record.staged is None:
        return False
    number = record.staged.number
    return number > batch.number or (number == batch.number and not isinstance(record, Snapshot))


def published_ends(newest: Sequence[Record | None]) -> dict[TopicPartition, int]:
    """
    Return up to where a staged processor has published its inputs.

    Args:
        newest: the newest record of each slot. While a part of the newest batch is due, the batch does not count as
            published. An input that is not known is left out.
    """
    batch = newest[0].staged if newest and newest[0] else None
    if batch is None:
        return {}
    done = all(has_reached(record, batch) for record in newest[: batch.parts])
    found: dict[TopicPartition, int] = {}
    for extent in batch.extents:
        found |= offsets_of(extent, extent.end if done else extent.start)
    return found


def newest_record(spec: Spec, broker: Broker, clock: Clock) -> Record | None:
    """The newest record of a task as any reader sees it, without waiting for open transactions."""
    place = TopicPartition(spec.backing, spec.partition)
    low, stable, _ = broker.watermarks([place])[place]
    return record_below(broker, place, low, stable, clock, group=spec.group)


def record_below(
    broker: Broker, place: TopicPartition, low: int, high: int, clock: Clock, *, group: str
) -> Record | None:
    """The newest committed record of a task below an offset; see `newest`."""
    found = newest(broker, place, low, high, clock, group=group)
    return read_record(found) if found is not None else None
