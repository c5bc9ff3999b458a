"""
Make the stores of a processor again from its input: after its function was fixed, or its input got more partitions.

The function is called for all messages below the positions of the tasks, with empty stores, and what it returns is
dropped. Then the difference to the present entries goes into the changelogs, together with a record of the task, in
one transaction for each task, however large: so a task has its old entries or the new ones (X3).

Each task calls its own partition, unless the input got more partitions since the processor's first start. Then keys
have moved, and a message belongs to the task that gets the next message of its key. No task may run between: each one
gets a record first that says so, then come the partitions that are missing, and each one gets its entries.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.brokers.partitioners import place_of
from cues_kafka.brokers.patience import ask_again
from cues_kafka.core.records import Record, Snapshot
from cues_kafka.core.recover import first_positions, foreign
from cues_kafka.core.spec import Move, Spec
from cues_kafka.core.strategies import AT_LEAST_ONCE
from cues_kafka.errors import ConfigError, RecoveryError, RetriableError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.times import milliseconds_of, time_of
from cues_kafka.operate.move.base import Maintenance, PlannedMove, rewrite, sequence_of
from cues_kafka.operate.move.history import history_of
from cues_kafka.operate.move.holding import HeldGroups
from cues_kafka.operate.rebuilt import Rebuilt, finished
from cues_kafka.operate.unsettled import UnsettledErrors, unsettled
from cues_kafka.plan.rebuildable import FRESH, obstacle
from cues_kafka.ports import Broker, Clock, TopicPartition, Watermarks, WireMessage
from cues_kafka.records.history import DeliveredSpans, delivered
from cues_kafka.records.scanning import Ranges, read_merged
from cues_kafka.runtime.build import caller_of, state_dir_of
from cues_kafka.runtime.calling.batch import Batch
from cues_kafka.runtime.calling.caller import Caller
from cues_kafka.runtime.task.interpreter import Hook
from cues_kafka.runtime.task.restoring import Restoring
from cues_kafka.state.marks import UNFINISHED
from cues_kafka.state.stores import Stores
from cues_kafka.words import count

CHUNK: Final = 1_000
"""Messages whose outputs are in memory at once."""

FENCE_S: Final = 30.0

STALE: Final = "STALE_END"
LOST_S: Final = 3.0
"""How long a changelog that does not end where the record says may be the old answer of a broker."""


class Rebuild(Maintenance):
    """
    Rebuilds the stores of one processor; a context manager, which holds its group where it writes.

    Attributes:
        notes: what the operator should know besides, once `look` has begun.
        progress: told how many offsets were read, of how many.
    """

    def __init__(
        self,
        graph: Graph,
        broker: Broker,
        processor: str,
        *,
        who: str,
        since: str | None = None,
        allow_missing: bool = False,
        allow_strays: bool = False,
        pure: bool = False,
        system: Mapping[str, Any] | None = None,
        cluster: Any = None,
        progress: Callable[[int, int], None] | None = None,
        clock: Clock | None = None,
        hook: Hook | None = None,
    ) -> None:
        """
        Args:
            graph: the graph.
            broker: the cluster.
            processor: name of the processor.
            who: the records name it as their writer.
            since: `earliest`, or a time in ISO form: messages before it are left out; None: where the processor began.
            allow_missing: whether messages that are gone from the input are left out.
            allow_strays: whether messages are ignored that are not delivered yet and that no task will deliver whose
                store has the entries of their keys.
            pure: whether the function may be called although it has effects or retries.
            system: values of `Graph(system=)`.
            cluster: options of the cluster, for codecs and for the directory of stores on the disk.
            progress: told how many offsets were read, of how many.
            clock: time.
            hook: crash points, see `interpreter`.

        Raises:
            ConfigError: the graph has no such processor, it was never started here, or its stores cannot be rebuilt.
        """
        if processor in graph.dataframes:
            raise ConfigError(
                f"{processor!r} is a processor of DataFrames: Spark keeps its state. Use "
                f"`cues-kafka reset MODULE:GRAPH {processor}`"
            )
        if processor in graph.processors and (why := obstacle(graph.processors[processor], pure=pure)):
            raise ConfigError(why)
        super().__init__(graph, broker, processor, who=who, clock=clock, hook=hook)
        self._graph, self._processor = graph, graph.processors[processor]
        self._broker, self._clock, self._facts = self.broker, self.clock, self.reading.facts
        self._since, self._allow_missing, self._allow_strays = since, allow_missing, allow_strays
        self._cluster, self._system = cluster, system or {}
        self.progress = progress
        self._changelogs = dict(self.reading.plan[processor].changelogs)
        if missing := sorted({*self._changelogs.values(), *self._processor.output_topics} - self._facts.topics.keys()):
            raise ConfigError(
                f"topics {', '.join(map(repr, missing))} do not exist. `cues-kafka plan MODULE:GRAPH --apply` creates "
                "them"
            )
        self._width = self._facts.topics[self._processor.lead].partitions
        self._partitioner = graph.topic(self._processor.lead).partitioner
        self._place = place_of(self._partitioner) or partition_for
        self.specs = tuple(map(self.make, range(self._width)))
        self._held: HeldGroups = {}
        self._stack = contextlib.ExitStack()
        self._read = self._to_read = self._born = 0
        self._past: Mapping[int, DeliveredSpans] = {}
        self._left_out = False
        self._failed = UnsettledErrors()
        self.notes: list[str] = []

    # Holding the group

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stack.close()

    def hold(self) -> None:
        """
        Keep workers out until the end, and end the transactions that dead ones left open.

        Raises:
            RecoveryError: the group has members.
        """
        self.refuse_others()
        # P5: held from here to the last commit. A worker that joined after the calls would deliver messages that the
        # new entries lack.
        self._held = self._stack.enter_context(self.hold_group())
        for spec in self.specs[: self._backing_size]:
            session = self._broker.session(spec.transactional_id)
            try:
                session.init(timeout_s=FENCE_S)
            finally:
                session.abandon()

    def _tick(self) -> None:
        """Stay in the group, and notice workers that join."""
        for group in self._held.values():
            group()

    @property
    def _backing_size(self) -> int:
        return self.reading.width(self.specs[0].backing)

    # What the stores become

    def look(self) -> Iterator[list[Rebuilt]]:
        """
        Call the function, and compare; gives tasks that must be written together. Their entries are gone with the next.

        Raises:
            ConfigError: the stores cannot be rebuilt.
            RecoveryError: the group has members, a task must deliver first, or the input does not hold what is needed.
            BrokerError: the cluster does not answer.
        """
        if not self._held:
            self.refuse_others()
        records = self._records()
        self._refuse_records(records)
        born = self._born = min(record.born for record in records if record)
        self._past = self._followed(records, born)
        ranges = self._ranges(records)
        self._failed = unsettled(self._graph, self._broker, self._processor.name, self._clock)
        self.notes += self._failed.notes(sum(record.totals.errors for record in records if record))
        places: list[list[int]] = [[partition] for partition, record in enumerate(records) if record]
        older: Mapping[TopicPartition, int] = {}
        routes: Callable[[TopicPartition, WireMessage], int] | None = None
        if self._moved(born):
            older = self._older(ranges, born)
            places, routes = [list(range(self._width))], self._route
        self._to_read += sum(end - start for start, end in ranges.values())
        system = dict(self._system)
        with contextlib.ExitStack() as stack:
            scratch = self._scratch(stack)
            caller = caller_of(
                *(self._graph, self._processor, self._facts, system, self._broker.max_bytes),
                cluster=self._cluster,
                state_dir=scratch,
            )
            stack.callback(caller.close)
            for group in places:
                rebuilt = [self._empty(partition, records[partition], caller) for partition in group]
                try:
                    mine = {place: found for place, found in ranges.items() if place.partition in group}
                    first = {place: (start, older.get(place, start)) for place, (start, _) in mine.items()}
                    rest = {place: (older.get(place, start), end) for place, (start, end) in mine.items()}
                    for part in (first, rest):
                        self._call_all({one.spec.partition: one for one in rebuilt}, part, caller, routes)
                    self._refuse_other_steps(rebuilt)
                    yield [one.compare() for one in rebuilt]
                finally:
                    for one in rebuilt:
                        one.close()

    def _scratch(self, stack: contextlib.ExitStack) -> Path | None:
        """A directory for the entries of stores that are on the disk, removed in the end."""
        root = state_dir_of(self._cluster, self._facts)
        if root is None or not any(store.on_disk for store in self._processor.state.values()):
            return None
        root.mkdir(parents=True, exist_ok=True)
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rebuild-", dir=root)))

    def _records(self) -> list[Record | None]:
        """The newest record of each task."""
        found: list[Record | None] = [None] * self._width
        for spec in self.specs[: self._backing_size]:
            found[spec.partition] = self.settled(spec, whole=True)
        return found

    @property
    def _widened(self) -> bool:
        """Whether the input got partitions that the stores do not have: no worker starts then."""
        return any(self._facts.topics[topic].partitions < self._width for topic in self._changelogs.values())

    def _refuse_records(self, records: Sequence[Record | None]) -> None:
        if not any(records):
            raise ConfigError(f"{self._processor.name!r} has no record, so there is nothing to rebuild: it never ran")
        for spec, record in zip(self.specs, records, strict=True):
            if record is None:
                continue
            if refusal := foreign(spec, record):
                raise RecoveryError(f"{spec.name}: {refusal.halt}")
            if {(p.binding, p.topic) for p in record.positions} != set(spec.inputs):
                raise RecoveryError(f"{spec.name}: its inputs are not those of its record. Declare them as they were.")
            for position in record.positions:
                if position.topic_id != self.reading.topic_id(position.topic):
                    raise RecoveryError(
                        f"{spec.name}: {position.topic!r} was deleted and recreated, so what the task delivered is "
                        f"gone. {FRESH}"
                    )
            if isinstance(record, Snapshot) and not self._widened:
                raise RecoveryError(
                    f"{spec.name}: a batch of {count(record.steps, 'step')} was announced and is not delivered yet. "
                    "Run the worker until it is, stop it, and run the command again."
                )

    def _moved(self, born: int) -> bool:
        """Whether keys have moved between partitions since the processor's first start."""
        apart = [name for name, store in self._processor.state.items() if store.per_task]
        if self._width <= born or len(apart) == len(self._processor.state):
            return False
        if apart:
            raise ConfigError(
                f"{self._processor.name!r}: its input had {born} partitions and has {self._width}. Its store "
                f"{apart[0]!r} is of a task (per_task=True) and others are by key, so one call would have to change "
                f"the stores of two tasks. {FRESH}"
            )
        return True

    # What there is to read

    def _followed(self, records: Sequence[Record | None], born: int) -> Mapping[int, DeliveredSpans]:
        """What the stores of each task were made of, whatever operators did to it (X6)."""
        found: dict[int, DeliveredSpans] = {}
        for spec, record in zip(self.specs, records, strict=True):
            if record is None:
                continue
            history = history_of(self._broker, spec, self._clock)
            start = self.reading.plan.start_of(self._processor, spec.partition)
            unknown = history.began is None and start == "latest" and spec.partition < born
            if unknown and self._since is None:
                raise ConfigError(
                    f"{spec.name} began at the end of its input (start='latest'), and where that was is compacted "
                    "away. Say --from earliest, or --from a time"
                )
            first = start if isinstance(start, int) else 0
            starts = dict.fromkeys((binding for binding, _ in spec.inputs), first)
            one = found[spec.partition] = delivered(history, record.positions, starts, stores=True)
            if one.why_not_followed and self._since is None:
                raise RecoveryError(
                    f"{spec.name}: {one.why_not_followed}. So the messages below its positions do not make its "
                    "entries. --from earliest makes them of what the inputs hold now, each message once; otherwise "
                    "keep the entries, or give the processor a new name="
                )
        return found

    def _ranges(self, records: Sequence[Record | None]) -> Ranges:
        """What each task has delivered of its inputs, as far as it is there and wanted."""
        ends: dict[TopicPartition, int] = {}
        for spec, record in zip(self.specs, records, strict=True):
            for position in record.positions if record else ():  # two inputs may be the same topic
                place = TopicPartition(position.topic, spec.partition)
                ends[place] = max(position.offset, ends.get(place, 0))
        for place in ends:
            if "compact" in self._facts.topics[place.topic].config.get("cleanup.policy", "delete"):
                raise ConfigError(
                    f"{place.topic!r} is compacted, so it does not hold all messages that made the stores. Keep the "
                    "entries, or read a topic that keeps every message"
                )
        marks = self._broker.watermarks([*ends])
        if self._since is None:
            starts = self._beginnings(ends)
        else:
            starts = dict.fromkeys(ends, 0) if self._since == "earliest" else self._since_time(marks)
        missing = [
            f"{place.topic}/{place.partition}: offsets [{start}, {marks[place].low})"
            for place, start in starts.items()
            if start < min(marks[place].low, ends[place])
        ]
        if missing and not self._allow_missing:
            raise RecoveryError(
                f"{'; '.join(missing)} are gone from the input (retention or trim), and the entries that they made "
                "would be too. Add --allow-missing to rebuild without them."
            )
        self._left_out = bool(missing)
        self.notes += [f"{text} are gone from the input: entries that they made are not rebuilt" for text in missing]
        return {place: (max(starts[place], marks[place].low), end) for place, end in ends.items()}

    def _since_time(self, marks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, int]:
        when = time_of(self._since or "")
        if when is None:
            raise ConfigError(f"--from {self._since}: write earliest, or a time such as 2026-11-23T10:00:00Z")
        found = self._broker.offsets_at(dict.fromkeys(marks, milliseconds_of(when, "")))
        self.notes.append(f"messages before {self._since} are left out: entries that they made are not rebuilt")
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

    def _wanted(self, place: TopicPartition, binding: str, offset: int, one: Rebuilt) -> bool:
        """Whether the function is called for a message: it was delivered, not skipped, and is no error message."""
        past = self._past.get(place.partition)
        if past is not None and self._since is None and not past.has(binding, offset):
            return False
        if (binding, self.reading.topic_id(place.topic), place.partition, offset) in self._failed.messages:
            one.failed += 1
            return False
        return True

    # Keys that moved

    def _route(self, place: TopicPartition, message: WireMessage) -> int:
        """The task that gets the next message of this one's key; without a key, its own."""
        key = message.key()
        return place.partition if key is None else self._place(key, self._width)

    def _older(self, ranges: Ranges, born: int) -> dict[TopicPartition, int]:
        """
        Look at the keys of all messages: whether they are where the declared partitioner puts them, now or with fewer
        partitions; and whether messages that are not delivered yet wait in partitions that their keys have left.

        Returns:
            For each partition, the offset behind the last message whose key has left it. What is below was sent before
            the partitions were added, so it comes first, whatever timestamps say.
        """
        marks = self._broker.watermarks([
            TopicPartition(i.topic, spec.partition) for spec in self.specs for i in spec.inputs
        ])  # fmt: skip
        whole = {
            place: (ranges[place][0] if place in ranges else mark.low, mark.stable) for place, mark in marks.items()
        }
        self._to_read += sum(end - start for start, end in whole.values())
        strays = Counter[TopicPartition]()
        first, older = dict[TopicPartition, int](), dict[TopicPartition, int]()
        for place, message in self._messages(whole):
            if (key := message.key()) is None or self._place(key, self._width) == place.partition:
                continue
            if not any(self._place(key, width) == place.partition for width in range(born, self._width)):
                raise ConfigError(
                    f"{place.topic}/{place.partition} at {message.offset()}: the declared partitioner "
                    f"({self._partitioner}) puts its key into partition {self._place(key, self._width)}, and with "
                    "fewer partitions not here "
                    "either. So it is not known which task gets the next message of a key, and the stores cannot be "
                    f"divided. {FRESH}"
                )
            if message.offset() < ranges.get(place, (0, 0))[1]:
                older[place] = message.offset() + 1
            else:
                strays[place] += 1
                first.setdefault(place, message.offset())
        if not strays:
            return older
        text = ", ".join(
            f"{n} in {place.topic}/{place.partition}, from {first[place]} on" for place, n in strays.items()
        )
        if not self._allow_strays:
            raise RecoveryError(
                f"{count(strays.total(), 'message')} ({text}) {'is' if strays.total() == 1 else 'are'} not delivered "
                "yet, and another task has the entries of these keys now. Let workers deliver everything before "
                "partitions are added. Add --allow-strays to go on: their calls find no entries, and the stores are "
                "right again after a second rebuild."
            )
        self.notes.append(f"{text}: these messages will be delivered without the entries of their keys")
        return older

    # Calls

    def _messages(self, ranges: Ranges) -> Iterator[tuple[TopicPartition, WireMessage]]:
        """Read ranges together, and tell how far it is."""
        before, at = self._read, {place: start for place, (start, _) in ranges.items()}
        for seen, (place, message) in enumerate(read_merged(self._broker, ranges, group=self.specs[0].group)):
            yield place, message
            at[place] = message.offset() + 1
            if seen % CHUNK == 0:
                self._tell(before + sum(at[one] - start for one, (start, _) in ranges.items()))
        self._tell(before + sum(end - start for start, end in ranges.values()))

    def _tell(self, read: int) -> None:
        self._read = read
        self._tick()
        if self.progress:
            self.progress(read, self._to_read)

    def _refuse_other_steps(self, rebuilt: Sequence[Rebuilt]) -> None:
        """
        Refuse where the messages that were called are not those that the tasks have counted.

        Raises:
            RecoveryError: the numbers differ.
        """
        records = [one.record for one in rebuilt if one.record]
        told = self._since is not None or self._left_out or any(past.returned for past in self._past.values())
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

    def _empty(self, partition: int, record: Record | None, caller: Caller) -> Rebuilt:
        spec = self.specs[partition]
        context = caller.context_of(spec)
        assert context.stores is not None
        context.stores.open()
        return Rebuilt(spec, record, context, *self._present(spec, record, caller))

    def _present(
        self, spec: Spec, record: Record | None, caller: Caller
    ) -> tuple[Stores | None, bool, Mapping[str, Collection[bytes]]]:
        """
        The entries that the changelogs have, whether some are lost, and keys that no task writes, by store.

        The entries are None if the task has no changelogs yet.
        """
        if any(spec.partition >= self._facts.topics[topic].partitions for topic in self._changelogs.values()):
            return None, False, {}
        stores = caller.context_of(spec).stores
        assert stores is not None
        kept = finished(record) if record else ()
        foreign: dict[str, set[bytes]] = {}
        restoring = Restoring(self._broker, self._clock, spec.name, spec.partition, spec.group, lambda: False, foreign)
        try:
            ask_again(lambda: restoring.bring_up(stores, kept), LOST_S, while_=lambda error: error.code == STALE)
        except (ConfigError, RetriableError) as error:
            if isinstance(error, RetriableError) and error.code != STALE:
                raise
            self.notes.append(f"{spec.name}: {error}")
            restoring.bring_up(stores, kept, whole=False)
            return stores, True, foreign
        return stores, False, foreign

    def _call_all(
        self,
        rebuilt: Mapping[int, Rebuilt],
        ranges: Ranges,
        caller: Caller,
        routes: Callable[[TopicPartition, WireMessage], int] | None,
    ) -> None:
        indices: dict[str, list[int]] = {}
        for index, (_, topic) in enumerate(self._processor.inputs):
            indices.setdefault(topic, []).append(index)
        alts = self._processor.input_shape == "alts"
        coming = self._messages(ranges)
        while chunk := list(islice(coming, CHUNK)):
            mine: dict[int, list[tuple[int, Any]]] = {}
            for place, message in chunk:
                owner = routes(place, message) if routes else place.partition
                target = mine.setdefault(owner, [])
                target += [
                    (place.partition, (index, message) if alts else message)
                    for index in indices[place.topic]
                    if self._wanted(place, self._processor.inputs[index][0], message.offset(), rebuilt[owner])
                ]
            for partition, steps in mine.items():
                for source, run in groupby(steps, key=lambda step: step[0]):
                    self._call(rebuilt[partition], source, [step for _, step in run], caller)

    def _call(self, one: Rebuilt, source: int, steps: list[Any], caller: Caller) -> None:
        """Call the function for these messages of a partition, and keep its changes."""
        stores = one.context.stores
        assert stores is not None
        ids = {binding: self.reading.topic_id(topic) for binding, topic in self._processor.inputs}
        while steps:
            batch = Batch(self.specs[source], 0, ids, one.context)
            stores.begin_batch(0)
            ended = caller.run(steps, batch)
            one.calls += ended
            one.raised += batch.errors
            if batch.halt is not None:
                if batch.halt.kind != "unhandled":
                    raise RecoveryError(f"{caller.place(steps, ended)}: {batch.halt}")
                ended, one.calls, one.raised = ended + 1, one.calls + 1, one.raised + 1
            stores.before_commit(0, batch.records)
            stores.after_commit(0)
            if stores.failed is not None:
                raise RecoveryError(f"{one.spec.name}: {stores.failed}")
            steps = steps[ended:]

    # Writing

    def write(self, group: Sequence[Rebuilt]) -> int:
        """
        Write what `look` gave; `hold` was called before. Gives the number of tasks that were written.

        Raises:
            RecoveryError: a worker has joined, or a task has moved since.
            BrokerError: the cluster refused. Another run writes the other tasks.
        """
        due = [one for one in group if len(group) > 1 or one.due]
        if not any(one.due for one in group):
            return 0
        self.commit(self._moves(group, due), self._held)
        return len(due)

    def _moves(self, group: Sequence[Rebuilt], due: Sequence[Rebuilt]) -> Iterator[PlannedMove]:
        """The records of these tasks, each made when those before it are committed."""
        if len(group) > 1:
            yield from self._announced(group)
        ids = {topic: self.reading.topic_id(topic) for topic in self._changelogs.values()}
        for one in due:
            record = self.settled(one.spec, whole=True)
            if record is None:
                raise RecoveryError(
                    f"{one.spec.name}: its record is gone from {one.spec.backing!r} since its messages were read. "
                    "Find who deletes records there, then run the same command again"
                )
            record = replace(record, stores=finished(record))
            yield rewrite(one.spec, record, record.positions, partial(self._in_time, one), ids)

    def _in_time(self, one: Rebuilt) -> Iterator[tuple[str, bytes, bytes | None]]:
        """The changes, as long as the coordinator lets a transaction last."""
        began_s, timeout_s = self._clock.monotonic(), getattr(self._cluster, "transaction_timeout_s", inf)
        for number, change in enumerate(one.changes()):
            if number % CHUNK == 0 and self._clock.monotonic() - began_s > timeout_s:
                raise RecoveryError(
                    f"{one.spec.name}: writing {count(one.size, 'change')} takes longer "
                    f"than a transaction may last. Raise transaction_timeout_s={timeout_s:g}, which brokers allow up "
                    "to 900, and run the command again. The entries of the task are as they were."
                )
            yield change

    def _announced(self, group: Sequence[Rebuilt]) -> Iterator[PlannedMove]:
        """
        Say in a record of each task that its stores are not finished, then add partitions.

        X3: those of the changelogs come last. Without them no worker starts, and with them each task has its record.
        """
        present = [one for one in group if one.spec.partition < self._backing_size]
        yield from self._begun(present)
        own = (self.specs[0].backing, self.reading.plan[self._processor.name].replay)
        for growth in self.reading.plan.grow:
            if growth.topic in own:
                self._broker.add_partitions(growth.topic, growth.wanted)
        yield from self._begun(group[len(present) :])
        for topic in self._changelogs.values():
            self._broker.add_partitions(topic, self._width)

    def _begun(self, group: Sequence[Rebuilt]) -> Iterator[PlannedMove]:
        for one in group:
            if one.unfinished:
                continue
            record, spec = one.record, one.spec
            positions = record.positions if record else first_positions(spec, self.reading.inputs(spec), self._born)
            stores = (*(record.stores if record else ()), (UNFINISHED, 0))
            move = Move(after=sequence_of(record), positions=positions, stores=stores)
            # A first record says with how many partitions all began.
            yield PlannedMove(replace(spec, move=move, width=self._born))
