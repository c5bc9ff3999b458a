"""What becomes of a step that failed, in the order of docs/errors.md: an error message, or the end of its batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from cues_kafka.core.events import Halt
from cues_kafka.errors import Fenced, Interrupt, OutputError, RetriableError, StoreBroken, StoreFull
from cues_kafka.observe.log import LINES
from cues_kafka.task.calling.adding import Adding
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.carried import Carried, Shown
from cues_kafka.task.calling.decoding import Decoder
from cues_kafka.task.calling.failures import UNDECODED, Delivering, end_frames, error_message, note, show
from cues_kafka.task.calling.function import Function
from cues_kafka.task.calling.outage import Outage
from cues_kafka.task.parts.participant import Moments


class Ending:
    """Ends the steps of one function that failed."""

    def __init__(self, function: Function, adding: Adding) -> None:
        self._function, self._adding = function, adding
        retry = function.processor.retry
        self._retried = retry.classes if retry else ()

    def fail(self, error: BaseException, step: Delivering) -> bool:
        """
        End the step as one error message, True; or halt the batch before it, False.

        Raises:
            BaseException: the batch is void, or the worker ends.
        """
        at: Moments = step.batch.context.at
        step.fn = step.fn or self._function.processor.fn
        ended = False
        try:
            for part in at.failing:
                part.failing(error, step)
            # First the frames end, then what they did is taken back: a `finally` behind a `yield` may write, too.
            if step.kind not in UNDECODED and at.undo_step:
                self.end_frames(error)
                for part in at.undo_step:
                    part.undo_step(error, step)
            ended = self._became_error(error, step)
        finally:
            for part in at.failed:
                part.failed(error, step, ended=ended)
        if not ended:
            step.batch.about = note(step, error, step.consumed)
        return ended

    def end_frames(self, error: BaseException) -> None:
        """Have what a failed call left open end, before the step is taken back."""
        end_frames(error)
        if self._function.coroutines is not None:
            self._function.coroutines.end_generators()

    def _became_error(self, error: BaseException, step: Delivering) -> bool:
        batch = step.batch
        at: Moments = batch.context.at
        if isinstance(error, Outage) or (isinstance(error, RetriableError) and step.kind in ("decode", "output")):
            if batch.turnstile is not None and step.kind == "decode":
                batch.turnstile.back()
            raise error
        for part in at.may_end:
            if step.kind not in UNDECODED and not part.may_end(error, step):
                return False
        if self._stops(error, batch):
            remedy = REMEDIES.get(type(error), "it was asked for")
            batch.halt, batch.cause = Halt("interrupt", show(error), remedy), error
            return False
        if not isinstance(error, Exception | Interrupt):
            raise step.mark(error)
        if isinstance(error, OutputError) and step.kind == "raised":
            step.kind = "output"  # what a generator yielded, or a list of another length
        if isinstance(error, self._retried) and step.kind != "decode":
            if batch.may_stop and self._halts_for_retry(error, step):
                return False
            step.kind = "retries exhausted"
        if self._function.errors is None:
            batch.halt = Halt("unhandled", step.describe(error), DECLARE_ERRORS)
            batch.cause = error
            return False
        self._add_error(error, step)
        return True

    def _add_error(self, error: BaseException, step: Delivering) -> None:
        batch, errors, consumed = step.batch, self._function.errors, step.consumed
        at: Moments = batch.context.at
        assert errors is not None
        shown = shown_of(step, self._function.carried, self._function.decoders)
        message = error_message(step, error, consumed, self._function.carried.declaration, shown)
        self._adding.add_error(errors, step, message)
        step.outcome = "error"
        for part in at.end_step:
            part.end_step(step)
        if len(batch.notes) < LINES:
            batch.notes.append(note(step, error, consumed))
        batch.messages -= 1
        batch.errors += 1
        batch.deliveries += 1

    @staticmethod
    def _stops(error: BaseException, batch: Batch) -> bool:
        """Whether the task stops: a replay never stops it for what the function wants (Y1), so that is an error."""
        if not batch.may_stop and not isinstance(error, StoreBroken):
            return isinstance(error, Fenced)
        return isinstance(error, Interrupt | Fenced)

    def _halts_for_retry(self, error: Exception, step: Delivering) -> bool:
        """Whether the batch halts: the step is called again later, or its time is over and the task stops."""
        retry: Any = self._function.processor.retry
        batch, now = step.batch, step.batch.now()
        since = step.retrying.since_s if step.retrying else now
        if now - since < retry.for_s:
            batch.halt, batch.cause = Halt("retry", show(error)), error
            return True
        if retry.then == "stop":
            text = f"{step.describe(error)}, still after {retry.for_s:g} s of retries"
            batch.halt = Halt("unhandled", text, "fix what it depends on; the task is retried")
            batch.cause = error
            return True
        return False


def shown_of(step: Delivering, carried: Carried, decoders: Sequence[Decoder]) -> Shown:
    """The value that the error message carries: of the input that failed, or of the lead where it is asked for."""
    undecoded = step.kind in UNDECODED
    if not (undecoded or carried.payload):
        return {"payload": None, "redacted": ()}
    index, message = step.decoding if undecoded and step.decoding is not None else step.taken[0]
    decoder = decoders[index]
    return carried.shown(message.value(), decoder.declared, partial(decoder.read, message))


DECLARE_ERRORS: Final = "fix the cause, or declare an errors topic"
"""The remedy where a step fails and no errors topic takes it."""

FULL: Final = (
    "raise max_bytes= where the room is there, or delete entries; a Store can also keep its entries on the disk with "
    "on_disk=True, or have them end with ttl="
)

REMEDIES: Final[Mapping[type[BaseException], str]] = {
    StoreFull: FULL,
    StoreBroken: "nothing to do: its entries are read from the changelog again",
}
