"""Mutants of the rules of at-most-once and at-least-once (W1 to W7); see `mutants`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from cues_kafka.core import effects as do
from cues_kafka.core import recover as rules
from cues_kafka.core import taking, writing
from cues_kafka.core.records import Attempt, Record, Start, Totals
from cues_kafka.core.spec import Spec
from cues_kafka.core.states import delivery, recovery, transaction
from cues_kafka.core.states import transitions as go
from cues_kafka.core.taking import Unsettled
from cues_kafka.core.task import Doing, Due, Task
from cues_kafka.ports.log import Positions
from tests.proof.model.loose import ChangedWorld
from tests.proof.model.mutant import (
    CRASH,
    MOVE,
    NET,
    NETS,
    NOTHING,
    ZOMBIE,
    Mutant,
    Patch,
    anywhere,
    around_world,
    handler,
    handlers,
)
from tests.proof.model.states import Faults, Turn
from tests.proof.model.taking import Running, TakingWorld

NET_AND_ZOMBIE: Final = Faults(crash=0, move=0, net=1, zombie=1, total=2)
NET_AND_MOVE: Final = Faults(crash=0, move=1, net=1, zombie=0, total=2)

Next = tuple[Task, do.Effect]


def _called_first() -> Patch:
    """W1: user code runs before the take is committed, and what it leaves goes with the take."""

    def polled(_: Any, task: Task, event: Any) -> Next:
        due = Due(event.ends, event.steps, (), 0)
        return replace(delivery._carrying(task), state=Doing.CALLING, due=due), do.Call(due.ends, due.steps, (), 0)

    def called(_: Any, task: Task, event: Any) -> Next:
        assert task.record
        batch = event.batch.settled
        then = Doing.STOPPED if event.halt else Doing.READY
        task = replace(task, carried=Unsettled(task.record.sequence, event.ends, batch), due=None, halt=event.halt)
        return go.transact(task, writing.take_of(task, event.ends), then)

    return handlers(polled=polled, called=called)


def _answer_believed() -> Patch:
    """W3: a take without an answer is taken for one that is committed."""

    def failed(old: Any, task: Task, event: Any) -> Next:
        if task.state is Doing.COMMITTING and task.then is Doing.CALLING and not event.fenced:
            assert task.pending
            return transaction._taken(replace(task, record=task.pending, pending=None), task.pending)
        return old(task, event)  # type: ignore[no-any-return]

    return handler("failed", failed)


def _resumed(new: Callable[[Any, Spec, Record, Unsettled | None], Unsettled]) -> Patch:
    """Another answer of W3."""
    old = taking.resumed
    return recovery, "resumed", lambda *found: new(old, *found)


def _never_called(old: Any, spec: Spec, record: Record, carried: Unsettled | None) -> Unsettled:
    """The task goes on at the ends of the record that it finds."""
    found: Unsettled = old(spec, record, carried)
    if found.batch.taken >= 0 or record.sequence == (carried.over if carried else -1):
        return found
    return replace(found, ends=record.positions, batch=Totals(dropped=-found.batch.taken))


def _forgotten(old: Any, spec: Spec, record: Record, carried: Unsettled | None) -> Unsettled:
    """After P8 nothing is carried."""
    del carried
    found: Unsettled = old(spec, record, None)
    return found


def _given_back_to_anyone(old: Any, spec: Spec, record: Record, carried: Unsettled | None) -> Unsettled:
    """A record of the same process is taken for one that it never called, whether a commit was asked for or not."""
    found: Unsettled = old(spec, record, replace(carried, doubtful=True) if carried else None)
    return found


def _stale_believed(old: Any, spec: Spec, record: Record, carried: Unsettled | None) -> Unsettled:
    """An older record is taken for the newest one."""
    try:
        found: Unsettled = old(spec, record, carried)
    except taking.Stale:
        return old(spec, record, None)  # type: ignore[no-any-return]
    return found


def _uncounted(old: Any, spec: Spec, record: Record, carried: Unsettled | None) -> Unsettled:
    """W4: what a death drops is in no record."""
    found: Unsettled = old(spec, record, carried)
    return replace(found, batch=found.batch._replace(dropped=0))


def _behind_the_ended() -> Patch:
    """W2: the position of a revocation is behind the last step that ended."""

    def report(old: Any, world: TakingWorld, running: Running, halt: str) -> Any:
        return old(world, running._replace(started=len(running.done)), halt)

    return around_world("_report", report, TakingWorld)


def _started_behind_the_gate() -> tuple[Patch, Patch]:
    """W2, I15: one more step starts after the worker has looked how far the calls came."""

    def so_far(old: Any, world: TakingWorld, lane: Any) -> Any:
        told, key = old(world, lane)
        if key and lane.own.started < len(lane.own.steps):
            told = told._replace(own=lane.own._replace(started=lane.own.started + 1))
        return told, key

    def tell(old: Any, world: TakingWorld, *told: Any) -> Any:
        (_, _, p, lane, *key), after = told, old(world, *told)
        if key[0] == "revoked" and len(key) > 1 and (step := lane.own.steps[lane.own.started - 1 :][:1]):
            part = world.part(after, p)
            if step[0] not in part.started:
                after = world._put_part(after, p, part._replace(started=(*part.started, *step)))
        return after

    return around_world("_so_far", so_far, TakingWorld), around_world("_tell", tell, TakingWorld)


def _released_with_outcomes() -> Patch:
    """W2: a task that is revoked in order commits nothing."""
    return handler("revoked", lambda _, task, __: go.release(task))


def _released_in_recovery(owes: Callable[[Task], bool]) -> Patch:
    """W2: a task that is revoked while it recovers, and owes nothing by this rule, commits nothing."""

    def interrupted(old: Any, task: Task, event: Any) -> Next:
        return old(task, event) if owes(task) else go.release(task)

    return handler("interrupted", interrupted)


def _nothing(_: Task) -> bool:
    return False


def _waits(task: Task) -> bool:
    return task.carried is not None and task.carried.due


def _counted_together() -> tuple[Patch, ...]:
    """O6: steps count as taken when they are settled."""

    def take_of(task: Task, positions: Positions, steps: int = 0) -> Attempt:
        del steps
        assert task.carried
        return writing.attempt_of(task, positions, task.carried.batch.settled)

    return (delivery, "take_of", take_of), (go, "take_of", take_of)


def _no_flush() -> Patch:
    """W1: what waits goes with the next take only."""

    def at_the_end(_: Any, world: TakingWorld, turn: Turn, offsets: Any) -> None:
        super(TakingWorld, world)._at_the_end(turn, offsets)

    return around_world("_at_the_end", at_the_end, TakingWorld)


def _record_first() -> Patch:
    """W5: the record before the outcomes."""

    def begun(old: Any, task: Task, event: Any) -> Next:
        if isinstance(task.pending, Start):
            return old(task, event)  # type: ignore[no-any-return]
        assert task.pending
        return replace(task, state=Doing.PRODUCING), do.Produce(task.pending)

    def flushed(old: Any, task: Task, event: Any) -> Next:
        assert task.pending
        if isinstance(task.pending, Attempt) and task.pending.batch.deliveries and event.first_offset is not None:
            return replace(task, state=Doing.EMITTING), do.Emit(task.pending)
        return old(task, event)  # type: ignore[no-any-return]

    def emitted(_: Any, task: Task, event: Any) -> Next:
        if event.delivered != event.produced:
            return go.discard(task, "not all were acknowledged")
        return transaction._landed(task)

    return handlers(begun=begun, flushed=flushed, emitted=emitted)


def _reports_uncounted() -> Patch:
    """W5: the record is written although an outcome was not acknowledged."""
    return handler("emitted", lambda old, task, event: old(task, replace(event, delivered=event.produced)))


def _start_without_offsets() -> Patch:
    """W6: the record of a start is written first, and its offsets go with the next one."""

    def begun(old: Any, task: Task, event: Any) -> Next:
        if not isinstance(task.pending, Start):
            return old(task, event)  # type: ignore[no-any-return]
        return replace(task, state=Doing.PRODUCING), do.Produce(task.pending)

    return handler("begun", begun)


def _offsets_ignored() -> Patch:
    """W6: a task without a record resolves `start=` whatever the group says."""
    old = rules.first_positions
    return recovery, "first_positions", lambda spec, inputs, born, _, asked: old(spec, inputs, born, None, asked)


def _resolved_again() -> Patch:
    """W6: each round of a recovery resolves `start=` where the one before sent offsets and got no answer."""
    old = rules.first_positions
    return recovery, "first_positions", lambda spec, inputs, born, held, _: old(spec, inputs, born, held)


def _other_strategy_believed() -> Patch:
    """W7: exactly-once, a record of another strategy is a record like any other one."""

    def other_writer(spec: Spec, record: Record, old: Any = rules._other_writer) -> Any:
        return old(spec, replace(record, strategy=spec.strategy) if spec.rules.snapshots else record)

    return rules, "_other_writer", other_writer


def _record_alone() -> Patch:
    """W7: the tool goes by the newest record, without the group's offsets."""

    def wanted(old: Any, world: ChangedWorld, part: Any) -> Any:
        move, record = old(world, part), world.newest(part)
        return replace(move, positions=record.positions) if move and record else move

    return around_world("_wanted", wanted, ChangedWorld)


