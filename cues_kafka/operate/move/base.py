"""What verbs share that move the tasks of a processor on purpose: plan, notes, hold, commit, settle.

A tool writes to a backing partition with the task's transactional id, which is its lock (O1), and only while the group
has no members. `Maintenance` joins the group meanwhile, so that no worker can join unnoticed, and the offsets carry a
proof of membership (P5). Each task is moved in a transaction of its own, offsets and record together.

A verb is a function that plans: it takes a `Maintenance` and gives a `PlannedMove` for each task that shall stand
elsewhere, with notes on what that loses or repeats. `Maintenance.carry_out` does the rest, in one order for all verbs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, TypeAlias

from cues_kafka.core import events as on
from cues_kafka.core.events import InputFacts
from cues_kafka.core.moves import MOVED
from cues_kafka.core.records import Attempt, Record, Start
from cues_kafka.core.spec import Input, Move, Spec
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, no_such_processor
from cues_kafka.graph.processor import Processor
from cues_kafka.operate.look.tasks import TaskReading
from cues_kafka.operate.move.history import moved_messages
from cues_kafka.operate.move.holding import HeldGroups, hold_groups, proof_of, refuse_members
from cues_kafka.operate.move.notes import notes_of, refuse_stores
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Position, Positions, TopicPartition
from cues_kafka.ports.target import TransactionalSink
from cues_kafka.state.layers import TOPIC
from cues_kafka.state.marks import tool_mark
from cues_kafka.task.interpreter import Hook, Interpreter, World
from cues_kafka.task.making.specs import Identity

SESSIONS: Final = 2
"""For how many session time-outs a group is held before a strategy changes that had no lock (W7)."""

FENCE_S: Final = 30.0
"""How long the ids of all tasks may take."""

PATIENCE_S = 3.0
"""How long the markers of a transaction may be on their way after its end."""

Target: TypeAlias = "Callable[[Spec, Record | None, Mapping[str, InputFacts]], Positions | None]"
"""Where a task shall stand, by its newest record and the ends of its inputs; None: it stays."""


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """
    One task that shall stand elsewhere.

    Attributes:
        spec: the task, with its `Move`; its writer is the tool.
        notes: what will be lost or repeated, in words.
        changes: what is written behind the record, such as its stores, as records of their changelogs, without the
            marks; None: its stores stay.
        settle: what is done once the task stands there; None: nothing.
        target: opens what commits with the record outside of Kafka (E1); None: that of the task, if it has one.
        waits: a former worker may write without the lock, so the group is held for two sessions first (W7).
        kept: up to where its stores hold what it has delivered, if they go back, too; None: all of it.
    """

    spec: Spec
    notes: tuple[str, ...] = ()
    changes: Callable[[], Iterable[tuple[Any, ...]]] | None = None
    settle: Callable[[], None] | None = None
    target: Callable[[], TransactionalSink] | None = None
    waits: bool = False
    kept: Positions | None = None

    @property
    def positions(self) -> Positions:
        """The positions at which the task shall stand; empty: it stays."""
        return self.spec.move.positions if self.spec.move else ()


class Maintenance:
    """
    Moves the tasks of one processor.

    Attributes:
        reading: what the cluster says of them.
        broker, clock: the cluster, and time.
        declared: the processor.
        inputs: its inputs.
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
        self.reading = TaskReading(graph, broker, clock)
        self.graph, self.broker, self.clock, self._hook = graph, broker, self.reading.clock, hook
        self._session_s = session_s
        declared = self.declared = everyone[processor]
        self.inputs = tuple(Input(*pair) for pair in declared.inputs)
        frames = isinstance(declared, DataFrameProcessor)
        topics = (*declared.input_topics, backing_topic(graph.name, processor))
        for topic in topics:
            if topic not in self.reading.facts.topics:
                raise ConfigError(
                    f"topic {topic!r} does not exist, so there is nothing to move: {processor!r} was never started on "
                    "this cluster, or its topic is gone. `cues-kafka plan MODULE:GRAPH --apply` creates missing topics."
                )
        lead = declared.lead if isinstance(declared, Processor) else topics[0]
        self.make = self.reading.specs(processor, Identity.of_process("tool", who), self.reading.width(lead))
        everything = tuple(map(self.make, range(min(map(self.reading.width, topics)))))
        self.specs, self.staged = self._as_written(everything) if frames else (everything, False)

    def _as_written(self, everything: tuple[Spec, ...]) -> tuple[tuple[Spec, ...], bool]:
        """Find out by its records how a processor of DataFrames is written, and in how many parts."""
        first, declared = self.make(0), self.declared
        slots = [replace(self.make(slot), inputs=()) for slot in range(self.reading.width(first.backing))]
        found = [record for slot in slots if (record := self.settled(slot))]
        staged = [record.staged for record in found if record.staged]
        if staged:
            return tuple(replace(slot, width=staged[0].parts) for slot in slots[: staged[0].parts]), True
        if len(declared.inputs) > 1 or len(declared.outputs) > 1 or not found:
            raise ConfigError(f"{declared.name!r} has no record, so there is nothing to move: it was never started")
        return everything, False

    # Reading

    @property
    def group(self) -> str:
        """The consumer group of the processor."""
        return self.specs[0].group

    def settled(self, spec: Spec, *, whole: bool = False) -> Record | None:
        """
        The newest committed record of a task; `whole`: see `TaskReading.record`.

        Raises:
            RecoveryError: it cannot be decoded, or is another task's.
        """
        record = self.reading.settled(spec, whole=whole)
        if record is not None and record.writer.transactional_id != spec.transactional_id:
            raise RecoveryError(
                f"{spec.name}: its newest record was written by {record.writer.transactional_id!r}. "
                "Give this application its own graph name."
            )
        return record

    def target_of(self, spec: Spec) -> TransactionalSink:
        """The target of a task (E1)."""
        from cues_kafka.sinks.lookup import open_target  # noqa: PLC0415  only who has a database needs its driver

        assert isinstance(self.declared, Processor)
        return open_target(self.declared.targets, spec.graph, spec.processor, spec.partition)

    def refuse_others(self) -> None:
        """
        Refuse while a worker or a query on Spark is at work.

        A query is no member of the group, but a staged one has a transaction open now and then.

        Raises:
            RecoveryError: the group has members, or a transaction is open.
        """
        deadline, pause = self.clock.monotonic() + PATIENCE_S, threading.Event()
        while self.staged and (busy := [spec.name for spec in self.specs if self._is_publishing(spec)]):
            if self.clock.monotonic() > deadline:
                raise RecoveryError(
                    f"{', '.join(busy)}: a transaction is open. Stop the query that is publishing; that of a query "
                    "which was killed ends with its time-out, after 60 s by default"
                )
            pause.wait(0.1)
        refuse_members(self.broker, [self.group])

    def _is_publishing(self, spec: Spec) -> bool:
        ends = self.reading.ends(spec)
        return ends.stable < ends.high

    # Planning

    def moves_to(self, target: Target, specs: Sequence[Spec] | None = None) -> list[PlannedMove]:
        """
        The moves of these tasks, or of all, to where a function says; those that stand there are left out.

        Raises:
            ConfigError: a task with stores would go back.
            RecoveryError: the group has members, or a record is not this task's.
        """
        self.refuse_others()
        moves = []
        for spec in self.specs if specs is None else specs:
            inputs = self.reading.inputs(spec)
            record = self.settled(spec)
            positions = target(spec, record, inputs)
            if positions is None or (isinstance(record, Attempt | Start) and positions == record.positions):
                continue
            refuse_stores(spec, record, positions)
            move = Move(after=sequence_of(record), positions=positions)
            moves.append(PlannedMove(replace(spec, move=move), tuple(notes_of(spec, record, positions))))
        return moves

    # Holding, committing, settling

    def hold_group(self, *others: str) -> contextlib.AbstractContextManager[HeldGroups]:
        """Hold the group of the processor, and others, until the end of the block."""
        lead = self.inputs[0].topic
        return hold_groups(self.broker, (self.group, *others), lead, self.reading.width(lead), self.clock)

    def carry_out(self, moves: Sequence[PlannedMove], *, holding: str | None = None) -> None:
        """
        Move the tasks, each in one transaction.

        Args:
            moves: as planned.
            holding: another group that must have no members meanwhile, and stands where the tasks shall.

        Raises:
            RecoveryError: the group has members, or a task has moved since the plan; the tasks before it are moved.
            BrokerError: the cluster refused; another run moves the other tasks.
        """
        if not moves:
            return
        self.refuse_others()
        # P5: the groups are held before the first commit and until the last one. A worker that joined between two
        # commits would recover one task behind its move and deliver another one before it.
        with self.hold_group(*([holding] if holding else [])) as held:
            if holding:
                refuse_moved_on(
                    self.broker, holding, moves
                )  # while it is held: before, its application may still commit
            if any(move.waits for move in moves):
                # W7: a worker of at-least-once has no lock, so a commit of it may still be under way. It ends with its
                # session, which is over only if no other member was there for all of that time.
                held[self.group].hold(SESSIONS * self._session_s)
            self.commit(moves, held)

    def commit(self, moves: Iterable[PlannedMove], held: HeldGroups) -> None:
        """
        Commit moves of tasks whose group is held, each with the history of its task (X6), and settle them.

        J8: what a dead worker left open may hold offsets of several tasks, under the id of any task of the processor.
        """
        end_all(self.broker, self.specs)
        commit_all(map(self._with_history, moves), held, self.broker, self.clock, self._hook)

    def _with_history(self, move: PlannedMove) -> PlannedMove:
        """The move with all that is written behind its record: stores, and the history of the task's moves (X6)."""
        if move.spec.move is None:
            return move
        spec, stores = move.spec, move.changes
        if spec.target and move.target is None:
            move = replace(move, target=lambda: self.target_of(spec))
        record = None if self.staged else self.settled(spec)
        said = moved_messages(self.broker, spec, record, self.clock, move.kept)
        if not said:
            return move
        if stores is None:  # its changelogs end where they ended, and get no second mark
            return replace(move, spec=replace(spec, stores=()), changes=lambda: said)
        return replace(move, changes=lambda: chain(said, stores()))


