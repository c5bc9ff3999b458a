"""`cues-kafka accept-loss`: let tasks go on without messages that are gone from the log, or that no client reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cues_kafka.core.events import InputFacts
from cues_kafka.core.moves import behind_compaction, behind_loss
from cues_kafka.core.records import Record, Snapshot
from cues_kafka.core.spec import Move, Spec
from cues_kafka.core.tails import behind_loss as tails_behind_loss
from cues_kafka.core.turns import take
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.operate.move.base import Maintenance, PlannedMove, sequence_of
from cues_kafka.operate.move.notes import tail_note
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import Position, Positions, TopicPartition
from cues_kafka.records.scanning import read_range
from cues_kafka.records.unreadable import RefusedBatch, refused_at
from cues_kafka.words import count


def accept_loss(tool: Maintenance) -> list[PlannedMove]:
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
    name = tool.specs[0].processor
    if tool.staged:
        raise ConfigError(
            f"{name!r} is written staged: where it goes on is in the checkpoint of its query, together with the state "
            f"that Spark keeps, and no record can move that. `cues-kafka reset MODULE:GRAPH {name}` lets it begin "
            "again, at the first messages in the log or behind the last ones"
        )
    notes: dict[int, tuple[str, ...]] = {}

    def target(spec: Spec, record: Record | None, inputs: Mapping[str, InputFacts]) -> Positions | None:
        if record is None:
            return None
        _refuse_recreated(spec, record, inputs)
        refused = _RefusedBatches(tool.broker, spec)
        kept = refused.behind(behind_loss(record, inputs), inputs)
        if kept != record.positions:
            notes[spec.partition] = tuple(refused.notes)
            return kept
        if not isinstance(record, Snapshot) or any(p.offset > inputs[p.binding].stable for p in record.ends):
            return None  # there is no batch; or the log was truncated, which R5 refuses
        notes[spec.partition] = tuple(_gone(tool.broker, spec, record))
        return behind_compaction(spec, record) if notes[spec.partition] else None

    moves = tool.moves_to(target)
    found = [replace(move, notes=(*notes.get(move.spec.partition, ()), *move.notes)) for move in moves]
    return _with_tails(tool, found) if tool.specs[0].tailers else found


def _refuse_recreated(spec: Spec, record: Record, inputs: Mapping[str, InputFacts]) -> None:
    for position in record.positions:
        if position.binding not in inputs or inputs[position.binding].topic_id != position.topic_id:
            raise RecoveryError(
                f"{spec.name}: {position.topic!r} was recreated. Run `cues-kafka reset MODULE:GRAPH "
                f"{spec.processor}` instead."
            )


def _with_tails(tool: Maintenance, moves: Sequence[PlannedMove]) -> list[PlannedMove]:
    """Let tailers go on, too, where messages are gone from the logs that they read."""
    planned = {move.spec.partition: move for move in moves}
    for spec in tool.specs:
        record, tailers = tool.settled(spec), tool.reading.there(spec, spec.tailers)
        if record is None or len(tailers) < len(spec.tailers):
            continue
        facts = tool.reading.inputs(spec, tailers)
        tails = tuple(p for p in record.tails if p.binding in facts)
        refused = _RefusedBatches(tool.broker, spec)
        kept = {p.binding: p for p in refused.behind(tails_behind_loss(record, facts), facts)}
        if tuple(kept.values()) == tails:
            continue
        stays = Move(after=sequence_of(record), positions=record.positions)
        move = planned.get(spec.partition) or PlannedMove(replace(spec, move=stays))
        assert move.spec.move
        moved = replace(move.spec, move=replace(move.spec.move, tails=tuple(kept.values())))
        notes = (tail_note(spec, p, kept.get(p.binding)) for p in tails if kept.get(p.binding) != p)
        planned[spec.partition] = replace(move, spec=moved, notes=(*move.notes, *refused.notes, *notes))
    return [planned[p] for p in sorted(planned)]


def _gone(broker: Broker, spec: Spec, snapshot: Snapshot) -> Iterator[str]:
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
        there = sum(1 for _ in read_range(broker, place, position.offset, end, group=spec.group))
        if gone := announced[position.binding] - there:
            yield (
                f"{position.topic}/{spec.partition}: {count(gone, 'message')} of a batch that was announced up to "
                f"{end} {'is' if gone == 1 else 'are'} gone from the log and LOST; {there} of it "
                f"{'is' if there == 1 else 'are'} left"
            )


class _RefusedBatches:
    """Batches that the client refuses to read, at positions of a task."""

    def __init__(self, broker: Broker, spec: Spec) -> None:
        self._broker, self._spec = broker, spec
        self._found: list[RefusedBatch] = []

    def behind(self, positions: Positions, facts: Mapping[str, InputFacts]) -> Positions:
        """
        The positions; those at a batch that the client refuses are moved behind it.

        Args:
            positions: where the task stands.
            facts: what the cluster says of its inputs or tailers, by binding.

        Raises:
            BrokerError: a partition cannot be read for another reason.
        """
        return tuple(self._behind(position, facts[position.binding].stable) for position in positions)

    def _behind(self, position: Position, stable: int) -> Position:
        place, group = TopicPartition(position.topic, self._spec.partition), self._spec.group
        while (batch := refused_at(self._broker, place, position.offset, stable, group=group)) is not None:
            self._found.append(batch)
            position = position._replace(offset=batch.end)
        return position

    @property
    def notes(self) -> Iterator[str]:
        """Why what is passed over cannot be read."""
        return (f"{batch} cannot be read: {batch.why}" for batch in self._found)
