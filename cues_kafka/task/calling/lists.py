"""Calls with lists (`batch=True`): once for all steps. If that raises, each step is called by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from cues_kafka.codecs.raw import as_is
from cues_kafka.errors import Interrupt
from cues_kafka.graph.message import Message
from cues_kafka.ports.log import UNREADABLE, WireMessage, headers_of_each
from cues_kafka.task.calling.adding import Adding
from cues_kafka.task.calling.batch import Batch, Taken
from cues_kafka.task.calling.columns import PLAIN_ROOM, Columns, light, second
from cues_kafka.task.calling.ending import Ending
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.function import Function
from cues_kafka.task.calling.one import One, as_many, outage_of
from cues_kafka.task.calling.outputs import OVERHEAD_BYTES
from cues_kafka.task.calling.plain import PlainLoops
from cues_kafka.task.calling.step import Received
from cues_kafka.task.calling.turnstile import Mark
from cues_kafka.task.parts.participant import Moments


class Lists:
    """
    Calls one function with lists.

    Attributes:
        plain: whether messages may be read column by column.
    """

    def __init__(self, function: Function, one: One, ending: Ending, emitting: PlainLoops) -> None:
        self._function, self._one, self._ending, self._emitting = function, one, ending, emitting
        processor, call = function.processor, function.processor.call
        self.plain = (
            bool(processor.batch)
            and function.inherits
            and processor.input_shape == "single"
            and (processor.output_shape == "none" or (function.output is not None and function.output.provenance))
            and processor.filter is None
            and not (call.wants_step or call.rest or call.is_async or call.is_generator)
        )

    def takes_columns(self, at: Moments) -> bool:
        """Whether messages may be read column by column beside what takes part in their steps."""
        return self.plain and not at.following

    def run(self, steps: Sequence[Any], batch: Batch) -> None:
        """Call once for all steps. If that raises, call for each step, so that one bad message spoils only itself."""
        self.run_taken([self._function.take(step) for step in steps], batch)

    def run_taken(self, rows: Sequence[Taken], batch: Batch) -> None:
        """The same for steps by their messages."""
        at: Moments = batch.context.at
        for part in at.enter_list:
            part.enter_list(batch)
        before = batch.mark()
        delivering = [Delivering(taken, batch, None) for taken in rows]
        came = [self._one.decoded(step) for step in delivering]
        if batch.turnstile is not None and (outage := outage_of(came)):
            batch.turnstile.back(len(rows))
            raise outage
        asked = [i for i, one in enumerate(came) if isinstance(one, dict) and one]
        if self._function.processor.call.wants_step:
            for i in asked:
                self._one.introduce(delivering[i], came[i])  # type: ignore[arg-type]
        try:
            results = dict(zip(asked, self._invoke(asked, delivering, came, batch), strict=True)) if asked else {}
            failed = None
        except Exception as error:
            failed = error
        except BaseException as error:
            self._ending.fail(error, delivering[0])
            return
        if failed is not None:  # behind `except`: what a step raises there would name this exception as its cause
            self._each_alone(rows, batch, before, failed)
        else:
            self._settle(delivering, came, results, batch, before)

    def _invoke(
        self, asked: Sequence[int], delivering: Sequence[Delivering], came: Sequence[Any], batch: Batch
    ) -> Sequence[Any]:
        function, call, given = self._function, self._function.processor.call, batch.context.values
        at: Moments = batch.context.at
        for part in at.begin_list:
            part.begin_list([delivering[i] for i in asked], [came[i] for i in asked])
        if call.wants_step:
            given = {**given, "step": [delivering[i].step for i in asked]}
        values = {
            binding: self._argument(binding, [delivering[i] for i in asked], [came[i][binding].value for i in asked])
            for binding in function.bindings
        }
        if call.positional is not None:
            results = function.processor.fn(values[call.positional], **given)
        else:
            results = function.processor.fn(**values, **given)
        return self._results(function.result(results), [delivering[i] for i in asked])

    def _argument(self, binding: str, steps: Sequence[Delivering], values: Sequence[Any]) -> Any:
        """What the function gets of one input."""
        return values

    def _results(self, made: Any, steps: Sequence[Delivering]) -> Sequence[Any]:
        """The result of each step, in what the function has returned."""
        return [None] * len(steps) if made is None else as_many(made, len(steps))

    def _settle(
        self,
        delivering: Sequence[Delivering],
        came: Sequence[dict[str, Received] | Exception | Interrupt],
        results: Mapping[int, Any],
        batch: Batch,
        before: Mark,
    ) -> None:
        """Make records of what one call for all steps gave."""
        at: Moments = batch.context.at
        unclear: Exception | Interrupt | None = None
        for i, step in enumerate(delivering):
            one, result = came[i], results.get(i)
            try:
                if isinstance(one, BaseException):
                    raise one
                step.kind = "raised"
                if isinstance(result, Exception):
                    raise result
                self._one.settle(step, result)
            except BaseException as error:
                known = not at.undo_step or step.kind == "decode"
                if not known and isinstance(error, Exception | Interrupt):
                    unclear = error  # what of the call was this step's is not known
                    break
                if not self._ending.fail(error, step):
                    return
        if unclear is not None:
            self._each_alone([step.taken for step in delivering], batch, before, unclear)

    def _each_alone(self, rows: Sequence[Taken], batch: Batch, before: Mark, error: Exception | Interrupt) -> None:
        """Take back what a call for all steps gave, and call for each of them."""
        batch.back_to(before)
        if batch.turnstile is not None:  # it was called, and is not called again
            for taken in rows:
                if not self._ending.fail(error, Delivering(taken, batch, None, kind="raised")):
                    return
            return
        self._undo(rows[0], batch, error)
        for taken in rows:
            if not self._one.deliver(taken, batch, None):
                return

    def _undo(self, first: Taken, batch: Batch, error: Exception | Interrupt) -> None:
        """Have what a call for several steps did taken back."""
        at: Moments = batch.context.at
        if at.undo_step:
            self._ending.end_frames(error)
            whole = Delivering(first, batch, None, kind="raised")
            for one in at.undo_step:
                one.undo_step(error, whole)

    # Column by column

    def run_plain(self, messages: Sequence[WireMessage], batch: Batch) -> bool:
        """Call once for all messages, column by column; False: one of them is unusual, and nothing was called."""
        at: Moments = batch.context.at
        for part in at.enter_list:
            part.enter_list(batch)
        kind_of: Any = type(messages[0])
        came, decoder = headers_of_each(messages), self._function.decoders[0]
        if UNREADABLE in came or (decoder.id_header is not None and any(came)):
            return False
        values = list(map(kind_of.value, messages))
        if decoder.decode is not as_is:
            try:
                quick = decoder.decode if decoder.quick is None or None in values else decoder.quick
                values = list(map(quick, values))
            except (Exception, Interrupt):  # the long way finds it again, and whose it is
                return False
            except BaseException as error:
                raise Delivering(self._function.take(messages[0]), batch, None).mark(error)  # noqa: B904  it is the same
        before = batch.mark()
        try:
            results, failed = self._call_plain(values, batch), None
        except Exception as error:
            failed = error
        except BaseException as error:
            self._ending.fail(error, Delivering(self._function.take(messages[0]), batch, None))
            return True
        if failed is not None:  # as in `run`
            self._each_alone([self._function.take(message) for message in messages], batch, before, failed)
        elif results is None:  # nil for each of them: keys and timestamps are not asked for
            batch.deliveries += len(messages)
        else:
            times = list(map(second, map(kind_of.timestamp, messages)))
            columns = Columns(messages, list(map(kind_of.key, messages)), came, times)
            self._settle_plain(results, columns, batch, before)
        return True

    def _call_plain(self, values: Sequence[Any], batch: Batch) -> Sequence[Any] | None:
        call, fn, given = self._function.processor.call, self._function.processor.fn, batch.context.values
        if call.positional is not None:
            results = fn(values, **given)
        else:
            results = fn(**{self._function.bindings[0]: values}, **given)
        return None if results is None else as_many(results, len(values))

    def _settle_plain(self, results: Sequence[Any], columns: Columns, batch: Batch, before: Mark) -> None:
        at: Moments = batch.context.at
        if (data := self._encoded(results, columns, batch)) is not None:
            for part in at.columns:
                columns = part.columns(columns, data, batch)
            self._emitting.emit(columns, data, batch)
            return
        delivering = [Delivering(self._function.take(message), batch, None) for message in columns.messages]
        self._settle(delivering, [{}] * len(delivering), dict(enumerate(results)), batch, before)

    def _encoded(self, results: Sequence[Any], columns: Columns, batch: Batch) -> list[bytes | None] | None:
        """The encoded results of a list; None: one of them goes the long way."""
        if (output := self._function.output) is None:
            return None if any(result is not None for result in results) else [None] * len(results)
        keyless = output.compacted and None in columns.keys
        if (
            output.key_of is not None
            or keyless
            or not output.takes(columns.times, batch.today)
            or not light(columns.keys, columns.came)
        ):
            return None
        if any(isinstance(result, Message | Exception) for result in results):
            return None
        try:
            data = [None if result is None else output.encode(result) for result in results]
        except (Exception, Interrupt):  # as above
            return None
        except BaseException as error:
            lead = self._function.take(columns.messages[0])
            raise Delivering(lead, batch, None, kind="output").mark(error)  # noqa: B904  it is the same
        limit = output.max_bytes - OVERHEAD_BYTES - 2 * PLAIN_ROOM
        return data if max(map(len, filter(None, data)), default=0) <= limit else None


Calling: TypeAlias = Callable[[Function, Adding, Ending, PlainLoops], tuple[One, Lists]]
"""Makes what calls a function for single steps, and for several at once."""


def with_values(function: Function, adding: Adding, ending: Ending, emitting: PlainLoops) -> tuple[One, Lists]:
    """Calls with the values of messages, or with lists of them; see `Calling`."""
    one = One(function, adding, ending)
    return one, Lists(function, one, ending, emitting)
