"""Calls with columns (`batch="arrow"`): once for all messages. Where that raises, the call is halved, again and again.

So a message that spoils a call is alone after a few calls, and the others are in calls with others. Alone it is
called as any single step: with retries, and with an error message in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, overload

from cues_kafka.codecs.arrow.carrying import carrying
from cues_kafka.codecs.arrow.places import NOWHERE, of_rows
from cues_kafka.codecs.framing import in_front
from cues_kafka.errors import Interrupt, OutputError, RetriableError
from cues_kafka.graph.message import written_ms
from cues_kafka.ports.log import WireMessage
from cues_kafka.task.calling.adding import Adding
from cues_kafka.task.calling.batch import Batch, Taken
from cues_kafka.task.calling.columnar import NOTHING, Columnar, Made, OutputRow, OutputRows, payload_of
from cues_kafka.task.calling.columns import PLAIN_ROOM, Columns, light
from cues_kafka.task.calling.ending import Ending
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.function import Function
from cues_kafka.task.calling.lists import Calling, Lists
from cues_kafka.task.calling.one import One
from cues_kafka.task.calling.outage import Outage
from cues_kafka.task.calling.outputs import OVERHEAD_BYTES, Payload
from cues_kafka.task.calling.plain import PlainLoops
from cues_kafka.task.calling.step import Received
from cues_kafka.task.calling.turnstile import Mark
from cues_kafka.task.parts.participant import Moments
from cues_kafka.task.parts.undivided import Undivided


def with_columns(columnar: Columnar) -> Calling:
    """What calls a function with columns."""
    return partial(_made_of, columnar)


def _made_of(
    columnar: Columnar, function: Function, adding: Adding, ending: Ending, emitting: PlainLoops
) -> tuple[One, Lists]:
    one = ArrowOne(columnar, function, adding, ending)
    return one, ArrowLists(columnar, function, one, ending, emitting)


class ArrowOne(One):
    """Calls a function with the columns of one message. All rows that come back are its outputs."""

    def __init__(self, columnar: Columnar, function: Function, adding: Adding, ending: Ending) -> None:
        super().__init__(function, adding, ending)
        self._columnar, self._own = columnar, function

    def decode(self, step: Delivering) -> dict[str, Received]:
        """A value that no column can hold counts as one that cannot be decoded."""
        received = super().decode(step)
        for binding, one in received.items():
            self._columnar.readers[binding].hold([one.value])
        return received

    def argument(self, binding: str, step: Delivering, received: Mapping[str, Received]) -> Any:
        message = step.taken[self._own.bindings.index(binding)][1]
        return self._columnar.of_values(binding, [received[binding].value], [message])

    def outcome(self, step: Delivering, result: Any) -> Sequence[OutputRow]:
        [rows] = self._columnar.made(result, self._columnar.place([step.taken[0][1]])).by_message(1)
        return rows

    def payloads(self, step: Delivering, result: Any) -> list[Payload]:
        key = self._own.key(step.taken[0][1])
        return [payload_of(row, key) for row in result or ()]


class _Chunk(NamedTuple):
    """
    Messages that are called together.

    Attributes:
        columns: all of them.
        good: the indices of those that could be read.
        failed: the indices of the others, ascending, and why.
        arrays: the values of the good ones.
        place: the column `_cues` of the good ones.
    """

    columns: Columns
    good: Sequence[int]
    failed: Sequence[tuple[int, Exception]]
    arrays: Sequence[Any]
    place: Any


class ArrowLists(Lists):
    """Calls a function with the columns of many messages."""

    def __init__(self, columnar: Columnar, function: Function, one: One, ending: Ending, emitting: PlainLoops) -> None:
        super().__init__(function, one, ending, emitting)
        processor, call = function.processor, function.processor.call
        self._columnar = columnar
        self._whole: Sequence[Payload] = ()  # of all steps of the call that are settled next
        self.plain = (
            processor.input_shape == "single"
            and processor.filter is None
            and function.inherits
            and not (call.wants_step or call.rest or call.is_async)
        )

    def takes_columns(self, at: Moments) -> bool:
        return self.plain

    # Column by column

    def run_plain(self, messages: Sequence[WireMessage], batch: Batch) -> bool:
        at: Moments = batch.context.at
        for part in at.enter_list:
            part.enter_list(batch)
        if (chunk := self._read(messages)) is None:
            return False
        before = batch.mark()
        failed: Exception | None = None
        try:
            made = self._called(chunk, batch) if chunk.good else NOTHING
            whole = _payloads_of_all(made, chunk.columns.times, batch)
            if made.error is not None and (whole or at.undo_step):
                failed = made.error  # what of the call was this message's is not known
        except Outage:
            raise
        except Exception as error:
            failed = error
        except BaseException as error:
            self._ending.fail(error, Delivering(self._function.take(messages[0]), batch, None))
            return True
        if failed is not None:
            self._halved(messages, batch, before, failed)
        else:
            self._settle_chunk(chunk, made, whole, batch)
        return True

    def _read(self, messages: Sequence[WireMessage]) -> _Chunk | None:
        """Read the messages up to the first one that would stop the task; None: they go the long way."""
        decoder = self._function.decoders[0]
        if (found := carrying(messages)) is None:
            return None
        values, keys, came, times, place = found
        if (name := decoder.id_header) is not None and any(came):
            pairs = zip(values, came, strict=True)
            values = [data if data is None else in_front(own, name, data) for data, own in pairs]
        try:
            arrays, failed = self._columnar.readers[self._function.bindings[0]].read(values)
        except (RetriableError, Interrupt):  # the long way finds it again, and whose it is
            return None
        columns = Columns(messages, keys, came, times)
        if failed and self._function.errors is None:
            first = failed[0][0]
            columns, failed, arrays = columns.cut(0, first + 1), failed[:1], [one[:first] for one in arrays]
        good: Sequence[int] = range(len(columns.messages))
        if failed:
            wrong = {index for index, _ in failed}
            good = [index for index in good if index not in wrong]
        return _Chunk(columns, good, failed, arrays, of_rows(place, good))

    def _called(self, chunk: _Chunk, batch: Batch) -> Made:
        function, at = self._function, batch.context.at
        columns = chunk.columns
        if chunk.failed:
            wrong = {index for index, _ in chunk.failed}
            columns = columns.having([None if index in wrong else b"" for index in range(len(columns.messages))])
        messages = columns.messages
        binding = function.bindings[0]
        if at.begin_list:
            steps, received = self._lazily(messages, batch)
            for part in at.begin_list:
                part.begin_list(steps, received)
        given = self._columnar.placed(binding, chunk.arrays, chunk.place)
        call, fn, values = function.processor.call, function.processor.fn, batch.context.values
        result = fn(given, **values) if call.positional is not None else fn(**{binding: given}, **values)
        made = self._columnar.made(result, chunk.place)
        return made if not chunk.failed else made.moved(chunk.good)

    def _lazily(
        self, messages: Sequence[WireMessage], batch: Batch
    ) -> tuple[Sequence[Delivering], Sequence[Mapping[str, Received]]]:
        """The steps for what takes part in them. Few ask for more than their number."""
        binding, take = self._function.bindings[0], self._function.take
        return (
            _Lazy(messages, lambda message: Delivering(take(message), batch, None)),
            _Lazy(messages, lambda message: {binding: Received(message, None)}),
        )

    def _halved(
        self, messages: Sequence[WireMessage], batch: Batch, before: Mark, error: Exception | Interrupt
    ) -> None:
        """Take back what a call gave, and call for each half of its messages."""
        batch.back_to(before)
        self._undo(self._function.take(messages[0]), batch, error)
        if len(messages) == 1:
            self._one.deliver(self._function.take(messages[0]), batch, None)
            return
        for half in _halves(messages):
            ended = batch.begun_by_messages
            if len(half) == 1:
                self._one.deliver(self._function.take(half[0]), batch, None)
            elif not self.run_plain(half, batch):
                self.run(half, batch)
            if not self._goes_on(batch, ended + len(half)):
                return

    @staticmethod
    def _goes_on(batch: Batch, ended: int) -> bool:
        """Whether this number of steps has ended, and the next one may begin."""
        return batch.begun_by_messages == ended and batch.halt is None and not batch.closed

    def _settle_chunk(self, chunk: _Chunk, made: Made, whole: Sequence[Payload], batch: Batch) -> None:
        """Make records of what a call gave, and error messages of what was not read, in the order of the messages."""
        count = len(chunk.columns.messages)
        if self._settle_usual(chunk, made, batch):
            _add_whole(whole, batch, count)
            return
        if (usual := self._usual(chunk, made, batch)) is not None:
            ended = self._emit(chunk, *usual, batch)
        else:
            ended = self._settle_each(chunk, made.by_message(count), batch)
        if ended:
            _add_whole(whole, batch, count)

    def _settle_usual(self, chunk: _Chunk, made: Made, batch: Batch) -> bool:
        """Make records of the rows alone, where no message failed; False: it is to be done message by message."""
        at: Moments = batch.context.at
        if chunk.failed or at.columns:
            return False
        count, rows = len(chunk.columns.messages), made.rows[0] if made.rows else None
        if rows is None:
            batch.deliveries += count
            return True
        if made.whole or not self._is_usual(rows, made):
            return False
        columns = chunk.columns if len(rows.at) == count else chunk.columns.of(rows.at)
        own = range(len(rows.at))
        columns = columns._replace(
            keys=columns.keys if rows.keys is None else _replaced(columns.keys, own, rows.keys),
            times=columns.times if rows.times_ms is None else _replaced(columns.times, own, rows.times_ms),
        )
        data: Any = rows.data
        if not self._takes(columns, data, batch):
            return False
        self._emitting.emit(columns, data, batch)
        batch.deliveries += count - len(rows.at)
        return True

    def _is_usual(self, rows: OutputRows, made: Made) -> bool:
        """Whether each row is the one output of its message, with nothing but a value, a key and a time."""
        output = self._function.output
        return output is not None and output.provenance and made.error is None and rows.each

    def _takes(self, columns: Columns, data: Sequence[bytes | None], batch: Batch) -> bool:
        """Whether the topic surely takes these outputs; if not, each one is measured."""
        output = self._function.output
        assert output is not None
        if (output.compacted and None in columns.keys) or not light(columns.keys, columns.came):
            return False
        limit = output.max_bytes - OVERHEAD_BYTES - 2 * PLAIN_ROOM
        return max(map(len, filter(None, data)), default=0) <= limit and output.takes(columns.times, batch.today)

    def _usual(self, chunk: _Chunk, made: Made, batch: Batch) -> tuple[Columns, Sequence[bytes | None]] | None:
        """The values by message, and what they inherit; None: the outputs of a message are settled by themselves."""
        columns = chunk.columns
        if not made.rows or (made.whole and all(rows.at[0] == NOWHERE for rows in made.rows)):
            return columns, [None] * len(columns.messages)
        rows = made.rows[0]
        if made.whole or not self._is_usual(rows, made):
            return None
        columns, data = _spread(columns, rows)
        return (columns, data) if self._takes(columns, data, batch) else None

    def _emit(self, chunk: _Chunk, columns: Columns, data: Sequence[bytes | None], batch: Batch) -> bool:
        """Add usual results between the messages that failed; whether all steps have ended."""
        at: Moments = batch.context.at
        start = 0
        for index, error in [*chunk.failed, (len(data), None)]:
            part, own = columns.cut(start, index), data[start:index]
            if own:
                for one in at.columns:
                    part = one.columns(part, own, batch)
                self._emitting.emit(part, own, batch)
            if error is not None and not self._fails(columns.messages[index], error, batch):
                return False
            start = index + 1
        return True

    def _settle_each(self, chunk: _Chunk, each: Sequence[Sequence[OutputRow]], batch: Batch) -> bool:
        failed = dict(chunk.failed)
        for index, message in enumerate(chunk.columns.messages):
            if (error := failed.get(index)) is not None:
                if not self._fails(message, error, batch):
                    return False
                continue
            step = Delivering(self._function.take(message), batch, None, kind="raised")
            try:
                self._one.settle(step, each[index])
            except BaseException as raised:
                if not self._ending.fail(raised, step):
                    return False
        return True

    def _fails(self, message: WireMessage, error: Exception, batch: Batch) -> bool:
        return self._ending.fail(error, Delivering(self._function.take(message), batch, None))

    # Step by step, for everything else

    def _argument(self, binding: str, steps: Sequence[Delivering], values: Sequence[Any]) -> Any:
        index = self._function.bindings.index(binding)
        return self._columnar.of_values(binding, values, [step.taken[index][1] for step in steps])

    def _results(self, made: Any, steps: Sequence[Delivering]) -> Sequence[Any]:
        messages = [step.taken[0][1] for step in steps]
        found = self._columnar.made(made, self._columnar.place(messages))
        whole = _payloads_of_all(found, [message.timestamp()[1] for message in messages], steps[0].batch)
        if whole and found.error is not None:
            raise found.error
        self._whole = whole
        return found.by_message(len(steps))

    def _settle(
        self,
        delivering: Sequence[Delivering],
        came: Sequence[dict[str, Received] | Exception | Interrupt],
        results: Mapping[int, Any],
        batch: Batch,
        before: Mark,
    ) -> None:
        whole, self._whole = self._whole, ()
        rows = [step.taken for step in delivering]
        if whole and self._function.errors is None and any(isinstance(one, BaseException) for one in came):
            self._each_alone(rows, batch, before, OutputError("a message of the call cannot be read"))
            return
        ended = batch.begun_by_messages
        super()._settle(delivering, came, results, batch, before)
        if self._goes_on(batch, ended + len(rows)):
            _add_whole(whole, batch, len(rows))

    def _each_alone(self, rows: Sequence[Taken], batch: Batch, before: Mark, error: Exception | Interrupt) -> None:
        """Halves of the steps first; see `Lists`."""
        self._whole = ()
        if len(rows) == 1:
            super()._each_alone(rows, batch, before, error)
            return
        batch.back_to(before)
        self._undo(rows[0], batch, error)
        for half in _halves(rows):
            ended = batch.begun_by_messages
            self.run_taken(half, batch)
            if not self._goes_on(batch, ended + len(half)):
                return


def _halves(given: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    middle = len(given) // 2
    return given[:middle], given[middle:]


def _spread(columns: Columns, rows: OutputRows) -> tuple[Columns, list[bytes | None]]:
    """The values by message, None for those without; and the columns with the keys and times that the rows bring."""
    count = len(columns.messages)
    data: list[Any] = [None] * count
    for index, value in zip(rows.at, rows.data, strict=True):
        data[index] = value
    if rows.keys is not None:
        columns = columns._replace(keys=_replaced(columns.keys, rows.at, rows.keys))
    if rows.times_ms is not None:
        columns = columns._replace(times=_replaced(columns.times, rows.at, rows.times_ms))
    return columns, data


def _replaced(column: Sequence[Any], at: Sequence[int], own: Sequence[Any]) -> list[Any]:
    made = list(column)
    for index, value in zip(at, own, strict=True):
        if value is not None:
            made[index] = value
    return made


def _payloads_of_all(made: Made, times_ms: Sequence[int], batch: Batch) -> list[Payload]:
    """
    Outputs of all messages of a call. Those without a key of their own have none; without a time, the latest.

    Raises:
        OutputError: a topic does not take one.
    """
    found: list[Payload] = []
    for row in made.of_all():
        target, key, data, headers, own_ms, partition = payload_of(row, None)
        when = written_ms(max(times_ms)) if own_ms is None else own_ms
        if why := target.untimely(when, batch.today()):
            raise OutputError(why)
        found.append((target, key, data, headers, when, partition))
    return found


def _add_whole(whole: Sequence[Payload], batch: Batch, steps: int) -> None:
    """All steps of a call have ended, and these belong to all of them."""
    if whole:
        undivided: Undivided = batch.context.part(Undivided)
        undivided.add(whole, batch, steps)


class _Lazy(Sequence[Any]):
    """Makes each item when it is asked for."""

    def __init__(self, messages: Sequence[WireMessage], make: Callable[[WireMessage], Any]) -> None:
        self._messages, self._make = messages, make

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return _Lazy(self._messages[index], self._make)
        return self._make(self._messages[index])