def _changed_by_declaration() -> Patch:
    """W7: the workers of the new declaration are started, and no tool before them."""

    def former(old: Any, world: ChangedWorld, part: Any) -> Any:
        return world.newest(part) is None and old(world, part)

    return around_world("_is_former", former, ChangedWorld)


STRATEGIES: Final = [
    Mutant("user code is called before its batch is taken", "most-alone", CRASH, (_called_first(),)),
    Mutant("a take without an answer is believed", "most-alone", NET, (_answer_believed(),)),
    Mutant("a batch that was taken in doubt is never called", "most-alone", NET, (_resumed(_never_called),)),
    Mutant("outcomes that wait are forgotten with the session", "most-alone", NET, (_resumed(_forgotten),)),
    Mutant("what was called is given back", "most-alone", NET_AND_ZOMBIE, (_resumed(_given_back_to_anyone),)),
    Mutant("an older record is taken for the newest", "most-alone", NETS, (_resumed(_stale_believed),)),
    Mutant("a record lands anywhere", "most-alone", NETS, (handler("flushed", anywhere),)),
    Mutant("drops are not counted", "most-alone", CRASH, (_resumed(_uncounted),)),
    Mutant("a revoked task stands behind the last step that ended", "most", MOVE, (_behind_the_ended(),)),
    Mutant("a step starts behind a closed gate", "most", MOVE, _started_behind_the_gate()),
    Mutant("a revoked task leaves its outcomes", "most", MOVE, (_released_with_outcomes(),)),
    Mutant(
        "a task revoked in a recovery leaves its outcomes", "most", NET_AND_MOVE, (_released_in_recovery(_nothing),)
    ),
    Mutant("a task revoked in doubt forgets what it took", "most", NET_AND_MOVE, (_released_in_recovery(_waits),)),
    Mutant("steps are taken when they are settled", "most-alone", NOTHING, _counted_together()),
    Mutant("outcomes wait for the next batch", "most-alone", NOTHING, (_no_flush(),)),
    Mutant("at-least-once writes the record first", "least", CRASH, (_record_first(),)),
    Mutant("outcomes at-least-once are not counted", "least", NET, (_reports_uncounted(),)),
    Mutant("a start at-least-once sends no offsets", "least-latest", ZOMBIE, (_start_without_offsets(),)),
    Mutant("a start at-least-once ignores the group", "least-latest", NET, (_offsets_ignored(),)),
    Mutant("a start at-least-once is resolved again", "least-latest", NETS, (_resolved_again(),)),
    Mutant("a record of another strategy is believed", "changed", NET, (_other_strategy_believed(),), progress=False),
    Mutant("a strategy changes by the record alone", "changed", NET, (_record_alone(),), progress=False),
    Mutant("a strategy changes by its declaration", "changed", NOTHING, (_changed_by_declaration(),)),
]
"""Rules of the two other strategies, and of the change between them."""
