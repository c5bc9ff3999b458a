"""Defects, each planted in one place of the core or of the runtime; most take one rule of docs/protocol.md out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from cues_kafka.brokers.memory.clients import MemorySession
from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core import recover, taking, task, turns
from cues_kafka.core.machine import TRANSITIONS
from cues_kafka.core.records import Record
from cues_kafka.core.spec import Spec
from cues_kafka.core.states import delivery, recovery, transitions
from cues_kafka.core.task import Doing, Task
from cues_kafka.ports.log import Coordinates, Positions
from cues_kafka.task.calling import pairing
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.ending import Ending
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.turnstile import Turnstile
from cues_kafka.task.interpreter import Interpreter, record_message
from cues_kafka.task.lane import Lane
from cues_kafka.task.taking import Taking
from tests.proof.simulation.options import MIXED

Patch = pytest.MonkeyPatch
Handler = Callable[[Task, Any], Any]


def handler(patch: Patch, state: Doing, event: type, made: Callable[[Handler], Handler]) -> None:
    """Put another handler for one event in one state, made from the one that is there."""
    patch.setitem(TRANSITIONS[state], event, (made(TRANSITIONS[state][event][0]), frozenset(Doing)))


def positions_from_memory(patch: Patch) -> None:
    """A recovery goes on where this process believes to be, instead of where the record stands (R6)."""
    known: dict[tuple[str, str], Positions] = {}
    attempt = delivery._attempt

    def remember(it: Task, positions: Positions, batch: Any, *place: str) -> Any:
        known[it.spec.full_name, it.spec.writer.incarnation] = positions
        return attempt(it, positions, batch, *place)

    def forgetful(original: Handler) -> Handler:
        def read(it: Task, event: Any) -> Any:
            after, effect = original(it, event)
            mine = known.get((it.spec.full_name, it.spec.writer.incarnation))
            return after, do.AssignReader(mine) if mine and isinstance(effect, do.AssignReader) else effect

        return read

    patch.setattr(delivery, "_attempt", remember)
    handler(patch, Doing.FETCHING_INPUTS, on.InputsFetched, forgetful)


def attempt_outside_the_transaction(patch: Patch) -> None:
    """The record is committed by itself, before the outputs (I2)."""

    def produce(self: Any, effect: do.Produce) -> on.Event:
        self._world.broker.sender("apart").send([record_message(self.task.spec, effect.record)])
        self._session.produce(self._records)
        self._records = ()
        return on.Done()

    patch.setattr(Interpreter, "_produce", produce)
    handler(
        patch, Doing.FLUSHING, on.Flushed, lambda _: lambda it, _: (replace(it, state=Doing.COMMITTING), do.Commit())
    )


def error_besides_an_output(patch: Patch) -> None:
    """A handled exception leaves an output too (I8)."""
    fail = Ending.fail

    def both(self: Any, error: BaseException, step: Delivering) -> bool:
        done = fail(self, error, step)
        if done and (output := self._function.output):
            self._adding.add(step.taken, step.batch, [(output, b"k", b'"x"', [], None, None)])
        return done

    patch.setattr(Ending, "fail", both)


def failed_step_skipped(patch: Patch) -> None:
    """What is to be called again is counted as delivered."""
    fail = Ending.fail

    def skip(self: Any, error: BaseException, step: Delivering) -> bool:
        done = fail(self, error, step)
        if not done and step.batch.halt and step.batch.halt.kind == "retry":
            step.batch.halt = None
            step.batch.deliveries += 1
            return True
        return done

    patch.setattr(Ending, "fail", skip)


def hash_over_more_than_the_messages(patch: Patch) -> None:
    """Something of the batch goes into the hash, so another attempt has another one (I6)."""
    coordinates = Batch.coordinates

    def more(self: Batch, taken: Any) -> tuple[Coordinates, ...]:
        found = coordinates(self, taken)
        return tuple(place._replace(binding=f"{place.binding}{self.sequence}") for place in found)

    patch.setattr(Batch, "coordinates", more)


def flush_that_does_not_look(patch: Patch) -> None:
    """Delivery reports are not counted, and the client's commit forgets what it could not deliver (P6)."""
    commit = MemorySession.commit

    def blind(self: Any, _: do.Flush) -> on.Event:
        session = self._session
        return on.Flushed(session._produced, session._produced, session._open._first_offset)

    def forget(self: Any) -> str | None:
        self._undelivered = None
        return commit(self)

    patch.setattr(Interpreter, "_flush", blind)
    patch.setattr(MemorySession, "commit", forget)
    handler(
        patch, Doing.FLUSHING, on.Flushed, lambda _: lambda it, _: (replace(it, state=Doing.COMMITTING), do.Commit())
    )


