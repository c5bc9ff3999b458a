"""Tools of operators: move the positions of tasks on purpose, and change topics as the plan says.

A tool writes to a backing partition with the task's transactional id, which is its lock (O1), and only while the group
has no members. `Maintenance` joins the group meanwhile, so that no worker can join unnoticed, and the offsets carry a
proof of membership (P5). Each task is moved in a transaction of its own, offsets and record together.

A staged processor (DataFrames that shuffle or keep state) has one place for all of its slots: the end of its newest
batch. So it is reset as a whole. Slot 0 comes first, and its record gives the reset its publication number.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import TracebackType
from typing import Any, Self, TypeAlias

from cues_kafka.core import events as on
from cues_kafka.core.events import InputFacts
from cues_kafka.core.moves import MOVED, To, begin, behind_both, behind_compaction, behind_loss
from cues_kafka.core.records import Attempt, Extent, Record, Snapshot, Staged, Start
from cues_kafka.core.spec import Input, Move, Spec
from cues_kafka.core.staged import RESET
from cues_kafka.core.strategies import AT_LEAST_ONCE
from cues_kafka.core.tails import behind_loss as tails_behind_loss
from cues_kafka.core.taking import in_flight
from cues_kafka.core.turns import take
from cues_kafka.errors import CodecError, ConfigError, RecoveryError, UnstableOffsets
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, no_such_processor
from cues_kafka.graph.processor import Processor
from cues_kafka.operate.drivers import refuse_drivers
from cues_kafka.operate.members import has_members
from cues_kafka.operate.migrating import notes, positions_of, refuse_undeclared
from cues_kafka.operate.noting import moved_messages
from cues_kafka.operate.places import wanted
from cues_kafka.operate.refused_batches import RefusedBatches
from cues_kafka.operate.settling import DATABASE, HERE, Settling, settling, stands_at
from cues_kafka.plan.plan import Plan, plan
from cues_kafka.plan.refusals import refuse_unsafe
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.ports import (
    Broker,
    Clock,
    GroupMetadata,
    Member,
    Position,
    Positions,
    TopicPartition,
    TransactionalSink,
    Watermarks,
)
from cues_kafka.records.reading import record_below
from cues_kafka.records.scanning import read_range
from cues_kafka.runtime.other_inputs import begin_again
from cues_kafka.runtime.specs import Identity, frame_spec, spec_of
from cues_kafka.runtime.task.clock import SystemClock
from cues_kafka.runtime.task.interpreter import Hook, Interpreter, World
from cues_kafka.state.layers import TOPIC
from cues_kafka.state.marks import tool_mark
from cues_kafka.words import count

JOIN_TIMEOUT_S = 60.0
"""Time for a join: brokers hold back the first join of a group for some seconds, and wait for other members."""

SESSIONS = 2
"""For how many session time-outs a group is held before a strategy changes that had no lock (W7)."""

PATIENCE_S = 3.0
"""How long the markers of a transaction may be on their way after its end."""

Target: TypeAlias = "Callable[[Spec, Record | None, Mapping[str, InputFacts]], Positions | None]"


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """
    One task that shall stand elsewhere.

    Attributes:
        spec: the task, with its `Move`; its writer is the tool.
        notes: what will be lost or repeated, in words.
        changes: what becomes of its stores, as records of their changelogs, without the marks; None: they stay.
        settle: what is done in the task's target once the task stands there, by its newest record; None: nothing.
        waits: a former worker may write without the lock, so the group is held for two sessions first (W7).
        kept: up to where its stores hold what it has delivered, if they go back, too; None: all of it.
    """

    spec: Spec
    notes: tuple[str, ...]
    changes: Callable[[], Iterable[tuple[Any, ...]]] | None = None
    settle: Callable[[Record], None] | None = None
    waits: bool = False
    kept: Positions | None = None

    @property
    def positions(self) -> Positions:
        """The positions at which the task shall stand; empty: it stays."""
        return self.spec.move.positions if self.spec.move else ()


class Maintenance:
    """
    Move the tasks of one processor: `reset` and `accept_loss` plan the moves, `carry_out` does them.

    Attributes:
        specs: the tasks; the tool is their writer.
        staged: whether it is a staged processor, which is reset as a whole.
    """

    def __init__(
        self,
        graph: Graph,
        broker: Broker,
        processor: str,
        *,
        who: str,
        clock: Clock | None = None,
        hook: Hook | None = None,
        session_s: float = 10.0,
    ) -> None:
        """
        Args:
            graph: the graph.
            broker: the cluster.
            processor: name of the processor.
            who: the records name it as their writer, so that they show who moved the task.
            clock: time.
            hook: crash points, see `interpreter`.
            session_s: the session time-out of the processor's workers, in seconds.

        Raises:
            ConfigError: the graph has no such processor, or it was never started on this cluster.
        """
        everyone: dict[str, Processor | DataFrameProcessor] = {**graph.processors, **graph.dataframes}
        if processor in graph.feeds:
            raise ConfigError(
                f"{processor!r} is a feed: its place is in its source, not an offset. To have it begin again, give it "
                "a new name="
            )
        if processor not in everyone:
            raise ConfigError(no_such_processor(graph.name, [processor], everyone))
        facts = self._facts = broker.facts(topics_to_ask(graph))
        declared, backing = everyone[processor], backing_topic(graph.name, processor)
        topics = declared.read_topics if isinstance(declared, DataFrameProcessor) else declared.input_topics
        for topic in (*topics, backing):
            if topic not in facts.topics:
                raise ConfigError(
                    f"topic {topic!r} does not exist, so there is nothing to move: {processor!r} was never started on "
                    "this cluster, or its topic is gone. `cues-kafka plan MODULE:GRAPH --apply` creates missing topics."
                )
        self._ids = {topic: found.topic_id for topic, found in facts.topics.items()}
        self._sizes = {topic: facts.topics[topic].partitions for topic in (*topics, backing)}
        self._inputs_of = tuple(Input(*pair) for pair in declared.inputs)
        self._graph, self._broker = graph, broker
        self._clock = clock or SystemClock()
        self._hook = hook
        self._session_s = session_s
        self.declared = declared
        identity = Identity.of_process("tool", who)
        if isinstance(declared, DataFrameProcessor):
            width = self._sizes[topics[0]]
            self.specs, self.staged = self._frame(
                declared, lambda slot: frame_spec(graph.name, processor, slot, width, identity, inputs=declared.inputs)
            )
        else:
            self._plan = plan(graph, facts)
            self._make = spec_of(graph, self._plan, declared, self._sizes[declared.lead], identity)
            self.specs, self.staged = tuple(map(self._make, range(min(self._sizes.values())))), False

    def _frame(self, declared: DataFrameProcessor, make: Callable[[int], Spec]) -> tuple[tuple[Spec, ...], bool]:
        """Find out by its records how a processor of DataFrames is written, and in how many parts."""
        slots = [replace(make(slot), inputs=()) for slot in range(self._sizes[make(0).backing])]
        found = [record for slot in slots if (record := self.settled(slot))]
        staged = [record.staged for record in found if record.staged]
        if staged:
            return tuple(replace(slot, width=staged[0].parts) for slot in slots[: staged[0].parts]), True
        if len(declared.inputs) > 1 or len(declared.outputs) > 1 or not found:
            raise ConfigError(f"{declared.name!r} has no record, so there is nothing to move: it was never started")
        return tuple(map(make, range(min(self._sizes.values())))), False

    def reset(self, *, to: str = "earliest", partition: int | None = None) -> list[PlannedMove]:
        """
        Plan to let tasks begin elsewhere.

        Args:
            to: see `places.wanted`; `earliest` repeats the messages in the log, `latest` skips them.
            partition: of a single task; None: all tasks.

        Raises:
            ConfigError: there is no such partition or place, or the processor is staged and cannot be reset in part.
            RecoveryError: the group has members, or a record is not this task's.
        """
        if self.staged:
            if partition is not None:
                raise ConfigError(
                    f"--partition {partition}: {self.specs[0].processor!r} is written staged. Its batches take all "
                    "partitions of its inputs at once, so it is reset as a whole: leave --partition out"
                )
            return self._reset_staged(to)
        if partition is not None and partition not in range(len(self.specs)):
            raise ConfigError(f"--partition {partition}: {self.specs[0].processor!r} has 0 to {len(self.specs) - 1}")

        specs = [s for s in self.specs if partition in (None, s.partition)]
        if to in (DATABASE, HERE):
            if not isinstance(self.declared, Processor) or self.declared.target is None:
                raise ConfigError(f"--to {to}: {self.specs[0].processor!r} has no database or store in its effects=")
            self._refuse_others()
            return [move for spec in specs if (move := self._settling(spec, to)) is not None]
        if to in ("earliest", "latest"):
            end: To = "earliest" if to == "earliest" else "latest"
            return self._moves(lambda spec, _, inputs: begin(spec, inputs, end), specs)
        return self._moves(self._target(wanted(self._broker, to, self._places(specs))), specs)

    def _settling(self, spec: Spec, to: str) -> PlannedMove | None:
        """Bring a task and its target together again (E1); None: they are."""
        assert isinstance(self.declared, Processor)
        assert self.declared.target is not None
        target, record, it = self.target_of(spec), self.settled(spec), self.declared.target[1].holder
        held = target.newest()
        found = settling(spec, record, held, self.inputs(spec), to, it=it)
        if found is None and record is not None and target.torn:
            found = Settling(held, record.positions, True, ("the log of the store lacks entries, but no attempt",))
        if found is None:
            return None
        _refuse_stores(spec, record, found.positions)

        def settle(newest: Record) -> None:
            if not target.settle(stands_at(newest), found.was):
                raise RecoveryError(f"{spec.name}: its target has changed since. Run the command again")

        # The core must not ask the target: it does not fit, which is why the operator is here.
        above = held.owner if held else -1
        move = Move(after=_sequence(record), above=above, positions=found.positions, tails=found.tails)
        stays = found.stays and above <= _sequence(record)
        moved = replace(spec, target=False, move=None if stays else move)
        notes = () if found.stays else tuple(_notes(spec, record, found.positions))
        return PlannedMove(moved, (*found.notes, *notes), settle=settle)

    def adopt(self, group: str) -> list[PlannedMove]:
        """
        Plan to let tasks that never ran go on where another consumer group stands.

        Tasks that stand there already are left out, so that a run that was cut short can be run again.

        Args:
            group: the group, whose application has stopped. `carry_out` holds it meanwhile, and `forget` deletes it.

        Raises:
            ConfigError: the processor is one of DataFrames, the group is its own, or an input has partitions that no
                task has yet.
            RecoveryError: a group has members, the other one lacks an offset or has one that is not in the log, or a
                task has a record of another place.
        """
        if self.staged or not self.specs[0].inputs:
            raise ConfigError(
                f"{self.specs[0].processor!r} is written staged. Use `cues-kafka reset MODULE:GRAPH "
                f"{self.specs[0].processor} --to group:{group}`"
            )
        if group == self.specs[0].group:
            raise ConfigError(f"group {group!r} is this processor's own, so there is no place to take over")
        self._refuse_unplanned()
        offsets = wanted(self._broker, f"group:{group}", self._places(self.specs))
        if ran := [spec.name for spec in self.specs if not self._may_begin(spec, offsets)]:
            raise RecoveryError(
                f"{', '.join(ran)}: there is a record already, so the task has a place of its own. To give it up, use "
                f"`cues-kafka reset MODULE:GRAPH {self.specs[0].processor} --to group:{group}`"
            )
        return self._moves(self._target(offsets), self.specs)

    def _refuse_unplanned(self) -> None:
        """Refuse if an input was widened: `forget` would delete offsets of partitions that no task took over."""
        backing, tasks = self.specs[0].backing, len(self.specs)
        if wider := {i.topic: size for i in self._inputs_of if (size := self._sizes[i.topic]) > tasks}:
            has = ", ".join(f"{topic!r} has {count(size, 'partition')}" for topic, size in wider.items())
            raise ConfigError(
                f"{has}, and only {count(tasks, 'task')} can take a place. Run `cues-kafka plan MODULE:GRAPH --apply`, "
                f"which adds partitions to {backing!r}, then run the command again."
            )

    def _may_begin(self, spec: Spec, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether the task has no record, or one that says the same."""
        record = self.settled(spec)
        return record is None or (
            isinstance(record, Attempt | Start)
            and all(p.offset == offsets[TopicPartition(p.topic, spec.partition)] for p in record.positions)
        )

    def forget(self, group: str) -> bool:
        """Delete an adopted group, so that its application cannot go on there; False: it has other topics' offsets."""
        return self._broker.forget(group, [i.topic for i in self._inputs_of])

    def _places(self, specs: Sequence[Spec]) -> list[TopicPartition]:
        return [TopicPartition(i.topic, spec.partition) for spec in specs for i in spec.inputs]

    def _target(self, offsets: Mapping[TopicPartition, int]) -> Target:
        def target(spec: Spec, _: Record | None, inputs: Mapping[str, InputFacts]) -> Positions:
            return tuple(
                Position(
                    i.binding, i.topic, inputs[i.binding].topic_id, offsets[TopicPartition(i.topic, spec.partition)]
                )
                for i in spec.inputs
            )

        return target

    def accept_loss(self) -> list[PlannedMove]:
        """
        Plan to let tasks go on without messages that are gone from the log.

        After retention or a trim, a task goes on at the first message in the log. After compaction took messages of an
        announced batch, it goes on with what is left of the batch; a join goes on behind the batch, because messages
        without partners are no steps. A task that stands at batches which the client refuses to read goes on behind
        them. A tailer goes on in the same way; one whose topic was recreated begins at `start=` again (L2).

        Raises:
            ConfigError: the processor is staged.
            RecoveryError: the group has members, a record is not this task's, or a topic was recreated.
        """
        if self.staged:
            raise ConfigError(
                f"{self.specs[0].processor!r} is written staged: where it goes on is in the checkpoint of its query, "
                "together with the state that Spark keeps, and no record can move that. "
                f"`cues-kafka reset MODULE:GRAPH {self.specs[0].processor}` lets it begin again, at the first messages "
                "in the log or behind the last ones"
            )

        notes: dict[int, tuple[str, ...]] = {}
        refused = RefusedBatches(self._broker)

        def target(spec: Spec, record: Record | None, inputs: Mapping[str, InputFacts]) -> Positions | None:
            if record is None:
                return None
            for position in record.positions:
                if position.binding not in inputs or inputs[position.binding].topic_id != position.topic_id:
                    raise RecoveryError(
                        f"{spec.name}: {position.topic!r} was recreated. Run `cues-kafka reset MODULE:GRAPH "
                        f"{spec.processor}` instead."
                    )
            kept = refused.behind(spec, behind_loss(record, inputs), inputs)
            if kept != record.positions:
                notes[spec.partition] = tuple(refused.notes(spec.partition))
                return kept
            if not isinstance(record, Snapshot) or any(p.offset > inputs[p.binding].stable for p in record.ends):
                return None  # there is no batch; or the log was truncated, which R5 refuses
            notes[spec.partition] = tuple(self._gone(spec, record))
            if not notes[spec.partition]:
                return None
            return behind_compaction(spec, record)

        moves = self._moves(target, self.specs)
        found = [replace(move, notes=(*notes.get(move.spec.partition, ()), *move.notes)) for move in moves]
        return self._with_tails(found) if self.specs[0].tailers else found

    def _with_tails(self, moves: Sequence[PlannedMove]) -> list[PlannedMove]:
        """Let tailers go on, too, where messages are gone from the logs that they read."""
        planned = {move.spec.partition: move for move in moves}
        for spec in self.specs:
            record = self.settled(spec)
            places = {i.binding: TopicPartition(i.topic, spec.partition) for i in spec.tailers if i.topic in self._ids}
            if record is None or len(places) < len(spec.tailers):
                continue
            marks = self._broker.watermarks(list(dict.fromkeys(places.values())))
            facts = {name: InputFacts(self._ids[place.topic], *marks[place]) for name, place in places.items()}
            tails = tuple(p for p in record.tails if p.binding in facts)
            refused = RefusedBatches(self._broker)
            kept = {p.binding: p for p in refused.behind(spec, tails_behind_loss(record, facts), facts)}
            if tuple(kept.values()) == tails:
                continue
            move = planned.get(spec.partition) or PlannedMove(
                replace(spec, move=Move(after=_sequence(record), positions=record.positions)), ()
            )
            assert move.spec.move
            moved = replace(move.spec, move=replace(move.spec.move, tails=tuple(kept.values())))
            notes = tuple(_tail_note(spec, p, kept.get(p.binding)) for p in tails if kept.get(p.binding) != p)
            notes = (*move.notes, *refused.notes(spec.partition), *notes)
            planned[spec.partition] = replace(move, spec=moved, notes=notes)
        return [planned[p] for p in sorted(planned)]

    def change_strategy(self) -> list[PlannedMove]:
        """
        Plan to give tasks the strategy that the graph declares for the processor, where they stand (W7).

        Raises:
            ConfigError: the processor is staged.
            RecoveryError: the group has members, a record is not this task's, or a batch is announced.
        """
        if self.staged or not self.specs[0].inputs:
            raise ConfigError(f"{self.specs[0].processor!r} is written staged, which is exactly-once always")
        self._refuse_others()
        return [move for spec in self.specs if (move := self._changed(spec)) is not None]

    def _changed(self, spec: Spec) -> PlannedMove | None:
        """One task; None: it has this strategy, or nothing at all."""
        record = self.settled(spec)
        if record is None:
            held = self._held(spec)
            return _completed(spec, self.inputs(spec), held) if held else None
        if record.strategy == spec.strategy:
            return None
        if isinstance(record, Snapshot):
            raise RecoveryError(
                f"{spec.name} has announced {count(record.steps, 'step')}, which {record.strategy} has to deliver. Run "
                "the former version until it has delivered them, and stop it"
            )
        loose = record.strategy == AT_LEAST_ONCE
        positions = behind_both(record, self._held(spec)) if loose else record.positions
        notes = [f"{record.strategy} becomes {spec.strategy}, from the same place on"]
        if positions != record.positions:
            notes = [f"{record.strategy} becomes {spec.strategy}, at the group's offsets: an older record came last"]
        if steps := in_flight(record):
            notes.append(f"{count(steps, 'step')} that a dead process has taken and not settled count as DROPPED")
        move = Move(after=record.sequence, positions=positions, strategy=spec.strategy)
        return PlannedMove(replace(spec, move=move), tuple(notes), waits=loose)

    def migrate(
        self, add: Mapping[str, str], drop: Collection[str], *, tell: Callable[[str], Any] = lambda _: None
    ) -> list[PlannedMove]:
        """
        Plan to let tasks go on with the inputs that the graph declares now, which are others than their records have.

        Inputs that stay keep their offsets. Tasks that have the declared inputs already are left out, so that a run
        that was cut short can be run again; so are tasks without a record, which begin at `start=`.

        Args:
            add: where each added input begins: `earliest`, at its first message, `latest`, behind its last committed
                one, or the name of a dropped input from the same topic, where that stands.
            drop: the inputs that are gone.
            tell: told why the plan waits, see `refuse_drivers`.

        Raises:
            ConfigError: the processor is one of DataFrames or never ran, the plan is refused, or the options are not
                the difference between the records and the declaration.
            RecoveryError: the group has members, a driver of Spark runs the processor, or a record holds what the move
                would forget.
        """
        if not isinstance(self.declared, Processor):
            raise ConfigError(
                f"{self.declared.name!r} is a processor of DataFrames: where it stands is also in the checkpoint of "
                f"its query, which knows its inputs. You may {begin_again(self.declared.name)}"
            )
        refuse_undeclared(self.specs[0], add, drop)
        self._plan.refuse()
        self._refuse_others()
        records = {spec: record for spec in self.specs if (record := self.settled(spec))}
        if not records:
            raise ConfigError(
                f"{self.declared.name!r} has no record, so there is nothing to migrate: start it, and it begins at "
                "start="
            )
        moves = [move for spec, record in records.items() if (move := self._migrated(spec, record, add, drop))]
        names, broker = [self.declared.name], self._broker
        if moves and (unseen := refuse_drivers(self._graph, broker, names, clock=self._clock, tell=tell)):
            moves[0] = replace(moves[0], notes=(unseen, *moves[0].notes))
        return moves

    def _migrated(
        self, spec: Spec, record: Record, add: Mapping[str, str], drop: Collection[str]
    ) -> PlannedMove | None:
        """One task; None: it has these inputs."""
        inputs = self.inputs(spec)
        positions = positions_of(spec, record, inputs, add, drop)
        if positions is None:
            return None
        if spec.target:
            self._refuse_ahead(spec, record)
        move = Move(after=record.sequence, positions=positions)
        topics = dict.fromkeys(p.topic for p in (*positions, *record.positions))
        said = notes(spec, record, positions, add, self._facts_of(spec, topics))
        return PlannedMove(replace(spec, move=move), tuple(said))

    def _refuse_ahead(self, spec: Spec, record: Record) -> None:
        """Refuse if the task's target holds the outcomes of messages of the former inputs, and Kafka does not."""
        target = self.target_of(spec)
        try:
            held = target.newest()
        finally:
            target.close()
        if held is not None and held.step > record.step:
            raise RecoveryError(
                f"{spec.name}: its target holds {count(held.step - record.step, 'step')} more than its newest record. "
                "Start the former version, with the inputs as they were, which completes them; stop it, and run the "
                "command again."
            )

    def _facts_of(self, spec: Spec, topics: Iterable[str]) -> dict[TopicPartition, InputFacts]:
        """What the cluster says about these topics, declared or not; those that do not exist are left out."""
        found = self._broker.facts(list(topics)).topics
        places = [
            TopicPartition(topic, spec.partition) for topic, facts in found.items() if spec.partition < facts.partitions
        ]
        marks = self._broker.watermarks(places) if places else {}
        return {place: InputFacts(found[place.topic].topic_id, *marks[place]) for place in places}

    def _held(self, spec: Spec) -> dict[str, int | None]:
        """The group's offsets by binding; none while a transaction holds them, which at-least-once has not."""
        try:
            held = self._broker.committed(spec.group, self._places([spec]))
        except UnstableOffsets:
            return {}
        return {i.binding: held[TopicPartition(i.topic, spec.partition)] for i in spec.inputs}

    def _gone(self, spec: Spec, snapshot: Snapshot) -> Iterator[str]:
        """Messages of an announced batch that are gone from the log."""
        if spec.pairing == "alts":
            announced = Counter[str]()
            for binding, steps in take(snapshot.choice, snapshot.steps):
                announced[binding] += steps
        else:
            announced = Counter({position.binding: snapshot.steps for position in snapshot.positions})
        ends = {position.binding: position.offset for position in snapshot.ends}
        for position in snapshot.positions:
            place, end = TopicPartition(position.topic, spec.partition), ends[position.binding]
            there = sum(1 for _ in read_range(self._broker, place, position.offset, end, group=spec.group))
            if gone := announced[position.binding] - there:
                yield (
                    f"{position.topic}/{spec.partition}: {count(gone, 'message')} of a batch that was announced up to "
                    f"{end} {'is' if gone == 1 else 'are'} gone from the log and LOST; {there} of it "
                    f"{'is' if there == 1 else 'are'} left"
                )

    def carry_out(self, moves: Sequence[PlannedMove], *, holding: str | None = None) -> None:
        """
        Move the tasks, each in one transaction.

        Args:
            moves: as planned.
            holding: another group that must have no members meanwhile.

        Raises:
            RecoveryError: the group has members, or a task has moved since the plan; the tasks before it are moved.
            BrokerError: the cluster refused; another run moves the other tasks.
        """
        if not moves:
            return
        self._refuse_others()
        with contextlib.ExitStack() as memberships:
            held = [
                memberships.enter_context(self._membership(one))
                for one in (self.specs[0].group, *([holding] if holding else []))
            ]
            if holding:
                self._refuse_moved_on(holding, moves)
            if any(move.waits for move in moves):
                held[0].hold(SESSIONS * self._session_s)
            for move in moves:
                for other in held[1:]:
                    other()
                self._move(move, held[0])

    def _membership(self, group: str) -> HeldGroup:
        lead = self._inputs_of[0].topic
        return HeldGroup(self._broker, group, lead, self._sizes[lead], self._clock)

    def _refuse_moved_on(self, group: str, moves: Sequence[PlannedMove]) -> None:
        """Refuse if another group has committed since the plan was made: its application ran again meanwhile."""
        planned = {TopicPartition(p.topic, move.spec.partition): p.offset for move in moves for p in move.positions}
        found = self._broker.committed(group, list(planned))
        if all(offset is None for offset in found.values()):
            raise RecoveryError(
                f"group {group!r} was deleted since it was looked at. Find out how before you start the workers: if "
                "another run of this command deleted it, the tasks stand at its place and nothing is left to do."
            )
        if moved := [place for place, offset in planned.items() if found[place] != offset]:
            at = ", ".join(f"{place.topic}/{place.partition} at {found[place]}" for place in moved)
            raise RecoveryError(
                f"group {group!r} has moved on since it was looked at: {at}. Stop its application, and run the command "
                "again."
            )

    def _reset_staged(self, to: str) -> list[PlannedMove]:
        """Plan the moves of all slots of a staged processor. Slot 0 decides, and is moved first."""
        self._refuse_others()
        records = [self.settled(spec) for spec in self.specs]
        known = [record.staged for record in records if record and record.staged]
        newest = max(known, key=lambda staged: staged.number)
        first = records[0].sequence if records[0] else -1
        places, begins = self._begins(to)
        extents = () if to == "earliest" else places  # at the first messages of that time, not of now
        reset = Staged(
            query=newest.query,
            batch=RESET,
            attempt="",
            checksum=b"",
            number=max(first, newest.number) + 1,
            parts=newest.parts,
            extents=extents,
        )
        if len(known) == len(records) and all(
            was == replace(reset, number=newest.number, part=part, extents=() if part else extents)
            for part, was in enumerate(known)
        ):
            return []
        unpublished = [
            part for part, record in enumerate(records) if not (record and _is_out(record, newest.number))
        ]  # fmt: skip
        notes = tuple(self._notes_staged(to, newest, unpublished, begins))
        parts = (reset, *(replace(reset, part=part, extents=()) for part in range(1, len(records))))
        begins_of = (places, *(() for _ in records[1:]))
        moves = [
            Move(after=_sequence(record), positions=(), staged=staged, begins=starts)
            for record, staged, starts in zip(records, parts, begins_of, strict=True)
        ]
        return [
            PlannedMove(replace(spec, move=move), () if spec.partition else notes)
            for spec, move in zip(self.specs, moves, strict=True)
        ]

    def _begins(self, to: str) -> tuple[tuple[Extent, ...], dict[TopicPartition, int]]:
        """Where a staged processor shall begin: by source, in the form of a batch's record, and by partition."""
        topics = dict.fromkeys(i.topic for i in self._inputs_of)
        places = [TopicPartition(topic, p) for topic in topics for p in range(self._sizes[topic])]
        offsets = wanted(self._broker, to, places)
        ends = {
            topic: json.dumps(
                {topic: {str(p): offsets[TopicPartition(topic, p)] for p in range(self._sizes[topic])}},
                sort_keys=True,
                separators=(",", ":"),
            )
            for topic in topics
        }
        extents = (Extent(i.binding, self._ids[i.topic], ends[i.topic], ends[i.topic]) for i in self._inputs_of)
        return tuple(sorted(extents)), offsets

    def _notes_staged(
        self, to: str, newest: Staged, unpublished: Sequence[int], begins: Mapping[TopicPartition, int]
    ) -> Iterator[str]:
        if newest.batch != RESET and unpublished:
            parts = ", ".join(map(str, unpublished))
            yield f"batch {newest.batch} is announced, but its parts {parts} are not published, and never will be"
        for topic in dict.fromkeys(place.topic for place in begins):
            places = ", ".join(f"{place.partition} at {begins[place]}" for place in begins if place.topic == topic)
            yield (
                f"{topic}: begins again, by partition: {places}; outputs of the messages behind REPEAT"
                if to == "earliest"
                else f"{topic}: begins again, by partition: {places}; what is unpublished below is LOST"
            )
        yield (
            f"what Spark keeps in the checkpoint of query {newest.query} (sums, windows, joined rows) is void, and "
            "that checkpoint is refused from then on"
        )

    def _moves(self, target: Target, specs: Sequence[Spec]) -> list[PlannedMove]:
        self._refuse_others()
        moves = []
        for spec in specs:
            inputs = self.inputs(spec)
            record = self.settled(spec)
            positions = target(spec, record, inputs)
            if positions is None or (isinstance(record, Attempt | Start) and positions == record.positions):
                continue
            _refuse_stores(spec, record, positions)
            move = Move(after=_sequence(record), positions=positions)
            moves.append(PlannedMove(replace(spec, move=move), tuple(_notes(spec, record, positions))))
        return moves

    def _move(self, move: PlannedMove, membership: Callable[[], GroupMetadata]) -> None:
        """Move one task, and then what its target has of it."""
        target = self.target_of(move.spec) if move.spec.target else None
        world = World(*(self._broker, self._clock, no_reader, membership, self._hook), target=target)
        try:
            if move.spec.move is not None:
                spec, changes = self._with_history(move)
                commit_move(spec, replace(world, changes=changes))
        finally:
            if target is not None:
                target.close()
        if move.settle is not None:
            record = self.settled(move.spec)
            if record is None:
                raise RecoveryError(
                    f"{move.spec.name} was moved, and its record is gone from {move.spec.backing!r}: what its target "
                    "has was left as it is. Find who deletes records there, then run the same command again"
                )
            move.settle(record)

    def _with_history(self, move: PlannedMove) -> tuple[Spec, Callable[[], Iterable[tuple[Any, ...]]] | None]:
        """The task, and what is written behind its record: its stores, and the history of its moves (X6)."""
        record = None if self.staged else self.settled(move.spec)
        said = moved_messages(self._broker, move.spec, record, self._clock, move.kept)
        stores = move.changes
        if not said:
            return move.spec, stores
        if stores is None:  # its changelogs end where they ended, and get no second mark
            return replace(move.spec, stores=()), lambda: said
        return move.spec, lambda: chain(said, stores())

    def target_of(self, spec: Spec) -> TransactionalSink:
        """The target of a task (E1)."""
        from cues_kafka.sinks.lookup import open_target  # noqa: PLC0415  only who has a database needs its driver

        assert isinstance(self.declared, Processor)
        return open_target(self.declared.targets, spec.graph, spec.processor, spec.partition)

    def _backing(self, spec: Spec) -> Watermarks:
        place = TopicPartition(spec.backing, spec.partition)
        return self._broker.watermarks([place])[place]

    def settled(self, spec: Spec) -> Record | None:
        """The newest committed record of a task."""
        low, stable, _ = self._backing(spec)
        return self._newest(spec, low, stable)

    def _newest(self, spec: Spec, low: int, high: int) -> Record | None:
        place = TopicPartition(spec.backing, spec.partition)
        try:
            record = record_below(self._broker, place, low, high, self._clock, group=spec.group)
        except CodecError as error:
            raise RecoveryError(f"{spec.name}: its newest record cannot be read: {error}") from error
        if record is not None and record.writer.transactional_id != spec.transactional_id:
            raise RecoveryError(
                f"{spec.name}: its newest record was written by {record.writer.transactional_id!r}. "
                "Give this application its own graph name."
            )
        return record

    def inputs(self, spec: Spec) -> dict[str, InputFacts]:
        """What the cluster says about the partitions that a task reads."""
        places = {i.binding: TopicPartition(i.topic, spec.partition) for i in spec.inputs}
        marks = self._broker.watermarks(list(places.values()))
        return {binding: InputFacts(self._ids[place.topic], *marks[place]) for binding, place in places.items()}

    def _refuse_others(self) -> None:
        """Refuse if a transaction is open: a query on Spark is no member of the group, but has one now and then."""
        group = self.specs[0].group
        if self.staged:
            self._refuse_publishing()
        if members := self._broker.members(group):
            raise RecoveryError(has_members({group: members}))

    def _refuse_publishing(self) -> None:
        deadline, pause = self._clock.monotonic() + PATIENCE_S, threading.Event()
        while busy := [spec.name for spec in self.specs if (marks := self._backing(spec)).stable < marks.high]:
            if self._clock.monotonic() > deadline:
                raise RecoveryError(
                    f"{', '.join(busy)}: a transaction is open. Stop the query that is publishing; that of a query "
                    "which was killed ends with its time-out, after 60 s by default"
                )
            pause.wait(0.1)


