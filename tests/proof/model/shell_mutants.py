"""Mutants of what the shell decides about state handlers and tables, in worlds that run its code; see `mutants`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Final

from cues_kafka.runtime.calling.batch import EMPTY
from cues_kafka.runtime.calling.caller import Caller
from cues_kafka.runtime.task import handling
from cues_kafka.state.handlers import Handlers, Standing
from tests.proof.model.mutant import CRASH, NET, NETS, NOTHING, Mutant, Patch

# State handlers.


def _checkpoint_later() -> tuple[Patch, Patch]:
    """What a batch has changed is asked for when it is committed, and goes with the next one."""
    begin = handling.begin

    def seal(caller: Any, batch: Any) -> None:
        batch.context.stores.begin_step()
        caller.drain(batch.context.handlers.drained(), batch)

    def asked(batch: Any) -> None:
        begin(batch)
        if batch.halt is None:
            batch.context.handlers.checkpoint()

    return (handling, "seal", seal), (handling, "begin", asked)


def _called_on_traces(caller: Any, steps: Any, batch: Any, *, counts: bool) -> None:
    """The steps before one that raised are called again on the handler that they have changed already."""
    batch.back_to(EMPTY)
    batch.spoiled = False
    batch.context.stores.begin_batch(batch.sequence)
    caller.run(steps, batch, batch.retrying)


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
    old = handling.seal

    def seal(caller: Any, batch: Any) -> None:
        old(caller, batch)
        batch.context.handlers.committed(batch.sequence)

    return handling, "seal", seal


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
        ((Caller, "_handlers_fit", lambda *_: True),),
    ),
    Mutant("steps are called again without a reset", "handler", NOTHING, ((handling, "_again", _called_on_traces),)),
    Mutant("a reset that takes too long is believed", "handler", NET, (_told_in_time(),)),
    Mutant("a batch whose handler failed goes on", "handler", NET, ((handling, "halt", lambda *_: None),)),
)