def record_may_land_anywhere(patch: Patch) -> None:
    """P6a is left out, under answers that are old."""
    handler(
        patch,
        Doing.FLUSHING,
        on.Flushed,
        lambda original: lambda it, event: original(replace(it, expected=event.first_offset), event),
    )


def goes_on_after_an_ambiguous_commit(patch: Patch) -> None:
    """P8: no return to R1 after a commit that raised."""
    handler(
        patch,
        Doing.COMMITTING,
        on.Failed,
        lambda _: lambda it, _: (replace(it, state=Doing.READY, pending=None), do.Await()),
    )


def suspect_commit_trusted(patch: Patch) -> None:
    """P8: the next transaction begins while a repeated EndTxn is on its way."""
    handler(
        patch, Doing.COMMITTING, on.Committed, lambda original: lambda it, _: original(it, on.Committed(suspect=None))
    )


def choice_not_replayed(patch: Patch) -> None:
    """I7: a retry of alts takes another order."""
    patch.setattr(transitions, "take", lambda choice, steps: tuple(reversed(turns.take(choice, steps))))


def discard_counted_as_a_death(patch: Patch) -> None:
    """Q1: P8 and a return to R1 are no deaths."""

    def died(_: Spec, record: Record) -> bool:
        return not record.left

    patch.setattr(recover, "died", died)


def quarantine_one_death_early(patch: Patch) -> None:
    """Q3, I11."""
    patch.setattr(
        Task,
        "quarantined",
        property(
            lambda it: (
                it.spec.quarantine_after is not None
                and it.due is not None
                and it.due.steps == 1
                and it.due.starts >= it.spec.quarantine_after
            )
        ),
    )


def never_alone(patch: Patch) -> None:
    """Q2a: a message with a death behind it goes on beside others of its process, and shares their deaths."""
    patch.setattr(task, "ALONE_AT", 99)


def fresh_id_at_each_start(patch: Patch) -> None:
    """R1 fences no session and ends nothing that was left open."""
    numbers = count()

    def init(self: Any, _: do.Init) -> on.Event:
        self._session.abandon()
        patched = f"{self.task.spec.transactional_id}.{next(numbers)}"
        opened = self._session._session = self._world.broker.session(patched)
        opened.init(timeout_s=1.0)
        return on.Initialised()

    patch.setattr(Interpreter, "_init", init)


def init_after_reading(patch: Patch) -> None:
    """R1 comes when the first transaction begins."""
    begin = Interpreter._begin

    def later(self: Any, _: do.Init) -> on.Event:
        self._session.abandon()
        return on.Initialised()

    def first(self: Any, effect: do.Begin) -> on.Event | None:
        if self._session._session is None:
            self._session.init(timeout_s=1.0)
        return begin(self, effect)

    patch.setattr(Interpreter, "_init", later)
    patch.setattr(Interpreter, "_begin", first)


def called_ahead_survives_a_failed_commit(patch: Patch) -> None:
    """P7: what was called ahead is not thrown away with the batch before it, whose commit failed (P8)."""
    assign = Lane.assign

    def keep(self: Any, positions: Positions) -> None:
        batch = self._desk.batch
        assign(self, positions)
        self._desk.batch = batch

    patch.setattr(Lane, "assign", keep)


def order_of_what_was_put_back_kept(patch: Patch) -> None:
    """The defect that the simulation found first: alts that wait for an input that has nothing."""
    patch.setattr(pairing, "drop", lambda choice, _: choice)


def position_behind_what_has_ended(patch: Patch) -> None:
    """W2: the step that is under way when its task leaves is given back, and started again."""
    report = Taking.report

    def behind_the_ended(self: Any, cut: Any, _: int, totals: Any, halt: Any) -> on.Called:
        return report(self, cut, totals.deliveries, totals, halt)

    patch.setattr(Taking, "report", behind_the_ended)


