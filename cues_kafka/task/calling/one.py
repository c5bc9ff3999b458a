"""One step, called by itself: decode, filter, call, read the result, and make its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cues_kafka.errors import Interrupt, OutputError, RetriableError
from cues_kafka.task.calling.adding import Adding
from cues_kafka.task.calling.batch import Batch, Retrying, Taken
from cues_kafka.task.calling.ending import Ending
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.function import Function
from cues_kafka.task.calling.outputs import Payload
from cues_kafka.task.calling.step import Received, Step
from cues_kafka.task.parts.participant import Moments

_NOTHING: Final[Mapping[str, Any]] = {}


class One:
    """Calls one function for single steps."""

    def __init__(self, function: Function, adding: Adding, ending: Ending) -> None:
        self._function, self._adding, self._ending = function, adding, ending

    def deliver(self, taken: Taken, batch: Batch, retrying: Retrying | None) -> bool:
        """Deliver one step; False: it did not end."""
        at: Moments = batch.context.at
        function = self._function
        step = Delivering(taken, batch, retrying)
        for part in at.enter_step:
            part.enter_step(step)
        try:
            received = self.decode(step)
            step.kind = "raised"
            if not received:
                return self._filtered(step)
            if function.processor.call.wants_step:
                self.introduce(step, received)
            result = self.invoke(step, received)
            if function.coroutines is not None:
                result = function.coroutines.result(result)
            return self.settle(step, self.outcome(step, result))
        except BaseException as error:
            return self._ending.fail(error, step)
        finally:
            for part in at.leave_step:
                part.leave_step(step)

    def decode(self, step: Delivering) -> dict[str, Received]:
        """The decoded messages by binding, without those that the filter drops."""
        return self._function.decode(step)

    @staticmethod
    def _filtered(step: Delivering) -> bool:
        """The filter has let no message pass."""
        step.outcome = "nil"
        at: Moments = step.batch.context.at
        for part in at.end_step:
            part.end_step(step)
        step.batch.deliveries += 1
        return True

    def decoded(self, step: Delivering) -> dict[str, Received] | Exception | Interrupt:
        """The decoded messages, or the error, which becomes the step's error message later, in its turn."""
        try:
            return self.decode(step)
        except (Exception, Interrupt) as error:
            return error
        except BaseException as error:  # of a codec or a filter
            raise step.mark(error)  # noqa: B904  it is the same

    def introduce(self, step: Delivering, received: Mapping[str, Received]) -> None:
        """Make what the function gets as `step`."""
        batch, more = step.batch, _NOTHING
        at: Moments = batch.context.at
        for part in at.introduce:
            more = {**more, **part.introduce()}
        step.step = Step(
            *(batch.spec.graph, self._function.processor, batch.coordinates(step.taken), received),
            attempt=step.retrying.attempt if step.retrying else 0,
            starts=batch.starts,
            timer=None if batch.fired is None else batch.fired.timer,
            replay=None if batch.replayed is None else batch.replayed.number,
            **more,
        )

    def invoke(self, step: Delivering, received: Mapping[str, Received]) -> Any:
        """Call the function."""
        at: Moments = step.batch.context.at
        for part in at.begin_step:
            part.begin_step(step, received)
        processor, given = self._function.processor, step.batch.context.values
        call, listed = processor.call, processor.batch
        if step.step is not None:
            given = {**given, "step": [step.step] if listed else step.step}
        if step.given:
            given = {**given, **step.given}
        if call.positional is not None:
            made = processor.fn(self.argument(call.positional, step, received), **given)
        else:
            made = processor.fn(**{binding: self.argument(binding, step, received) for binding in received}, **given)
        for part in at.wrap:
            made = part.wrap(made, step)
        return made

    def argument(self, binding: str, step: Delivering, received: Mapping[str, Received]) -> Any:
        """What the function gets of one input."""
        value = received[binding].value
        return [value] if self._function.processor.batch else value

    def outcome(self, step: Delivering, result: Any) -> Any:
        """The step's result, in what the function has returned for it alone."""
        return single(result) if self._function.processor.batch else result

    def payloads(self, step: Delivering, result: Any) -> list[Payload]:
        """The encoded outputs of a result."""
        function = self._function
        return function.returned.read(result, function.key(step.taken[0][1]))

    def settle(self, step: Delivering, result: Any) -> bool:
        """Make records of a result. None is added before all of them are encoded."""
        function, batch = self._function, step.batch
        step.kind = "raised" if function.processor.call.is_generator else "output"  # it runs while it is read
        payloads = self.payloads(step, result)
        step.kind = "output"
        at: Moments = batch.context.at
        for part in at.outputs:
            payloads = part.outputs(payloads, step)
        if payloads:
            if at.travel:
                self._adding.add_step(step, payloads)
            else:
                self._adding.add(step.taken, batch, payloads)
            batch.outputs += 1
        step.outcome, step.messages = "outputs" if payloads else "nil", len(payloads)
        for part in at.end_step:
            part.end_step(step)
        batch.deliveries += 1
        if step.step is not None and step.step.commit_requested:
            batch.closed = True
        return True


def single(results: Any) -> Any:
    """The result of the only step of a list."""
    if results is None:
        return None
    [result] = as_many(results, 1)
    if isinstance(result, Exception):
        raise result
    return result


def as_many(results: Any, count: int) -> Sequence[Any]:
    """
    The results of the steps of a list.

    Raises:
        OutputError: they are more, or fewer.
    """
    found = list(results)
    if len(found) != count:
        raise OutputError(f"batch=True: {len(found)} results for {count} messages. Return one for each, in order.")
    return found


def outage_of(came: Sequence[object]) -> RetriableError | None:
    """W2: why a message cannot be decoded for now; then no call begins, because none could be made again."""
    return next((one for one in came if isinstance(one, RetriableError)), None)
