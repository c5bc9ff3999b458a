"""Mutants of the rules of replays (X1, Y1 to Y3); see `mutants`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from cues_kafka.core import hashing
from cues_kafka.core import replays as rules
from cues_kafka.core.records import Totals
from cues_kafka.core.states import transaction
from cues_kafka.core.states import transitions as go
from cues_kafka.core.task import Task
from cues_kafka.ports.log import Coordinates
from tests.proof.model.machine import REPLAY_ID
from tests.proof.model.mutant import CRASH, CRASHES, NOTHING, Mutant, Patch, around_world, handler
from tests.proof.model.replaying import ReplayWorld, place_of


def _world(name: str, new: Any) -> Patch:
    return around_world(name, new, ReplayWorld)


def _settled_outside() -> tuple[Patch, ...]:
    """Y2: the `settled` record is written when the step has ended, and not in the transaction."""

    def after_calls(old: Any, world: ReplayWorld, turn: Any, *args: Any) -> Any:
        done = args[1]
        if world._replays(tuple(step for step, _ in done)):
            part = world.part(turn.s, turn.p)
            settling = settle(world, turn.lane._replace(carried=done))
            turn = turn._replace(
                s=world._put_part(turn.s, turn.p, part._replace(outputs=part.outputs + settling)),
            )
        return old(world, turn, *args)

    settle = ReplayWorld._settling
    return _world("_after_calls", after_calls), _world("_settling", lambda *_: ())


def _hash_of_the_replay() -> Patch:
    """Y1: a replay is named by the request."""

    def named(_: Any, _world: ReplayWorld, task: Task, original: Any, replay: int) -> bytes:
        request = Coordinates("replay", REPLAY_ID, task.spec.partition, replay)
        return hashing.delivery_hash("g", "p", [request])

    return _world("_hash_of", named)


def _taken_for_a_message() -> Patch:
    """Y1: a restarted task takes an announced replay for messages."""
    old = go.due_of

    def due(record: Any, starts: int) -> Any:
        return replace(old(record, starts), replay=False)

    return go, "due_of", due


def _among_what_is_due() -> Patch:
    """Y1: a request is taken although other steps were announced."""

    def takes(task: Task) -> bool:
        return bool(task.record and task.record.replays)

    return Task, "takes_replays", property(takes)


def _one_record_at_a_time() -> Patch:
    """P6a: the `settled` record is not counted."""
    old = transaction._after
    return transaction, "_after", lambda first, record: old(first, replace(record, batch=Totals()))


def _not_counted() -> Patch:
    """Q1 for replays: their announcement begins with no deaths each time."""

    def polled(old: Any, task: Task, event: Any) -> Any:
        if event.replay and task.due:
            task = replace(task, due=replace(task.due, starts=0))
        return old(task, event)

    return handler("polled", polled)


def _begun_again() -> Patch:
    """R5: a recovery reads the replay topic from its beginning."""
    old = rules.begin
    return rules, "begin", lambda spec, facts, _before=(): old(spec, facts)


def _ahead_of_any_commit() -> Patch:
    """P7: only what is due now is asked for, and not what the commit under way is of."""
    return Task, "_commits_something_else", property(lambda _: False)


REPLAYS: Final[tuple[Mutant, ...]] = (
    Mutant("an error is settled outside of the transaction", "replay", CRASH, _settled_outside(), progress=False),
    Mutant("no record says what is settled", "replay", NOTHING, (_world("_settling", lambda *_: ()),), progress=False),
    Mutant(
        "nothing looks for what is settled",
        "replay",
        NOTHING,
        (_world("_is_settled", lambda *_: False),),
        progress=False,
    ),
    Mutant(
        "the place in the replay topic is not moved",
        "replay",
        NOTHING,
        (_world("_behind_request", lambda _old, _world, task: place_of(task.record)),),
        progress=False,
    ),
    Mutant("a recovery reads the replay topic again", "replay", CRASH, (_begun_again(),), progress=False),
    Mutant("a replay has a hash of its own", "replay", NOTHING, (_hash_of_the_replay(),), progress=False),
    Mutant("an announced replay taken for messages", "replay-effects", CRASH, (_taken_for_a_message(),)),
    Mutant("a replay among announced steps", "replay-effects", CRASHES, (_among_what_is_due(),), progress=False),
    Mutant(
        "with effects, a replay may take the place of a message that was called",
        "replay-effects",
        CRASH,
        ((Task, "messages_first", property(lambda _: False)),),
        progress=False,
    ),
    Mutant(
        "messages are called ahead of the snapshot that announces a replay",
        "replay-ahead",
        NOTHING,
        (_ahead_of_any_commit(),),
        progress=False,
    ),
    Mutant("deaths on replays are not counted", "replay-kill", NOTHING, (_not_counted(),)),
    Mutant(
        "replays are not counted in the totals",
        "replay",
        NOTHING,
        (_world("_counts", lambda old, world, done: (*old(world, done)[:9], 0)),),
        progress=False,
    ),
)

COVERED_REPLAYS: Final[tuple[tuple[Mutant, str], ...]] = (
    (
        Mutant("settled records are no records (P6a)", "replay", NOTHING, (_one_record_at_a_time(),)),
        "the next record is discarded once, and the recovery behind it reads where the log ends",
    ),
)
