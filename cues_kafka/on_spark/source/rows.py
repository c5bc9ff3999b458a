"""Read a range of one partition as Arrow record batches, in one Spark task of the source.

It has a consumer of its own, read committed, from the start of the range, and leaves nothing behind. The consumer's
queue and one record batch bound its memory, whatever the size of the range.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Options
from cues_kafka.errors import BrokerError, RecoveryError, RetriableError
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.source.planning import ASK_AGAIN_S, GO_ON, LostRange, OffsetRange, report
from cues_kafka.on_spark.source.values import Values
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.log import UNREADABLE, Headers, WireMessage, headers_of_each

ROWS: Final = 10_000
"""Messages after which a record batch is passed on; the last poll may double their number."""

BATCH_BYTES: Final = 4 << 20
"""Bytes of values after which a record batch is passed on, so that large messages do not pile up."""

POLL_S: Final = 0.5

NO_UTF8: Final = "the name of one of them is not UTF-8, so none can be read; the row has null in their place"

PATIENCE_S: Final = 60.0
"""After this time without a message, a range that is known to be there cannot be read."""

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])

COLUMNS: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
"""The schema of all batches, because Spark checks the types of the first one only."""

WITH_HEADERS: Final = COLUMNS.append(pa.field("headers", pa.list_(pa.field("element", _HEADER))))

_LATEST_MS: Final = np.iinfo(np.int64).max // 1_000
"""Spark counts microseconds. A later time, as of a program that writes nanoseconds, becomes this one: it would wrap."""

log = get_logger("cues_kafka.source")

_OUT_OF_RANGE: Final = {"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"}


def read_range(options: Options, given: OffsetRange, **settings: Any) -> Iterator[Any]:
    """Do `record_batches` with a connection of its own, in a Spark task."""
    if given.start >= given.end:
        return
    broker = open_broker(options)
    try:
        yield from record_batches(broker, given, **settings)
    finally:
        broker.close()


class Typed(NamedTuple):
    """Values as a column with types: what makes it, and Arrow's type of it."""

    values: Values
    kind: Any


def record_batches(
    broker: Broker,
    given: OffsetRange,
    *,
    name: str,
    headers: bool,
    fail: bool,
    remedy: str = GO_ON,
    typed: Typed | None = None,
) -> Iterator[Any]:
    """
    Read all committed messages of a range, whose end was once a last stable offset, in order.

    Raises:
        CodecError: a message cannot be read by the schema of `typed`.
        BrokerError: the range cannot be read.
        RecoveryError: messages of the range are lost, and `fail` makes that an error with this remedy.
    """
    for messages in message_batches(broker, given, name=name, fail=fail, remedy=remedy):
        if typed is None:
            yield arrow(messages, given, headers=headers)
            continue
        found = headers_of_each(messages) if headers or typed.values.id_header else []
        values = typed.values.column(messages, found, typed.kind)
        yield arrow(messages, given, headers=headers, came=found, values=values)


def message_batches(
    broker: Broker, given: OffsetRange, *, name: str, fail: bool, remedy: str = GO_ON
) -> Iterator[list[WireMessage]]:
    """Read all committed messages of a range, in order, as many at a time as a record batch has; see there."""
    batch: list[WireMessage] = []
    size = 0
    for messages in _Reading(broker, given, name, fail=fail, remedy=remedy).runs():
        batch += messages
        size += sum(map(len, messages))
        if len(batch) >= ROWS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def arrow(
    messages: Sequence[WireMessage],
    given: OffsetRange,
    *,
    headers: bool,
    came: Sequence[Headers | None] = (),
    values: Any = None,
) -> Any:
    """
    Convert messages of one partition to a record batch.

    Args:
        messages: at least one.
        given: their range.
        headers: whether there is a column of their headers.
        came: their headers, if they were asked already.
        values: their column; None: their bytes are.
    """
    # Methods of the class, mapped in C, cost half of calls by name. Messages of a reader have one class.
    kind, count = type(messages[0]), len(messages)
    pairs = chain.from_iterable(map(kind.timestamp, messages))
    times = np.fromiter(pairs, np.int64, 2 * count).reshape(count, 2)
    schema = WITH_HEADERS if headers else COLUMNS
    if values is None:
        values = pa.array(map(kind.value, messages), pa.binary(), size=count)
    else:
        schema = schema.set(1, pa.field("value", values.type))
    columns = [
        pa.array(map(kind.key, messages), pa.binary(), size=count),
        values,
        pa.repeat(pa.scalar(given.place.topic, pa.string()), count),
        pa.repeat(pa.scalar(given.place.partition, pa.int32()), count),
        pa.array(map(kind.offset, messages), pa.int64(), size=count),
        pa.array(np.clip(times[:, 1], -_LATEST_MS, _LATEST_MS) * 1_000, pa.timestamp("us", tz="UTC")),
        # Spark shows Kafka's numbers, which are one less than the client's: 0 is the producer's time, 1 the broker's.
        pa.array(times[:, 0].astype(np.int32) - np.int32(1)),
    ]
    if not headers:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    found = came or headers_of_each(messages)
    if UNREADABLE in found:
        at = [message.offset() for message, own in zip(messages, found, strict=True) if own is UNREADABLE]
        log.warning(
            "headers left out", topic=given.place.topic, partition=given.place.partition, offsets=at, why=NO_UTF8
        )
    return pa.RecordBatch.from_arrays([*columns, _header_column(found)], schema=schema)


