"""Finds where a batch ends that the client refuses to read, so that a reader may go on behind it."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from cues_kafka.errors import CuesError, RetriableError, UnreadableError
from cues_kafka.observe.refused import REFUSED
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.log import TopicPartition

POLL_S: Final = 0.5

PATIENCE_S: Final = 15.0
"""How long an offset may bring nothing."""


NOT_OURS: Final = frozenset({"_BAD_COMPRESSION", "MSG_SIZE_TOO_LARGE", "TOO_LARGE"})
"""Codes of batches that others wrote to a topic of small records of ours: their checksum is right, so they were written
so, and a record of ours takes a few kilobytes. What is damaged, or has an unknown compression, may be ours."""


class RefusedBatch(NamedTuple):
    """
    A batch that the client refuses.

    Attributes:
        place: topic and partition.
        start, end: the offsets `[start, end)` that a reader has to pass over.
        why: what the client says.
    """

    place: TopicPartition
    start: int
    end: int
    why: str

    def __str__(self) -> str:
        return f"offsets [{self.start}, {self.end}) of {self.place.topic}/{self.place.partition}"


def way_past(error: Exception, processor: str) -> str:
    """What helps a task of a processor that cannot read on; empty: what helps most tasks."""
    if not isinstance(error, UnreadableError):
        return error.remedy if isinstance(error, CuesError) else ""
    return (
        f"{error.remedy}. Or skip it, and record the loss: stop the workers, then `cues-kafka accept-loss "
        f"MODULE:GRAPH {processor}`"
    )


def refused_at(broker: Broker, place: TopicPartition, offset: int, end: int, *, group: str) -> RefusedBatch | None:
    """
    The batch at an offset, if the client refuses it; None: something can be read there, or nothing is there.

    Args:
        broker: where to read.
        place: topic and partition.
        offset: where a reader goes on.
        end: the last stable offset.
        group: a group that the caller may describe; the reader does not join it or commit there.

    Raises:
        BrokerError: the partition cannot be read for another reason.
    """
    if offset >= end:
        return None
    reader = broker.reader(group, prompt=True)
    try:
        refusal = _refusal(reader, place, offset)
        if refusal is None:
            return None
        behind = _behind(reader, place, max(offset, refusal.offset), end, refusal)
        return RefusedBatch(place, offset, behind, str(refusal))
    finally:
        reader.close()


def passed(broker: Broker, error: UnreadableError, what: str, *, group: str) -> int:
    """
    Refuse a batch of others on a topic of ours: one line in the log, and a count.

    Args:
        broker: where to read.
        error: what the client says of the batch.
        what: its records should be, with an article: ``a status record``.
        group: see `refused_at`.

    Returns:
        The offset behind it.

    Raises:
        UnreadableError: it is damaged, so it may be ours.
        BrokerError: the partition cannot be read for another reason.
    """
    if error.code not in NOT_OURS:
        raise error
    place = TopicPartition(*error.place)
    batch = refused_at(broker, place, error.offset, broker.watermarks([place])[place].stable, group=group)
    if batch is None:
        return error.offset
    REFUSED.note_at((place.topic, place.partition, error.offset), what, str(error))
    return batch.end


def _behind(reader: Reader, place: TopicPartition, start: int, end: int, refusal: UnreadableError) -> int:
    """The first offset behind the batch at `start`, which the client refuses."""

    def inside(offset: int) -> bool:
        found = _refusal(reader, place, offset)
        return found is not None and (found.offset == refusal.offset or not refusal.bounded)

    if not refusal.bounded:  # neighbours that are too large look alike, so each offset is tried
        return next((offset for offset in range(start + 1, end) if not inside(offset)), end)
    last, step = start, 1
    while last + step < end and inside(last + step):
        last, step = last + step, step * 2
    behind = min(last + step, end)
    while behind - last > 1:
        middle = (last + behind) // 2
        if inside(middle):
            last = middle
        else:
            behind = middle
    return behind


def _refusal(reader: Reader, place: TopicPartition, offset: int) -> UnreadableError | None:
    """Why the client refuses what is at an offset; None: it gives a message, or the end."""
    reader.assign({place: offset})
    try:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if any(messages or eof is not None for _, messages, eof in reader.poll(POLL_S)):
                return None
    except UnreadableError as refusal:
        return refusal
    finally:
        reader.unassign([place])
    raise RetriableError(
        f"reading {place.topic}/{place.partition} at {offset}: nothing came for {PATIENCE_S:g} s. Try again later"
    )
