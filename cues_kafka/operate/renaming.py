"""`cues-kafka rename`: let a processor go on under another name.

The name of a processor is in its backing topic, its group and its transactional ids, so all tasks move (X5). The core
says which records that takes, and in which order (`core.renaming`). This refuses what cannot move, creates the topics
of the new name, holds both groups, and commits the records. A run that ends half-way leaves tasks that refuse under
both names, and the next run goes on where it stopped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from cues_kafka.core.events import InputFacts
from cues_kafka.core.records import Record, Snapshot
from cues_kafka.core.recover import Refuse, foreign, recover
from cues_kafka.core.renaming import Stage, arrives_at, next_stage, refusal
from cues_kafka.core.spec import Move, Spec
from cues_kafka.core.strategies import AT_LEAST_ONCE
from cues_kafka.core.taking import in_flight
from cues_kafka.errors import CodecError, ConfigError, RecoveryError, UnstableOffsets
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import (
    backing_topic,
    changelog_topic,
    check_name,
    group_id,
    no_such_processor,
    processor_of,
    quoted,
    replay_topic,
    transactional_id,
)
from cues_kafka.graph.processor import Processor
from cues_kafka.operate.copied_stores import TakenAlong, refuse_other_stores
from cues_kafka.operate.drivers import refuse_drivers
from cues_kafka.operate.members import has_members
from cues_kafka.operate.moving import HeldGroup, commit_move, no_reader
from cues_kafka.operate.noting import history_of, noted
from cues_kafka.operate.renamed_rows import RenamedRows
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.ports import Broker, Clock, GroupMetadata, NewTopic, TopicPartition
from cues_kafka.records.history import Moved
from cues_kafka.records.reading import record_below
from cues_kafka.runtime.specs import Identity, spec_of
from cues_kafka.runtime.task.clock import SystemClock
from cues_kafka.runtime.task.interpreter import Hook, World
from cues_kafka.words import count

STAGES: Final = 9
"""Three stages, each of which may be looked at again while markers of transactions are on their way."""


@dataclass(frozen=True, slots=True)
class PlannedRename:
    """
    What a rename will do.

    Attributes:
        create: topics of the new name that are missing.
        notes: where each task goes on, and what follows, in full sentences.
        done: nothing is left to do.
    """

    create: tuple[NewTopic, ...]
    notes: tuple[str, ...]
    done: bool = False


class Renaming:
    """Moves the tasks of one processor to another name: `plan` says what happens, `carry_out` does it."""

    def __init__(
        self,
        graph: Graph,
        broker: Broker,
        old: str,
        new: str,
        *,
        who: str,
        clock: Clock | None = None,
        hook: Hook | None = None,
    ) -> None:
        """
        Args:
            graph: the graph, which declares the processor under its new name.
            broker: the cluster.
            old: the name until now.
            new: the name in the declaration.
            who: the records name it as their writer.
            clock: time.
            hook: crash points, see `interpreter`.

        Raises:
            ConfigError: the graph declares the old name, or not the new one; the old one was never started here; or
                the processor has what cannot move.
        """
        self._graph, self._broker, self._old, self._new = graph, broker, old, new
        self._clock, self._hook = clock or SystemClock(), hook
        declared = self._declared = _movable(graph, check_name(old, "rename"), new)
        self._facts = broker.facts(topics_to_ask(graph))
        self._plan = plan(graph, self._facts)
        self._plan.refuse()
        self._refuse_missing()
        self._width = self._facts.topics[declared.lead].partitions
        make = spec_of(graph, self._plan, declared, self._width, Identity.of_process("tool", who))
        self._arriving = tuple(map(make, range(self._width)))
        self._leaving = tuple(self._under_old(spec) for spec in self._arriving)
        self._rows = RenamedRows(declared, graph.name, old, new) if declared.target else None
        self._refuse_other_width()

    def _refuse_missing(self) -> None:
        declared, backing = self._declared, backing_topic(self._graph.name, self._old)
        if backing not in self._broker.partitions():
            raise ConfigError(
                f"topic {backing!r} does not exist, so {self._old!r} has no place on this cluster: it was never "
                f"started here, or its topic is gone. Check the old name; to start {self._new!r} as another "
                f"processor, run it with --new {self._new}."
            )
        for topic in declared.input_topics:
            if topic not in self._facts.topics:
                raise ConfigError(f"topic {topic!r} does not exist, so {self._new!r} cannot go on there. Create it.")

    def _refuse_other_width(self) -> None:
        backing = self._leaving[0].backing
        if (found := self._broker.partitions()[backing]) != self._width:
            raise ConfigError(
                f"{self._declared.lead!r} has {count(self._width, 'partition')}, and {self._old!r} has "
                f"{count(found, 'task')}. Declare {self._old!r} again, run `cues-kafka plan MODULE:GRAPH --apply`, and "
                "start it once, so that each task has its place. Then rename it."
            )

    def _under_old(self, spec: Spec) -> Spec:
        graph, lock = self._graph.name, transactional_id(self._graph.name, self._old, spec.partition)
        return replace(
            spec,
            processor=self._old,
            transactional_id=lock,
            group=group_id(graph, self._old),
            backing=backing_topic(graph, self._old),
            replay=replay_topic(graph, self._old) if spec.replay else "",
            stores=tuple((name, changelog_topic(graph, self._old, name)) for name, _ in spec.stores),
            writer=replace(spec.writer, transactional_id=lock),
        )

    # The plan

    def plan(self, *, tell: Callable[[str], Any] = lambda _: None) -> PlannedRename:
        """
        Say what `carry_out` will do, or why it must not.

        Args:
            tell: told why the plan waits, see `refuse_drivers`.

        Raises:
            ConfigError: the new name has a place of its own.
            RecoveryError: workers run, or a record holds what a move would lose.
        """
        self._refuse_members()
        old, new = self._records()
        self._refuse_all_unready(old)
        if next_stage(old, new, self._old, self._new) is None:
            return PlannedRename((), (), done=True)
        unseen = refuse_drivers(self._graph, self._broker, [self._old, self._new], clock=self._clock, tell=tell)
        own = {t.name: t for t in self._plan.create if processor_of(self._graph.name, t.name) == self._new}
        return PlannedRename(tuple(own.values()), (*([unseen] if unseen else []), *self._notes(old, own)))

    def _notes(self, old: list[Record], create: Mapping[str, NewTopic]) -> Iterator[str]:
        for topic in create:
            yield f"would create {topic}"
        for spec, record in zip(self._leaving, old, strict=True):
            places = ", ".join(f"offset {p.offset} of {p.topic}/{spec.partition}" for p in record.positions)
            yield f"{spec.name} resumes as {self._new}/{spec.partition} at {places}, after {count(record.step, 'step')}"
            if steps := in_flight(record):
                yield f"{spec.name}: {count(steps, 'step')} that a dead process has taken and not settled are DROPPED"
        if self._leaving[0].replay:
            yield (f"errors of {self._old} that are open can be replayed and dropped as those of {self._new}")
        for name in self._declared.state:
            topics = (changelog_topic(self._graph.name, one, name) for one in (self._old, self._new))
            yield "store {}: {} is copied to {}".format(name, *topics)
        if self._declared.has_effects:
            yield f"delivery hashes are over the name too: from here on they are those of {self._new}"
        yield (
            f"the topics of {self._old} stay; `cues-kafka delete MODULE:GRAPH --unused` deletes them once {self._new} "
            "has run"
        )

    # What refuses

    def _refuse_members(self) -> None:
        for spec in (self._leaving[0], self._arriving[0]):
            if members := self._broker.members(spec.group):
                raise RecoveryError(has_members({spec.group: members}))

    def _refuse_own(self, spec: Spec, record: Record | None, old: Record) -> None:
        if record is None:
            if self._has_offsets(spec):
                raise ConfigError(
                    f"group {spec.group!r} has offsets, and {spec.name} has no record: {self._new!r} ran here before, "
                    f"and its topic is gone. Run `cues-kafka delete MODULE:GRAPH {self._new}`, then run the command "
                    "again."
                )
        elif record.moving_from not in ("", self._old):
            raise ConfigError(
                f"{spec.name} is being moved from {record.moving_from!r}, not from {self._old!r}. End that move first: "
                f"`cues-kafka rename MODULE:GRAPH {record.moving_from} {self._new} --yes`."
            )
        elif not record.moving_from and old.moved_to != self._new:
            placeholder = Move(after=-1, positions=(), moving_from=self._old)
            raise ConfigError(f"{refusal(spec, placeholder, record)}.")

    def _has_offsets(self, spec: Spec) -> bool:
        """Whether its group has committed; a transaction that a dead run left open has not."""
        try:
            held = self._broker.committed(spec.group, [TopicPartition(i.topic, spec.partition) for i in spec.inputs])
        except UnstableOffsets:
            return False
        return any(offset is not None for offset in held.values())

    def _refuse_all_unready(self, old: list[Record]) -> None:
        for spec, record in zip(self._leaving, old, strict=True):
            if not record.moved_to:
                self._refuse_unready(spec, record)

    def _refuse_unready(self, spec: Spec, record: Record) -> None:
        """Refuse a task that its old declaration must bring to rest first."""
        former = (
            f"Start the processor as {self._old!r} until it has delivered them; shut it down gracefully, and run the "
            "command again."
        )
        if record.strategy != spec.strategy:
            raise RecoveryError(
                f"{spec.name}: its newest record was written {record.strategy}, and the graph says {spec.strategy}. "
                f"Run `cues-kafka strategy MODULE:GRAPH {self._old} --yes` while the processor has its old name."
            )
        if isinstance(record, Snapshot):
            what = count(record.steps, "step")
            raise RecoveryError(f"{spec.name} has announced {what}, whose delivery hashes hold its name. {former}")
        if record.careful_until or record.careful_timers or record.choice or record.tail_ends:
            raise RecoveryError(f"{spec.name} takes its next messages in a recorded order, or one by one. {former}")
        refuse_other_stores(spec, record)
        if self._rows is not None:
            self._rows.refuse_unlike(spec, record)
        if requests := self._untaken(spec, record):
            raise RecoveryError(f"{spec.name} has {count(requests, 'request')} to replay errors before it. {former}")
        match recover(spec, record, {}, self._inputs(spec)):
            case Refuse(halt):
                raise RecoveryError(f"{spec.name}: {halt.text}. While the processor has its old name: {halt.remedy}")

    def _untaken(self, spec: Spec, record: Record) -> int:
        """How many offsets of its replay topic a task has not read; requests are sent without transactions."""
        place = TopicPartition(spec.replay, spec.partition)
        if not spec.replay or self._broker.partitions().get(spec.replay, 0) <= spec.partition:
            return 0
        marks = self._broker.watermarks([place])[place]
        return max(0, marks.high - max(marks.low, *(p.offset for p in record.replays), 0))

    def _inputs(self, spec: Spec) -> dict[str, InputFacts]:
        places = {i.binding: TopicPartition(i.topic, spec.partition) for i in spec.inputs}
        marks = self._broker.watermarks(list(dict.fromkeys(places.values())))
        topics = self._facts.topics
        return {binding: InputFacts(topics[place.topic].topic_id, *marks[place]) for binding, place in places.items()}

    # Records

    def _records(self) -> tuple[list[Record], list[Record | None]]:
        """The newest records under both names; refuse where the new one has a place of its own, at each stage."""
        sizes = self._broker.partitions()
        old = [self._newest(spec, sizes) for spec in self._leaving]
        if missing := [spec.name for spec, record in zip(self._leaving, old, strict=True) if record is None]:
            raise RecoveryError(
                f"{', '.join(missing)}: no record, so the task has no place yet. Start the processor as {self._old!r} "
                "once, until all of its tasks have begun; stop it, and run the command again."
            )
        there, new = [record for record in old if record], [self._newest(spec, sizes) for spec in self._arriving]
        for spec, record in zip(self._arriving, new, strict=True):
            self._refuse_own(spec, record, there[spec.partition])
        return there, new

    def _newest(self, spec: Spec, sizes: Mapping[str, int]) -> Record | None:
        place = TopicPartition(spec.backing, spec.partition)
        if place.partition >= sizes.get(place.topic, 0):
            return None
        low, stable, _ = self._broker.watermarks([place])[place]
        try:
            record = record_below(self._broker, place, low, stable, self._clock, group=spec.group)
        except CodecError as error:
            raise RecoveryError(f"{spec.name}: its newest record cannot be read: {error}") from error
        ours = Move(after=-1, positions=(), moved_to=self._new, moving_from=self._old)
        other = foreign(replace(spec, move=ours), record) if record else None
        if other and record and record.moving_from in ("", self._old):
            raise RecoveryError(f"{spec.name}: {other.halt.text}. {other.halt.remedy}")
        return record

    # The move

    def carry_out(self, planned: PlannedRename) -> None:
        """
        Commit the records, three for each task, each in a transaction of its own.

        Raises:
            RecoveryError: a worker has joined one of the groups, or a task has moved since the plan.
            BrokerError: the cluster refused; another run goes on where this one stopped.
        """
        if planned.done:
            return
        self._refuse_members()
        self._broker.create(planned.create)
        with contextlib.ExitStack() as memberships:
            leaving, arriving = (
                memberships.enter_context(
                    HeldGroup(self._broker, specs[0].group, self._declared.lead, self._width, self._clock)
                )
                for specs in (self._leaving, self._arriving)
            )
            self._refuse_all_unready(self._records()[0])  # a worker may have run since the plan was made
            for _ in range(STAGES):
                above = [self._rows.owner(p) for p in range(self._width)] if self._rows is not None else []
                stage = next_stage(*self._records(), self._old, self._new, above)
                if stage is None:
                    return
                self._commit(stage, leaving, arriving)
        raise RecoveryError(
            f"{self._old!r} has not arrived as {self._new!r} after {STAGES} stages. Find out who else writes its "
            "backing topics, and run the command again."
        )

    def _commit(self, stage: Stage, leaving: HeldGroup, arriving: HeldGroup) -> None:
        specs, mine, other = (
            (self._arriving, arriving, leaving) if stage.under_new else (self._leaving, leaving, arriving)
        )

        def alone() -> GroupMetadata:
            other()
            return mine()

        for partition, move in stage.moves:
            spec, world = specs[partition], World(self._broker, self._clock, no_reader, alone, self._hook)
            if move.complete is not None:
                spec, changes = self._taken_along(spec, move, move.complete, alone)
                world = replace(world, changes=changes)
                if self._rows is not None:
                    self._rows.settle(partition, move.complete, move.above)
            with contextlib.ExitStack() as opened:
                if self._rows is not None and move.moved_to:  # E1: the question to the target ends former owners there
                    target = opened.enter_context(contextlib.closing(self._rows.leaving(partition)))
                    world = replace(world, target=target)
                commit_move(replace(spec, move=move, target=bool(spec.target and move.moved_to)), world)

    def _taken_along(
        self, spec: Spec, move: Move, last: Record, alone: Callable[[], Any]
    ) -> tuple[Spec, Callable[[], Iterator[tuple[Any, ...]]]]:
        """The task as it arrives, and what it takes along."""
        old = self._leaving[spec.partition]
        taken = TakenAlong(self._broker, old, spec, last, self._changelog_ids)
        taken.write_most(alone)
        arrival = Moved(arrives_at(move), last.positions, last.positions, last.positions, last.totals, self._old)
        said = noted(spec, history_of(self._broker, old, self._clock).then(arrival))
        # Without entries its changelogs get no marks.
        return spec if taken.kept else replace(spec, stores=()), lambda: chain((said,), taken.rest())

    def _changelog_ids(self) -> dict[str, bytes]:
        found = self._broker.facts([topic for _, topic in self._arriving[0].stores])
        return {topic: facts.topic_id for topic, facts in found.topics.items()}


def _movable(graph: Graph, old: str, new: str) -> Processor:
    """
    The declaration under the new name.

    Raises:
        ConfigError: the graph is not declared so, or the processor has what cannot move.
    """
    if old in graph.all_processors:
        raise ConfigError(
            f"graph {graph.name!r} still declares {old!r}. Give the processor its new name in the declaration, "
            f"Processor(fn, name={new!r}, ...), then run the command with it."
        )
    if new not in graph.all_processors:
        raise ConfigError(
            f"{no_such_processor(graph.name, [new], graph.all_processors)}. Declare the processor as {new!r} first."
        )
    keep = f"Keep the name; the function may have another one: name={old!r}"
    if new not in graph.processors:
        what = "a feed" if new in graph.feeds else "a processor of DataFrames, whose place is in a checkpoint too"
        raise ConfigError(f"{new!r} is {what}, which cannot be renamed. {keep}.")
    declared = graph.processors[new]
    if graph.strategy_of(declared) == AT_LEAST_ONCE:
        raise ConfigError(
            f"{new!r} is at-least-once: a worker of it has no lock, and may still write under the old name. Change to "
            f"exactly-once as {old!r} first: `cues-kafka strategy MODULE:GRAPH {old} --yes`."
        )
    if others := [name for name, one in declared.targets.items() if one.database is None]:
        raise ConfigError(
            f"{new!r} has {quoted(others)} in effects=, and what is there is kept under the processor's name. Only "
            f"databases can be renamed yet. {keep}."
        )
    return declared