def _header_column(given: Iterable[Headers | None]) -> Any:
    """Headers as a column: null if a message has none, as with Spark's source, or if they cannot be read."""
    ends: list[int | None] = []
    keys: list[str] = []
    values: list[bytes | None] = []
    for found in given:
        # A null at the start of an item makes the item null; the next item begins at the same place.
        ends.append(len(keys) if found else None)
        for key, value in found or ():
            keys.append(key)
            values.append(value)
    items = pa.StructArray.from_arrays(
        [pa.array(keys, pa.string()), pa.array(values, pa.binary())], fields=list(_HEADER)
    )
    return pa.ListArray.from_arrays(
        pa.array([*ends, len(keys)], pa.int32()), items, type=WITH_HEADERS.field("headers").type
    )


class _Reading:
    """Read one range to its end (D2): a message at or past the last offset, or the end of the log there."""

    def __init__(self, broker: Broker, given: OffsetRange, name: str, *, fail: bool, remedy: str) -> None:
        self._broker = broker
        self._given = given
        self._name = name
        self._fail = fail
        self._remedy = remedy
        self._next = given.start
        self._consumer: Reader | None = None
        self._deadline = time.monotonic() + PATIENCE_S

    def runs(self) -> Iterator[list[WireMessage]]:
        try:
            while self._next < self._given.end:
                yield from self._poll()
        finally:
            self._close()

    def _poll(self) -> Iterator[list[WireMessage]]:
        end = self._given.end
        try:
            fetched = self._reader().poll(POLL_S, ROWS)
        except BrokerError as error:
            self._mend(error)
            return
        for _, messages, eof in fetched:
            run = messages
            if run:
                self._deadline = time.monotonic() + PATIENCE_S
                self._next = run[-1].offset() + 1
                run = run if self._next <= end else [message for message in run if message.offset() < end]
            if eof is not None and eof >= end:
                # Only markers and compacted messages are left. An end below ours does not count: that leader lags.
                self._next = end
            if run:
                yield run
        self._check_time()

    def _reader(self) -> Reader:
        if self._consumer is None:
            self._consumer = self._broker.reader(self._name, prompt=True)
            self._consumer.assign({self._given.place: self._next})
        return self._consumer

    def _mend(self, error: BrokerError) -> None:
        """Go on with a new consumer if that can help; raise the error if it cannot."""
        self._close()
        if error.code in _OUT_OF_RANGE:
            self._skip_lost()
        elif not isinstance(error, RetriableError):
            raise error
        self._check_time(error)
        time.sleep(ASK_AGAIN_S)

    def _skip_lost(self) -> None:
        """Report that the log was trimmed since the range was planned, or that its leader has lost its end."""
        place = self._given.place
        low = self._broker.watermarks([place])[place].low
        if self._next < low:
            end = min(low, self._given.end)
            lost = LostRange(place, self._next, end, "deleted from the log while it was read")
            report([lost], fail=self._fail, remedy=self._remedy)
            self._next = end

    def _check_time(self, cause: BrokerError | None = None) -> None:
        if self._next >= self._given.end or time.monotonic() < self._deadline:
            return
        place, high = self._given.place, self._broker.watermarks([self._given.place])[self._given.place].high
        where = f"{place.topic}/{place.partition}"
        if high < self._given.end:
            raise RecoveryError(
                f"lost: {where} [{max(high, self._next)}, {self._given.end}): the log ends at {high}; it was recreated "
                "or cut since the batch was planned. Start the query again: it plans by what is there then, and says "
                "how to go on without what is lost"
            ) from cause
        raise RetriableError(
            f"{where}: nothing came at {self._next} for {PATIENCE_S:g} s, although the range goes to {self._given.end}"
        ) from cause

    def _close(self) -> None:
        if self._consumer:
            self._consumer.close()
            self._consumer = None