def no_reader(_: Positions) -> None:
    """In the place of a reader: a tool reads no messages."""
    raise AssertionError("a tool reads no messages")


def commit_move(spec: Spec, world: World) -> None:
    """
    X2: the core recovers the task, writes its record, and stops; a commit without an answer is looked up.

    Raises:
        RecoveryError: the core refuses the move.
    """
    interpreter = Interpreter(spec, world)
    try:
        interpreter.advance(on.Assigned())
    except BaseException:
        interpreter.advance(on.Lost())
        raise
    halt = interpreter.task.halt
    if halt is None or halt.kind != MOVED:
        raise RecoveryError(str(halt))


def _completed(spec: Spec, inputs: Mapping[str, InputFacts], offsets: Mapping[str, int | None]) -> PlannedMove | None:
    """Complete a start at-least-once that has committed its offsets, and no record (W6); None: there was none."""
    held = {binding: offset for binding, offset in offsets.items() if offset is not None}
    if spec.strategy == AT_LEAST_ONCE or len(held) < len(spec.inputs):
        return None
    begin = (Position(i.binding, i.topic, inputs[i.binding].topic_id, held[i.binding]) for i in spec.inputs)
    move = Move(after=-1, positions=tuple(begin), strategy=spec.strategy)
    return PlannedMove(replace(spec, move=move), ("begins at the group's offsets, of a start without a record",))


