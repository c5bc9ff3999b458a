"""Calls the user's function for each step, outside any transaction, and collects its results (P4).

`Caller.run` takes steps in order and adds to an open `Batch`. Each step ends as outputs, one error message, or nil. A
step that must not end yet (retry, interrupt, unhandled) ends the run instead. This file chooses the way that costs
least: a loop for a chunk (`plain`), one call for a list (`lists`), several steps at once (`side_by_side`), or step by
step (`one`). What takes part besides, such as a database, may put a way of its own around these (`task.parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from cues_kafka.core.spec import Spec
from cues_kafka.ports.log import headers_of_each
from cues_kafka.task.calling.adding import Adding
from cues_kafka.task.calling.batch import Batch, Retrying, Taken
from cues_kafka.task.calling.ending import Ending
from cues_kafka.task.calling.failures import Delivering, place
from cues_kafka.task.calling.fired import Fired
from cues_kafka.task.calling.function import Function
from cues_kafka.task.calling.lists import Calling, with_values
from cues_kafka.task.calling.plain import PlainLoops
from cues_kafka.task.calling.side_by_side import SideBySide
from cues_kafka.task.calling.through import Through
from cues_kafka.task.parts.participant import CallContext, Moments, Run


class Caller:
    """
    Calls one processor's function. Its tasks share it, and one thread at a time uses it.

    Attributes:
        processor: the declaration.
        context_of: makes what the calls of one task have besides their messages; called once for each task.
        adding: makes records of what steps send.
        ending: ends steps that failed.
        one: calls for single steps.
        progress: how far the present chunk is.
        batch_bytes: bytes of the largest record batch that all output topics take; None: not known.
    """

    def __init__(
        self,
        function: Function,
        *,
        context_of: Callable[[Spec], CallContext],
        release: Callable[[], None] = lambda: None,
        calling: Calling = with_values,
    ) -> None:
        self.processor = function.processor
        self.context_of = context_of
        self._release = release
        self._function, self.progress = function, function.progress
        self.adding = Adding(function.bindings, function.marks, function.returned)
        self.ending = Ending(function, self.adding)
        self._plain = PlainLoops(function, self.adding, self.ending)
        self.one, self._lists = calling(function, self.adding, self.ending, self._plain)
        self._side_by_side = SideBySide(function, self.one, self.ending)
        self._through = Through(function, self.one, self._lists, self._side_by_side)
        self.batch_bytes = function.batch_bytes

    def close(self) -> None:
        """Release what the calls need besides their messages. No task is left."""
        self._release()

    def run(self, steps: Sequence[Any], batch: Batch, retrying: Retrying | None = None) -> int:
        """
        Call the function for these steps, in order, up to a step that must not end yet.

        Args:
            steps: see `pairing.Step`.
            batch: gets the results. `halt` is set when a step did not end, `closed` when the user asked for a commit.
            retrying: earlier calls of the first step.

        Returns:
            How many steps ended. Timers that fired between them are not counted.
        """
        at: Moments = batch.context.at
        self.progress.coming = None
        inner: Run = self.together
        for part in reversed(at.run):  # the first one in the order is the outermost
            inner = partial(part.run, inner, self)
        if not at.begin_chunk:
            return inner(steps, batch, retrying)
        for part in at.begin_chunk:
            part.begin_chunk(steps, batch, retrying, self)
        try:
            return inner(steps, batch, retrying)
        finally:
            for part in at.end_chunk:
                part.end_chunk(batch)

    def together(self, steps: Sequence[Any], batch: Batch, retrying: Retrying | None = None) -> int:
        """Call for a chunk in the way that costs least; see `run`."""
        before = batch.begun_by_messages
        at: Moments = batch.context.at
        if batch.turnstile is not None:
            self._through.run(batch.turnstile, steps, batch, at_once=at.side_by_side)
        elif not (retrying is None and at.flat and batch.begun_by is None):  # a replay's outcomes name the replay
            self._others(steps, batch, retrying)
        elif self._plain.simple:
            chosen = sorted({i for part in at.chosen for i in part.chosen(steps)}) if at.chosen else ()
            self._apart(steps, batch, chosen) if chosen else self._flat(steps, batch)
        elif not (self._lists.takes_columns(at) and self._lists.run_plain(steps, batch)):
            self._others(steps, batch, None)
        return batch.begun_by_messages - before

    def _flat(self, steps: Sequence[Any], batch: Batch) -> None:
        """Call for messages in one go."""
        if self._plain.usual:
            self._plain.run(steps, batch)
        else:
            self._plain.run_simple(steps, batch)

    def _apart(self, steps: Sequence[Any], batch: Batch, chosen: Sequence[int]) -> None:
        """Call for messages in one go, but for chosen ones, each of which is called by itself in its turn."""
        start, progress = 0, self.progress
        try:
            for index in chosen:
                if start < index and not self._part(steps, start, index, batch):
                    return
                progress.behind, progress.coming = len(steps) - index - 1, iter(())
                if not self.one.deliver(self.take(steps[index]), batch, None) or batch.closed:
                    return
                start = index + 1
            if start < len(steps):
                self._part(steps, start, len(steps), batch)
        finally:
            progress.behind = 0

    def _part(self, steps: Sequence[Any], start: int, end: int, batch: Batch) -> bool:
        """Call for those of a chunk that are not chosen; whether the next one is due."""
        before = batch.begun_by_messages
        self.progress.behind = len(steps) - end
        self._flat(steps[start:end], batch)
        return batch.begun_by_messages - before == end - start and not batch.closed and batch.halt is None

    def _others(self, steps: Sequence[Any], batch: Batch, retrying: Retrying | None) -> None:
        """Call for everything else, which needs the messages of a step one by one."""
        headers_of_each(self._function.messages(steps))
        coroutines = self._function.coroutines
        at: Moments = batch.context.at
        if retrying is None and self.processor.batch:
            self._lists.run(steps, batch)
        elif coroutines is not None and at.side_by_side and not self.processor.batch:
            self._side_by_side.run(coroutines, steps, batch, retrying)
        else:
            for step in self.progress.through(steps):
                if not self.one.deliver(self.take(step), batch, retrying) or batch.closed:
                    return
                retrying = None
                if not self.goes_on(batch):
                    return

    def goes_on(self, batch: Batch) -> bool:
        """A step has ended that was called by itself; whether the next one may begin."""
        at: Moments = batch.context.at
        return all(part.between(self, batch) for part in at.between)

    def through(self, steps: Sequence[Any]) -> Iterator[Taken]:
        """The messages of steps that are called one after the other. Other threads see how far they were taken."""
        headers_of_each(self._function.messages(steps))
        return map(self.take, self.progress.through(steps))

    def take(self, step: Any) -> Taken:
        """The messages of a step, see `pairing.Step`."""
        return self._function.take(step)

    # For other threads

    def under_way(self, steps: Sequence[Any], ended: int) -> int:
        """The index of the first step of a chunk whose call has not ended, while `run` works."""
        return self.progress.at(len(steps), ended)

    def place(self, steps: Sequence[Any], index: int) -> str:
        """Where a step of a chunk stands, ``orders/3 at 17``; with `batch=True`, the first and the last of the call."""
        if isinstance(steps[index], Fired):
            return steps[index].place  # type: ignore[no-any-return]
        at = place(self.take(steps[index]))
        return f"{at} to {place(self.take(steps[-1]))}" if self.processor.batch and len(steps) > 1 else at

    @property
    def least_steps(self) -> int:
        """How many steps are worth a call of `run`: with coroutines several are under way at once."""
        return 1 if self._function.coroutines is None else 4 * self.processor.concurrency

    # Without a call

    def quarantine(self, step: Any, batch: Batch) -> None:
        """End a step as an error with its bytes undecoded, without calling user code (Q3)."""
        at: Moments = batch.context.at
        for part in at.begin_chunk:
            part.begin_chunk([step], batch, None, self)
        try:
            delivering = Delivering(self.take(step), batch, None, kind="quarantine")
            headers_of_each([message for _, message in delivering.taken])
            self.give_up(delivering)
        finally:
            for part in at.end_chunk:
                part.end_chunk(batch)

    def give_up(self, step: Delivering) -> bool:
        """End a step as an error because it killed its process (Q3); False: nothing takes error messages."""
        return self.ending.fail(RuntimeError(f"killed its process at least {step.batch.starts} times"), step)
