"""R4: find the newest committed record of a key, reading backwards from the high watermark in doubling windows.

Normally it is one fetch: the record stands two before the end, its marker one before. The cost does not depend on the
age of the topic, only on what lies between the newest record of the key and the end.
"""

from __future__ import annotations

from cues_kafka.core.records import KEY
from cues_kafka.errors import RetriableError
from cues_kafka.ports import Broker, Clock, Reader, TopicPartition, WireMessage

FIRST_WINDOW = 16
"""Offsets; room for a few aborted records and their markers."""

PATIENCE_S = 3.0
"""Without progress this long, an open transaction hides the rest: a zombie that initialised late (R4)."""


def newest(
    broker: Broker, partition: TopicPartition, low: int, high: int, clock: Clock, *, group: str, key: bytes = KEY
) -> WireMessage | None:
    """
    The newest committed record with this key below `high`, or None.

    Args:
        broker: where to read; a reader is opened and closed.
        partition: of a backing topic.
        low: where it begins.
        high: the high watermark, never the last stable offset: below the latter newer records may be hidden (R3).
        clock: bounds the wait.
        group: that the caller may describe; nothing joins it or commits there.
        key: the record's key.

    Raises:
        RetriableError: no progress up to `high`, for example because of an open transaction.
        BrokerError: the partition cannot be read.
    """
    if high <= low:
        return None
    reader = broker.reader(group, prompt=True)
    try:
        window, end = FIRST_WINDOW, high
        while end > low:
            start = max(low, high - window)
            found = _last_in(reader, partition, start, high, clock=clock, key=key)
            if found is not None or start == low:
                return found
            window, end = window * 8, start
        return None
    finally:
        reader.close()


def _last_in(
    reader: Reader, partition: TopicPartition, start: int, high: int, *, clock: Clock, key: bytes
) -> WireMessage | None:
    """The last record with this key in `[start, high)`; all of it is read, because the last one decides."""
    found: WireMessage | None = None
    reader.assign({partition: start})
    try:
        deadline = clock.monotonic() + PATIENCE_S
        while clock.monotonic() < deadline:
            for fetched in reader.poll(0.2):
                deadline = clock.monotonic() + PATIENCE_S if fetched.messages else deadline
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
        f"nothing new below {high} of {partition.topic}/{partition.partition} for {PATIENCE_S:g} s: an open "
        "transaction hides it. Find it with `kafka-transactions.sh --bootstrap-server ... find-hanging --topic "
        f"{partition.topic} --partition {partition.partition}`, end it with its `abort`",
        code="OPEN_TRANSACTION",
    )
