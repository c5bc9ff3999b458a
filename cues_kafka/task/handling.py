"""How a batch goes where the state is in objects of the user's, which cannot undo one step.

A step that raises leaves its traces in them. Then they are reset to what is committed, and the steps before it are
called again and committed without it. It comes first in the next batch. There it raises again, the handlers are reset,
and its error is committed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cues_kafka.core.events import Halt
from cues_kafka.errors import CodecError, HandlerFailed, OutputError, StoreFull
from cues_kafka.task.calling.batch import Batch, Retrying
from cues_kafka.task.calling.caller import FIX_HANDLER, FULL, Caller
from cues_kafka.task.calling.failures import show
from cues_kafka.task.calling.turnstile import EMPTY


def begin(batch: Batch) -> None:
    """Make the handlers fit for the first step of a batch; it halts where they fail."""
    assert batch.context.handlers is not None
    try:
        batch.context.handlers.begin()
    except HandlerFailed as error:
        halt(batch, error)


def call(caller: Caller, steps: Sequence[Any], batch: Batch, retrying: Retrying | None) -> int:
    """
    Call for a chunk of steps; see `Caller.run`.

    Returns:
        How many of its steps ended. Below 0, steps of earlier chunks of this batch did not end either.
    """
    before = batch.deliveries
    batch.retrying = retrying or batch.retrying
    done = caller.run(steps, batch, retrying)
    if not batch.spoiled:
        batch.steps.extend(steps[:done])
        return done
    called = [*batch.steps, *steps]
    repeated = False
    while batch.spoiled:
        _again(caller, called[: batch.deliveries], batch, counts=repeated)
        repeated = True
    batch.closed = True
    return batch.deliveries - before


def _again(caller: Caller, steps: Sequence[Any], batch: Batch, *, counts: bool) -> None:
    """Call these first steps of the batch again, on handlers that are what is committed."""
    handlers, stores = batch.context.handlers, batch.context.stores
    assert handlers is not None
    assert stores is not None
    batch.back_to(EMPTY)
    batch.spoiled = False
    stores.begin_batch(batch.sequence)
    try:
        handlers.reset(counts=counts)
    except HandlerFailed as error:
        halt(batch, error)
        return
    caller.run(steps, batch, batch.retrying)


def seal(caller: Caller, batch: Batch) -> None:
    """All steps of the batch have ended: add what the handlers held back, and what has changed in them."""
    handlers, stores = batch.context.handlers, batch.context.stores
    assert handlers is not None
    assert stores is not None
    stores.begin_step()
    try:
        caller.drain(handlers.drained(), batch)
        handlers.checkpoint()
    except (HandlerFailed, OutputError, CodecError, StoreFull) as error:
        halt(batch, error)


def halt(batch: Batch, error: BaseException) -> None:
    """End the batch without any step."""
    batch.back_to(EMPTY)
    batch.ends, batch.cause = (), error
    batch.halt = (
        Halt("interrupt", show(error), FULL)
        if isinstance(error, StoreFull)
        else Halt("unhandled", str(error), FIX_HANDLER)
    )
