"""Mutants of what the shell decides about state handlers and tables, in worlds that run its code; see `mutants`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Final

from cues_kafka.ports.facts import Watermarks
from cues_kafka.state.handlers import Handlers, Standing
from cues_kafka.state.tables import Held as HeldTable
from cues_kafka.task.calling.one import One
from cues_kafka.task.calling.turnstile import EMPTY
from cues_kafka.task.following import Tables
from cues_kafka.task.parts import handlers
from cues_kafka.task.parts.handlers import Handling
from cues_kafka.task.parts.stores import Storing
from tests.proof.model.mutant import CRASH, MOVE, NET, NETS, NOTHING, Mutant, Patch, around_world
from tests.proof.model.states import Lane, Outcome
from tests.proof.model.tables import TableWorld

# State handlers.


def _checkpoint_later() -> tuple[Patch, ...]:
    """What a batch has changed is asked for when it is committed, and goes with the next one."""
    begin = Handling.begin_batch

    def seal(self: Any, batch: Any, task: Any, caller: Any) -> None:
        if batch.deliveries:
            self._stores.begin_step()
            caller.adding.drain(self.handlers.drained(), batch)

    def asked(self: Any, batch: Any, task: Any) -> None:
        self._stores.begin_batch(batch.sequence)  # the changes of the batch before are in it
        begin(self, batch, task)
        if batch.halt is None:
            self.handlers.checkpoint()

    def kept(self: Any, batch: Any, task: Any) -> None:
        """`asked` has begun the batch."""

    return (Handling, "seal", seal), (Handling, "begin_batch", asked), (Storing, "begin_batch", kept)


def _called_on_traces(self: Any, inner: Any, steps: Any, batch: Any, *, counts: bool) -> None:
    """The steps before one that raised are called again on the handler that they have changed already."""
    batch.back_to(EMPTY)
    batch.spoiled = False
    self._stores.begin_batch(batch.sequence)
    inner(steps, batch, batch.retrying)


def _nothing_committed(self: Any, name: str, one: Any, *, initial: bool) -> None:
    """Each reset leads to the beginning."""
    one.made = one.made or one.declared.make()
    self._values[name] = one.made
    one.made.reset_to_initial()


def _told_in_time() -> Patch:
    """A method may take as long as it takes."""
    old = Handlers._told

    @contextmanager
    def told(self: Any, name: str, method: str, most_s: float | None = None) -> Any:
        with old(self, name, method):
            yield

    return Handlers, "_told", told


def _told_early() -> Patch:
    """A handler hears of the commit when its batch is sealed."""
    old = Handling.seal

    def seal(self: Any, batch: Any, task: Any, caller: Any) -> None:
        old(self, batch, task, caller)
        if batch.deliveries:
            self.handlers.committed(batch.sequence)

    return Handling, "seal", seal


def _not_closed() -> Patch:
    """Where user code asks for a commit, the batch goes on."""
    old = One.settle

    def settle(self: Any, step: Any, result: Any) -> bool:
        ended = old(self, step, result)
        step.batch.closed = False
        return ended

    return One, "settle", settle


HANDLERS: Final[tuple[Mutant, ...]] = (
    Mutant("a checkpoint behind the commit of its batch", "handler", NOTHING, _checkpoint_later()),
    Mutant(
        "no reset of a handler behind a void batch", "handler", NET, ((Standing, "voided", lambda self, **_: self),)
    ),
    Mutant("a successor's handler begins as nothing", "handler", CRASH, ((Handlers, "_reset", _nothing_committed),)),
    Mutant(
        "resets without a commit are not bounded",
        "handler-alone",
        NETS,
        ((Standing, "exceeds", lambda *_: False),),
        progress=False,
    ),
    Mutant("a commit is told before it happens", "handler-alone", NETS, (_told_early(),), progress=False),
    Mutant(
        "an error with the traces of its step in the handler",
        "handler",
        NOTHING,
        ((Handling, "may_end", lambda *_: True),),
    ),
    Mutant("steps are called again without a reset", "handler", NOTHING, ((Handling, "_again", _called_on_traces),)),
    Mutant("a reset that takes too long is believed", "handler", NET, (_told_in_time(),)),
    Mutant("a commit that user code asks for comes later", "handler-alone", NOTHING, (_not_closed(),)),
    Mutant("a batch whose handler failed goes on", "handler", NET, ((handlers, "halt", lambda *_: None),)),
)

# Tables.


def _brought_up_once() -> Patch:
    """A table that the process has read is not read to its end again, whichever task begins."""
    old = Tables.bring_up

    def bring_up(self: Any, partition: int, *rest: Any, **more: Any) -> None:
        if not self._read or self._left:
            old(self, partition, *rest, **more)

    return Tables, "bring_up", bring_up


def _ends_not_asked() -> Patch:
    """A task begins when the reader has begun."""
    old = Tables._begin

    def begin(self: Any, *given: Any) -> Any:
        return {place: Watermarks(0, 0, 0) for place in old(self, *given)}

    return Tables, "_begin", begin


def _deletes_nothing() -> Patch:
    """A message without a value is passed over."""
    old = HeldTable.take

    def take(self: Any, key: bytes, value: bytes | None, offset: int) -> None:
        if value is not None:
            old(self, key, value, offset)

    return HeldTable, "take", take


def _two_looks(old: Any, world: Any, lane: Lane) -> tuple[int, tuple[Outcome, ...]]:
    """The first record of an outcome is of a call at the task's begin, the others are of the last call."""
    number, outcomes = old(world, lane)
    first = [one for one in outcomes if one.number == 0 and one.kind[0] in "of"]
    return number, tuple(one._replace(kind=f"{one.kind[0]}{lane.own.due}") if one in first else one for one in outcomes)


TABLES: Final[tuple[Mutant, ...]] = (
    Mutant("a table is read to its end for the first task only", "table-whole", MOVE, (_brought_up_once(),)),
    Mutant("a task begins before its table is at its end", "table", NOTHING, (_ends_not_asked(),)),
    Mutant("a message that deletes an entry of a table is passed over", "table", NOTHING, (_deletes_nothing(),)),
    Mutant(
        "an outcome of two calls that saw different tables",
        "table",
        NOTHING,
        (around_world("_loose", _two_looks, TableWorld),),
    ),
)
