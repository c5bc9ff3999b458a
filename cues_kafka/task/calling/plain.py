"""The loops of a function whose value alone is passed: a line inside a `for` costs time for every message.

Everything else is done once for a chunk. Unusual messages and results go the long way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import length_hint
from typing import Any, cast

from cues_kafka.codecs.framing import in_front
from cues_kafka.codecs.raw import RawCodec, as_is
from cues_kafka.core.delivery import HEADER, with_offsets
from cues_kafka.graph.message import Message, travelling
from cues_kafka.ports.log import UNREADABLE, WireMessage, headers_of_each
from cues_kafka.task.calling.adding import Adding
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.columns import PLAIN_ROOM, Ahead, Columns, light, second
from cues_kafka.task.calling.ending import Ending
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.function import Function
from cues_kafka.task.calling.outputs import OVERHEAD_BYTES, Target
from cues_kafka.task.calling.step import unreadable
from cues_kafka.task.calling.tight import TightLoop, compiled
from cues_kafka.task.parts.participant import Moments


class PlainLoops:
    """
    Calls one function for a chunk of messages in one go.

    Attributes:
        simple: whether the function gets the value of one input alone.
        usual: whether it also has one output, which inherits what its message has.
    """

    def __init__(self, function: Function, adding: Adding, ending: Ending) -> None:
        self._function, self._adding, self._ending = function, adding, ending
        processor, call, output = function.processor, function.processor.call, function.output
        self.simple = (
            processor.input_shape == "single"
            and processor.filter is None
            and not (processor.batch or call.wants_step or call.rest or call.is_async)
        )
        self.usual = self.simple and function.inherits and output is not None and output.provenance
        self._bytes_only = (
            self.usual
            and output is not None
            and output.key_of is None
            and function.decoders[0].decode is as_is
            and getattr(output.encode, "__func__", None) is RawCodec.encode
        )
        self._encode_all = _encoder_of(output)
        self._one_kind = self.usual and output is not None and output.key_of is None and not call.is_generator
        self._module = compiled()
        self._tight = (
            TightLoop(self._module, function, adding, ending, self.emit)
            if self._module is not None and self._one_kind and function.decoders[0].quick is not None
            else None
        )

    def run_simple(self, messages: Sequence[WireMessage], batch: Batch) -> None:
        """Call for one input whose value alone is passed, with any outputs: a shorter `One.deliver`."""
        function = self._function
        decode, call, read = function.decoders[0].read, self._call_of(batch, messages), function.returned.read
        reading = "raised" if function.processor.call.is_generator else "output"  # a generator runs while it is read
        came = headers_of_each(messages)
        for message, headers in zip(function.progress.through(messages), came, strict=True):
            kind = "decode"
            try:
                if headers is UNREADABLE:
                    raise unreadable(message)
                value = decode(message)
                kind = "raised"
                result = call(value)
                kind = reading
                payloads = read(result, function.key(message))
                kind = "output"
                if payloads:
                    self._adding.add(((0, message),), batch, payloads)
                    batch.outputs += 1
                batch.deliveries += 1
            except BaseException as error:
                step = Delivering(((0, message),), batch, None, kind=kind)
                if not self._ending.fail(error, step) or batch.closed:
                    return

    def run(self, messages: Sequence[WireMessage], batch: Batch) -> None:
        """Call for one input and one output with nothing but the value passed. Unusual messages go the long way."""
        columns, values = self._columns_of(messages)
        times = columns.times
        if UNREADABLE in columns.came:
            self.run_simple(messages, batch)
            return
        if (name := self._function.decoders[0].id_header) is not None and any(columns.came):
            pairs = zip(values, columns.came, strict=True)
            values = [data if data is None else in_front(came, name, data) for data, came in pairs]
        output, call = self._function.output, self._call_of(batch, messages, times)
        assert output
        limit = output.max_bytes - OVERHEAD_BYTES - 2 * PLAIN_ROOM
        keyless = output.compacted and None in columns.keys
        if keyless or not output.takes(times, batch.today) or not light(columns.keys, columns.came):
            limit = -1  # each result is looked at the long way
        elif self._tight is not None and None not in values:
            self._tight.run(columns, values, batch, call=call, limit=limit)
            return
        decode, values = self._decoded_at_once(values)
        if limit < 0:
            pass
        elif self._bytes_only:
            ahead = Ahead(call)
            at: Moments = batch.context.at
            look = ahead.each_is_bytes if at.following else ahead.all_are_bytes
            if look(self._function.progress.through(values), limit):
                self.emit(columns, ahead.results, batch)
                return
            call = ahead.again
        elif self._one_kind and decode is as_is and not batch.context.at.following:
            ahead = Ahead(call)
            data = ahead.all_encoded(self._function.progress.through(values), self._encode_all, limit)
            if data is not None:
                self.emit(columns, data, batch)
                return
            call = ahead.again
        self._run_each(columns, values, batch, decode=decode, call=call, limit=limit)

    def _columns_of(self, messages: Sequence[WireMessage]) -> tuple[Columns, list[bytes | None]]:
        """The columns of messages, and their values."""
        if self._module is not None and (found := self._module.columns_of(messages)) is not None:
            keys, values, came, times = found
            return Columns(messages, keys, came, times), values
        # The unbound methods of the client's class take a fifth of the time of `methodcaller`, a seventh of a loop's.
        kind_of: Any = type(messages[0])
        times = list(map(second, map(kind_of.timestamp, messages)))
        columns = Columns(messages, list(map(kind_of.key, messages)), headers_of_each(messages), times)
        return columns, [] if UNREADABLE in columns.came else list(map(kind_of.value, messages))

    def _decoded_at_once(self, values: list[Any]) -> tuple[Callable[[Any], Any], list[Any]]:
        """
        How these values are decoded, and the values; those of a quick codec are decoded in one go.

        If one is refused, the loop decodes them again, and finds whose it is: nothing was called yet.
        """
        decoder = self._function.decoders[0]
        if decoder.decode is as_is or decoder.quick is None or None in values:
            return decoder.decode, values
        try:
            return as_is, list(map(decoder.quick, values))
        except BaseException:  # the loop meets it again, and finds whose it is
            return decoder.decode, values

    def _run_each(
        self,
        columns: Columns,
        values: Sequence[Any],
        batch: Batch,
        *,
        decode: Callable[[Any], Any],
        call: Callable[[Any], Any],
        limit: int,
    ) -> None:
        """Decode, call and encode one by one. Results of more than `limit` bytes go the long way."""
        output, (messages, keys, *_) = self._function.output, columns
        assert output
        encode = output.encode
        key_of, encode_key = output.key_of, output.encode_key
        data: list[bytes | None] = []
        start = 0  # where the run of usual results begins that `data` holds
        for index, value in enumerate(self._function.progress.through(values)):
            kind = "decode"
            try:
                if decode is not as_is:
                    value = decode(value)  # noqa: PLW2901
                kind = "raised"
                result = call(value)
                if result is None:
                    data.append(None)
                    continue
                kind = "output"
                if type(result) is not Message:
                    made = encode(result)
                    if key_of is not None and (given := key_of(result)) is not None:
                        keys[index] = encode_key(given)
                    if len(made) <= limit and (key_of is None or len(keys[index] or b"") <= PLAIN_ROOM):
                        data.append(made)
                        continue
                payloads = self._function.returned.read(result, self._function.key(messages[index]))
                self.emit(columns.cut(start, index), data, batch)
                data, start = [], index + 1
                self._adding.add(((0, messages[index]),), batch, payloads)
                batch.outputs += 1
                batch.deliveries += 1
            except BaseException as error:
                self.emit(columns.cut(start, index), data, batch)
                data, start = [], index + 1
                step = Delivering(((0, messages[index]),), batch, None, kind=kind)
                if not self._ending.fail(error, step) or batch.closed:
                    return
        self.emit(columns.cut(start, None), data, batch)

    def _call_of(
        self, batch: Batch, messages: Sequence[WireMessage], times: Sequence[int] = ()
    ) -> Callable[[Any], Any]:
        """The call of the function for one value."""
        fn, given = self._function.processor.fn, batch.context.values
        call = fn
        if self._function.processor.call.positional is None:
            binding = self._function.bindings[0]
            call = lambda value: fn(**{binding: value}, **given)  # noqa: E731
        elif given:
            call = lambda value: fn(value, **given)  # noqa: E731
        at: Moments = batch.context.at
        for part in at.following:
            call = part.following(call, lambda: self._time_of_each(messages, times))
        return call

    def _time_of_each(self, messages: Sequence[WireMessage], times: Sequence[int]) -> Callable[[], int]:
        """Gives the timestamp of the message whose step is called: the last one that the loop has taken."""
        if times and self._function.decoders[0].decode is as_is:
            return iter(times).__next__  # none fails before its call
        known, count = times or [one.timestamp()[1] for one in messages], len(messages)
        progress = self._function.progress
        return lambda: known[count - 1 - length_hint(progress.coming or ())]

    def emit(self, columns: Columns, data: Sequence[bytes | None], batch: Batch) -> None:
        """Add usual results, column by column; None is nil."""
        output = self._function.output
        batch.deliveries += len(data)
        values = cast("Sequence[bytes]", data) if None not in data else [made for made in data if made is not None]
        if output is None or not values:
            return
        if len(values) < len(data):
            columns = columns.having(data)
        messages, keys, came, times = columns
        shared = batch.prefix(self._function.bindings) + b"0/1 "
        first, last = messages[0].offset(), messages[-1].offset()
        if last - first == len(messages) - 1:  # they ascend (A2), so there is no gap
            headers: list[Any] = with_offsets(shared, first, len(messages))
        else:
            kind_of: Any = type(messages[0])
            headers = list(map((shared.replace(b"%", b"%%") + b"%d").__mod__, map(kind_of.offset, messages)))
        if inherits := any(came):
            headers = [
                [(HEADER, header), *travelled] if one and (travelled := travelling((one,))) else header
                for header, one in zip(headers, came, strict=True)
            ]
        keyless = batch.spec.partition % output.partitions
        batch.records.extend(output.topic, keyless, keys, values, headers, times, alone=not inherits)
        batch.outputs += len(values)
        batch.messages += len(values)
        batch.size += sum(map(len, values))


def _encoder_of(output: Target | None) -> Callable[[Sequence[Any]], list[bytes]]:
    """Encodes many values; nothing asks it where there is no output."""
    if output is not None and output.encode_all is not None:
        return output.encode_all
    encode: Callable[[Any], bytes] = bytes if output is None else output.encode
    return lambda values: list(map(encode, values))
