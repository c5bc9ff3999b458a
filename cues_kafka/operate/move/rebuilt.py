"""What the stores of a task become when they are made again, beside what they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from cues_kafka.core.records import Record
from cues_kafka.core.spec import Spec
from cues_kafka.state.expiring import MESSAGES, Expiring, alive
from cues_kafka.state.marks import UNFINISHED
from cues_kafka.state.stores import Cache, Stores
from cues_kafka.task.parts.participant import CallContext
from cues_kafka.task.parts.stores import stores_of
from cues_kafka.words import count


@dataclass(slots=True)
class Rebuilt:
    """
    What the stores of one task become.

    Attributes:
        spec: the task.
        record: its newest record; None: it has none.
        context: of the calls, with the new entries.
        present: the present entries; None: there are no changelogs for the task yet.
        lost: whether a changelog was recreated, or has lost entries.
        foreign: keys in the changelogs that no task writes, by store: other programs wrote them, or the store had
            another kind of lifetime. No message of the inputs gives them, so they go.
        calls: messages that the function was called for.
        failed: messages that are error messages and were not replayed: they have changed nothing, and are not called.
        raised: those for which it raised: they change nothing, as where they become error messages.
        entries: of all stores, afterwards.
        added, changed, removed: how they differ from the present ones.
        latest: by store, the latest time that the task can have by the messages of its inputs. A store is missing where
            messages were left out.
        clocks: how many stores get another time.
    """

    spec: Spec
    record: Record | None
    context: CallContext
    present: Stores | None
    lost: bool
    foreign: Mapping[str, Collection[bytes]]
    calls: int = 0
    failed: int = 0
    raised: int = 0
    entries: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    latest: Mapping[str, int] = field(default_factory=dict)
    clocks: int = 0

    @property
    def made(self) -> Stores:
        """The new entries."""
        return stores_of(self.context)

    @property
    def unfinished(self) -> bool:
        """Whether an earlier run has begun and not ended: the task may not run before its entries are written."""
        return self.record is not None and UNFINISHED in dict(self.record.stores)

    @property
    def differs(self) -> bool:
        """Whether entries become others."""
        return bool(self.added or self.changed or self.removed)

    @property
    def due(self) -> bool:
        """Whether the task must be written."""
        return bool(
            self.differs or self.strangers or self.clocks or self.unfinished or self.lost or self.present is None
        )

    @property
    def strangers(self) -> int:
        """How many keys there are that no task writes."""
        return sum(map(len, self.foreign.values()))

    @property
    def size(self) -> int:
        """How many changes are written."""
        return self.added + self.changed + self.removed + self.strangers

    @property
    def line(self) -> str:
        """What becomes of the task, for people."""
        raised = f", {self.raised} raised" if self.raised else ""
        what = "nothing changes"
        more = [f"{count(self.strangers, 'key')} that no task writes removed"] if self.strangers else []
        more += [f"the time of {count(self.clocks, 'store')} set right"] if self.clocks else []
        if self.differs:
            what = f"{self.added} added, {self.changed} changed, {self.removed} removed"
        elif more:
            what = "else nothing changes"
        what = "; ".join((what, *more))
        return (
            f"{self.spec.name}: {count(self.calls, 'call')}{raised}; {count(self.entries, 'entry', 'entries')}: {what}"
        )

    def compare(self) -> Self:
        """Count how the entries differ."""
        for cache in self.made.caches:
            if (before := self._before(cache)) is not None and isinstance(before.layers, Expiring):
                began = before.layers.time or next(before.layers.kept(), None)
                self.clocks += bool(began) and self._now(cache) != before.layers.time
            for _, old, new in self._differences(cache):
                self.entries += new is not None
                if old == new:
                    continue
                self.added += old is None
                self.removed += new is None
                self.changed += old is not None and new is not None
        return self

    def changes(self) -> Iterator[tuple[str, bytes, bytes | None]]:
        """Store, key and value of what the changelogs need to say."""
        for cache in self.made.caches:
            kind = cache.layers.entry
            for key, old, new in self._differences(cache, living=False):
                if old != new:
                    yield cache.spec.name, kind + key, new
            for key in sorted(self.foreign.get(cache.spec.name, ())):
                yield cache.spec.name, key, None
            if isinstance(cache.layers, Expiring):
                yield cache.spec.name, cache.layers.unit, b"%d" % self._now(cache)

    def _before(self, cache: Cache) -> Cache | None:
        return self.present.cache(cache.spec.name) if self.present else None

    def _now(self, cache: Cache) -> int:
        """
        The task's time.

        It does not go back where messages were left out, or went to another task. But a present time that no message of
        the inputs gives was written by another program.
        """
        made, present = _time_of(cache), _time_of(self._before(cache))
        return max(made, min(present, self.latest.get(cache.spec.name, present)))

    def _differences(self, cache: Cache, *, living: bool = True) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
        """Key, present value and new value of all entries; `living`: without present ones that have ended."""
        before = self._before(cache)
        now = self._now(cache) if cache.spec.ttl is not None else 0

        def lives(entry: tuple[bytes, bytes]) -> bool:
            return cache.spec.ttl is None or alive(entry[1], cache.spec.ttl, now) is not None

        old = before.layers.kept() if before else iter(())
        yield from _merged(filter(lives, old) if living else old, filter(lives, cache.layers.kept()))

    def close(self) -> None:
        """Let go of the entries."""
        for stores in (self.made, self.present):
            if stores is not None:
                stores.close()


def latest_times(tasks: Sequence[Rebuilt]) -> Mapping[str, int]:
    """By store, the latest time that the messages give which were called for one of these tasks."""
    found: dict[str, int] = {}
    for cache in (each for task in tasks for each in task.made.caches):
        if isinstance(cache.layers, Expiring):
            name, time = cache.spec.name, cache.layers.time
            before = found.get(name, 0)
            found[name] = before + time if cache.layers.unit == MESSAGES else max(before, time)
    return found


def _time_of(cache: Cache | None) -> int:
    return cache.layers.time if cache is not None and isinstance(cache.layers, Expiring) else 0


def _merged(
    old: Iterator[tuple[bytes, bytes]], new: Iterator[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Both sequences, which are sorted, side by side."""
    left, right = next(old, None), next(new, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left[0] < right[0]):
            assert left is not None
            yield left[0], left[1], None
            left = next(old, None)
        elif left is None or right[0] < left[0]:
            yield right[0], None, right[1]
            right = next(new, None)
        else:
            yield right[0], left[1], right[1]
            left, right = next(old, None), next(new, None)