def rewrite(
    spec: Spec,
    record: Record | None,
    positions: Positions,
    changes: Callable[[], Iterable[tuple[str, bytes, bytes | None]]],
    topic_ids: Mapping[str, bytes],
) -> PlannedMove:
    """
    A move that also changes the task's stores, in the same transaction (R4b).

    Args:
        spec: the task.
        record: its newest record.
        positions: where it shall stand.
        changes: store, key and value of each record of a changelog, without marks; asked whenever the transaction is.
        topic_ids: of the changelogs.

    Raises:
        RecoveryError: tools have written behind this step too often.
    """
    kept, step = dict(record.stores) if record else {}, record.step if record else 0
    changelogs = dict(spec.stores)
    marks = {name: tool_mark(step, kept.get(name)) for name in changelogs}

    def written() -> Iterator[tuple[Any, ...]]:
        for name, key, value in changes():
            yield changelogs[name], spec.partition, key, value, None, 0
        for topic in changelogs.values():
            yield topic, spec.partition, TOPIC, topic_ids[topic], None, 0

    move = Move(after=_sequence(record), positions=positions, stores=tuple((kept | marks).items()))
    return PlannedMove(replace(spec, move=move), (), written)


def _is_out(record: Record, number: int) -> bool:
    return isinstance(record, Attempt) and record.staged is not None and record.staged.number == number