def end_all(broker: Broker, specs: Iterable[Spec]) -> None:
    """
    End what former owners of these tasks left open (R1, J8).

    Raises:
        BrokerError: an id cannot be taken.
    """
    for error in broker.fence([spec.transactional_id for spec in specs], timeout_s=FENCE_S).values():
        raise error


def commit_all(
    moves: Iterable[PlannedMove], held: HeldGroups, broker: Broker, clock: Clock, hook: Hook | None = None
) -> None:
    """
    Commit moves one after another, and settle each: the last part of every verb (X2).

    The moves may be made one by one, each when those before it are settled.

    Raises:
        RecoveryError: another member has joined, or a task must not be moved; the tasks before it are moved.
        BrokerError: the cluster refused; another run moves the other tasks.
    """
    done: dict[str, None] = {}
    under_way = ""
    try:
        for move in moves:
            under_way = move.spec.name
            commit_and_settle(move, held, broker, clock, hook)
            done[under_way], under_way = None, ""
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"Written: {', '.join(done) or 'no task'}.")
        if under_way:
            interrupt.add_note(f"Written or not: {under_way}.")
        raise


def commit_and_settle(move: PlannedMove, held: HeldGroups, broker: Broker, clock: Clock, hook: Hook | None) -> None:
    """
    Commit one move, and settle it.

    Raises:
        RecoveryError, BrokerError: see `commit_all`.
    """
    with contextlib.ExitStack() as opened:
        if move.spec.move is not None:
            target = opened.enter_context(contextlib.closing(move.target())) if move.target else None
            alone = proof_of(held, move.spec.group)
            world = World(broker, clock, no_reader, alone, hook, changes=move.changes, asked=target)
            commit_move(move.spec, world)
    # Settled last: what is outside of Kafka then says where the committed record stands. The other way round, a tool
    # that dies between the two would leave a target at a place that no record has (E1).
    if move.settle is not None:
        move.settle()


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


