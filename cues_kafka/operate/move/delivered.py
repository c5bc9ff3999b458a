"""What the tasks of a processor have delivered of their inputs, which is what made their stores (X3, X6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.brokers.partitioners import place_of
from cues_kafka.core.records import Record
from cues_kafka.core.strategies import AT_LEAST_ONCE
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.graph.processor import Processor
from cues_kafka.graph.times import milliseconds_of, time_of
from cues_kafka.operate.move.base import Maintenance, places_of
from cues_kafka.operate.move.history import history_of
from cues_kafka.operate.move.rebuilt import Rebuilt
from cues_kafka.operate.repair.unsettled import unsettled
from cues_kafka.plan.rebuildable import FRESH
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.records.history import DeliveredSpans, delivered
from cues_kafka.records.scanning import Ranges, read_merged
from cues_kafka.words import count

CHUNK: Final = 1_000
"""Messages after which it is told how far the reading is."""


@dataclass(frozen=True, slots=True)
class RebuildWishes:
    """Which messages shall make the stores; see `Rebuild`."""

    since: str | None = None
    allow_missing: bool = False
    allow_strays: bool = False


class DeliveredInput:
    """
    Finds and reads what the tasks of a processor have delivered. `notes` gets what the operator should know besides.

    Attributes:
        records: the newest record of each task; None: it has none.
        born: with how many partitions the processor began.
        apart: tasks whose stores are made one by one; all together if keys have moved between them.

    Raises:
        ConfigError: the stores cannot be rebuilt.
        RecoveryError: the input does not hold what is needed.
        BrokerError: the cluster does not answer.
    """

    def __init__(
        self,
        tool: Maintenance,
        processor: Processor,
        records: Sequence[Record | None],
        wishes: RebuildWishes,
        *,
        notes: list[str],
        tell: Callable[[int, int], None],
    ) -> None:
        self._reading, self._specs, self._processor, self.records = tool.reading, tool.specs, processor, records
        self._wishes, self._notes, self._told = wishes, notes, tell
        self._width = len(records)
        self._partitioner = tool.graph.topic(processor.lead).partitioner
        self._rule = place_of(self._partitioner)  # None: only the writers know it
        self._place = self._rule or partition_for
        self._read = self._to_read = 0
        there = [record for record in records if record]
        self.born = min(record.born for record in there)
        self._past = self._followed()
        self._ranges = self._wanted_ranges()
        self._failed = unsettled(tool.graph, tool.broker, processor.name, tool.clock)
        notes += self._failed.notes(sum(record.totals.errors for record in there))
        self._moved = self._has_moved()
        self._older = self._keys_that_left() if self._moved else {}
        self.apart = [[partition] for partition, record in enumerate(records) if record]
        if self._moved:
            self.apart = [list(range(self._width))]
        self._to_read += sum(end - start for start, end in self._ranges.values())

    def messages(self, group: Sequence[int]) -> Iterator[tuple[TopicPartition, WireMessage]]:
        """The messages of these tasks' partitions; those whose keys have left their partitions come first."""
        mine = {place: found for place, found in self._ranges.items() if place.partition in group}
        yield from self._between({place: (start, self._older.get(place, start)) for place, (start, _) in mine.items()})
        yield from self._between({place: (self._older.get(place, start), end) for place, (start, end) in mine.items()})

    def task_of(self, place: TopicPartition, message: WireMessage) -> int:
        """The task that gets the next message of this one's key; without a key, its own."""
        key = message.key()
        return self._place(key, self._width) if self._moved and key is not None else place.partition

    def wanted(self, place: TopicPartition, binding: str, offset: int, one: Rebuilt) -> bool:
        """Whether the function is called for a message: it was delivered, not skipped, and is no error message."""
        past = self._past.get(place.partition)
        if past is not None and self._wishes.since is None and not past.has(binding, offset):
            return False
        if (binding, self._reading.topic_id(place.topic), place.partition, offset) in self._failed.messages:
            one.failed += 1
            return False
        return True

    @property
    def whole(self) -> bool:
        """Whether no message was left out that the inputs do not have any more, or that the operator does not want."""
        return self._wishes.since in (None, "earliest") and not self._left_out

    def refuse_other_steps(self, rebuilt: Sequence[Rebuilt]) -> None:
        """
        Refuse where the messages that were called are not those that the tasks have counted.

        Raises:
            RecoveryError: the numbers differ.
        """
        records = [one.record for one in rebuilt if one.record]
        told = self._wishes.since is not None or self._left_out or any(past.returned for past in self._past.values())
        if told or any(record.strategy == AT_LEAST_ONCE for record in records):
            return
        said = sum(record.step - record.totals.timers - record.totals.replays for record in records)
        if (called := sum(one.calls + one.failed for one in rebuilt)) != said:
            names = ", ".join(one.spec.name for one in rebuilt)
            raise RecoveryError(
                f"{names}: the inputs hold {count(called, 'step')} that were delivered, and the records count {said}. "
                "So the messages do not make the entries: a message was delivered twice under at-least-once, or the "
                "history of the task is gone. --from earliest makes the entries of what the inputs hold, each message "
                "once; otherwise keep the entries"
            )

    # What there is to read

    def _followed(self) -> Mapping[int, DeliveredSpans]:
        """What the stores of each task were made of, whatever operators did to it (X6)."""
        found: dict[int, DeliveredSpans] = {}
        for spec, record in zip(self._specs, self.records, strict=True):
            if record is None:
                continue
            history = history_of(self._reading.broker, spec, self._reading.clock)
            start = self._reading.plan.start_of(self._processor, spec.partition)
            unknown = history.began is None and start == "latest" and spec.partition < self.born
            if unknown and self._wishes.since is None:
                raise ConfigError(
                    f"{spec.name} began at the end of its input (start='latest'), and where that was is compacted "
                    "away. Say --from earliest, or --from a time"
                )
            first = start if isinstance(start, int) else 0
            starts = dict.fromkeys((binding for binding, _ in spec.inputs), first)
            one = found[spec.partition] = delivered(history, record.positions, starts, stores=True)
            if one.why_not_followed and self._wishes.since is None:
                raise RecoveryError(
                    f"{spec.name}: {one.why_not_followed}. So the messages below its positions do not make its "
                    "entries. --from earliest makes them of what the inputs hold now, each message once; otherwise "
                    "keep the entries, or give the processor a new name="
                )
        return found

    def _wanted_ranges(self) -> Ranges:
        """What each task has delivered of its inputs, as far as it is there and wanted."""
        ends: dict[TopicPartition, int] = {}
        for spec, record in zip(self._specs, self.records, strict=True):
            for position in record.positions if record else ():  # two inputs may be the same topic
                place = TopicPartition(position.topic, spec.partition)
                ends[place] = max(position.offset, ends.get(place, 0))
        for place in ends:
            if "compact" in self._reading.facts.topics[place.topic].config.get("cleanup.policy", "delete"):
                raise ConfigError(
                    f"{place.topic!r} is compacted, so it does not hold all messages that made the stores. Keep the "
                    "entries, or read a topic that keeps every message"
                )
        marks = self._reading.broker.watermarks([*ends])
        if self._wishes.since is None:
            starts = self._beginnings(ends)
        else:
            starts = dict.fromkeys(ends, 0) if self._wishes.since == "earliest" else self._since_time(marks)
        missing = [
            f"{place.topic}/{place.partition}: offsets [{start}, {marks[place].low})"
            for place, start in starts.items()
            if start < min(marks[place].low, ends[place])
        ]
        if missing and not self._wishes.allow_missing:
            raise RecoveryError(
                f"{'; '.join(missing)} are gone from the input (retention or trim), and the entries that they made "
                "would be too. Add --allow-missing to rebuild without them."
            )
        self._left_out = bool(missing)
        self._notes += [f"{text} are gone from the input: entries that they made are not rebuilt" for text in missing]
        return {place: (max(starts[place], marks[place].low), end) for place, end in ends.items()}

    def _since_time(self, marks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, int]:
        when = time_of(self._wishes.since or "")
        if when is None:
            raise ConfigError(f"--from {self._wishes.since}: write earliest, or a time such as 2026-11-23T10:00:00Z")
        found = self._reading.broker.offsets_at(dict.fromkeys(marks, milliseconds_of(when, "")))
        self._notes.append(f"messages before {self._wishes.since} are left out: entries that they made are not rebuilt")
        return {place: marks[place].high if offset is None else offset for place, offset in found.items()}

    def _beginnings(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where each task began."""
        found: dict[TopicPartition, int] = {}
        for binding, topic in self._processor.inputs:
            for partition, past in self._past.items():
                place, spans = TopicPartition(topic, partition), past.spans.get(binding, ())
                first = min((span.start for span in spans), default=ends.get(place, 0))
                found[place] = min(first, found.get(place, first))
        return found

    # Keys that moved

    def _has_moved(self) -> bool:
        """Whether keys have moved between partitions since the processor's first start."""
        apart = [name for name, store in self._processor.state.items() if store.per_task]
        if self._width <= self.born or len(apart) == len(self._processor.state):
            return False
        if apart:
            raise ConfigError(
                f"{self._processor.name!r}: its input had {self.born} partitions and has {self._width}. Its store "
                f"{apart[0]!r} is of a task (per_task=True) and others are by key, so one call would have to change "
                f"the stores of two tasks. {FRESH}"
            )
        return True

    def _keys_that_left(self) -> dict[TopicPartition, int]:
        """
        Look at the keys of all messages: whether they are where the declared partitioner puts them, now or with fewer
        partitions; and whether messages that are not delivered yet wait in partitions that their keys have left.

        Returns:
            For each partition, the offset behind the last message whose key has left it. What is below was sent before
            the partitions were added, so it comes first, whatever timestamps say.
        """
        marks = self._reading.broker.watermarks(places_of(self._specs))
        whole = {
            place: (self._ranges[place][0] if place in self._ranges else mark.low, mark.stable)
            for place, mark in marks.items()
        }
        self._to_read += sum(end - start for start, end in whole.values())
        strays = Counter[TopicPartition]()
        first, older = dict[TopicPartition, int](), dict[TopicPartition, int]()
        for place, message in self._between(whole):
            if (key := message.key()) is not None and self._rule is None:
                raise ConfigError(
                    f"{place.topic}/{place.partition} at {message.offset()}: the declared partitioner "
                    f"({self._partitioner}) is a rule that only the writers know. So it is not known which task gets "
                    f"the next message of a key, and the stores cannot be divided. {FRESH}"
                )
            if key is None or self._place(key, self._width) == place.partition:
                continue
            if not any(self._place(key, width) == place.partition for width in range(self.born, self._width)):
                raise ConfigError(
                    f"{place.topic}/{place.partition} at {message.offset()}: the declared partitioner "
                    f"({self._partitioner}) puts its key into partition {self._place(key, self._width)}, and with "
                    "fewer partitions not here "
                    "either. So it is not known which task gets the next message of a key, and the stores cannot be "
                    f"divided. {FRESH}"
                )
            if message.offset() < self._ranges.get(place, (0, 0))[1]:
                older[place] = message.offset() + 1
            else:
                strays[place] += 1
                first.setdefault(place, message.offset())
        if not strays:
            return older
        text = ", ".join(
            f"{n} in {place.topic}/{place.partition}, from {first[place]} on" for place, n in strays.items()
        )
        if not self._wishes.allow_strays:
            raise RecoveryError(
                f"{count(strays.total(), 'message')} ({text}) {'is' if strays.total() == 1 else 'are'} not delivered "
                "yet, and another task has the entries of these keys now. Let workers deliver everything before "
                "partitions are added. Add --allow-strays to go on: their calls find no entries, and the stores are "
                "right again after a second rebuild."
            )
        self._notes.append(f"{text}: these messages will be delivered without the entries of their keys")
        return older

    def _between(self, ranges: Ranges) -> Iterator[tuple[TopicPartition, WireMessage]]:
        """Read ranges together, and tell how far it is."""
        before, at = self._read, {place: start for place, (start, _) in ranges.items()}
        for seen, (place, message) in enumerate(read_merged(self._reading.broker, ranges, group=self._specs[0].group)):
            yield place, message
            at[place] = message.offset() + 1
            if seen % CHUNK == 0:
                self._tell(before + sum(at[one] - start for one, (start, _) in ranges.items()))
        self._tell(before + sum(end - start for start, end in ranges.values()))

    def _tell(self, read: int) -> None:
        self._read = read
        self._told(read, self._to_read)
