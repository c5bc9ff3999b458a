"""Read ranges of topics, and tell whether a task can deliver messages of them."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from cues_kafka.errors import RetriableError, UnreadableError
from cues_kafka.graph.names import tools_group
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.records.unreadable import passed

ROOM = 5_000
"""Messages of a partition that may wait for those of others before it is paused."""

SILENCE_S = 10.0
"""After this time without a message the cluster is asked for the ends: readers are silent when it is gone, and when a
log now ends before the place that is waited for."""

MARKERS_S = 1.0
"""How long the markers of a commit may come behind its answer."""

STILL_S = 300.0
"""After this time without a message a read fails, although the ends are there. Aborted messages are silent, too: of
those a reader passes tens of gigabytes meanwhile."""


def unstable(marks: Mapping[TopicPartition, Watermarks]) -> set[TopicPartition]:
    """
    Return the partitions that an open transaction writes to, which may soon hold more messages.

    The coordinator answers a commit before its markers are in all partitions. So when a record or the group's offsets
    say that a message was delivered, its outputs may still lie above the last stable offset. They were written before,
    so they never lie above the high watermark.
    """
    return {place for place, mark in marks.items() if mark.stable < mark.high}


def due(pairing: str, inputs: Collection[TopicPartition], waiting: set[TopicPartition]) -> set[TopicPartition]:
    """
    Return the inputs of which a task can deliver messages.

    Args:
        pairing: `single`, `join` or `alts`.
        inputs: inputs of the task.
        waiting: inputs that hold messages behind its position. A join needs all of them, because a message without a
            partner is no step.
    """
    return set() if pairing == "join" and len(waiting) < len(inputs) else waiting


Ranges: TypeAlias = Mapping[TopicPartition, tuple[int, int]]
"""Offsets `[start, end)` by partition."""


def read_all(
    broker: Broker, topic: str, partitions: int, *, group: str | None = None, passing: str | None = None
) -> Iterator[WireMessage]:
    """
    Read all committed messages of a topic up to its last stable offsets of now, partition by partition.

    Args:
        broker: the cluster.
        topic: what to read.
        partitions: number of its partitions.
        group: see `read_range`.
        passing: see `read_range`.
    """
    for place, (start, end) in ranges_of(broker, topic, partitions).items():
        yield from read_range(broker, place, start, end, group=group, passing=passing)


def ranges_of(broker: Broker, topic: str, partitions: int, clock: Clock | None = None) -> Ranges:
    """
    The offsets of each partition up to its last stable one of now, without empty partitions.

    With a clock, what was committed before the call is there: a commit is answered before its markers are written, so
    this waits for them, but `MARKERS_S` at most, because another transaction may be open for longer.
    """
    places = [TopicPartition(topic, partition) for partition in range(partitions)]
    found = broker.watermarks(places)
    if clock is not None and unstable(found):
        ends, deadline = {place: marks.high for place, marks in found.items()}, clock.monotonic() + MARKERS_S
        while any(found[place].stable < end for place, end in ends.items()) and clock.monotonic() < deadline:
            clock.sleep(0.01)
            found = broker.watermarks(places)
    return {place: (marks.low, marks.stable) for place, marks in found.items() if marks.stable > marks.low}


def read_since(
    broker: Broker, ranges: Ranges, since_ms: int | None, *, group: str | None = None
) -> Iterator[WireMessage]:
    """Read the committed messages in these ranges that are not older than this time, partition by partition."""
    for place, (start, end) in ranges.items():
        for message in read_range(broker, place, start, end, group=group):
            if since_ms is None or message.timestamp()[1] >= since_ms:
                yield message


def read_newest(
    broker: Broker, ranges: Ranges, most: int, since_ms: int | None, *, group: str | None = None
) -> list[WireMessage]:
    """
    Read the newest committed messages in these ranges that are not older than a time, partition by partition.

    Each partition is read from its end, in ranges that grow until they hold enough, because markers and aborted
    messages take offsets too. Then the newest messages of all partitions are chosen.
    """
    if not most:
        return []
    ends: dict[TopicPartition, list[WireMessage]] = {}
    for place, (low, end) in ranges.items():
        width = 2 * most
        while True:
            start = max(low, end - width)
            ends[place] = [*read_since(broker, {place: (start, end)}, since_ms, group=group)][-most:]
            if len(ends[place]) == most or start == low:
                break
            width *= 4
    kept = dict.fromkeys(ends, 0)
    for _ in range(min(most, sum(map(len, ends.values())))):
        left = [place for place, found in ends.items() if kept[place] < len(found)]
        newest = max(left, key=lambda place: ends[place][-1 - kept[place]].timestamp()[1])
        kept[newest] += 1
    return [message for place, found in ends.items() for message in found[len(found) - kept[place] :]]


class _Silence:
    """Watches a reader from which nothing comes, so that no read waits without end."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._since_s: float | None = None  # the first poll of those in a row that brought nothing
        self._asked_s = 0.0

    def look(self, ends: Mapping[TopicPartition, int], *, heard: bool) -> None:
        """
        Take the outcome of a poll.

        Args:
            ends: up to where the partitions are read.
            heard: whether anything came.

        Raises:
            BrokerError: the cluster does not answer; a log ends before the place that is waited for, because it was
                truncated, or the topic recreated; or nothing came for `STILL_S`.
        """
        if heard:  # what the caller does with it takes as long as it takes, and is no silence
            self._since_s = None
            return
        now_s = time.monotonic()
        if self._since_s is None:
            self._since_s = self._asked_s = now_s
        if now_s - self._asked_s < SILENCE_S:
            return
        for place, marks in self._broker.watermarks([*ends]).items():
            if marks.stable < ends[place]:
                raise RetriableError(
                    f"reading {place.topic}/{place.partition}: the log ends at offset {marks.stable} now, before "
                    f"{ends[place]}: it was truncated, or the topic was recreated. Read it again, to its present end"
                )
        silent_s = now_s - self._since_s
        if silent_s >= STILL_S:
            names = ", ".join(f"{topic}/{partition}" for topic, partition in ends)
            raise RetriableError(
                f"reading {names}: no message came for {silent_s:.0f} s, although the log has more. Look at the "
                "brokers' logs, then try again"
            )
        self._asked_s = now_s