def _sequence(record: Record | None) -> int:
    return record.sequence if record else -1


def _refuse_stores(spec: Spec, record: Record | None, positions: Positions) -> None:
    """
    Refuse to move a task with stores back.

    Raises:
        ConfigError: it would go back.
    """
    if record is not None and record.stores and goes_back(record, positions):
        stores = ", ".join(name for name, _ in record.stores)
        raise ConfigError(
            f"{spec.name} cannot go back: its stores ({stores}) hold what the messages since then have changed "
            "and would take the same changes twice. Give the processor a new name=: under it, stores are built "
            "from start= on. It can be reset to places further on"
        )


def _tail_note(spec: Spec, was: Position, now: Position | None) -> str:
    place = f"{was.topic}/{spec.partition}"
    if now is None:
        return f"{place}: tailer {was.binding!r} begins at start= of the new topic; what the old one still held is LOST"
    gone = count(now.offset - was.offset, "message")
    return (
        f"{place}: tailer {was.binding!r} goes on at {now.offset}; what offsets [{was.offset}, {now.offset}) held is "
        f"LOST, it is never shown: at most {gone}, for markers of transactions have offsets too"
    )


def goes_back(record: Record, positions: Positions) -> bool:
    """Whether any of these positions is below the record's."""
    before = {(p.binding, p.topic_id): p.offset for p in record.positions}
    return any(p.offset < before.get((p.binding, p.topic_id), 0) for p in positions)


