"""`rename`: the three records with which a task goes on under another name of its processor (X5).

A task's name is in its lock, its backing topic and its group, so no transaction moves it from one name to another. A
tool commits three records instead, and any run of it goes on where another one stopped:

1. Under the new name a placeholder, in all partitions first. A worker of the new declaration refuses over it.
2. Under the old name the last record, which says where the task went. A worker of the old declaration refuses over it,
   so nothing is delivered under the old name from here on.
3. Under the new name that last record, with its positions and counts. From here on the task is delivered.

Without 1, a worker of the new declaration would begin at `start=` between 2 and 3, and deliver everything again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from cues_kafka.core.events import Halt, InputFacts
from cues_kafka.core.records import Record, Snapshot, Start, Totals
from cues_kafka.core.recover import plan_of
from cues_kafka.core.spec import Move, Spec
from cues_kafka.core.writing import following
from cues_kafka.words import count

AGAIN = "run the command again"

Due: TypeAlias = "list[tuple[int, Move]]"
"""The moves of one stage, each with the number of its partition."""


class Stage(NamedTuple):
    """
    What a tool commits next, in transactions of their own.

    Attributes:
        moves: by partition.
        under_new: whether these tasks have the new name.
    """

    moves: Due
    under_new: bool


def next_stage(
    old: Sequence[Record], new: Sequence[Record | None], moving_from: str, moved_to: str, above: Sequence[int] = ()
) -> Stage | None:
    """
    Return what comes next, by what is committed; a stage begins when the one before it is whole. None: all is done.

    Args:
        old: the newest record of each task under the old name.
        new: the newest record of each task under the new name.
        moving_from: the old name.
        moved_to: the new name.
        above: by partition, the owner in the task's target (E1); empty: there is no target.
    """
    begin: Due = [
        (p, Move(after=-1, positions=old[p].positions, moving_from=moving_from))
        for p, record in enumerate(new)
        if record is None
    ]
    leave: Due = [
        (p, Move(after=record.sequence, positions=record.positions, moved_to=moved_to))
        for p, record in enumerate(old)
        if not record.moved_to
    ]
    if begin or leave:
        return Stage(begin or leave, bool(begin))
    arrive: Due = [
        (p, _arrival(record, old[p], moving_from, above[p] if above else -1))
        for p, record in enumerate(new)
        if record is not None and record.moving_from
    ]
    return Stage(arrive, under_new=True) if arrive else None


def _arrival(placeholder: Record, last: Record, moving_from: str, above: int) -> Move:
    return Move(
        after=placeholder.sequence, positions=last.positions, moving_from=moving_from, complete=last, above=above
    )


def in_place(move: Move, record: Record) -> bool:
    """Whether another run has committed this record of the three already."""
    if move.moved_to:
        return record.moved_to == move.moved_to
    return move.complete is None and bool(move.moving_from) and record.moving_from == move.moving_from


def refusal(spec: Spec, move: Move, record: Record | None) -> Halt | None:
    """Why a record of the three must not be written behind the newest one; None: it may be."""
    if move.moved_to:
        return _may_not_leave(spec, move, record)
    if move.complete is None:
        return _may_not_begin(spec, move, record)
    return _may_not_arrive(spec, move, record)


def _may_not_begin(spec: Spec, move: Move, record: Record | None) -> Halt | None:
    if record is None:
        return None
    return Halt(
        "refused",
        f"{spec.name} has records of its own, which the move of {move.moving_from!r} would replace",
        f"choose another name; or, if {spec.processor!r} may be forgotten, `cues-kafka delete MODULE:GRAPH "
        f"{spec.processor}`, then {AGAIN}",
    )


def _may_not_leave(spec: Spec, move: Move, record: Record | None) -> Halt | None:
    if record is None or record.sequence != move.after:
        return Halt("refused", f"{spec.name} has moved since", AGAIN)
    if isinstance(record, Snapshot):
        text = f"{spec.name} has announced {count(record.steps, 'step')}, whose delivery hashes hold its name"
        return Halt(
            "refused", text, "run it under its old name until it has delivered them, and shut it down gracefully"
        )
    return None


def _may_not_arrive(spec: Spec, move: Move, record: Record | None) -> Halt | None:
    assert move.complete
    if record is None or not record.moving_from or record.sequence != move.after:
        return Halt("refused", f"{spec.name} has moved since", AGAIN)
    if move.complete.moved_to != spec.processor:
        return Halt("refused", f"{move.moving_from!r} has not left for {spec.processor!r} yet", AGAIN)
    return None


def arrives_at(move: Move) -> int:
    """
    The sequence of the record that completes a move.

    It is above whatever was an owner under either name, so that later starts are no former owners (E1).
    """
    return max(move.after, move.above, move.complete.sequence if move.complete else -1) + 1


def renamed(spec: Spec, move: Move, before: Record | None, inputs: Mapping[str, InputFacts]) -> Record:
    """The placeholder, or the record that completes the move; the one in between is that of any move."""
    plan = plan_of(spec, inputs)
    if move.complete is None:
        where = {"positions": move.positions, "fingerprint": plan, "moving_from": move.moving_from}
        return following(Start, spec, before, born=spec.width, **where)
    sequence = arrives_at(move)
    return replace(
        move.complete,
        sequence=sequence,
        owner=sequence,
        batch=Totals(),
        fingerprint=plan,
        writer=spec.writer,
        moved_to="",
        replays=(),
    )
