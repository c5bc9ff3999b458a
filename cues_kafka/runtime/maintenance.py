"""What operators do to tasks that stopped: move their positions on purpose, and bring the topics in line with the plan.

Whoever writes to a backing partition does it with the task's transactional id, which is its lock (PROTOCOL 1), and only
while the group has no members. `Maintenance` joins the group for the moment, so that no worker can join unnoticed and
the offsets carry real proof of membership (P5). Each task is moved in a transaction of its own, offsets and record
together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from cues_kafka.codecs.records import decode_record
from cues_kafka.core.events import InputFacts
from cues_kafka.core.records import Attempt, Record, Snapshot, Start
from cues_kafka.core.recover import plan_of
from cues_kafka.core.spec import Spec
from cues_kafka.errors import CodecError, ConfigError, RecoveryError, RetriableError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import quoted
from cues_kafka.plan import Plan, plan, topics_to_ask
from cues_kafka.ports import Broker, Clock, GroupMetadata, Member, Position, Positions, TopicPartition
from cues_kafka.runtime.backing import newest
from cues_kafka.runtime.build import Identity, spec_of
from cues_kafka.runtime.clock import SystemClock
from cues_kafka.runtime.interpreter import INIT_TIMEOUT_S, record_message

JOIN_TIMEOUT_S = 60.0
"""Brokers hold the first join of a group back for some seconds, and wait for members of a group that is not empty."""

To: TypeAlias = Literal["earliest", "latest"]
Target: TypeAlias = "Callable[[Spec, Record | None, Mapping[str, InputFacts]], Positions | None]"


@dataclass(frozen=True, slots=True)
class Move:
    """
    One task that is to stand elsewhere.

    Attributes:
        spec: the task; its writer is the tool.
        record: its newest committed record, None: it has none.
        positions: where it is to stand.
        inputs: what the cluster says of its inputs.
        notes: what will be lost, or done again, in words.
    """

    spec: Spec
    record: Record | None
    positions: Positions
    inputs: Mapping[str, InputFacts]
    notes: tuple[str, ...]


class Maintenance:
    """Moves the tasks of one processor: `reset` or `accept_loss` say what would happen, then `carry_out` does it."""

    def __init__(self, graph: Graph, broker: Broker, processor: str, *, who: str, clock: Clock | None = None) -> None:
        """
        Args:
            graph: the graph.
            broker: the cluster.
            processor: name of the processor.
            who: goes into the records as their writer, so that they show who moved the task.
            clock: time.

        Raises:
            ConfigError: there is no such processor, or it was never started on this cluster.
        """
        if processor not in graph.processors:
            raise ConfigError(
                f"graph {graph.name!r} has no {processor!r}; its processors are {quoted(sorted(graph.processors))}"
            )
        facts = broker.facts(topics_to_ask(graph))
        planned = plan(graph, facts)
        declared, names = graph.processors[processor], planned[processor]
        for topic in (*declared.input_topics, names.backing):
            if topic not in facts.topics:
                raise ConfigError(
                    f"topic {topic!r} does not exist, so there is nothing to move: {processor!r} was never started on "
                    "this cluster, or its topic is gone"
                )
        width = min(facts.topics[topic].partitions for topic in (*declared.input_topics, names.backing))
        make = spec_of(
            graph, planned, declared, facts.topics[declared.lead].partitions, Identity.of_process("tool", who)
        )
        self.specs = tuple(make(partition) for partition in range(width))
        self._ids = {topic: found.topic_id for topic, found in facts.topics.items()}
        self._broker = broker
        self._clock = clock or SystemClock()

    def reset(self, *, to: To = "earliest", partition: int | None = None) -> list[Move]:
        """
        Let tasks begin anew, at the first message that is there or behind the last one.

        Args:
            to: `earliest` repeats what is there, `latest` skips it.
            partition: of one task; None: all of them.

        Raises:
            ConfigError: no such partition.
            RecoveryError: the group has members, or a record is not this task's.
        """
        if partition is not None and partition not in range(len(self.specs)):
            raise ConfigError(f"--partition {partition}: {self.specs[0].processor!r} has 0 to {len(self.specs) - 1}")

        def target(spec: Spec, _: Record | None, inputs: Mapping[str, InputFacts]) -> Positions:
            offsets = {binding: facts.low if to == "earliest" else facts.stable for binding, facts in inputs.items()}
            return tuple(
                Position(i.binding, i.topic, inputs[i.binding].topic_id, offsets[i.binding]) for i in spec.inputs
            )

        return self._moves(target, [s for s in self.specs if partition in (None, s.partition)])

    def accept_loss(self) -> list[Move]:
        """
        Let tasks whose next messages are gone from the log (retention, trim) go on at the first one that is there.

        Raises:
            RecoveryError: the group has members, a record is not this task's, or a topic was made anew.
        """

        def target(spec: Spec, record: Record | None, inputs: Mapping[str, InputFacts]) -> Positions | None:
            if record is None:
                return None
            for position in record.positions:
                if position.binding not in inputs or inputs[position.binding].topic_id != position.topic_id:
                    raise RecoveryError(
                        f"{spec.name}: {position.topic!r} was made anew. Run `cues-kafka reset` instead."
                    )
            moved = tuple(p._replace(offset=max(p.offset, inputs[p.binding].low)) for p in record.positions)
            return None if moved == record.positions else moved

        return self._moves(target, self.specs)

    def carry_out(self, moves: Sequence[Move]) -> None:
        """
        Move the tasks, each in one transaction.

        Raises:
            RecoveryError: the group has members, or a task has moved since; those before it are moved.
            BrokerError: the cluster refused; run it again, what is moved stays moved.
        """
        if not moves:
            return
        self._refuse_members()
        spec = self.specs[0]
        with _Membership(self._broker, spec, self._clock) as membership:
            for move in moves:
                self._move(move, membership())

    def _moves(self, target: Target, specs: Sequence[Spec]) -> list[Move]:
        self._refuse_members()
        moves = []
        for spec in specs:
            inputs = self._inputs(spec)
            backing = TopicPartition(spec.backing, spec.partition)
            record = self._newest(spec, self._broker.watermarks([backing])[backing].stable)
            positions = target(spec, record, inputs)
            if positions is None or (isinstance(record, Attempt | Start) and positions == record.positions):
                continue
            moves.append(Move(spec, record, positions, inputs, tuple(_notes(spec, record, positions))))
        return moves

    def _move(self, move: Move, metadata: GroupMetadata) -> None:
        spec = move.spec
        backing = TopicPartition(spec.backing, spec.partition)
        session = self._broker.session(spec.transactional_id)
        try:
            session.init(timeout_s=INIT_TIMEOUT_S)
            high = self._broker.watermarks([backing])[backing].high  # R3
            if self._newest(spec, high) != move.record:
                raise RecoveryError(f"{spec.name} has moved since. Run the command again.")
            session.begin()
            session.send_offsets({TopicPartition(p.topic, spec.partition): p.offset for p in move.positions}, metadata)
            session.produce([record_message(spec, moved_record(move))])
            landed = session.flush().first_offset
            if landed != high:  # P6a
                raise RecoveryError(
                    f"{spec.name}: somebody else writes {spec.backing!r}. Stop it, run the command again."
                )
            suspect = session.commit()
            if suspect:
                raise RetriableError(f"{spec.name}: doubtful whether it moved ({suspect}). Run the command again.")
        except BaseException:
            session.abandon()
            raise
        session.close()

    def _newest(self, spec: Spec, high: int) -> Record | None:
        found = newest(self._broker, TopicPartition(spec.backing, spec.partition), high, self._clock)
        if found is None:
            return None
        try:
            record = decode_record(found.value() or b"")
        except CodecError as error:
            raise RecoveryError(f"{spec.name}: its newest record cannot be read: {error}") from error
        if record.writer.transactional_id != spec.transactional_id:
            raise RecoveryError(
                f"{spec.name}: its newest record was written by {record.writer.transactional_id!r}. "
                "Give this application its own graph name."
            )
        return record

    def _inputs(self, spec: Spec) -> dict[str, InputFacts]:
        places = {i.binding: TopicPartition(i.topic, spec.partition) for i in spec.inputs}
        marks = self._broker.watermarks(list(places.values()))
        return {binding: InputFacts(self._ids[place.topic], *marks[place]) for binding, place in places.items()}

    def _refuse_members(self) -> None:
        group = self.specs[0].group
        if members := self._broker.members(group):
            raise RecoveryError(
                f"group {group!r} has members ({', '.join(sorted(members))}). Stop its workers first; one that was "
                "killed is a member until its session ends, 10 s by default."
            )


def moved_record(move: Move) -> Record:
    """The record of a task that was moved: sequence and totals go on, snapshots and careful mode are over."""
    spec, before = move.spec, move.record
    common: dict[str, Any] = {
        "positions": move.positions,
        "writer": spec.writer,
        "strategy": spec.strategy,
        "fingerprint": plan_of(spec, move.inputs),
    }
    if before is None:
        return Start(sequence=0, step=0, born=spec.width, **common)
    sequence = before.sequence + 1
    return Attempt(
        sequence=sequence, step=before.step, totals=before.totals, owner=sequence, born=before.born, **common
    )


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
                f"most {position.offset - was.offset} messages, for markers of transactions have offsets too"
            )
        elif was.offset > position.offset:
            notes.append(
                f"{place}: what offsets [{position.offset}, {was.offset}) hold is delivered AGAIN, with the same "
                f"delivery hashes: at most {was.offset - position.offset} messages; outputs and effects repeat"
            )
    if spec.pairing == "join":
        notes.append("a join pairs anew from there: the k-th message of each input behind these positions")
    if isinstance(record, Snapshot):
        notes.append(
            f"a batch of {record.steps} steps was being delivered; its effects outside Kafka may have happened"
        )
    return notes


class _Membership:
    """The only member of a group, for a moment; calling it gives the proof, and fails when somebody else has joined."""

    def __init__(self, broker: Broker, spec: Spec, clock: Clock) -> None:
        self._spec = spec
        self._clock = clock
        self._owned: set[int] = set()
        self._member: Member = broker.member(spec.group, spec.inputs[0].topic, self)

    def __enter__(self) -> Self:
        deadline = self._clock.monotonic() + JOIN_TIMEOUT_S
        pause = threading.Event()
        self._member.poll()
        while not self._alone:
            if self._clock.monotonic() > deadline:
                self._member.close(leave=True)
                raise RecoveryError(
                    f"group {self._spec.group!r} is not free after {JOIN_TIMEOUT_S:g} s. Stop its workers."
                )
            pause.wait(0.05)  # a poll never waits, and there is no event behind it
            self._member.poll()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._member.close(leave=True)

    def __call__(self) -> GroupMetadata:
        self._member.poll()
        if not self._alone:
            raise RecoveryError(f"a worker joined group {self._spec.group!r}. Stop it, run the command again.")
        return self._member.metadata()

    @property
    def _alone(self) -> bool:
        return self._member.metadata().generation >= 0 and self._owned >= set(range(self._spec.width))

    def on_assign(self, partitions: Sequence[int]) -> None:
        """Whoever has all partitions is alone."""
        self._owned.update(partitions)

    def on_revoke(self, partitions: Sequence[int]) -> None:
        """Somebody else is there."""
        self._owned.difference_update(partitions)

    on_lost = on_revoke


def apply_plan(planned: Plan, broker: Broker) -> None:
    """
    Create the topics that a plan wants, and add the partitions that the framework's own topics lack.

    Raises:
        ConfigError: the plan is refused.
        BrokerError: the cluster refused.
    """
    planned.refuse()
    broker.create(planned.create)
    for growth in planned.grow:
        broker.add_partitions(growth.topic, growth.wanted)
