"""Back to a cut: all tasks of a graph, and their stores (X4).

Inputs from outside are read again from the cut on. Inputs that the graph writes itself were delivered up to their ends
at the cut. So what came behind is undone, and will be written again: tasks skip to the present ends. Entries of stores
that changed since then get the value that they had, in the transaction that moves the task.

Each task is moved by itself. Until all of them are, the control topic holds the workers back, and the same command does
the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from cues_kafka.core.records import Record, Snapshot
from cues_kafka.core.spec import Move, Spec
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import quoted
from cues_kafka.graph.topology import feeders
from cues_kafka.operate.cut.control import ControlTopic, no_such_cut
from cues_kafka.operate.move.base import Maintenance, PlannedMove, rewrite
from cues_kafka.operate.move.notes import again, goes_back, in_delivery
from cues_kafka.plan.topics import CLOCKS_MS, KEEPS
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Position, Positions, TopicPartition
from cues_kafka.records.control import RESET, GraphCut, ProcessorCut, ResetUnderWay, StoreCut, encode
from cues_kafka.records.scanning import read_range
from cues_kafka.state.layers import MARK, TOPIC
from cues_kafka.state.marks import UNFINISHED, UNREADABLE, mark_in
from cues_kafka.task.clock import SystemClock
from cues_kafka.words import count

_ANOTHER: Final = "Reset to another cut: `cues-kafka cuts MODULE:GRAPH` lists them."


@dataclass(frozen=True, slots=True)
class Returning:
    """
    What a reset to a cut does.

    Attributes:
        cut: where to.
        moves: of each processor, with the tool that moves it; tasks that stand there are left out.
        unfinished: the reset was begun before, so it has to be ended, even if all tasks stand there.
    """

    cut: GraphCut
    moves: Sequence[tuple[Maintenance, Sequence[PlannedMove]]]
    unfinished: bool

    @property
    def all(self) -> list[PlannedMove]:
        """The moves of all processors."""
        return [move for _, moves in self.moves for move in moves]


class GoBack:
    """
    Resets a graph to a cut: `plan` says what that does, `carry_out` does it.

    Raises:
        ConfigError: the graph takes no cuts.
    """

    def __init__(self, graph: Graph, broker: Broker, *, who: str, clock: Clock | None = None) -> None:
        self._graph, self._broker, self._who = graph, broker, who
        self._clock = clock or SystemClock()
        self._control = ControlTopic(graph, broker)

    def plan(self, name: str) -> Returning:
        """
        Plan the reset; nothing is written.

        Args:
            name: of the cut.

        Raises:
            ConfigError: there is no such cut, or the graph has other processors, inputs or stores by now.
            RecoveryError: the cut cannot be gone back to any more, or workers run.
        """
        control = self._control.read()
        cut = control.cut(name)
        if cut is None:
            raise ConfigError(no_such_cut(name, control))
        self._refuse_others(cut)
        fed = feeders(self._graph)
        keeps_ms = min(cut.keeps_ms, self._graph.cuts_ms or 0)
        old_ms = int(self._clock.time() * 1000) - cut.at_ms
        moves = []
        for one, part in cut.processors.items():
            tool = Maintenance(self._graph, self._broker, one, who=self._who, clock=self._clock)
            moves.append((tool, _ToCut(tool, part, fed.keys(), name).moves(old_ms, keeps_ms)))
        return Returning(cut, moves, control.resetting)

    def carry_out(self, planned: Returning, *, tell: Callable[[str], None] = lambda _: None) -> None:
        """
        Move the tasks, each in one transaction. Workers wait until all of them are moved.

        Args:
            planned: by `plan`.
            tell: told what is done.

        Raises:
            RecoveryError: workers run, or a task has moved since the plan. The tasks before it are moved, and workers
                wait until the same command has moved the others.
            BrokerError: the cluster refused; the same.
        """
        if not planned.all and not planned.unfinished:
            return
        try:
            # X4: first, and taken back last. Workers that follow it call nothing while some tasks stand at the cut and
            # others behind it; a run that dies in between leaves it, so that the next one moves the others.
            self._control.write(RESET, encode(ResetUnderWay(by=self._who, cut=planned.cut.name)))
            for tool, moves in planned.moves:
                tool.carry_out(moves)
                if moves:
                    tell(f"{tool.specs[0].processor}: {count(len(moves), 'task')} moved")
            self._control.write(RESET, None)
        finally:
            self._control.close()

    def _refuse_others(self, cut: GraphCut) -> None:
        """Refuse if the graph has other processors than at the cut."""
        there, now = set(cut.processors), set(self._graph.processors)
        if gone := sorted(there - now):
            raise ConfigError(
                f"cut {cut.name!r} has processors {quoted(gone)}, which this graph does not have. Run the command with "
                "the graph as it was when the cut was taken."
            )
        if added := sorted(now - there):
            raise ConfigError(
                f"processors {quoted(added)} came after cut {cut.name!r}, so they have no place in it. Run the command "
                "with the graph as it was then. Afterwards add them again with new names, so that they begin at start=."
            )


@dataclass(frozen=True, slots=True)
class _ToCut:
    """
    Plans the way of one processor back to a cut.

    Attributes:
        tool: what moves its tasks.
        part: what the cut says of it.
        fed: topics that the graph writes itself.
        cut: the name of the cut.
    """

    tool: Maintenance
    part: ProcessorCut
    fed: Collection[str]
    cut: str

    def moves(self, old_ms: int, keeps_ms: int) -> Sequence[PlannedMove]:
        """The moves of the tasks that do not stand there; the cut is so old, and changelogs keep so much."""
        self.tool.refuse_others()
        self._refuse_changed()
        self._refuse_compacted(old_ms, keeps_ms)
        return [move for spec in self.tool.specs if (move := self._back(spec)) is not None]

    def _back(self, spec: Spec) -> PlannedMove | None:
        part, cut, reading = self.part, self.cut, self.tool.reading
        record = self.tool.settled(spec)
        if record is None:
            raise RecoveryError(f"{spec.name} has no record, and had one at cut {cut!r}: its backing topic is gone.")
        if UNFINISHED in dict(record.stores):
            raise RecoveryError(
                f"the stores of {spec.name} are being rebuilt. Run `cues-kafka rebuild MODULE:GRAPH "
                f"{spec.processor}` to its end first."
            )
        positions = self._positions_at(spec)
        if spec.tailers and goes_back(record, positions):
            topics = quoted(i.topic for i in spec.tailers)
            raise ConfigError(
                f"{spec.name} reads {topics} by itself, and a cut does not hold where its tailers stood: its steps "
                "would be called again with other messages there. Have it read the topic as an input, and keep what it "
                "needs in a Store; or reset the other processors one by one: "
                "`cues-kafka reset MODULE:GRAPH PROCESSOR`."
            )
        undone = {name: self._undone(spec, record, name, at) for name, at in part.stores.items()}
        changes = [(name, key, value) for name, entries in undone.items() for key, value in entries.items()]
        if positions == record.positions and not changes and not isinstance(record, Snapshot):
            return None
        notes = (*_notes_back(spec, record, positions, self.fed), *_notes_of(undone))
        kept = tuple(p._replace(offset=part.inputs[p.binding].offsets[spec.partition]) for p in positions)
        if not changes:
            move = Move(after=record.sequence, positions=positions)
            return PlannedMove(replace(spec, move=move), notes, kept=kept if part.stores else None)
        ids = {topic: reading.topic_id(topic) for _, topic in spec.stores}
        return replace(rewrite(spec, record, positions, lambda: changes, ids), notes=notes, kept=kept)

    # What may stand against it

    def _refuse_changed(self) -> None:
        part, cut, reading, spec = self.part, self.cut, self.tool.reading, self.tool.specs[0]
        name, was = spec.processor, {(binding, at.topic) for binding, at in part.inputs.items()}
        if was != set(spec.inputs):
            shown = ", ".join(f"{binding!r} from {topic!r}" for binding, topic in sorted(was))
            raise ConfigError(f"{name!r} had other inputs at cut {cut!r}: {shown}. Run the command with that graph.")
        stores = dict(spec.stores)
        if unknown := sorted(part.stores.keys() ^ stores.keys()):
            added = [one for one in unknown if one in stores]
            which = (
                f"{name!r} has stores {quoted(added)}, which cut {cut!r} does not know"
                if added
                else f"cut {cut!r} has stores {quoted(unknown)}, which {name!r} does not have"
            )
            raise ConfigError(
                f"{which}. Run the command with the graph as it was then. A store that comes afterwards needs a name "
                "that no store of the processor had, so that it begins empty."
            )
        widths = (reading.width(at.topic) for at in part.inputs.values())
        then, now = len(part.steps), max(len(self.tool.specs), *widths)
        if then != now:
            raise RecoveryError(
                f"{name!r} had {count(then, 'task')} at cut {cut!r} and has {now} now: partitions were added, so keys "
                "have moved between tasks. The cut cannot be gone back to."
            )
        kept = {at.topic: at.topic_id for at in part.inputs.values()}
        kept |= {at.topic: at.topic_id for at in part.stores.values()}
        there = {topic: facts.topic_id.hex() for topic, facts in reading.facts.topics.items()}
        if recreated := [topic for topic, known in kept.items() if there.get(topic) != known]:
            raise RecoveryError(
                f"{quoted(recreated)} was deleted, or deleted and recreated, since cut {cut!r}, so what {name!r} needs "
                f"of it is gone. {_ANOTHER}"
            )

    def _refuse_compacted(self, old_ms: int, keeps_ms: int) -> None:
        part, cut, name = self.part, self.cut, self.tool.specs[0].processor
        if not part.stores:
            return
        if old_ms > keeps_ms:
            raise RecoveryError(
                f"cut {cut!r} is {_days(old_ms)} old. The stores of {name!r} can be gone back to for {_days(keeps_ms)} "
                f"(cuts=), for compaction may have taken what they were. {_ANOTHER}"
            )
        facts = self.tool.broker.facts([at.topic for at in part.stores.values()]).topics
        for at in part.stores.values():
            keeps = int(facts[at.topic].config.get(KEEPS, "0"))
            if keeps < keeps_ms + CLOCKS_MS and keeps - CLOCKS_MS < old_ms:
                raise RecoveryError(
                    f"{at.topic!r} has {KEEPS}={keeps}, which is less than the age of cut {cut!r}: compaction may have "
                    f"taken what its entries were. {_ANOTHER}"
                )

    def _positions_at(self, spec: Spec) -> Positions:
        found, cut = [], self.cut
        facts = self.tool.reading.inputs(spec)
        for binding, topic in spec.inputs:
            offset = self.part.inputs[binding].offsets[spec.partition]
            topic_id, low, stable, high = facts[binding]
            where = f"{topic}/{spec.partition}"
            if topic in self.fed:
                if stable < high:
                    raise RecoveryError(
                        f"a transaction is open on {where}. That of a worker which was killed ends with its time-out, "
                        "after 60 s by default. Run the command again then."
                    )
                offset = stable
            elif offset < low:
                raise RecoveryError(
                    f"{where} begins at {low}, and cut {cut!r} has offset {offset}: what {spec.name} has to read again "
                    f"was deleted, by retention.ms or by hand. {_ANOTHER}"
                )
            elif offset > high:
                raise RecoveryError(
                    f"{where} ends at {high}, and cut {cut!r} has offset {offset}: the log was truncated. See what the "
                    "brokers lost before going on."
                )
            found.append(Position(binding, topic, topic_id, offset))
        return tuple(found)

    # Stores

    def _undone(self, spec: Spec, record: Record, store: str, at: StoreCut) -> dict[bytes, bytes | None]:
        """What has to be written so that a changelog says what it said at the cut; None deletes a key."""
        p, cut, broker = spec.partition, self.cut, self.tool.broker
        place, start, end, mark = TopicPartition(at.topic, p), at.starts[p], at.ends[p], at.marks[p]
        low, stable, high = broker.watermarks([place])[place]
        where = f"{at.topic}/{p}"
        if stable < high:
            raise RecoveryError(
                f"a transaction is open on {where}. That of a worker which was killed ends with its time-out, after 60 "
                "s by default. Run the command again then."
            )
        if low > start or high < end:
            raise RecoveryError(
                f"{where} has offsets [{low}, {high}), and cut {cut!r} needs [{start}, {end}): messages were deleted. "
                f"{_ANOTHER}"
            )
        group = spec.group
        now: dict[bytes, bytes | None] = {}
        for message in read_range(broker, place, end, high, group=group) if end < high else ():
            now[message.key() or b""] = message.value()
        if _mark(now.pop(MARK, None), mark) != dict(record.stores).get(store):
            raise RecoveryError(
                f"{where} does not end as the record of {spec.name} says: a broker gave an old end, or another program "
                "wrote there. Run the command again; `cues-kafka verify --state MODULE:GRAPH` finds what was written."
            )
        now.pop(TOPIC, None)
        if not now:
            return {}
        then: dict[bytes, bytes | None] = {}
        seen: bytes | None = None
        for message in read_range(broker, place, start, end, group=group) if start < end else ():
            key = message.key() or b""
            if key in now:
                then[key] = message.value()
            elif key == MARK:
                seen = message.value()
        if _mark(seen, None) != mark:
            raise RecoveryError(
                f"{where} below {end} is not what it was at cut {cut!r}: compaction has taken from it. {_ANOTHER}"
            )
        return {key: then.get(key) for key, value in now.items() if then.get(key) != value}


def _mark(value: bytes | None, otherwise: int | None) -> int | None:
    return otherwise if value is None else mark_in(value, UNREADABLE)


def _notes_back(spec: Spec, record: Record, positions: Positions, fed: Collection[str]) -> Iterator[str]:
    before = {position.binding: position.offset for position in record.positions}
    for position in positions:
        was, place = before.get(position.binding, position.offset), f"{position.topic}/{spec.partition}"
        if position.topic in fed:
            if was < position.offset:
                yield f"{place}: skips [{was}, {position.offset}), which the graph writes again"
        elif was > position.offset:
            yield again(place, position.offset, was)
        elif was < position.offset:
            yield f"{place}: what offsets [{was}, {position.offset}) hold was delivered before the cut"
    yield from in_delivery(record)


def _notes_of(undone: Mapping[str, Mapping[bytes, bytes | None]]) -> list[str]:
    return [
        f"store {name}: {count(len(entries), 'entry', 'entries')} as at the cut, {gone} of them deleted"
        for name, entries in undone.items()
        if entries and (gone := sum(value is None for value in entries.values())) >= 0
    ]


def _days(ms: int) -> str:
    return str(timedelta(seconds=ms // 1000))
