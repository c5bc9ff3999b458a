"""`cues-kafka rename`: let a processor go on under another name.

The name of a processor is in its backing topic, its group and its transactional ids, so all tasks move (X5). The core
says which records that takes, and in which order (`core.renaming`). This refuses what cannot move, creates the topics
of the new name, holds both groups, and commits the records. A run that ends half-way leaves tasks that refuse under
both names, and the next run goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final

from cues_kafka.core.records import Record, Snapshot
from cues_kafka.core.recover import Refuse, foreign, recover
from cues_kafka.core.renaming import Stage, arrives_at, next_stage, refusal
from cues_kafka.core.spec import Move, Spec
from cues_kafka.core.strategies import AT_LEAST_ONCE
from cues_kafka.core.taking import in_flight
from cues_kafka.errors import ConfigError, RecoveryError
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
from cues_kafka.operate.look.drivers import refuse_drivers
from cues_kafka.operate.look.tasks import TaskReading
from cues_kafka.operate.move.base import PlannedMove, commit_all, end_all
from cues_kafka.operate.move.copied_stores import TakenAlong, refuse_other_stores
from cues_kafka.operate.move.history import history_of, noted
from cues_kafka.operate.move.holding import HeldGroups, hold_groups, proof_of, refuse_members
from cues_kafka.operate.move.renamed_rows import RenamedRows
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.history import Moved
from cues_kafka.task.interpreter import Hook
from cues_kafka.task.making.specs import Identity
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
        self._graph, self._broker, self._old, self._new, self._hook = graph, broker, old, new, hook
        declared = self._declared = _movable(graph, check_name(old, "rename"), new)
        self._reading = TaskReading(graph, broker, clock)
        self._clock = self._reading.clock
        self._reading.plan.refuse()
        self._refuse_missing()
        self._width = self._reading.width(declared.lead)
        make = self._reading.specs(new, Identity.of_process("tool", who), self._width)
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
            if not self._reading.width(topic):
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
        refuse_members(self._broker, self._groups)
        old, new = self._records()
        self._refuse_all_unready(old)
        if next_stage(old, new, self._old, self._new) is None:
            return PlannedRename((), (), done=True)
        unseen = refuse_drivers(self._graph, self._broker, [self._old, self._new], clock=self._clock, tell=tell)
        own = {t.name: t for t in self._reading.plan.create if processor_of(self._graph.name, t.name) == self._new}
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

    def _refuse_own(self, spec: Spec, record: Record | None, old: Record) -> None:
        if record is None:
            # A transaction that a dead run left open has committed no offsets.
            if any(offset is not None for offset in (self._reading.offsets(spec) or {}).values()):
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
        match recover(spec, record, {}, self._reading.inputs(spec)):
            case Refuse(halt):
                raise RecoveryError(f"{spec.name}: {halt.text}. While the processor has its old name: {halt.remedy}")

    def _untaken(self, spec: Spec, record: Record) -> int:
        """How many offsets of its replay topic a task has not read; requests are sent without transactions."""
        place = TopicPartition(spec.replay, spec.partition)
        if not spec.replay or self._broker.partitions().get(spec.replay, 0) <= spec.partition:
            return 0
        marks = self._broker.watermarks([place])[place]
        return max(0, marks.high - max(marks.low, *(p.offset for p in record.replays), 0))

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
        if spec.partition >= sizes.get(spec.backing, 0):
            return None
        record = self._reading.settled(spec)
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
        refuse_members(self._broker, self._groups)
        # Before any record: records, entries and requests of the new name need its topics.
        self._broker.create(planned.create)
        # X5: both groups are held from the first record to the last. Between the records neither name may be started: a
        # worker of the old one would deliver what the new one takes over, and one of the new one would begin at start=.
        with hold_groups(self._broker, self._groups, self._declared.lead, self._width, self._clock) as held:
            end_all(self._broker, self._leaving)
            commit_all(self._moves(held), held, self._broker, self._clock, self._hook)

    @property
    def _groups(self) -> tuple[str, str]:
        return self._leaving[0].group, self._arriving[0].group

    def _moves(self, held: HeldGroups) -> Iterator[PlannedMove]:
        """What is left to commit, stage by stage; a stage is read from the records when the one before is committed."""
        self._refuse_all_unready(self._records()[0])  # a worker may have run since the plan was made
        for _ in range(STAGES):
            # The rows are asked before the records: a row that was seen here is replaced only if the task has yet to
            # arrive, and a record that came in between says that it has.
            above = [self._rows.owner(p) for p in range(self._width)] if self._rows is not None else []
            stage = next_stage(*self._records(), self._old, self._new, above)
            if stage is None:
                return
            yield from self._of_stage(stage, held)
        raise RecoveryError(
            f"{self._old!r} has not arrived as {self._new!r} after {STAGES} stages. Find out who else writes its "
            "backing topics, and run the command again."
        )

    def _of_stage(self, stage: Stage, held: HeldGroups) -> Iterator[PlannedMove]:
        specs = self._arriving if stage.under_new else self._leaving
        for partition, move in stage.moves:
            spec = replace(specs[partition], move=move, target=False)
            if move.complete is not None:
                yield self._arrival(spec, move, move.complete, held)
            elif self._rows is not None and move.moved_to:  # E1: the question to the target ends former owners there
                leaving = partial(self._rows.leaving, partition)
                yield PlannedMove(replace(spec, target=True), target=leaving)
            else:
                yield PlannedMove(spec)

    def _arrival(self, spec: Spec, move: Move, last: Record, held: HeldGroups) -> PlannedMove:
        """The task as it arrives, with what it takes along."""
        old = self._leaving[spec.partition]
        taken = TakenAlong(self._broker, old, spec, last, self._changelog_ids)
        taken.write_most(proof_of(held, spec.group))
        arrival = Moved(arrives_at(move), last.positions, last.positions, last.positions, last.totals, self._old)
        said = noted(spec, history_of(self._broker, old, self._clock).then(arrival))
        if self._rows is not None:
            # E1: before the record, unlike `reset --to database`. The new name has no record that a worker runs, so the
            # row may wait for it; a record without its row would have the first worker refuse.
            self._rows.settle(spec.partition, last, move.above)
        # Without entries its changelogs get no marks.
        arriving = spec if taken.kept else replace(spec, stores=())
        return PlannedMove(arriving, changes=lambda: chain((said,), taken.rest()))

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