def gate_that_lets_steps_pass(patch: Patch) -> None:
    """W2: steps start although their task was given up, and the position says that they did not."""

    def enter(self: Any, steps: int = 1) -> bool:
        self.started += steps
        return True

    patch.setattr(Turnstile, "enter", enter)


def outcomes_lost_with_the_session(patch: Patch) -> None:
    """W3: a task takes again after P8, and has thrown away the outcomes that its record counts."""
    discard = Interpreter._discard

    def forget(self: Any, effect: do.Discard) -> on.Event | None:
        self._records = ()
        return discard(self, effect)

    patch.setattr(Interpreter, "_discard", forget)


def failure_before_the_first_call_drops(patch: Patch) -> None:
    """I16: what fails between the take and the first call drops the batch. The simulation found this one."""
    advance = Taking.advance

    def at_once(self: Any, event: on.Event, go: Callable[[on.Event], None]) -> None:
        if isinstance(event, on.Failed) and self._taken is None:
            go(event)
        else:
            advance(self, event, go)

    patch.setattr(Taking, "advance", at_once)


def drops_not_counted(patch: Patch) -> None:
    """W4: a successor goes on behind what was in flight, and no record says that it is lost."""
    resumed = taking.resumed

    def silent(spec: Spec, record: Record, carried: Any) -> Any:
        return resumed(spec, record, carried) if carried else taking.nothing_carried(record)

    patch.setattr(recovery, "resumed", silent)


def record_before_its_outputs(patch: Patch) -> None:
    """W5: the record speaks of what is not there yet."""
    emit, produce = Interpreter._emit, Interpreter._produce

    def later(self: Any, effect: do.Produce) -> on.Event:
        if self.task.spec.rules.fenced:
            return produce(self, effect)
        records, self._records = self._records, ()
        done = produce(self, effect)
        session = self._session
        session._produced += sum(map(session._open.produce, records))
        return done

    patch.setattr(Interpreter, "_emit", lambda self, _: emit(self, _) if self.task.spec.rules.fenced else _nothing())
    patch.setattr(Interpreter, "_produce", later)


def _nothing() -> on.Event:
    return on.Flushed(0, 0, None)


def offsets_before_the_outputs(patch: Patch) -> None:
    """I17: the group's offsets are committed before the outputs are written."""
    emit = Interpreter._emit

    def early(self: Any, effect: do.Emit) -> on.Event:
        assert self.task.pending
        self._send_offsets(do.SendOffsets(self.task.pending.positions))
        return emit(self, effect)

    patch.setattr(Interpreter, "_emit", early)


def pause_that_is_not_looked_at(patch: Patch) -> None:
    """A task that is held back is called all the same."""
    patch.setattr(Lane, "finish", Lane.work)


DEFECTS: dict[Callable[[Patch], None], int] = {
    positions_from_memory: 0,
    attempt_outside_the_transaction: 4,
    error_besides_an_output: 3,
    failed_step_skipped: 2,
    hash_over_more_than_the_messages: 0,
    flush_that_does_not_look: 3,
    record_may_land_anywhere: 41,
    goes_on_after_an_ambiguous_commit: 12,
    suspect_commit_trusted: 359,
    choice_not_replayed: 86,
    discard_counted_as_a_death: 71,
    quarantine_one_death_early: 17,
    never_alone: 25,
    fresh_id_at_each_start: 3,
    init_after_reading: 3,
    order_of_what_was_put_back_kept: 22,
    called_ahead_survives_a_failed_commit: 32,
    position_behind_what_has_ended: MIXED + 3,
    gate_that_lets_steps_pass: MIXED + 70,
    outcomes_lost_with_the_session: MIXED + 15,
    failure_before_the_first_call_drops: MIXED + 166,
    drops_not_counted: MIXED,
    record_before_its_outputs: MIXED + 4,
    offsets_before_the_outputs: MIXED,
    pause_that_is_not_looked_at: MIXED + 5,
}
"""
With the seed that is tried first: it found the defect when this was last measured, in seconds. Where the code has
changed another one will do.
"""