def refuse_moved_on(broker: Broker, group: str, moves: Sequence[PlannedMove]) -> None:
    """Refuse if another group has committed since the plan was made: its application ran again meanwhile."""
    planned = {TopicPartition(p.topic, move.spec.partition): p.offset for move in moves for p in move.positions}
    found = broker.committed(group, list(planned))
    if all(offset is None for offset in found.values()):
        raise RecoveryError(
            f"group {group!r} was deleted since it was looked at. Find out how before you start the workers: if "
            "another run of this command deleted it, the tasks are at its position, and nothing is left to do."
        )
    if moved := [place for place, offset in planned.items() if found[place] != offset]:
        at = ", ".join(f"{place.topic}/{place.partition} at {found[place]}" for place in moved)
        raise RecoveryError(
            f"group {group!r} has moved on since it was looked at: {at}. Stop its application, and run the command "
            "again."
        )


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

    move = Move(after=sequence_of(record), positions=positions, stores=tuple((kept | marks).items()))
    return PlannedMove(replace(spec, move=move), (), written)


def sequence_of(record: Record | None) -> int:
    """The sequence number of a record; -1 without a record."""
    return record.sequence if record else -1


def places_of(specs: Iterable[Spec]) -> list[TopicPartition]:
    """All partitions that these tasks read."""
    return [TopicPartition(i.topic, spec.partition) for spec in specs for i in spec.inputs]


def standing_at(offsets: Mapping[TopicPartition, int]) -> Target:
    """Has tasks stand at these offsets."""

    def target(spec: Spec, _: Record | None, inputs: Mapping[str, InputFacts]) -> Positions:
        return tuple(
            Position(i.binding, i.topic, inputs[i.binding].topic_id, offsets[TopicPartition(i.topic, spec.partition)])
            for i in spec.inputs
        )

    return target
