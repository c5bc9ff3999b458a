"""Reads of a table, by the code of the shell (`task.following`), for every way that they can go.

What a process keeps of the table between two of them is a value (`Following`), from which the reader and its entries
are made again. So equal questions have equal answers, and each is asked once.

The table is compacted as early as can be: of each key only the newest message is left, also where it deletes the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from cues_kafka.brokers.memory.log import MemoryMessage
from cues_kafka.errors import BrokerError, RetriableError
from cues_kafka.ports.facts import ClusterFacts, TopicFacts, Watermarks
from cues_kafka.ports.log import Fetched, TopicPartition
from cues_kafka.records.reading import PATIENCE_S
from cues_kafka.state.tables import Held as HeldTable
from cues_kafka.state.tables import TableSpec
from cues_kafka.task.following import Tables

TABLE: Final[tuple[tuple[bytes, bytes | None], ...]] = ((b"k", b"1"), (b"j", b"2"), (b"k", None))
"""The messages of each partition; after any number of them the entries are others."""

FIRST: Final = 2
"""How many are there when the world begins."""

ALL: Final = len(TABLE) + 1
"""More messages than come, so that the end is reached."""

NAME: Final = "table"

Entries: TypeAlias = tuple[tuple[bytes, bytes], ...]


def entries_behind(count: int) -> Entries:
    """What this number of messages leaves."""
    entries: dict[bytes, bytes] = {}
    for key, value in TABLE[:count]:
        entries.pop(key, None)
        if value is not None:
            entries[key] = value
    return tuple(sorted(entries.items()))


def left_of(count: int) -> tuple[int, ...]:
    """The offsets that compaction leaves of this number of messages."""
    newest = {key: offset for offset, (key, _) in enumerate(TABLE[:count])}
    return tuple(sorted(newest.values()))


class Copy(NamedTuple):
    """What was read of one partition: entries, and up to where."""

    entries: Entries
    offset: int


class Place(NamedTuple):
    """
    One partition of the table in a process.

    Attributes:
        partition: its number.
        held: what calls see; None: nothing.
        read: what the reader fills; None: it is not read.
        same: whether both are one.
    """

    partition: int
    held: Copy | None
    read: Copy | None
    same: bool


class Following(NamedTuple):
    """
    What a process keeps of the table.

    Attributes:
        places: by partition.
        left: partitions of tasks that left, and that are to be dropped.
        reads: whether there is a reader.
    """

    places: tuple[Place, ...] = ()
    left: tuple[int, ...] = ()
    reads: bool = False


class Look(NamedTuple):
    """
    How a read went.

    Attributes:
        after: what the process keeps.
        failed: whether it failed.
        shown: what calls of the task see then.
        offset: up to where that was read.
        faults: how many happened.
    """

    after: Following
    failed: bool
    shown: Entries
    offset: int
    faults: int


@dataclass(slots=True)
class Source:
    """
    The cluster and its reader, in one read: a `Broker` and a `Reader` as far as `Tables` asks them.

    Attributes:
        come: how many messages each partition has.
        more: how many of those that are new the reader gives.
        fault: `error`: the reader fails; `silence`: it gives no more than that.
        at: by place, the offset that the reader gives next.
        now_s: the time.
    """

    come: Mapping[int, int]
    more: int
    fault: str
    at: dict[TopicPartition, int]
    now_s: float = 0.0

    def facts(self, topics: Iterable[str]) -> ClusterFacts:
        """Each topic keeps its id."""
        return ClusterFacts(1, {topic: TopicFacts(topic, topic.encode(), len(self.come)) for topic in topics})

    def watermarks(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Ends of now."""
        return {place: Watermarks(0, *[self.come[place.partition]] * 2) for place in places}

    def reader(self, _: str) -> Source:
        """The reader."""
        return self

    def assign(self, places: Mapping[TopicPartition, int]) -> None:
        """See `ports.clients.Reader`."""
        self.at |= places

    def unassign(self, places: Sequence[TopicPartition]) -> None:
        """See `ports.clients.Reader`."""
        for place in places:
            self.at.pop(place, None)

    def close(self) -> None:
        """See `ports.clients.Reader`."""

    def poll(self, _: float) -> list[Fetched]:
        """As many messages as are given, and the end where it is reached."""
        if self.fault == "error":
            raise BrokerError("the reader fails")
        found = []
        for place, at in sorted(self.at.items()):
            come = self.come[place.partition]
            left = [offset for offset in left_of(come) if offset >= at]
            new, self.more = left[: self.more], self.more - len(left[: self.more])
            messages = [MemoryMessage(NAME, place.partition, one, *TABLE[one], None, (1, 0), 0) for one in new]
            ended = self.more > 0 and self.fault != "silence"
            behind = come if ended else new[-1] + 1 if new else at
            if new or (ended and behind > at):
                found.append(Fetched(place, list(messages), come if ended else None))
            self.at[place] = behind
        if not found:
            self.now_s += PATIENCE_S
        return found

    def monotonic(self) -> float:
        """Time passes where nothing comes."""
        return self.now_s


