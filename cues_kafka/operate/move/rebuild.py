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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from types import TracebackType
from typing import Any, Self

from cues_kafka.core.records import Record, Snapshot
from cues_kafka.core.recover import first_positions, foreign
from cues_kafka.core.spec import Move
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.graph.definition import Graph
from cues_kafka.operate.move.base import Maintenance, PlannedMove, end_all, rewrite, sequence_of
from cues_kafka.operate.move.calls import RebuildCalls
from cues_kafka.operate.move.delivered import CHUNK, DeliveredInput, RebuildWishes
from cues_kafka.operate.move.holding import HeldGroups
from cues_kafka.operate.move.rebuilt import Rebuilt
from cues_kafka.plan.rebuildable import FRESH, obstacle
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.state.marks import UNFINISHED, finished
from cues_kafka.task.interpreter import Hook
from cues_kafka.words import count


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
        self._processor = graph.processors[processor]
        self._wishes = RebuildWishes(since, allow_missing, allow_strays)
        self._cluster, self._system = cluster, system or {}
        self.progress = progress
        self._changelogs = dict(self.reading.plan[processor].changelogs)
        self._refuse_missing()
        self._width = self.reading.width(self._processor.lead)
        self.specs = tuple(map(self.make, range(self._width)))
        self._held: HeldGroups = {}
        self._stack = contextlib.ExitStack()
        self._born = 0
        self.notes: list[str] = []

    def _refuse_missing(self) -> None:
        needed = {*self._changelogs.values(), *self._processor.output_topics}
        if missing := sorted(needed - self.reading.facts.topics.keys()):
            raise ConfigError(
                f"topics {', '.join(map(repr, missing))} do not exist. `cues-kafka plan MODULE:GRAPH --apply` creates "
                "them"
            )

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
        # R1, after the group is free: the records are then read up to the high watermark (R3), and nothing of a dead
        # worker can come behind them. Before, this would end the transactions of a worker that lives.
        end_all(self.broker, self.specs[: self._backing_size])

    def _tell(self, read: int, whole: int) -> None:
        """Stay in the group while messages are read, notice workers that join, and tell how far the reading is."""
        for group in self._held.values():
            group()
        if self.progress:
            self.progress(read, whole)

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
        delivered = DeliveredInput(self, self._processor, records, self._wishes, notes=self.notes, tell=self._tell)
        self._born = delivered.born
        with RebuildCalls(self, self._processor, self._system, self._cluster, self.notes) as calls:
            for group in delivered.apart:
                yield from calls.made(group, delivered)

    def _records(self) -> list[Record | None]:
        """The newest record of each task."""
        found: list[Record | None] = [None] * self._width
        for spec in self.specs[: self._backing_size]:
            found[spec.partition] = self.settled(spec, whole=True)
        return found

    @property
    def _widened(self) -> bool:
        """Whether the input got partitions that the stores do not have: no worker starts then."""
        return any(self.reading.width(topic) < self._width for topic in self._changelogs.values())

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
            # X3: the record that is not unfinished any more is in the transaction of the entries, and in no other.
            record = replace(record, stores=finished(record.stores))
            yield rewrite(one.spec, record, record.positions, partial(self._in_time, one), ids)

    def _in_time(self, one: Rebuilt) -> Iterator[tuple[str, bytes, bytes | None]]:
        """The changes, as long as the coordinator lets a transaction last."""
        began_s, timeout_s = self.clock.monotonic(), getattr(self._cluster, "transaction_timeout_s", inf)
        for number, change in enumerate(one.changes()):
            if number % CHUNK == 0 and self.clock.monotonic() - began_s > timeout_s:
                raise RecoveryError(
                    f"{one.spec.name}: writing {count(one.size, 'change')} takes longer "
                    f"than a transaction may last. Raise transaction_timeout_s={timeout_s:g}, which brokers allow up "
                    "to 900, and run the command again. The entries of the task are as they were."
                )
            yield change

    def _announced(self, group: Sequence[Rebuilt]) -> Iterator[PlannedMove]:
        """Say in a record of each task that its stores are not finished, then add partitions."""
        # X3: first the records, so that no task runs with the entries of other keys. The changelogs last: without their
        # partitions `plan` refuses every start, and with them each task has its record.
        present = [one for one in group if one.spec.partition < self._backing_size]
        yield from self._begun(present)
        own = (self.specs[0].backing, self.reading.plan[self._processor.name].replay)
        for growth in self.reading.plan.grow:
            if growth.topic in own:
                self.broker.add_partitions(growth.topic, growth.wanted)
        yield from self._begun(group[len(present) :])
        for topic in self._changelogs.values():
            self.broker.add_partitions(topic, self._width)

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
