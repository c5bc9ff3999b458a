"""A world whose operator gives a processor another name (X5), beside workers of both declarations.

Each task is there under two names, which share nothing but its input: the first half of the partitions are those of the
old name, the second half those of the new one. So a partition of the world is a task of its own, and what the two tasks
of one input partition have delivered is compared across the two (`judged`). The world begins where the old name has
delivered the first message.

The first worker has the old declaration (`stopped`: it does not run at first), the second one the new one. An operator
stops workers, or believes so, and runs the tool until it is done; at the price of a fault a worker of either
declaration is started too early, or again. A task that has announced a batch is delivered first, under its old name.
The order of the tool's stages is the production one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cues_kafka.core import effects as do
from cues_kafka.core.events import Halt
from cues_kafka.core.moves import MOVED
from cues_kafka.core.records import Record, Snapshot, Writer
from cues_kafka.core.renaming import Stage, next_stage
from cues_kafka.core.spec import Move, Spec
from tests.proof.model.machine import offsets_of
from tests.proof.model.states import (
    ABORTING,
    COMMITTING,
    Lane,
    Moves,
    Part,
    Setting,
    State,
    Turn,
    Worker,
    holds,
    put,
    shown,
)
from tests.proof.model.versions import FORMER, LATTER, TOOL, VersionsWorld

OLD, NEW = "p", "q"
"""Names of the processor."""

_LOCK: Final = f"g.{NEW}."

KIND: Final = "renamed"
"""The kind of a worker with the new declaration."""


class RenamedWorld(VersionsWorld):
    """A setting with a worker of the kind `renamed`."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.half = setting.partitions // 2

    def _spec(self, w: int, deaths: int, p: int, move: Move | None = None) -> Spec:
        made, name = super()._spec(w, deaths, p, move), NEW if p >= self.half else OLD
        writer = Writer("", "tool" if w == TOOL else "native", f"w{w}", f"w{w}.{deaths}")
        return _named(made, name, p % self.half, self.half, writer)

    def first(self) -> State:
        """The old name has delivered the first message of each partition; its worker has just come back, or is gone."""
        s = super().first()
        lives = self.group(s).members
        s = self._put_group(s, self.group(s)._replace(members=put(lives, FORMER, True)))
        while not all(self._delivered(part) for part in self.parts(s)[: self.half]):
            labels = ("broker", "group", f"w{FORMER}")
            s = next(
                after
                for (who, _), calm, after in self.moves(s)
                if calm and who.startswith(labels) and not self._delivered_all(s, who)
            )
        nothing = Worker(0, (None,) * self.setting.partitions)
        group = self.group(s)._replace(members=lives, owners=(-1,) * self.setting.partitions)
        return self._put_group(self._put_worker(s, FORMER, nothing), group)

    def _delivered(self, part: Part) -> bool:
        record = self.newest(part)
        return record is not None and record.step > 0 and not holds(part)

    def _delivered_all(self, s: State, who: str) -> bool:
        """Whether a lane has done what the first state asks for."""
        name, _, p = who.partition("/p")
        return bool(name and p) and self._delivered(self.part(s, int(p)))

    # The two names.

    def _fetch_sibling(self, turn: Turn, _: object) -> None:
        s, w, p, lane, owner, out = turn
        mine = range(self.half) if p < self.half else range(self.half, 2 * self.half)
        records = [self.newest(self.part(s, i)) for i in mine if i != p]
        read = next(((record.born, record.moving_from) for record in records if record), (None,))
        out.append(((self._name(w, p), f"sibling: {read}"), owner, self._tell(s, w, p, lane, "sibling", *read)))

    def _assigning(self, s: State, p: int, group: object, out: Moves) -> None:
        w, found = (FORMER if p < self.half else LATTER), self.group(s)
        worker = self.worker(s, w)
        if found.members[w] and worker.lanes[p] is None:
            after = self._put_group(s, found._replace(owners=put(found.owners, p, w)))
            after = self._put_lane(after, w, p, self._new_lane(w, worker.deaths, p))
            out.append((("group", f"assigns p{p} to w{w}"), True, after))

    def _markers(self, s: State, out: Moves) -> None:
        """What was delivered under the old name counts under the new one from its first own record on."""
        for p, part in enumerate(self.parts(s)):
            if part.phase in (COMMITTING, ABORTING):
                after = self._marked(part)
                if p >= self.half and arrived(self.newest(after)) and not arrived(self.newest(part)):
                    former = self.part(s, p - self.half)
                    after = after._replace(outputs=former.outputs + after.outputs, begin=())
                out.append(((f"broker p{p}", "writes the markers"), True, self._put_part(s, p, after)))

    def _begun_anew(self, part: Part, record: Record) -> Part:
        return part._replace(begin=offsets_of(record.positions)) if record.moving_from else part

    def _chain(self, before: Record | None, record: Record, part: Part, killed: int) -> str:
        """I13; the record that completes the move follows the last one of the old name, see `judged`."""
        arrives = (
            record.writer.runtime == "tool" and arrived(record) and record.writer.transactional_id.startswith(_LOCK)
        )
        if not arrives and before is not None and before.moving_from:
            return f"X5: {shown(record)} behind a placeholder"
        if not arrives:
            return super()._chain(before, record, part, killed)
        if part.pending != offsets_of(record.positions):
            return f"I2: offsets {part.pending} beside positions {offsets_of(record.positions)}"
        return ""

    def judged(self, s: State, p: int) -> str:
        """What is wrong with the two tasks of an input partition, beside each other."""
        old, new = self.part(s, p), self.part(s, self.half + p)
        last, record = self.newest(old), self.newest(new)
        before, after = ({one.step for one in part.outputs} for part in (old, new))
        if not arrived(record):
            return f"I1: {before & after} was delivered under both names" if before & after else ""
        assert last
        assert record
        if new.outputs[: len(old.outputs)] != old.outputs:
            return "I1: the old name has delivered behind its last record"
        if record.owner <= last.owner or record.sequence <= last.sequence:
            return f"E1: owner {record.owner} is not above {last.owner}, a former one"
        return ""

    # The operator.

    def stage(self, s: State) -> Stage | None:
        """What the tool does next; the production rule."""
        records = [self.newest(part) for part in self.parts(s)]
        return next_stage(
            [record for record in records[: self.half] if record], records[self.half :], OLD, NEW
        )  # fmt: skip

    def _due_first(self, s: State) -> bool:
        """Whether the old name has announced a batch, which it must deliver itself."""
        return any(isinstance(self.newest(part), Snapshot) for part in self.parts(s)[: self.half])

    def _begun(self, s: State) -> bool:
        """Whether the move has left a record; before that, the check of a start refuses the new name."""
        records = [self.newest(part) for part in self.parts(s)]
        return any(record and record.moved_to for record in records[: self.half]) or any(records[self.half :])

    def _operating(self, s: State, out: Moves) -> None:
        """Stop the workers, run the tool until it is done, and start the new ones."""
        group, tool = self.group(s), self.worker(s, TOOL)
        running, announced = group.members[TOOL], self._due_first(s)
        if not all(self.newest(part) for part in self.parts(s)[: self.half]):
            return  # before the first state
        if not any(tool.lanes):
            stage = self.stage(s)
            members = group.members[:TOOL]
            if running:
                self._going_on(s, stage, out)
            elif announced:
                self._start(s, FORMER, out, calm=True)
            elif stage is None:
                if group.members[FORMER]:
                    out.append((("operator", "stops the old version"), True, self._expelled(s, FORMER)))
                self._start(s, LATTER, out, calm=True)
            elif any(members):
                after = s
                for w in (FORMER, LATTER):
                    after = self._expelled(after, w) if group.members[w] else after
                out.append((("operator", "stops the workers"), True, after))
            elif tool.deaths < self.setting.moves:
                after = self._put_group(s, group._replace(members=put(group.members, TOOL, True)))
                after = self._put_worker(after, TOOL, tool._replace(deaths=tool.deaths + 1))
                out.append((("operator", "runs the tool"), True, after))
        self._start(s, FORMER, out, calm=False)
        if self._begun(s):
            self._start(s, LATTER, out, calm=False)

    def _going_on(self, s: State, stage: Stage | None, out: Moves) -> None:
        """The tool plans its next stage; it ends when it is done, or when a worker has joined, or announced a batch."""
        if stage is None or any(self.group(s).members[:TOOL]) or self._due_first(s):
            out.append(((f"w{TOOL}", "ends"), True, self._ended_tool(s, TOOL)))
            return
        lanes: list[Lane | None] = [None] * self.setting.partitions
        lives = self.worker(s, TOOL).deaths
        for partition, move in stage.moves:
            p = partition + self.half * stage.under_new
            lanes[p] = Lane(self.machine.new(self._spec(TOOL, lives, p, move)))
        after = self._put_worker(s, TOOL, Worker(lives, tuple(lanes)))
        out.append(((f"w{TOOL}", f"plans {len(stage.moves)} records"), True, after))

    def _ended_tool(self, s: State, w: int) -> State:
        group = self.group(s)
        return self._put_group(super()._ended_tool(s, w), group._replace(members=put(group.members, w, False)))

    def _tool_stopped(self, s: State, w: int, p: int, halt: Halt) -> State:
        if halt.kind != MOVED:
            return self._ended_tool(s, w)
        lane, part = self.worker(s, w).lanes[p], self.part(s, p)
        assert lane
        move, record = self.task(lane).spec.move, self._last(part)
        assert move
        there = record is not None and (
            record.moved_to == move.moved_to if move.moved_to else bool(move.complete is None or arrived(record))
        )
        if not there:
            s = self._put_part(s, p, part._replace(wrong=f"X5: {halt.text}, says a tool that moved nothing"))
        return self._put_lane(s, w, p, None)

    def _stopped(self, turn: Turn, stop: do.Stop) -> None:
        """The healed world waits only for a worker that has something to do, not for one that refuses over a move."""
        due = {FORMER: self._due_first(turn.s), LATTER: self.stage(turn.s) is None, TOOL: True}[turn.w]
        super()._stopped(turn._replace(owner=turn.owner and due), stop)

    # The group.

    def _is_member(self, s: State, w: int) -> bool:
        """The tool holds both groups, as their only member."""
        members = self.group(s).members
        return members[w] and (w != TOOL or not any(members[:TOOL]))

    def done(self, s: State) -> bool:
        """Whether all is delivered under the new name, and nothing is left open."""
        parts = self.parts(s)
        return (
            not self.group(s).members[TOOL]
            and not any(self.worker(s, TOOL).lanes)
            and all(arrived(self.newest(part)) for part in parts[self.half :])
            and all(self.finished(p, part) and not holds(part) for p, part in enumerate(parts) if p >= self.half)
        )


def arrived(record: Record | None) -> bool:
    """Whether a task has a record of its own under the new name."""
    return record is not None and not record.moving_from


def _named(spec: Spec, name: str, partition: int, width: int, writer: Writer) -> Spec:
    lock = f"g.{name}.{partition}"
    return replace(
        spec,
        processor=name,
        partition=partition,
        transactional_id=lock,
        group=f"g.{name}",
        backing=f"g.{name}.backing",
        width=width,
        writer=replace(writer, transactional_id=lock),
    )
