"""Attempts of tasks by their records: what one took of its inputs, and what it changed in the stores of its task (R4b).

A record says with which mark each changelog ends behind it. So what stands between the mark of the record before and
its own is what its attempt changed. Compaction keeps the newest record and the newest mark: what an older attempt
changed cannot be told, and is not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from cues_kafka.core.records import KEY, Attempt, Record
from cues_kafka.graph.names import backing_topic, changelog_topic
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.log import Position, TopicPartition, WireMessage
from cues_kafka.records.reading import read_record
from cues_kafka.records.scanning import chunk_from
from cues_kafka.records.strangers import TOPIC, readable
from cues_kafka.state.expiring import Expiring
from cues_kafka.state.layers import ENTRY, MARK
from cues_kafka.state.marks import NO_MARK, UNREADABLE, mark_in, order
from cues_kafka.state.scheduled import timer_of
from cues_kafka.words import as_data

NEAR: Final = 200
"""Up to this number of offsets are read in one go, which takes no longer than to look for their middle."""

MOST_ENTRIES: Final = 20
"""Entries of one store that are named; the others are counted."""


class ChangedEntry(NamedTuple):
    """
    An entry that an attempt has set or deleted.

    Attributes:
        key: as the changelog has it, bytes if it is not UTF-8; of a timer its key and when it is due.
        deleted: whether the entry was deleted; else it was set.
        place: where the changelog says so, such as ``shop.bill.seen.changelog/0@12``.
    """

    key: str | bytes
    deleted: bool
    place: str

    def to_dict(self) -> dict[str, Any]:
        """The same as data for JSON."""
        key = {"key": self.key} if isinstance(self.key, str) else as_data("key", self.key)
        return {**key, "deleted": self.deleted, "place": self.place}


@dataclass(frozen=True, slots=True)
class StoreChanges:
    """
    What an attempt changed in one store.

    Attributes:
        store: its name.
        count: the number of entries; None: compaction has removed what would tell.
        entries: the first of them.
    """

    store: str
    count: int | None
    entries: tuple[ChangedEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class TakenAttempt:
    """
    An attempt of a task.

    Attributes:
        task: `graph.processor/partition`.
        record: its record.
        before: the record before it; None: compaction has removed it.
    """

    task: str
    record: Record
    before: Record | None

    @property
    def place(self) -> tuple[str, str, int]:
        """Graph, processor and partition."""
        return parts_of(self.task)

    @property
    def ranges(self) -> dict[str, dict[int, tuple[int, int]]]:
        """By topic and partition, what it took of its inputs, as [start, end); empty: compaction has removed it."""
        found: dict[str, dict[int, tuple[int, int]]] = {}
        starts = {(one.binding, one.topic_id): one.offset for one in self.before.positions} if self.before else {}
        for one in self.record.positions:
            start = starts.get((one.binding, one.topic_id))
            if start is not None and start < one.offset:
                found.setdefault(one.topic, {})[self.place[2]] = (start, one.offset)
        return found


def parts_of(task: str) -> tuple[str, str, int]:
    """Graph, processor and partition of a task's name."""
    name, _, partition = task.rpartition("/")
    graph, _, processor = name.rpartition(".")
    return graph, processor, int(partition)


