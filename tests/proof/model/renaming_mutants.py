"""Mutants of the three records with which a task goes on under another name (X5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from cues_kafka.core import effects as do
from cues_kafka.core import moves, recover, renaming
from cues_kafka.core.records import Record, Snapshot
from cues_kafka.core.renaming import Stage, next_stage
from cues_kafka.core.spec import Move
from cues_kafka.core.task import Doing, Task
from tests.proof.model import renaming as around
from tests.proof.model.mutant import MOVE, NET, NOTHING, Handler, Mutant, Patch, around_world, handler
from tests.proof.model.versions import LATTER

Plan = Callable[[list[Record], Sequence[Record | None], str, str], Stage | None]


def _stages(new: Plan) -> Patch:
    """Another order of the tool's stages."""
    return around, "next_stage", new


def _placeholders_in(partitions: int) -> Plan:
    """Without the placeholders of the other partitions; where there is none, the last record begins the new name."""

    def planned(old: list[Record], new: Sequence[Record | None], moving_from: str, moved_to: str) -> Stage | None:
        filled = [old[p] if record is None and p >= partitions else record for p, record in enumerate(new)]
        stage = next_stage(old, filled, moving_from, moved_to)
        if stage is not None:
            return stage
        due = [(p, _arrival(old[p], moving_from)) for p, record in enumerate(new) if record is None]
        return Stage(due, under_new=True) if due else None

    return planned


def _arrival(last: Record, moving_from: str, after: int = -1) -> Move:
    return Move(after=after, above=99, positions=last.positions, moving_from=moving_from, complete=last)


def _leaving_first(old: list[Record], new: Sequence[Record | None], moving_from: str, moved_to: str) -> Stage | None:
    """Tasks leave as soon as there is one placeholder."""
    if new[0] is not None and any(not record.moved_to for record in old):
        new = [record or new[0] for record in new]
    return next_stage(old, new, moving_from, moved_to)


def _arriving_first(old: list[Record], new: Sequence[Record | None], moving_from: str, moved_to: str) -> Stage | None:
    """The new name goes on behind the newest record of the old one, which leaves afterwards."""
    due = [
        (p, _arrival(old[p], moving_from, record.sequence))
        for p, record in enumerate(new)
        if record is not None and record.moving_from
    ]
    return Stage(due, under_new=True) if due else next_stage(old, new, moving_from, moved_to)


def _whenever(spec: Any, move: Any, record: Any, old: Any = renaming._may_not_arrive) -> Any:
    """The record that completes the move is written over whatever is there, of whatever record of the old name."""
    if record is not None and not record.moving_from:
        return old(spec, move, record)
    return None


_FOREIGN = recover.foreign


def _ignoring(**fields: str) -> tuple[Patch, Patch]:
    """Workers do not see one of the two fields."""

    def foreign(spec: Any, record: Any) -> Any:
        return _FOREIGN(spec, record if spec.move else replace(record, **fields))

    return (recover, "foreign", foreign), (moves, "foreign", foreign)


def _completed(change: Callable[[Record, Move], Record]) -> Patch:
    """Another record at the end of the move."""
    old = renaming.renamed

    def renamed(spec: Any, move: Any, before: Any, inputs: Any) -> Any:
        record = old(spec, move, before, inputs)
        return change(record, move) if move.complete else record

    return moves, "renamed", renamed


def _at_planned_positions() -> Patch:
    """The record that completes the move stands where the placeholder stood."""
    old = renaming.renamed

    def renamed(spec: Any, move: Any, before: Any, inputs: Any) -> Any:
        record = old(spec, move, before, inputs)
        return replace(record, positions=before.positions) if move.complete else record

    return moves, "renamed", renamed


def _over_a_snapshot() -> tuple[Patch, ...]:
    """A task leaves over a batch that it has announced, whatever the operator was shown."""

    def may(spec: Any, move: Any, record: Any) -> Any:
        return None if isinstance(record, Snapshot) else _LEAVE(spec, move, record)

    return (renaming, "_may_not_leave", may), (moves, "moved", _kept_snapshot)