def _notes(spec: Spec, record: Record | None, positions: Positions) -> list[str]:
    before = {(p.binding, p.topic): p for p in record.positions} if record else {}
    notes = []
    for position in positions:
        place, was = f"{position.topic}/{spec.partition}", before.get((position.binding, position.topic))
        if was is None:
            notes.append(
                f"{place}: begins at {position.offset}, and no record says what was delivered: before it something may "
                "be LOST, behind it something may be delivered AGAIN"
            )
        elif was.topic_id != position.topic_id:
            notes.append(f"{place}: begins at {position.offset} of the new topic; what the old one still held is LOST")
        elif was.offset < position.offset:
            notes.append(
                f"{place}: what offsets [{was.offset}, {position.offset}) hold is LOST, it will never be delivered: at "
                f"most {count(position.offset - was.offset, 'message')}, for markers of transactions have offsets too"
            )
        elif was.offset > position.offset:
            notes.append(
                f"{place}: what offsets [{position.offset}, {was.offset}) hold is delivered AGAIN, with the same "
                f"delivery hashes: at most {count(was.offset - position.offset, 'message')}; outputs and effects repeat"
            )
    if spec.pairing == "join":
        notes.append("from there, a join pairs the k-th message of each input behind these positions")
    if isinstance(record, Snapshot):
        notes.append(
            f"a batch of {count(record.steps, 'step')} was being delivered; its effects outside Kafka may have happened"
        )
    return notes


