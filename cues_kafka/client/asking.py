"""Ask a log whether a message is in it (K4) or a transaction committed (K2), so that the answer is final."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from cues_kafka.client.access import ID_HEADER, Access, Since, TopicAccess
from cues_kafka.errors import BrokerError, ConfigError, Unknown
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import UNREADABLE, Fetched, Sent, TopicPartition, WireMessage, headers_of
from cues_kafka.records.scanning import Ranges

SinceOffsets: TypeAlias = "Since | Mapping[int, int]"
"""A time, or the offset to begin at by partition; a partition that is not named is read from the log's start."""

POLL_S: Final = 0.2

ASK_S: Final = 90.0
"""How long an answer may wait for transactions of others. The brokers end one of a dead process after 60 s by default,
and look for such ones every 10 s."""


def read_decided(
    broker: Broker, ranges: Ranges, clock: Clock, timeout_s: float, *, group: str
) -> Iterator[WireMessage]:
    """
    Read the committed messages in these ranges, and wait for the transactions that are open below their ends.

    Args:
        broker: the cluster.
        ranges: offsets `[start, end)` by partition. The ends are at most high watermarks.
        clock: bounds the wait.
        timeout_s: how long to wait while nothing comes.
        group: a group that the caller may describe.

    Raises:
        Unknown: an open transaction hides the rest, or records were deleted where the ranges begin.
        BrokerError: a partition cannot be read.
    """
    left = {place: end for place, (start, end) in ranges.items() if start < end}
    if not left:
        return
    reader = broker.reader(group, prompt=True)
    try:
        reader.assign({place: ranges[place][0] for place in left})
        deadline = clock.monotonic() + timeout_s
        while left:
            began_s = clock.monotonic()
            found = _poll(reader.poll)
            for place, messages, eof in found:
                if place not in left:
                    continue
                yield from (message for message in messages if message.offset() < left[place])
                reached = messages[-1].offset() + 1 if messages else 0
                if max(reached, eof or 0) >= left[place]:
                    del left[place]
                    reader.unassign([place])
            if any(messages for _, messages, _ in found):
                deadline = clock.monotonic() + timeout_s
            elif clock.monotonic() >= deadline:
                raise _hidden(left, timeout_s)
            elif left and not found:  # a reader under virtual time does not wait
                clock.sleep(began_s + POLL_S - clock.monotonic())
    finally:
        reader.close()


def _poll(poll: Callable[[float], list[Fetched]]) -> list[Fetched]:
    try:
        return poll(POLL_S)
    except BrokerError as error:
        if error.code not in {"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"}:
            raise
        raise Unknown(f"records were deleted meanwhile where the answer may have been: {error}") from error


def _hidden(left: Mapping[TopicPartition, int], timeout_s: float) -> Unknown:
    place, end = next(iter(left.items()))
    return Unknown(
        f"a transaction of another program has been open for {timeout_s:g} s in {place.topic}/{place.partition}, below "
        f"offset {end}, and hides the messages after it. Find it with `kafka-transactions --bootstrap-server BOOTSTRAP "
        f"find-hanging --topic {place.topic} --partition {place.partition}`, end it with its `abort`, then ask again"
    )


def id_of(message: WireMessage) -> str | None:
    """The id that a message was sent with; None: it has none."""
    found = headers_of(message)
    if not found or found is UNREADABLE:
        return None
    value = next((value for name, value in found if name == ID_HEADER), None)
    return None if value is None else value.decode(errors="replace")


def sent_ids(
    access: Access,
    topic: TopicAccess,
    wanted: frozenset[str],
    *,
    since: SinceOffsets | None,
    timeout_s: float,
) -> tuple[dict[str, Sent], str]:
    """
    Look for the ids of messages in all partitions of a topic. No transaction of the asking client may be open.

    Args:
        access: of the client.
        topic: where to look.
        wanted: the ids.
        since: where to begin.
        timeout_s: how long to wait for transactions of others.

    Returns:
        The first place of each id, and why an id that is not there may have been there nevertheless; empty: it never
        was.

    Raises:
        Unknown: a transaction of another program hides a part of the log.
    """
    starts, doubt = _starts(access, topic, since)
    marks = access.broker.watermarks(topic.places)
    ranges = {place: (max(starts[place], mark.low), mark.high) for place, mark in marks.items()}
    found: dict[str, Sent] = {}
    for message in read_decided(access.broker, ranges, access.clock, timeout_s, group=topic.group):
        one = id_of(message)
        if one is not None and one in wanted:
            found.setdefault(one, Sent(message.topic(), message.partition(), message.offset()))
            if len(found) == len(wanted):
                break
    return found, doubt


def _starts(access: Access, topic: TopicAccess, since: SinceOffsets | None) -> tuple[dict[TopicPartition, int], str]:
    """Where to begin in each partition, and why something before may be missing."""
    marks = access.broker.watermarks(topic.places)
    doubt = "the topic is compacted, so a message that was sent may be gone" if topic.target.compacted else ""
    if isinstance(since, Mapping):
        unknown = since.keys() - {place.partition for place in topic.places}
        if unknown:
            raise ConfigError(f"since={since!r}: {topic.name!r} has no partition {min(unknown)!r}")
        starts = {place: since.get(place.partition, 0) for place in topic.places}
        lost = [place for place in topic.places if starts[place] < marks[place].low]
    elif since is None:
        starts = {place: marks[place].low for place in topic.places}
        lost = [place for place in topic.places if marks[place].low > 0]
    else:
        firsts = access.broker.offsets_at(dict.fromkeys(topic.places, access.milliseconds(since)))
        starts = {place: marks[place].high if first is None else first for place, first in firsts.items()}
        # What is at the log's start is not older than the time, so what was deleted before it may not be either.
        lost = [place for place in topic.places if marks[place].low > 0 and starts[place] <= marks[place].low]
    if lost and not doubt:
        place = lost[0]
        doubt = (
            f"{place.topic}/{place.partition} begins at offset {marks[place].low}: what was before is deleted, and may "
            "have been the message. Give a later since="
        )
    return starts, doubt
