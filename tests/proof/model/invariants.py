"""What must hold in every state, as far as a world shows it.

- I1, I8: no delivery has two committed outcomes, and each has all of its records.
- I2, I3: outcomes, record and offsets belong together: what lies below the record's positions, and nothing else, has an
  outcome, and the totals count it.
- I4: outcomes keep the order of each input.
- I7: effects arrived in the order in which their steps were committed.
- I6, I7, I11, I12, I13 and D5 are seen where they happen, see `world`; I14 by where records land (P6a, P6b).

I5 and I10 are progress: `search.drains`. Each check depends on one partition alone, so its verdict is kept with it.
"""

from __future__ import annotations

from collections import Counter

from cues_kafka.core.records import Record, Totals
from tests.proof.model import staging, stores
from tests.proof.model.bridges import BridgeWorld
from tests.proof.model.loose import LooseWorld
from tests.proof.model.machine import offsets_of
from tests.proof.model.marking import MarkerWorld
from tests.proof.model.migrating import MigratedWorld
from tests.proof.model.outbox import EMPTY, OutboxWorld
from tests.proof.model.outbox import judged as at_target
from tests.proof.model.renaming import RenamedWorld
from tests.proof.model.replaying import SETTLED, ReplayWorld, judged_store
from tests.proof.model.staging import Staging
from tests.proof.model.states import IDLE, ONGOING, Part, State, Step
from tests.proof.model.tailing import TailWorld
from tests.proof.model.taking import TakingWorld
from tests.proof.model.timers import TimerWorld, judged, messages_of
from tests.proof.model.world import World