class HeldGroup:
    """The only member of a group for a moment. A call returns the proof, and fails when another member has joined."""

    def __init__(self, broker: Broker, group: str, topic: str, width: int, clock: Clock) -> None:
        self._group = group
        self._width = width
        self._clock = clock
        self._owned: set[int] = set()
        self._member: Member = broker.member(group, topic, self)

    def __enter__(self) -> Self:
        try:
            self._join()
        except BaseException:
            self._member.close(leave=True)  # a client that may not join tries it again without end
            raise
        return self

    def _join(self) -> None:
        deadline = self._clock.monotonic() + JOIN_TIMEOUT_S
        pause = threading.Event()
        self._member.poll()
        while not self._alone:
            if self._clock.monotonic() > deadline:
                raise RecoveryError(f"group {self._group!r} is not free after {JOIN_TIMEOUT_S:g} s. Stop its workers.")
            pause.wait(0.05)  # a poll never waits, and no event tells of it
            self._member.poll()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._member.close(leave=True)

    def hold(self, seconds: float) -> None:
        """
        Stay the only member for this time.

        Raises:
            RecoveryError: another member has joined.
        """
        deadline, pause = self._clock.monotonic() + seconds, threading.Event()
        while self._clock.monotonic() < deadline:
            self()
            pause.wait(0.05)  # a poll never waits, and no event tells of it

    def __call__(self) -> GroupMetadata:
        self._member.poll()
        if not self._alone:
            raise RecoveryError(f"a worker joined group {self._group!r}. Stop it, run the command again.")
        return self._member.metadata()

    @property
    def _alone(self) -> bool:
        return self._member.metadata().generation >= 0 and self._owned >= set(range(self._width))

    def on_assign(self, partitions: Sequence[int]) -> None:
        """Note the partitions; a member that has all of them is alone."""
        self._owned.update(partitions)

    def on_revoke(self, partitions: Sequence[int]) -> None:
        """Note that another member has joined."""
        self._owned.difference_update(partitions)

    on_lost = on_revoke


def apply_plan(planned: Plan, broker: Broker) -> None:
    """
    Create the topics of a plan, and give the framework's own topics the partitions and settings that they need.

    Raises:
        ConfigError: the plan is refused, or the cluster gave new topics settings of its own that lose data.
        BrokerError: the cluster refused.
    """
    planned.refuse()
    broker.create(planned.create)
    if created := [topic.name for topic in planned.create]:
        refuse_unsafe(broker.facts(created), created)
    for growth in planned.grow:
        broker.add_partitions(growth.topic, growth.wanted)
    for setting in planned.alter:
        broker.configure(setting.topic, {setting.name: setting.wanted})
