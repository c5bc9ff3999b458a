"""Reads the changelogs and records of a store, whole transactions of each task in their order, for a view of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cues_kafka.core.records import KEY
from cues_kafka.errors import ConfigError, RetriableError
from cues_kafka.graph.names import quoted
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import Fetched, TopicPartition, WireMessage
from cues_kafka.records.reading import newest, read_record
from cues_kafka.state.followed import Followed
from cues_kafka.state.mapping import StoreSpec

log = get_logger("cues_kafka.table")

POLL_S: Final = 0.2
"""How long one fetch waits. `close` waits for it."""

CHECK_S: Final = 10.0
"""How often a view asks for the partitions of its changelog. So it notices new ones, and a cluster that is gone:
readers are silent then."""

REBUILD_S: Final = 3600.0
"""A view that heard nothing of the cluster for longer reads everything again. Compaction takes the mark of a deleted
entry after `delete.retention.ms`, a day by default, and a reader that missed it would keep the entry."""


@dataclass(frozen=True, slots=True)
class ViewPlace:
    """
    What a view follows.

    Attributes:
        processor: the processor's name.
        backing: its backing topic.
        inputs: the topics that it reads.
        partition: of the only task whose entries the view has; None: it has those of all tasks.
        group: a group that the caller may describe; the reader does not join it or commit there.
    """

    processor: str
    backing: str
    inputs: tuple[str, ...]
    partition: int | None
    group: str


class ViewFull(ConfigError):
    """The entries of a store need more memory than its view may take. Give `table` more, or one partition of it."""


class StoreReading:
    """Reads for one view, on its thread."""

    def __init__(
        self,
        broker: Broker,
        spec: StoreSpec,
        place: ViewPlace,
        clock: Clock,
        *,
        news: threading.Condition,
        closing: threading.Event,
        tell: Callable[[Exception | None], None],
        show: Callable[[dict[int, Followed]], None],
        most: int,
    ) -> None:
        """
        Args:
            broker: the cluster.
            spec: the store.
            place: what is followed.
            clock: time.
            news: guards the entries; notified when they change.
            closing: whether the view is closed.
            tell: takes why the cluster cannot be read; None: it can.
            show: takes the entries of each partition, when all are read that were there.
            most: bytes that they may take.
        """
        self._broker, self._spec, self._place, self._clock = broker, spec, place, clock
        self._news, self._closing = news, closing
        self._tell, self._show = tell, show
        self._most = most

    def follow(self) -> None:
        """Read all entries, show them, and follow until the view is closed or has to read them again."""
        width, ids = self._shape()
        partitions = range(width) if self._place.partition is None else [self._place.partition]
        parts = {p: Followed(self._spec.ttl, self._spec.unit) for p in partitions}
        changelogs = [TopicPartition(self._spec.changelog, p) for p in partitions]
        backings = [TopicPartition(self._place.backing, p) for p in partitions]
        marks = self._broker.watermarks([*changelogs, *backings])
        due = {place for place in changelogs if marks[place].low < marks[place].stable}
        starts = {place: marks[place].low for place in changelogs}
        for place in backings:
            starts[place] = self._first_record(place, marks[place], parts[place.partition])
        reader = self._broker.reader(self._place.group)
        try:
            reader.assign(starts)
            if not due:
                self._show(parts)
            heard_s = asked_s = self._clock.time()  # not monotonic: that stands still while a machine sleeps
            while not self._closing.is_set():
                found = self._poll(reader)
                now_s = self._clock.time()
                heard = bool(found)
                if now_s - asked_s >= CHECK_S:
                    asked_s = now_s
                    there = self._ask_shape()
                    heard = heard or there is not None
                    if there is not None and there[1] != ids:
                        log.warning("recreated", changelog=self._spec.changelog, then="the table is read again")
                    if there not in (None, (width, ids)):
                        return
                if heard and now_s - heard_s > REBUILD_S:
                    return
                heard_s = now_s if heard else heard_s
                if found:
                    with self._news:
                        due -= self._take(found, parts, marks)
                        self._news.notify_all()
                    if not due:
                        self._show(parts)
        finally:
            reader.close()

    def _shape(self) -> tuple[int, tuple[bytes, ...]]:
        """How many tasks there are: those whose two topics have the partition; and the ids of these topics."""
        wanted = [self._spec.changelog, self._place.backing]
        there = self._broker.facts(wanted).topics
        if missing := sorted(set(wanted) - there.keys()):
            raise ConfigError(f"topics {quoted(missing)} do not exist; start the graph that declares the store")
        return min(one.partitions for one in there.values()), tuple(there[topic].topic_id for topic in wanted)

    def _first_record(self, place: TopicPartition, marks: Watermarks, part: Followed) -> int:
        """Take the newest record of a task; gives the offset behind it."""
        found = newest(self._broker, place, marks.low, marks.stable, self._clock, group=self._place.group)
        if found is None:
            return marks.low
        self._take_record(part, found)
        return found.offset() + 1

    def _poll(self, reader: Reader) -> list[Fetched]:
        """One fetch. A reader under virtual time does not wait, so the view does."""
        until_s = self._clock.monotonic() + POLL_S
        found = reader.poll(POLL_S)
        if not found:
            self._closing.wait(max(0.0, until_s - self._clock.monotonic()))
        return found

    def _ask_shape(self) -> tuple[int, tuple[bytes, ...]] | None:
        """See `_shape`; None: the cluster does not answer, and the error says why."""
        try:
            shape = self._shape()
        except RetriableError as error:
            self._tell(error)
            return None
        self._tell(None)
        return shape

    def _take(
        self, found: list[Fetched], parts: Mapping[int, Followed], marks: Mapping[TopicPartition, Watermarks]
    ) -> set[TopicPartition]:
        """Take messages; gives the partitions that are read up to where they ended at the beginning."""
        done = set()
        for place, messages, eof in found:
            part = parts[place.partition]
            for message in messages:
                if place.topic == self._spec.changelog:
                    part.change(message.key() or b"", message.value())
                elif message.key() == KEY:
                    self._take_record(part, message)
            stable = marks[place].stable
            if (eof is not None and eof >= stable) or (messages and messages[-1].offset() >= stable - 1):
                done.add(place)
        if sum(part.size for part in parts.values()) > self._most:
            raise ViewFull(
                f"StoreView({self._place.processor!r}, {self._spec.name!r}) needs more memory than table(..., "
                f"max_bytes={self._most}) allows, so it cannot be read. Raise max_bytes= if this machine has the "
                "memory, or follow one partition= in each process"
            )
        return done

    def _take_record(self, part: Followed, message: WireMessage) -> None:
        record = read_record(message)
        part.record(dict(record.stores).get(self._spec.name), record.positions)