_LEAVE = renaming._may_not_leave
_MOVED = moves.moved


def _kept_snapshot(spec: Any, move: Any, before: Any, inputs: Any) -> Any:
    made = _MOVED(spec, replace(move, after=before.sequence), before, inputs)
    return replace(before, sequence=made.sequence, writer=made.writer, moved_to=move.moved_to)


def _commit_believed() -> Patch:
    """A failed commit of the last record is taken for the end of the move."""

    def failed(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        if task.spec.move and task.spec.move.complete and task.state is Doing.COMMITTING and task.halt:
            return replace(task, state=Doing.STOPPED, pending=None), do.Stop(task.halt)
        return old(task, event)

    return handler("failed", failed)


def _without_offsets() -> Patch:
    """The record that completes the move goes without the group's offsets."""

    def produced(old: Handler, task: Task, event: Any) -> tuple[Task, do.Effect]:
        if task.spec.move and task.spec.move.complete:
            return replace(task, state=Doing.FLUSHING), do.Flush()
        return old(task, event)

    return handler("produced", produced)


def _no_other_fault() -> tuple[Patch, Patch]:
    """A worker of the new declaration is started, and nothing else goes wrong, which makes the search shorter."""

    def start(old: Any, world: Any, s: Any, w: int, out: Any, *, calm: bool) -> None:
        if calm or w == LATTER:
            old(world, s, w, out, calm=calm)

    return around_world("_start", start, around.RenamedWorld), around_world("_moving", lambda *_: None)


def _sibling_unseen() -> Patch:
    """A fresh task does not look whether another one of its processor is on its way."""
    return handler("sibling_read", lambda old, task, event: old(task, replace(event, moving_from="")))


RENAMES: Final[tuple[Mutant, ...]] = (
    Mutant(
        "no placeholder",
        "renamed",
        MOVE,
        (_stages(_placeholders_in(0)), (renaming, "_may_not_arrive", _whenever)),
        progress=False,
    ),
    Mutant(
        "a placeholder in the first partition only",
        "renamed-two",
        MOVE,
        (_stages(_placeholders_in(1)), (renaming, "_may_not_arrive", _whenever), *_no_other_fault()),
        progress=False,
    ),
    Mutant("a fresh task sees no placeholder of another", "renamed-two", MOVE, (_sibling_unseen(),), progress=False),
    Mutant(
        "the new name arrives before the old one has left",
        "renamed",
        NOTHING,
        (_stages(_arriving_first), (renaming, "_may_not_arrive", _whenever)),
        progress=False,
    ),
    Mutant("a task arrives where its placeholder stands", "renamed", NOTHING, (_at_planned_positions(),)),
    Mutant("a task leaves over an announced batch", "renamed", NOTHING, _over_a_snapshot(), progress=False),
    Mutant("a task that has left goes on", "renamed", MOVE, _ignoring(moved_to=""), progress=False),
    Mutant("a task goes on at its placeholder", "renamed", MOVE, _ignoring(moving_from=""), progress=False),
    Mutant("a failed commit of the last record is believed", "renamed", NET, (_commit_believed(),), progress=False),
    Mutant("a task arrives without the group's offsets", "renamed", NOTHING, (_without_offsets(),)),
    Mutant(
        "a task arrives with the placeholder's owner",
        "renamed",
        NOTHING,
        (_completed(lambda record, move: replace(record, sequence=move.after + 1, owner=move.after + 1)),),
    ),
)

COVERED_RENAMES: Final[tuple[tuple[Mutant, str], ...]] = (
    (
        Mutant(
            "tasks leave before all placeholders are there",
            "renamed-two",
            MOVE,
            (_stages(_leaving_first), *_no_other_fault()),
            progress=False,
        ),
        "a fresh task looks at the others of its processor",
    ),
)
