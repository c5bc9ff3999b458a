"""Calls of an ``async def`` for several steps at once. They end in their order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from cues_kafka.errors import Interrupt
from cues_kafka.task.calling.batch import Batch, Retrying
from cues_kafka.task.calling.coroutines import Coroutines, Ended
from cues_kafka.task.calling.ending import Ending
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.function import Function
from cues_kafka.task.calling.one import One, outage_of
from cues_kafka.task.calling.step import Received


class SideBySide:
    """Calls one ``async def`` for several steps at once."""

    def __init__(self, function: Function, one: One, ending: Ending) -> None:
        self._function, self._one, self._ending = function, one, ending

    def run(self, coroutines: Coroutines, steps: Sequence[Any], batch: Batch, retrying: Retrying | None) -> None:
        """Call for all of these steps. The calls after one that halts are forgotten."""
        rows = [self._function.take(step) for step in steps]
        delivering = [Delivering(taken, batch, None if i else retrying) for i, taken in enumerate(rows)]
        came = [self._one.decoded(step) for step in delivering]
        if batch.turnstile is not None and (outage := outage_of(came)):
            raise outage
        coroutines.settle(
            [partial(self._begin, step, received) for step, received in zip(delivering, came, strict=True)],
            lambda i, ended: self._settle(delivering[i], ended),
        )

    def _begin(self, step: Delivering, received: dict[str, Received] | BaseException) -> Any:
        turnstile = step.batch.turnstile
        if turnstile is not None and not turnstile.enter():
            raise Interrupt("the task is given up")
        if isinstance(received, BaseException):
            raise received
        if not received:
            return _nothing()
        step.kind = "raised"
        if self._function.processor.call.wants_step:
            self._one.introduce(step, received)
        return self._one.invoke(step, received)

    def _settle(self, step: Delivering, ended: Ended) -> bool:
        batch = step.batch
        try:
            if ended.error is not None:
                raise ended.error
            going = self._one.settle(step, ended.value)
            going = going and not (batch.closed and batch.turnstile is None)  # those that were started would be dropped
        except BaseException as error:
            going = self._ending.fail(error, step)
        if batch.turnstile is not None:
            batch.turnstile.leave(batch.mark())
        return going


async def _nothing() -> None:
    """Takes the place of a call where the filter lets no message pass."""