class AttemptRecords:
    """
    Looks for records of tasks, and for what their attempts changed.

    By bisection: the newest part of a backing topic is not compacted, and has a record for each batch; the newest part
    of a changelog has a mark for each batch that delivers.
    """

    def __init__(self, broker: Broker, reader: Reader) -> None:
        self._broker = broker
        self._reader = reader

    def numbered(self, task: str, sequence: int) -> Record | None:
        """The record with this sequence number; None: compaction removed it, or the backing topic is gone."""
        attempt = self.attempt(task, sequence)
        return None if attempt is None else attempt.record

    def attempt(self, task: str, sequence: int) -> TakenAttempt | None:
        """The same with the record before it."""
        found = self._first(task, lambda one: one.sequence >= sequence)
        return found if found is not None and found.record.sequence == sequence else None

    def taking(self, task: str, topic_id: bytes, offset: int) -> TakenAttempt | None:
        """The attempt that took a message; None: no record tells, or none has taken it."""
        found = self._first(task, lambda one: any(_is_past(at, topic_id, offset) for at in one.positions))
        if found is None or not isinstance(found.record, Attempt) or not found.record.batch.taken:
            return None
        before = found.before.positions if found.before is not None else ()
        return found if any(at.topic_id == topic_id and at.offset <= offset for at in before) else None

    def changes(self, attempt: TakenAttempt, timers: Collection[str] = ()) -> tuple[StoreChanges, ...]:
        """
        What an attempt changed in each store of its task that it changed, or may have changed.

        Args:
            attempt: the attempt.
            timers: names of stores that have timers, so that their keys can be shown.
        """
        found = []
        for store in dict(attempt.record.stores):
            span = self._span(attempt, store)
            if span is None:
                found.append(StoreChanges(store, None))
            elif span[0] < span[1]:
                found.append(self._changed(store, *span, self._changelog(attempt.task, store), timed=store in timers))
        return tuple(one for one in found if one.count != 0)

    def setting(self, changelog: TopicPartition, offset: int) -> TakenAttempt | None:
        """The attempt whose change stands here in a changelog; None: that cannot be told, or a tool wrote it."""
        graph, processor, store, _ = changelog.topic.rsplit(".", 3)
        stable = self._broker.watermarks([changelog])[changelog].stable
        mark = self._next(changelog, offset, stable, MARK)
        if mark is None:
            return None
        task, at = f"{graph}.{processor}/{changelog.partition}", order(_mark_of(mark))
        found = self._first(task, lambda one: order(dict(one.stores).get(store, NO_MARK)) >= at)
        if found is None or not isinstance(found.record, Attempt):
            return None
        span = self._span(found, store)
        return found if span is not None and span[0] <= offset < span[1] else None

    # Inside

    def _changelog(self, task: str, store: str) -> TopicPartition:
        graph, processor, partition = parts_of(task)
        return TopicPartition(changelog_topic(graph, processor, store), partition)

    def _span(self, attempt: TakenAttempt, store: str) -> tuple[int, int] | None:
        """Where an attempt's changes of a store are, as [start, end); None: compaction has removed one of the marks."""
        if attempt.before is None:
            return None
        mark = dict(attempt.record.stores)[store]
        before = dict(attempt.before.stores).get(store, NO_MARK)
        if mark == before:
            return 0, 0
        place = self._changelog(attempt.task, store)
        if not self._is_there(place):
            return None
        behind, ends = self._around(place, MARK, lambda message: order(_mark_of(message)) >= order(mark))
        if ends is None or (_mark_of(behind), _mark_of(ends)) != (before, mark):
            return None
        return behind.offset() + 1 if behind is not None else self._broker.watermarks([place])[place].low, ends.offset()

    def _changed(self, store: str, start: int, end: int, place: TopicPartition, *, timed: bool) -> StoreChanges:
        count, first = 0, list[ChangedEntry]()
        for message in self._messages(place, start, end):
            key = message.key() or b""
            if key[:1] in (ENTRY, Expiring.entry):
                count += 1
                if len(first) < MOST_ENTRIES:
                    shown = _timer(key[1:]) if timed else _text(key[1:])
                    where = f"{place.topic}/{place.partition}@{message.offset()}"
                    first.append(ChangedEntry(shown, message.value() is None, where))
        return StoreChanges(store, count, tuple(first))

    def _first(self, task: str, reached: Callable[[Record], bool]) -> TakenAttempt | None:
        """The first record of a task for which this is true, if it is true for all behind it, and the one before."""
        graph, processor, partition = parts_of(task)
        place = TopicPartition(backing_topic(graph, processor), partition)
        if not self._is_there(place):
            return None
        behind, found = self._around(place, KEY, lambda message: reached(read_record(message)))
        if found is None:
            return None
        record, before = read_record(found), None if behind is None else read_record(behind)
        known = before is not None and before.sequence == record.sequence - 1
        return TakenAttempt(task, record, before if known else None)

    def _is_there(self, place: TopicPartition) -> bool:
        """Whether a partition is there: its name may be that of a header that another program wrote."""
        if not TOPIC.fullmatch(place.topic):
            return False
        return place.partition < self._broker.partitions([place.topic]).get(place.topic, 0)

    def _around(
        self, place: TopicPartition, key: bytes, reached: Callable[[WireMessage], bool]
    ) -> tuple[WireMessage | None, WireMessage | None]:
        """The last message with this key for which this is not true, and the first one for which it is."""
        low, high, _ = self._broker.watermarks([place])[place]
        behind: WireMessage | None = None
        found: WireMessage | None = None
        while high - low > NEAR:
            middle = (low + high) // 2
            message = self._next(place, middle, high, key)
            if message is None:
                high = middle
            elif reached(message):
                high, found = middle, message
            else:
                low, behind = message.offset() + 1, message
        for message in self._messages(place, low, high):
            if message.key() == key and _is_ours(message):
                if reached(message):
                    return behind, message
                behind = message
        return behind, found

    def _next(self, place: TopicPartition, start: int, end: int, key: bytes) -> WireMessage | None:
        """The first message with this key in a range, beside those that another program wrote."""
        found = (message for message in self._messages(place, start, end) if message.key() == key)
        return next((message for message in found if _is_ours(message)), None)

    def _messages(self, place: TopicPartition, start: int, end: int) -> Iterator[WireMessage]:
        while start < end and (chunk := chunk_from(self._broker, self._reader, place, start)):
            for message in chunk:
                if message.offset() >= end:
                    return
                yield message
            start = chunk[-1].offset() + 1


def _is_past(position: Position, topic_id: bytes, offset: int) -> bool:
    return position.topic_id == topic_id and position.offset > offset


def _mark_of(message: WireMessage | None) -> int:
    return NO_MARK if message is None else mark_in(message.value(), NO_MARK)


def _is_ours(message: WireMessage) -> bool:
    """Whether what a record or a mark should be is one; else it is refused by name."""
    if message.key() == MARK:
        return _mark_of(message) != UNREADABLE
    return readable(message, read_record, "a record of a task") is not None


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _timer(entry: bytes) -> str | bytes:
    try:
        key, due_ms = timer_of(entry)
    except ValueError:  # another program wrote it
        return _text(entry)
    return f"{key} due {due_ms}"
