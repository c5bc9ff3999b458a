"""Mutants of the rules by which an operator migrates a processor, and has its error messages dropped (X1, X2, Y2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from cues_kafka.core import recover as rules
from cues_kafka.core.events import InputFacts
from cues_kafka.core.records import Record, Snapshot
from cues_kafka.core.spec import Spec
from cues_kafka.core.states import recovery
from cues_kafka.operate.look.changed_inputs import refuse_busy
from cues_kafka.operate.move import migrate as migrating
from cues_kafka.ports.log import Positions
from tests.proof.model.dropping import DroppingWorld
from tests.proof.model.migrating import MigratedOutboxWorld, MigratedWorld
from tests.proof.model.mutant import CRASH, MOVE, NET, NOTHING, Mutant, Patch, around_world
from tests.proof.model.replaying import AGAIN
from tests.proof.model.versions import TOOL

_BUSY = refuse_busy
_POSITIONS = migrating.positions_of


def _narrower_allowed() -> Patch:
    """R5: a task goes on although its record has an input that its declaration does not have."""
    old = rules.recover

    def recover(spec: Spec, record: Record | None, offsets: Any, inputs: Any) -> Any:
        declared = {i.binding for i in spec.inputs}
        if record is not None and not isinstance(record, Snapshot):
            record = replace(record, positions=tuple(p for p in record.positions if p.binding in declared))
        return old(spec, record, offsets, inputs)

    return recovery, "recover", recover


def _busy_if(kind: type[Record] | None) -> Patch:
    """The command moves tasks that have more than positions; of this kind of record it does not, if there is one."""

    def refused(spec: Spec, record: Record) -> None:
        if kind is not None and isinstance(record, kind):
            _BUSY(spec, record)

    return migrating, "refuse_busy", refused


def _nothing_else_fails() -> tuple[Patch, ...]:
    """User code may ask to be called again, and nothing else goes wrong, which makes the search shorter."""
    names = "_breaking", "_lose", "_start_early"
    return tuple(around_world(name, lambda *_args, **_out: None, MigratedWorld) for name in names)


def _all_again() -> Patch:
    """Inputs that stay begin again, too."""

    def positions_of(
        spec: Spec, record: Record, inputs: Mapping[str, InputFacts], add: Mapping[str, str], drop: Collection[str]
    ) -> Positions | None:
        made = _POSITIONS(spec, record, inputs, add, drop)
        return None if made is None else tuple(p._replace(offset=inputs[p.binding].low) for p in made)

    return migrating, "positions_of", positions_of


def _added_again() -> Patch:
    """A command that is run again lets an input begin that another run has added."""

    def positions_of(
        spec: Spec, record: Record, inputs: Mapping[str, InputFacts], add: Mapping[str, str], drop: Collection[str]
    ) -> Positions | None:
        made = _POSITIONS(spec, record, inputs, add, drop)
        if made is not None or isinstance(record, Snapshot):
            return made
        again = tuple(p._replace(offset=inputs[p.binding].low) if p.binding in add else p for p in record.positions)
        return None if again == record.positions else again

    return migrating, "positions_of", positions_of


def _behind_the_messages() -> Patch:
    """An added input begins behind the messages that it has."""
    old = migrating._begin

    def begin(one: Any, facts: InputFacts, _: str) -> Any:
        return old(one, facts, migrating.LATEST)

    return migrating, "_begin", begin


def _tool_without_target() -> Patch:
    """E1, X2: the tool moves the task without asking the target, which would end former owners there."""

    def spec(old: Any, world: MigratedOutboxWorld, w: int, *args: Any) -> Spec:
        made: Spec = old(world, w, *args)
        return replace(made, target=made.target and w != TOOL)

    return around_world("_spec", spec, MigratedOutboxWorld)


def _drops_called() -> Patch:
    """Y2: a drop is called as a replay is."""
    return around_world("_drops", lambda *_: False, DroppingWorld)


def _dropped_unsettled() -> Patch:
    """Y2: a drop leaves no record that its error message is settled."""

    def settling(old: Any, world: DroppingWorld, lane: Any) -> Any:
        kinds = {kind for step, kind in lane.carried if world._replays((step,))}
        return () if kinds == {AGAIN} else old(world, lane)

    return around_world("_settling", settling, DroppingWorld)


def _last_wish() -> Patch:
    """Y2: a replay is called although its error message was dropped before."""
    return around_world("_is_settled", lambda *_: False, DroppingWorld)


def _drop_keeps_changes() -> Patch:
    """A drop changes the store, as if it had called user code."""
    return around_world("_keeps", lambda old, world, kind: kind == AGAIN or old(world, kind), DroppingWorld)


MIGRATIONS: Final[tuple[Mutant, ...]] = (
    Mutant("a worker goes on with fewer inputs than its record has", "migrated", MOVE, (_narrower_allowed(),)),
    Mutant(
        "a worker that has lost an input goes on without the command",
        "migrated-drop",
        MOVE,
        (_narrower_allowed(),),
        progress=False,
    ),
    Mutant("a migration forgets an announced batch", "migrated-effects", NOTHING, (_busy_if(None),), progress=False),
    Mutant(
        "a migration forgets a recorded choice",
        "migrated-effects",
        NET,
        (_busy_if(Snapshot), *_nothing_else_fails()),
        progress=False,
    ),
    Mutant("inputs that stay begin again", "migrated", NOTHING, (_all_again(),), progress=False),
    Mutant("an added input begins again in each run", "migrated", NOTHING, (_added_again(),)),
    Mutant("an added input begins behind its messages", "migrated", NOTHING, (_behind_the_messages(),)),
    Mutant("a tool does not ask the target", "migrated-target", NOTHING, (_tool_without_target(),)),
    Mutant(
        "a migration does not wait for what a target is ahead with",
        "migrated-target",
        CRASH,
        (around_world("_is_ahead", lambda *_: False, MigratedOutboxWorld),),
    ),
)

DROPS: Final[tuple[Mutant, ...]] = (
    Mutant("a drop is called as a replay is", "drop", NOTHING, (_drops_called(),), progress=False),
    Mutant("a drop settles nothing", "drop", NOTHING, (_dropped_unsettled(),), progress=False),
    Mutant("what was dropped is replayed", "drop", NOTHING, (_last_wish(),), progress=False),
    Mutant("a drop changes the store", "drop", NOTHING, (_drop_keeps_changes(),), progress=False),
)
