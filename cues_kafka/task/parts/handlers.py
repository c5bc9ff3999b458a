"""How a batch goes where the state is in objects of the user's, which cannot undo one step.

A step that raises leaves its traces in them. Then they are reset to what is committed, and the steps before it are
called again and committed without it. It comes first in the next batch. There it raises again, the handlers are reset,
and its error is committed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cues_kafka.core.events import Halt
from cues_kafka.core.records import Record
from cues_kafka.core.task import Task
from cues_kafka.errors import CodecError, Fenced, HandlerFailed, Interrupt, OutputError, StoreFull
from cues_kafka.ports.log import Positions
from cues_kafka.state.handlers import Handlers
from cues_kafka.state.stores import Stores
from cues_kafka.task.calling.batch import Batch, Retrying
from cues_kafka.task.calling.ending import FULL
from cues_kafka.task.calling.failures import Delivering, show
from cues_kafka.task.calling.turnstile import EMPTY
from cues_kafka.task.parts.participant import Run, StepParticipant

FIX_HANDLER: Final = "fix the handler; the task is tried again by itself"


class Handling(StepParticipant):
    """
    Has state handlers follow the batches of their task.

    Attributes:
        handlers: the handlers.
    """

    def __init__(self, handlers: Handlers, stores: Stores) -> None:
        self.handlers = handlers
        self._stores = stores

    def restore(self, record: Record | None, positions: Positions) -> None:
        self.handlers.void(initial=not (record and record.stores))

    def committed(self, batch: Batch, record: Record) -> None:
        self.handlers.committed(batch.sequence)

    def may_hold(self, *, sole: bool) -> bool:
        """A handler holds one batch at a time: it would checkpoint what may not come."""
        return False

    def begin_batch(self, batch: Batch, task: Task) -> None:
        """Make the handlers fit for the first step of a batch; it halts where they fail."""
        try:
            self.handlers.begin()
        except HandlerFailed as error:
            halt(batch, error)

    def run(self, inner: Run, caller: Any, steps: Sequence[Any], batch: Batch, retrying: Retrying | None) -> int:
        """
        Call for a chunk of steps.

        Returns:
            How many of its steps ended. Below 0, steps of earlier chunks of this batch did not end either.
        """
        before = batch.deliveries
        batch.retrying = retrying or batch.retrying
        done = inner(steps, batch, retrying)
        if not batch.spoiled:
            batch.steps.extend(steps[:done])
            return done
        called = [*batch.steps, *steps]
        repeated = False
        while batch.spoiled:
            self._again(inner, called[: batch.deliveries], batch, counts=repeated)
            repeated = True
        batch.closed = True
        return batch.deliveries - before

    def _again(self, inner: Run, steps: Sequence[Any], batch: Batch, *, counts: bool) -> None:
        """Call these first steps of the batch again, on handlers that are what is committed."""
        batch.back_to(EMPTY)
        batch.spoiled = False
        self._stores.begin_batch(batch.sequence)
        try:
            self.handlers.reset(counts=counts)
        except HandlerFailed as error:
            halt(batch, error)
            return
        inner(steps, batch, batch.retrying)

    def may_end(self, error: BaseException, step: Delivering) -> bool:
        """Whether handlers are without traces of the step that raised; here only if it is the batch's first one."""
        batch = step.batch
        if not isinstance(error, Exception | Interrupt | Fenced):
            return True
        if batch.deliveries:
            batch.spoiled = True
            return False
        try:
            self.handlers.reset(counts=False)  # its error, or its retry, is bounded without that
        except HandlerFailed as second:
            batch.halt, batch.cause = Halt("unhandled", str(second), FIX_HANDLER), second
            return False
        batch.closed = True  # as an error its commit is its own
        return True

    def seal(self, batch: Batch, task: Task, caller: Any) -> None:
        """All steps have ended: add what the handlers held back, and what has changed in them."""
        if not batch.deliveries:
            return
        self._stores.begin_step()
        try:
            caller.adding.drain(self.handlers.drained(), batch)
            self.handlers.checkpoint()
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
