"""At-most-once: each step passes the turnstile of its batch before it is called (W2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cues_kafka.ports.log import headers_of_each
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.function import Function
from cues_kafka.task.calling.lists import Lists
from cues_kafka.task.calling.one import One
from cues_kafka.task.calling.side_by_side import SideBySide
from cues_kafka.task.calling.turnstile import Turnstile


class Through:
    """Calls one function for steps that may start once."""

    def __init__(self, function: Function, one: One, lists: Lists, side_by_side: SideBySide) -> None:
        self._function, self._one, self._lists, self._side_by_side = function, one, lists, side_by_side

    def run(self, turnstile: Turnstile, steps: Sequence[Any], batch: Batch, *, at_once: bool) -> None:
        """Call step by step, as long as each may start; a list starts as a whole, and is never called again."""
        function = self._function
        headers_of_each(function.messages(steps))
        if function.processor.batch:
            if turnstile.enter(len(steps)):
                self._lists.run(steps, batch)
                turnstile.leave(batch.mark())
        elif function.coroutines is not None and at_once:
            self._side_by_side.run(function.coroutines, steps, batch, None)
        else:
            for step in function.progress.through(steps):
                if not turnstile.enter() or not self._one.deliver(function.take(step), batch, None):
                    return
                turnstile.leave(batch.mark())
                if batch.closed:
                    return
