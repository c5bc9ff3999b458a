"""Follows the tables of one processor in one process: to their end before the first call, and on from there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from cues_kafka.brokers.placement import Misplaced, Placement
from cues_kafka.codecs.framing import in_front
from cues_kafka.errors import BrokerError, RetriableError
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Reader
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import Fetched, TopicPartition, headers_of
from cues_kafka.records.reading import PATIENCE_S
from cues_kafka.state.tables import Held, TableSpec, TableView

log = get_logger("cues_kafka.state")

TELL_S: Final = 5.0
"""How often progress is logged."""

AT_ONCE: Final = 100
"""How many answers of the reader are taken before a batch at most."""

LOOK_S: Final = 0.1
"""How long one look of the second reader takes at most: it may have to connect first, or ask a broker far away."""


class Tables:
    """
    The tables of one processor in one process. Its tasks share one reader; a table that is whole is held once.

    Which version a call sees is no part of the promise, so nothing is read at the ends of a range again.

    Attributes:
        awaited: those for which calls wait.
    """

    def __init__(
        self, specs: Sequence[TableSpec], placements: Mapping[str, Callable[[int], Placement]] | None = None
    ) -> None:
        """
        Args:
            specs: the tables.
            placements: for topics whose keys must be where the input's are, what looks at one partition.
        """
        self._specs = {one.topic: one for one in specs}
        self._looks = placements or {}
        self._placements: dict[TopicPartition, Placement] = {}
        self.awaited = tuple(one for one in specs if one.wait_s is not None)
        self._around: tuple[Broker, Clock, str] | None = None  # since the first task came
        self._lock = threading.Lock()
        self._reader: Reader | None = None
        self._second: Reader | None = None  # tells at once that only markers are left; reads nothing between two looks
        self._held: dict[TopicPartition, Held] = {}  # what calls see
        self._read: dict[TopicPartition, Held] = {}  # what the reader fills; the same, unless it is not at the end yet
        self._left: list[TopicPartition] = []
        self._ids: dict[str, bytes] = {}  # of the topics that are read

    def values(self, partition: int) -> dict[str, Any]:
        """The tables as a task's calls get them, by name."""
        return {
            spec.name: TableView(spec, partial(self._now, places_of(spec, partition))) for spec in self._specs.values()
        }

    def bring_up(
        self, partition: int, broker: Broker, clock: Clock, *, group: str, task: str, given_up: Callable[[], bool]
    ) -> None:
        """
        Read a task's tables up to their ends of now. What the process has read before, for another task too, is kept.

        Raises:
            RetriableError: the cluster does not answer, the entries do not fit, or the task was given up.
        """
        with self._lock:
            self._around = broker, clock, group
            wanted = [place for spec in self._specs.values() for place in places_of(spec, partition)]
            self._left = [place for place in self._left if place not in wanted]
            missing = [
                place for place in wanted if place not in self._read or self._held.get(place) is not self._read[place]
            ]
            ends = {place: marks.stable for place, marks in self._begin(wanted, missing, broker, group).items()}
            heard_s = told_s = clock.monotonic()
            while left := [place for place in wanted if self._read[place].offset < ends[place]]:
                if given_up():
                    raise RetriableError(f"{task} was given up while its tables were read")
                now = clock.monotonic()
                heard_s = now if self._poll(0.2) else heard_s
                if now - told_s >= TELL_S:
                    told_s, read = now, {_shown(place): self._read[place].offset for place in left}
                    log.info("reading tables", task=task, read=read, of={_shown(place): ends[place] for place in left})
                if now - heard_s >= PATIENCE_S:
                    places = ", ".join(map(_shown, left))
                    raise RetriableError(f"nothing new of {places} for {PATIENCE_S:g} s")
            self._held |= {place: self._read[place] for place in missing}

    def refresh(self, partition: int) -> None:
        """
        Take what has come for all tasks, without waiting.

        Raises:
            RetriableError: a table of this task can no longer be read on: its recovery reads it from the beginning.
        """
        if not self._lock.acquire(blocking=False):
            return  # a task begins, which takes what comes
        try:
            self._drop_left()
            for _ in range(AT_ONCE):
                if self._reader is None or not self._poll(0):
                    break
            for spec in self._specs.values():
                if not all(map(self._is_read, places_of(spec, partition))):
                    raise RetriableError(f"the table {spec.name!r} is no longer read")
        finally:
            self._lock.release()

    @property
    def clock(self) -> Clock:
        """Time, as the tasks know it."""
        assert self._around
        return self._around[1]

    @property
    def topics(self) -> Mapping[str, bytes]:
        """The topics that are read, with their ids."""
        return self._ids.copy()

    def begin_again(self, topic: str) -> bool:
        """
        Read no more of a topic that was recreated, whose offsets mean other entries now.

        Recoveries read it from its beginning. Calls under way see what was read.

        Returns:
            Whether it is done; not while a task begins, which holds the lock.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            places = [place for place in self._read if place.topic == topic]
            self._ids.pop(topic, None)
            self._read = {place: held for place, held in self._read.items() if place.topic != topic}
            if self._reader is not None:
                self._reader.unassign(places)
        finally:
            self._lock.release()
        return True

    def stable_ends(self, places: Collection[TopicPartition], *, timeout_s: float) -> Mapping[TopicPartition, int]:
        """
        Where the tables end now.

        Raises:
            RetriableError: no answer within `timeout_s`.
        """
        assert self._around
        return self._around[0].stable_ends(places, timeout_s=timeout_s)

    def unread(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """
        Those that are not read up to these ends, and how far they are.

        Raises:
            RetriableError: one of them can no longer be read on: a recovery reads it from the beginning.
        """
        reads = self._read  # one object, which `_end` replaces
        if lost := next((p for p in ends if p not in reads or self._held.get(p) is not reads[p]), None):
            raise RetriableError(f"the table {self._specs[lost.topic].name!r} is no longer read")
        return {place: reads[place].offset for place, end in ends.items() if reads[place].offset < end}

    def read_up_to(self, ends: Mapping[TopicPartition, int], timeout_s: float) -> None:
        """
        Take what comes within this time, for all tasks.

        If nothing does, markers are perhaps all that is left. The reader of the tables tells that it has passed them
        half a second later, so another one looks.

        Raises:
            RetriableError: a table can no longer be read on.
        """
        if not self._lock.acquire(timeout=timeout_s):
            return  # a task begins, which takes what comes
        try:
            if self._reader is not None and not self._poll(timeout_s):
                self._look(ends)
        finally:
            self._lock.release()

    def _look(self, ends: Mapping[TopicPartition, int]) -> None:
        """Ask the second reader. It takes longer to connect than to answer, so it stays."""
        assert self._around
        broker, _, group = self._around
        starts = {place: self._read[place].offset for place in ends if place in self._read}
        try:
            if self._second is None:
                self._second = broker.reader(group, prompt=True)
            self._second.assign(starts)
            polled = self._second.poll(LOOK_S)
            self._second.unassign([*starts])
        except BrokerError as error:
            self._end()
            raise RetriableError(f"a table cannot be read on: {error}") from error
        for fetched in polled:
            self._take(fetched)

    def misplaced(self, partition: int) -> Misplaced | None:
        """An entry of a task's tables that is in another partition than its key's; None: none was seen."""
        for topic in self._looks:
            placement = self._placements.get(TopicPartition(topic, partition))
            if placement is not None and placement.found is not None:
                return placement.found
        return None

    def leave(self, partition: int) -> None:
        """A task has left: drop what it alone needed, now or soon."""
        self._left += [TopicPartition(one.topic, partition) for one in self._specs.values() if not one.whole]
        if self._lock.acquire(blocking=False):
            try:
                self._drop_left()
            finally:
                self._lock.release()

    def close(self) -> None:
        """Release the client."""
        with self._lock:
            self._end()

    def _is_read(self, place: TopicPartition) -> bool:
        return place in self._read and self._held.get(place) is self._read[place]

    def _now(self, places: Iterable[TopicPartition]) -> list[Held]:
        return [held for place in places if (held := self._held.get(place)) is not None]

    def _begin(
        self, wanted: Sequence[TopicPartition], missing: Sequence[TopicPartition], broker: Broker, group: str
    ) -> Mapping[TopicPartition, Watermarks]:
        """Ask where the wanted ones end, and read the missing ones from their beginning."""
        try:
            if topics := {place.topic for place in missing} - self._ids.keys():
                self._ids |= {one.name: one.topic_id for one in broker.facts(topics).topics.values()}
            marks = broker.watermarks(list(wanted))
        except BrokerError as error:
            raise RetriableError(f"a table cannot be read: {error}") from error
        try:
            if self._reader is None:
                self._reader = broker.reader(group)
            if missing:
                self._reader.unassign(list(missing))
                self._reader.assign({place: marks[place].low for place in missing})
        except BrokerError as error:
            self._end()
            raise RetriableError(f"a table cannot be read: {error}") from error
        self._read |= {place: Held(marks[place].low) for place in missing}
        self._placements |= {
            place: self._looks[place.topic](place.partition) for place in missing if place.topic in self._looks
        }
        return marks

    def _poll(self, timeout_s: float) -> bool:
        """Take what the reader gives; whether there was something."""
        assert self._reader is not None
        try:
            polled = self._reader.poll(timeout_s)
        except BrokerError as error:
            self._end()
            raise RetriableError(f"a table cannot be read on: {error}") from error
        for fetched in polled:
            self._take(fetched)
        return any(fetched.messages for fetched in polled)

    def _take(self, fetched: Fetched) -> None:
        held = self._read.get(fetched.partition)
        if held is None:
            return
        spec = self._specs[fetched.partition.topic]
        if (placement := self._placements.get(fetched.partition)) is not None:
            placement.look(fetched.messages)
        for message in fetched.messages:
            if message.offset() < held.offset:
                continue  # taken already, by `_look`
            value = message.value()
            if value is not None and spec.id_header is not None:
                value = in_front(headers_of(message), spec.id_header, value)
            if (key := message.key()) is not None:
                held.take(key, value, message.offset())
            held.offset = message.offset() + 1
        if fetched.eof is not None:
            held.offset = max(held.offset, fetched.eof)
        if held.size > spec.most:
            self._end()
            raise RetriableError(
                f"the table {spec.name!r} needs more than max_bytes={spec.most} for {fetched.partition}. Raise it "
                "where the memory is there"
            )

    def _drop_left(self) -> None:
        left, self._left = self._left, []
        for place in left:
            self._held.pop(place, None)
            self._read.pop(place, None)
        if left and self._reader is not None:
            self._reader.unassign(left)

    def _end(self) -> None:
        """Read no further. Calls under way see what they have seen."""
        readers = self._reader, self._second
        self._reader = self._second = None
        self._read = {}
        for reader in readers:
            if reader is not None:
                reader.close()


def places_of(spec: TableSpec, partition: int) -> list[TopicPartition]:
    """The partitions that a task needs of a table."""
    return [TopicPartition(spec.topic, one) for one in (range(spec.width) if spec.whole else [partition])]


def _shown(place: TopicPartition) -> str:
    return f"{place.topic}/{place.partition}"