class Invariants:
    """Verdicts by partition."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._verdicts: dict[int, str] = {}

    def violated(self, s: State) -> str:
        """What is wrong with a state; empty: nothing."""
        for number in self._world.part_numbers(s):
            verdict = self._verdicts.get(number)
            if verdict is None:
                part = self._world.values.items[number]
                assert isinstance(part, Part)
                world = self._world
                verdict = staging.judge(world, part) if isinstance(world, Staging) else judge(world, part)
                self._verdicts[number] = verdict
            if verdict:
                return verdict
        return self._together(s)

    def _together(self, s: State) -> str:
        """What two tasks that are one under two names have done beside each other."""
        world = self._world
        if isinstance(world, BridgeWorld):
            return world.together(s)
        if not isinstance(world, RenamedWorld):
            return ""
        return next((wrong for p in range(world.half) if (wrong := world.judged(s, p))), "")


def judge(world: World, part: Part) -> str:
    """What is wrong with one partition; empty: nothing."""
    if part.wrong:
        return part.wrong
    if part.phase > ONGOING:
        return ""  # decided, and not visible yet
    record = world.newest(part)
    steps = list(dict.fromkeys(outcome.step for outcome in part.outputs if outcome.kind != SETTLED))
    if isinstance(world, MarkerWorld) and world.lost(part).gone:
        return _twice(part)  # the task must refuse, and write nothing
    if isinstance(world, LooseWorld):
        return _twice(part) or world.judged(part, record)
    if isinstance(world, BridgeWorld):
        return _twice(part) or world.judged(part, record)
    if isinstance(world, TakingWorld) and record:
        return _twice(part) or _order(world, steps) or world.judged(part, record, steps)
    if isinstance(world, MigratedWorld) and record:
        wrong = _twice(part) or _order(world, steps) or world.judged(part, record, steps)
        if not wrong and world.setting.target:
            return _at_the_target(world, part, steps, (*part.held, *(0 for _ in world.places))[: len(world.places)])
        return wrong or (_effects(part, record, steps) if world.setting.effects else "")
    return _twice(part) or _order(world, steps) or (_counted(world, part, record, steps) if record else _empty(part))


def _empty(part: Part) -> str:
    return "I2: outcomes or offsets without a record" if part.outputs or part.held else ""


def _twice(part: Part) -> str:
    outputs = [outcome for outcome in part.outputs if outcome.kind != SETTLED]
    seen = Counter(outcome.step for outcome in outputs)
    for outcome in outputs:
        if seen[outcome.step] > outcome.of:
            return f"I1: {outcome.step} was delivered twice"
        if seen[outcome.step] < outcome.of:
            return f"I8: {outcome.step} has {seen[outcome.step]} of {outcome.of} records"
    kinds = {(outcome.step, outcome.kind) for outcome in outputs}
    if len(kinds) > len(seen):
        return "I8: a delivery has an output and an error"
    return ""


def _order(world: World, steps: list[Step]) -> str:
    for binding in range(len(world.bindings)):
        offsets = [offset for step in steps for b, offset in step if b == binding]
        if offsets != sorted(offsets):
            return f"I4: outcomes of input {world.bindings[binding]!r} are out of order: {offsets}"
    return ""


def _counted(world: World, part: Part, record: Record, steps: list[Step]) -> str:
    ends = world.ends(record)
    rows = zip(world.places, part.begin or (0,) * len(ends), ends, strict=True)
    below = [sum(begin <= o < end for o in places) for places, begin, end in rows]
    due = max(below) if world.setting.pairing == "join" else sum(below)
    messages = messages_of(steps)
    delivered = {offset for step in messages for _, offset in step}
    due -= sum(offset < ends[0] and offset not in delivered for offset in part.cleaned)
    totals = Totals(*(now - was for now, was in zip(record.totals, part.base, strict=False)))
    if not record.step == record.totals.taken == record.totals.deliveries:
        return f"I13: {record.step} steps beside {record.totals}, and each of them is settled when it is taken"
    positions = offsets_of(record.positions)
    if part.phase == IDLE and part.held != positions and not part.reset:
        return f"I2: group offsets {part.held} beside positions {positions}"
    due += record.totals.timers + record.totals.replays
    if totals.deliveries != due or totals.outputs + totals.errors + totals.nils != due:
        return f"I3, I13: {due} messages lie below {ends}, the record counts {totals}"
    if len(steps) != totals.outputs + totals.errors:
        return f"I2, I3: {len(steps)} deliveries have outcomes, the record counts {totals}"
    if any(offset >= ends[b] for step in messages for b, offset in step):
        return f"I2: an outcome above the position {ends}"
    if isinstance(world, TailWorld | ReplayWorld) and (wrong := world.judged(part, record)):
        return wrong
    if world.setting.target and (wrong := _at_the_target(world, part, steps, ends)):
        return wrong
    if world.setting.stores:
        kinds = {one.step: one.kind for one in part.outputs if one.kind != SETTLED}
        delivered_steps = {step: kinds[step] for step in steps}
        if isinstance(world, TimerWorld):
            return judged(world, part.changes, record, delivered_steps)
        if isinstance(world, ReplayWorld):
            return judged_store(world, part, record, delivered_steps)
        return stores.judged(part.changes, record, delivered_steps)
    if world.setting.effects:
        return _effects(part, record, steps)
    return _starved(world, steps) if world.setting.turns else ""


def _starved(world: World, steps: list[Step]) -> str:
    """I10: an input waits for one batch of the others. A fault may cost two more, because the turn is not recorded."""
    patience = world.setting.batch * (1 + 2 * world.setting.faults.total)
    for binding, places in enumerate(world.places):
        waits, left = 0, len(places)
        for step in steps:
            mine = step[0][0] == binding
            waits, left = (0, left - 1) if mine else (waits + 1, left)
            if left and waits > patience:
                return f"I10: input {world.bindings[binding]!r} waits while {waits} messages of others pass"
    return ""


def _at_the_target(world: World, part: Part, steps: list[Step], ends: tuple[int, ...]) -> str:
    """E1: the target beside the outcomes, and the messages below the positions that have none."""
    assert isinstance(world, OutboxWorld)
    record = world.newest(part)
    assert record
    kinds = {one.step: one.kind for one in part.outputs}
    rows = zip(world.places, part.begin or (0,) * len(ends), ends, strict=True)
    below: list[Step] = [((b, o),) for b, (places, begin, end) in enumerate(rows) for o in places if begin <= o < end]
    cleaned = {((0, o),) for o in part.cleaned}
    acted = {step for step, _ in (part.target or EMPTY).now.applied}
    nils = [one for one in below if one not in kinds and (one not in cleaned or one in acted)]
    return at_target(world, part, record, tuple((step, kinds[step]) for step in steps), nils)


def _effects(part: Part, record: Record, steps: list[Step]) -> str:
    """The target of effects has each step once, in the order in which they were committed."""
    applied = part.ledger[2]
    if len(set(applied)) < len(applied):
        return f"E1: an effect was applied twice: {applied}"
    if record.totals.nils == 0 and list(applied[: len(steps)]) != steps:
        return f"I7, E1: effects {applied}, outcomes {tuple(steps)}: another choice was taken"
    return ""
