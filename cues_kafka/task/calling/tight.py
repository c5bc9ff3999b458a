"""The tight loop of a plain pipe: decode, call and encode one message after the other, in the compiled module.

What one step leaves behind is in the processor's cache for the next one. A message of JSON took 1.7 us in this loop,
and 2.0 us in a chunk that is decoded first, called then, and encoded last. Where something is unusual, the module says
how far that message came. Python ends its step the long way, and the loop goes on behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from cues_kafka.codecs.compiled import compiled_module
from cues_kafka.graph.message import Message
from cues_kafka.ports.log import Headers, WireMessage
from cues_kafka.task.calling.adding import Adding
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.columns import Columns
from cues_kafka.task.calling.ending import Ending
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.function import Function

DECODE: Final = 0
RAISED: Final = 1
"""How far an unusual message came: it was refused, or its call has raised. Else its result is unusual."""


class Compiled(Protocol):
    """What the compiled module does in a loop."""

    def columns_of(
        self, messages: Sequence[WireMessage]
    ) -> tuple[list[bytes | None], list[bytes | None], list[Headers | None], list[int]] | None:
        """Keys, values, headers and timestamps; None: one is no message of the module, or has unreadable headers."""
        ...

    def each(
        self, coming: Iterator[Any], data: list[bytes | None], call: Callable[[Any], Any], way: Way, limit: int
    ) -> list[Any] | None:
        """
        Decode, call and encode what comes, up to the first message that is unusual.

        Args:
            coming: values.
            data: gets what each result is written as, None for nil.
            call: the function.
            way: decodes; writes results of the form; writes others; a class of unusual results; the form, or None.
            limit: bytes of a usual result at most.

        Returns:
            How far the unusual one came, with what its call has raised or given; None: there was none.
        """
        ...


Way = tuple[Callable[[bytes], Any], Callable[[Any], bytes] | None, Callable[[Any], bytes], type, tuple[Any, ...] | None]


def compiled() -> Compiled | None:
    """The module; None: Python does the same."""
    return compiled_module("each")


class TightLoop:
    """
    Calls one function that has one input, which a quick codec decodes, and one output without a key of its own.

    Attributes:
        way: see `Compiled.each`.
    """

    def __init__(
        self,
        module: Compiled,
        function: Function,
        adding: Adding,
        ending: Ending,
        emit: Callable[[Columns, Sequence[bytes | None], Batch], None],
    ) -> None:
        """`emit` adds usual results to a batch."""
        output, decoder = function.output, function.decoders[0]
        assert output is not None
        assert decoder.quick is not None
        self._each, self._function, self._emit = module.each, function, emit
        self._adding, self._ending, self._decode = adding, ending, decoder.decode
        encode, form = output.unchecked or (None, None)
        self.way: Way = decoder.quick, encode, output.encode, Message, form

    def run(
        self, columns: Columns, values: Sequence[Any], batch: Batch, *, call: Callable[[Any], Any], limit: int
    ) -> None:
        """Call for each value. Results of more than `limit` bytes go the long way."""
        coming = self._function.progress.through(values)
        data: list[bytes | None] = []
        start = 0  # where the run of usual results begins that `data` holds
        while (unusual := self._each(coming, data, call, self.way, limit)) is not None:
            index = start + len(data)
            self._emit(columns.cut(start, index), data, batch)
            data, start = [], index + 1
            if not self._end(unusual, columns.messages[index], values[index], batch, call) or batch.closed:
                return
        self._emit(columns.cut(start, None), data, batch)

    def _end(
        self, unusual: list[Any], message: WireMessage, value: Any, batch: Batch, call: Callable[[Any], Any]
    ) -> bool:
        """End the step of an unusual message; whether the next one may begin."""
        kind = "decode"
        result = unusual.pop()  # popped, so that no frame of an exception holds that exception
        [stage] = unusual
        try:
            if stage == DECODE:
                value = self._decode(value)
                kind = "raised"
                result = call(value)
            elif stage == RAISED:
                kind, unusual = "raised", [result]
                del result
                raise unusual.pop()
            kind = "output"
            payloads = self._function.returned.read(result, self._function.key(message))
            if payloads:
                self._adding.add(((0, message),), batch, payloads)
                batch.outputs += 1
            batch.deliveries += 1
        except BaseException as error:  # noqa: BLE001  `fail` raises what does not end here
            return self._ending.fail(error, Delivering(((0, message),), batch, None, kind=kind))
        return True