def read_range(
    broker: Broker,
    place: TopicPartition,
    start: int,
    end: int,
    *,
    group: str | None = None,
    passing: str | None = None,
) -> Iterator[WireMessage]:
    """
    Read the committed messages in `[start, end)`.

    Args:
        broker: the cluster.
        place: what to read.
        start: the first offset.
        end: at most the last stable offset.
        group: a group that the caller may describe; the reader does not join it or commit there. None: the group of the
            topic's tools.
        passing: what the records are, where batches of others are passed over (`unreadable.passed`); None: the reading
            ends there.

    Raises:
        BrokerError: nothing comes, and the cluster does not answer either, or the log ends before `end` by now. Aborted
            messages are silent, too.
    """
    reader = broker.reader(group or tools_group(place.topic), prompt=True)
    try:
        reader.assign({place: start})
        silence = _Silence(broker)
        while True:
            try:
                found = reader.poll(1.0)
            except UnreadableError as error:
                if passing is None:
                    raise
                behind = passed(broker, error, passing, group=group or tools_group(place.topic))
                if behind >= end:
                    return
                reader.unassign([place])
                reader.assign({place: behind})
                continue
            silence.look({place: end}, heard=bool(found))
            for fetched in found:
                for message in fetched.messages:
                    if message.offset() >= end:
                        return
                    yield message
                past = fetched.eof is not None and fetched.eof >= end
                if past or (fetched.messages and fetched.messages[-1].offset() >= end - 1):
                    return
    finally:
        reader.close()