class Reads:
    """A table of a processor, as the shell follows it."""

    def __init__(self, *, whole: bool, width: int) -> None:
        self._spec = TableSpec(
            *(NAME, NAME, width, whole), lambda data: data, None, lambda key: key, lambda data: data, 10**6
        )
        self._whole, self._width = whole, width
        self._known: dict[Any, tuple[Look, ...]] = {}

    def brought_up(self, before: Following, partition: int, come: tuple[int, ...], room: int) -> tuple[Look, ...]:
        """Every way that a task's table is read before its first call."""

        def bring_up(tables: Tables, source: Any) -> None:
            tables.bring_up(partition, source, source, group="g", task="g.p", given_up=lambda: False)

        ways = [(ALL, ""), *([(0, "error"), (0, "silence"), (1, "silence")] if room else [])]
        return self._looks(("bring_up", before, partition, come, room), ways, bring_up)

    def refreshed(self, before: Following, partition: int, come: tuple[int, ...], room: int) -> tuple[Look, ...]:
        """Every way that what has come is taken before a batch: some of it, or all."""
        ways = [(more, "") for more in range(ALL, -1, -1)] + ([(0, "error")] if room else [])
        return self._looks(
            ("refresh", before, partition, come, room), ways, lambda tables, _: tables.refresh(partition)
        )

    def left(self, before: Following, partition: int) -> Following:
        """What the process keeps when a task has left it."""
        source = Source(dict.fromkeys(range(self._width), 0), 0, "", {})
        tables = self._made(before, source)
        tables.leave(partition)
        return self._kept(tables)

    def _looks(
        self, key: tuple[Any, ...], ways: Iterable[tuple[int, str]], act: Callable[[Tables, Source], None]
    ) -> tuple[Look, ...]:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tuple(dict.fromkeys(self._look(key, more, fault, act) for more, fault in ways))
        return found

    def _look(self, key: tuple[Any, ...], more: int, fault: str, act: Callable[[Tables, Source], None]) -> Look:
        _, before, partition, come, _ = key
        source = Source(dict(enumerate(come)), more, fault, {})
        tables = self._made(before, source)
        failed = False
        try:
            act(tables, source)
        except RetriableError:
            failed = True
        shown, after = tuple(sorted(tables.values(partition)[NAME].items())), self._kept(tables)
        held = next((place.held for place in after.places if self._whole or place.partition == partition), None)
        return Look(after, failed, shown, held.offset if held else 0, int(bool(fault)))

    def _made(self, before: Following, source: Source) -> Tables:
        tables = Tables([self._spec])
        for place in before.places:
            at = TopicPartition(NAME, place.partition)
            if place.read is not None:
                tables._read[at] = _held(place.read)
                source.at[at] = place.read.offset
            if place.held is not None:
                tables._held[at] = tables._read[at] if place.same else _held(place.held)
        tables._left = [TopicPartition(NAME, partition) for partition in before.left]
        tables._reader = source if before.reads else None  # type: ignore[assignment]
        return tables

    def _kept(self, tables: Tables) -> Following:
        places = []
        for partition in range(self._width):
            at = TopicPartition(NAME, partition)
            held, read = tables._held.get(at), tables._read.get(at)
            if held is not None or read is not None:
                places.append(Place(partition, _copy(held), _copy(read), held is read))
        return Following(tuple(places), tuple(place.partition for place in tables._left), tables._reader is not None)


def _held(copy: Copy) -> HeldTable:
    held = HeldTable(0)
    for key, value in copy.entries:
        held.take(key, value, 0)
    held.offset = copy.offset
    return held


def _copy(held: HeldTable | None) -> Copy | None:
    return None if held is None else Copy(tuple(sorted(held.entries.items())), held.offset)
