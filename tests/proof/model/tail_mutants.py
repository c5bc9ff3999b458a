"""Mutants of the rules of tailers (S5, L1, L2); see `mutants`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from cues_kafka.core import effects as do
from cues_kafka.core import tails
from cues_kafka.core.states import delivery, recovery
from cues_kafka.core.states import transitions as go
from cues_kafka.core.task import Doing, Task
from tests.proof.model import lanes as around
from tests.proof.model import states, tailed_outbox
from tests.proof.model.mutant import (
    CRASH,
    CRASHES,
    NET,
    NET_AND_CRASH,
    NOTHING,
    Handler,
    Mutant,
    Patch,
    around_world,
    handler,
)
from tests.proof.model.outbox import Contents
from tests.proof.model.tailed_outbox import TailedOutboxWorld
from tests.proof.model.tailing import Tailing, TailWorld


def _only_first() -> Patch:
    """S5: a snapshot stands before the first batch of a start alone, as without tailers."""

    def snapshot_due(task: Task) -> bool:
        return task.first or task.due is not None

    return Task, "snapshot_due", property(snapshot_due)


def _first_call_unbounded() -> Patch:
    """S5: only a call that is made again ends where the snapshot says."""

    def called_for(task: Task, due: Any) -> Any:
        after, effect = _called_for(task, due)
        if task.state is Doing.COMMITTING and isinstance(effect, do.Call):
            effect = replace(effect, tail_ends=())
        return after, effect

    _called_for = go.called_for
    return go, "called_for", called_for


def _fresh_ends_at_a_retry() -> Patch:
    """S5: the snapshot before a retry has the ends of then."""

    def announced(task: Task, record: Any, ends: Any) -> Any:
        return tails.announced(replace(task, tail_ends=()), record, ends)

    return delivery, "announced", announced


def _not_put_off() -> Patch:
    """S5: an attempt does not hand the ends down to a step that was put off."""

    def behind(task: Task, made: Any, stand: Any, *, put_off: bool = False) -> Any:
        del put_off
        return tails.behind(task, made, stand)

    return delivery, "behind", behind


def _not_in_careful_mode() -> Patch:
    """S5: an attempt does not hand the ends down to the next step of careful mode."""

    def behind(task: Task, made: Any, stand: Any, *, put_off: bool = False) -> Any:
        return tails.behind(replace(task, careful_until=()), made, stand, put_off=put_off)

    return delivery, "behind", behind


def _where_it_stood() -> Patch:
    """L2: an attempt does not say where the tailers stand."""

    def behind(task: Task, made: Any, _: Any, **given: bool) -> Any:
        return tails.behind(task, made, (), **given)

    return delivery, "behind", behind


def _forgotten_by_snapshots() -> Patch:
    """L2: a snapshot does not carry on where the tailers stand."""

    def announced(task: Task, record: Any, ends: Any) -> Any:
        return replace(tails.announced(task, record, ends), tails=())

    return delivery, "announced", announced


def _among_the_offsets() -> Patch:
    """L2: where tailers stand goes into the group's offsets, too, which are by topic."""

    def produced(old: Handler, task: Task, event: Any) -> Any:
        after, effect = old(task, event)
        assert task.pending
        assert isinstance(effect, do.SendOffsets)
        return after, replace(effect, positions=(*effect.positions, *task.pending.tails))

    return handler("produced", produced)


def _from_memory() -> Patch:
    """L2, R6: after a recovery a tailer goes on where it stood."""

    def stood(old: Any, world: TailWorld, lane: Any, record: Any) -> Tailing:
        found: Tailing = old(world, lane, record) if lane.own is None else lane.own
        return found

    return around_world("_stood", stood, TailWorld)


def _from_the_beginning() -> Patch:
    """L2: a new process does not ask its record."""

    def stood(_: Any, _world: TailWorld, _lane: Any, _record: Any) -> Tailing:
        return Tailing()

    return around_world("_stood", stood, TailWorld)


def _moves_kept(kinds: tuple[str, ...]) -> Patch:
    """L1: steps that ended so keep their moves, too."""
    return TailWorld, "_keeps_moves", lambda _, kind: kind in ("o", "f", "n", *kinds)


_APPENDS_KEPT: Final = (around, "MEANS", {**states.MEANS, "e": [("x", "")]})
"""L1: what a step had appended is sent besides its error message."""


def _rows_without_places() -> Patch:
    """E1, L2: the row of a target does not say where the tailers stand."""

    def written(old: Any, world: TailedOutboxWorld, *args: Any) -> Contents:
        made: Contents = old(world, *args)
        assert made.row
        return made._replace(row=replace(made.row, tails=(), tail_ends=()))

    return around_world("_written", written, TailedOutboxWorld)


def _put_off_in_no_row() -> Patch:
    """E1, S5: the row does not hand down the ends that a step needs which was put off."""

    def behind(task: Task, made: Any, at: Any, *, put_off: bool = False) -> Any:
        del put_off
        return tails.behind(task, made, at)

    return tailed_outbox, "behind", behind


TAILS: Final = [
    Mutant("a batch with fixed views has no snapshot", "imperative-alone", NOTHING, (_only_first(),)),
    Mutant("the first call sees what came behind its snapshot", "imperative-alone", NET, (_first_call_unbounded(),)),
    Mutant("a retry sees what came since its first call", "imperative-kill", CRASH, (_fresh_ends_at_a_retry(),)),
    Mutant("a step that was put off sees what came since", "imperative-alone", NET, (_not_put_off(),)),
    Mutant("in careful mode the next step sees what came since", "imperative-kill", CRASHES, (_not_in_careful_mode(),)),
    Mutant("an attempt does not say where tailers stand", "imperative-free", NOTHING, (_where_it_stood(),)),
    Mutant("a snapshot forgets where tailers stand", "imperative-free", CRASH, (_forgotten_by_snapshots(),)),
    Mutant("tailers stand among the group's offsets", "imperative-itself", NOTHING, (_among_the_offsets(),)),
    Mutant("a tailer goes on where it stood", "imperative-free", NET, (_from_memory(),)),
    Mutant("a tailer begins at the beginning again", "imperative-free", CRASH, (_from_the_beginning(),)),
    Mutant("moves of a step that failed are kept", "imperative-free", NOTHING, (_moves_kept(("e",)),)),
    Mutant("moves of a step that was put off are kept", "imperative", NET, (_moves_kept(("",)),)),
    Mutant("a target's row does not say where tailers stand", "outbox-tailed", CRASH, (_rows_without_places(),)),
    Mutant(
        "what a target is ahead with is committed without the places of tailers",
        "outbox-tailed",
        CRASH,
        ((recovery, "in_row", lambda _task, made, _row: made),),
    ),
    Mutant(
        "a target's row forgets a step that was put off", "outbox-tailed-retry", NET_AND_CRASH, (_put_off_in_no_row(),)
    ),
    Mutant("appends of a step that failed are kept", "imperative-free", NOTHING, (_APPENDS_KEPT,)),
]
"""Rules of tailers and appenders."""