def first_from(broker: Broker, reader: Reader, place: TopicPartition, start: int) -> WireMessage | None:
    """
    Read the first committed message at or behind an offset; None: the partition has no such message.

    `chunk_from` describes the arguments.

    Raises:
        BrokerError: see `read_range`.
    """
    return next(iter(chunk_from(broker, reader, place, start)), None)


def chunk_from(broker: Broker, reader: Reader, place: TopicPartition, start: int) -> Sequence[WireMessage]:
    """
    Read the first committed messages at or behind an offset, as many as come at once.

    Args:
        broker: the cluster.
        reader: a prompt one, with nothing assigned.
        place: what to read.
        start: an offset that is not below the first one of the partition.

    Returns:
        The messages in order; an empty sequence if no committed message is left below the last stable offset.

    Raises:
        BrokerError: see `read_range`.
    """
    reader.assign({place: start})
    silence = _Silence(broker)
    try:
        while True:
            found = reader.poll(1.0)
            for fetched in found:
                if fetched.messages:
                    return fetched.messages
                if fetched.eof is not None:
                    return ()
            silence.look({place: start}, heard=bool(found))
    finally:
        reader.unassign([place])


def read_merged(broker: Broker, ranges: Ranges, *, group: str) -> Iterator[tuple[TopicPartition, WireMessage]]:
    """
    Read the committed messages of several ranges together, the oldest timestamps first.

    The order of a partition is kept: of all partitions, the one goes on whose next message is the oldest. Partitions
    that are far ahead are paused.

    Args:
        broker: the cluster.
        ranges: what to read, at most up to the last stable offsets.
        group: see `read_range`.

    Raises:
        BrokerError: see `read_range`.
    """
    at = {place: start for place, (start, end) in ranges.items() if start < end}
    if not at:
        return
    waiting: dict[TopicPartition, deque[WireMessage]] = {place: deque() for place in at}
    heads: list[tuple[int, TopicPartition]] = []
    lacking, paused = set(at), set[TopicPartition]()
    reader = broker.reader(group, prompt=True)
    try:
        reader.assign(at)
        while lacking or heads:
            while lacking:
                _fetch(broker, reader, ranges, at, waiting)
                for place in [*lacking]:
                    if waiting[place]:
                        heapq.heappush(heads, (waiting[place][0].timestamp()[1], place))
                    if waiting[place] or place not in at:
                        lacking.discard(place)
                full = {place for place in at if len(waiting[place]) > ROOM} - paused
                if full:
                    reader.pause(full)
                    paused |= full
            if not heads:  # the ranges end with markers of transactions, which are no messages
                return
            _, place = heapq.heappop(heads)
            mine = waiting[place]
            yield place, mine.popleft()
            if mine:
                heapq.heappush(heads, (mine[0].timestamp()[1], place))
            elif place in at:
                lacking.add(place)
                if place in paused:
                    paused.discard(place)
                    reader.resume([place])
    finally:
        reader.close()


def _fetch(
    broker: Broker,
    reader: Reader,
    ranges: Ranges,
    at: dict[TopicPartition, int],
    waiting: Mapping[TopicPartition, deque[WireMessage]],
) -> None:
    """Wait until something comes; a partition that is read to its end leaves `at`."""
    silence, ends = _Silence(broker), {place: ranges[place][1] for place in at}
    while not (found := reader.poll(1.0)):
        silence.look(ends, heard=False)
    for place, messages, eof in found:
        if place not in at:
            continue
        end = ranges[place][1]
        waiting[place].extend(message for message in messages if message.offset() < end)
        behind = [messages[-1].offset() + 1] if messages else []
        at[place] = max([at[place], *behind, *([eof] if eof is not None else [])])
        if at[place] >= end:
            del at[place]
            reader.unassign([place])


def holds_messages(broker: Broker, place: TopicPartition, start: int, end: int, *, group: str) -> bool:
    """
    Whether `[start, end)` holds a committed message, not only markers; `end` is at most the last stable offset.

    A batch that the client refuses to read holds messages.
    """
    try:
        return next(iter(read_range(broker, place, start, end, group=group)), None) is not None
    except UnreadableError:
        return True
