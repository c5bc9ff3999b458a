"""What a function with `batch="arrow"` gets and returns: columns of messages, and columns that become their outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cues_kafka.codecs.arrow.fitting import fitted, rows_of
from cues_kafka.codecs.arrow.places import (
    NOWHERE,
    in_order,
    offsets_of,
    origins,
    own_keys,
    own_times,
    place_of,
    placed,
)
from cues_kafka.codecs.arrow.reading import ColumnReader
from cues_kafka.codecs.arrow.writing import ColumnWriter
from cues_kafka.errors import OutputError
from cues_kafka.graph.message import key_bytes, written_ms
from cues_kafka.graph.names import hint, quoted
from cues_kafka.ports.log import WireMessage
from cues_kafka.task.calling.outputs import Payload, Target, check_size


@dataclass(frozen=True, slots=True)
class ColumnOutput:
    """
    A topic that rows go to.

    Attributes:
        target: the topic.
        writer: makes its values.
        key: the column of the topic's `key=` field; None: it has none.
    """

    target: Target
    writer: ColumnWriter
    key: str | None


class OutputRow(NamedTuple):
    """
    An output.

    Attributes:
        target: its topic.
        data: its value; or why it has none.
        key: None: that of its message.
        timestamp_ms: None: that of its message.
    """

    target: Target
    data: bytes | Exception
    key: bytes | None
    timestamp_ms: int | None


class OutputRows(NamedTuple):
    """
    The rows for one topic, in the order of their messages.

    Attributes:
        target: the topic.
        at: the index of the message of each, `NOWHERE` behind the others.
        data: the values.
        keys: None: those of the messages.
        times_ms: None: those of the messages.
        each: whether each row is of another message.
    """

    target: Target
    at: Sequence[int]
    data: Sequence[bytes | Exception]
    keys: Sequence[bytes | None] | None
    times_ms: Sequence[int | None] | None
    each: bool

    def row(self, number: int) -> OutputRow:
        """One of them."""
        keys, times = self.keys, self.times_ms
        key, time_ms = None if keys is None else keys[number], None if times is None else times[number]
        return OutputRow(self.target, self.data[number], key, time_ms)


class Made(NamedTuple):
    """
    What one call has returned.

    Attributes:
        rows: for each topic.
        error: why one of the rows has no value; None: all have one.
        whole: whether some rows belong to all messages of the call.
    """

    rows: Sequence[OutputRows]
    error: Exception | None
    whole: bool

    def by_message(self, count: int) -> list[list[OutputRow]]:
        """The rows of each message; `count` is their number."""
        each: list[list[OutputRow]] = [[] for _ in range(count)]
        for rows in self.rows:
            for number, index in enumerate(rows.at):
                if index != NOWHERE:
                    each[index].append(rows.row(number))
        return each

    def of_all(self) -> list[OutputRow]:
        """The rows that belong to all messages."""
        if not self.whole:
            return []
        return [rows.row(number) for rows in self.rows for number, index in enumerate(rows.at) if index == NOWHERE]

    def moved(self, indices: Sequence[int]) -> Made:
        """The same among more messages, where those of the call have these indices."""
        rows = [
            one._replace(at=[index if index == NOWHERE else indices[index] for index in one.at]) for one in self.rows
        ]
        return self._replace(rows=rows)


NOTHING = Made((), None, whole=False)


class Columnar:
    """
    Converts for one processor.

    Attributes:
        readers: by binding of the inputs.
    """

    def __init__(self, readers: Mapping[str, ColumnReader], outputs: Mapping[str, ColumnOutput], shape: str) -> None:
        """
        Args:
            readers: by binding.
            outputs: by binding.
            shape: see `Processor.output_shape`.
        """
        self.readers = readers
        self._outputs, self._shape = outputs, shape

    def batch(self, binding: str, arrays: Sequence[Any], messages: Sequence[WireMessage]) -> Any:
        """What the function gets of these messages, whose values are these columns."""
        return self.placed(binding, arrays, self.place(messages))

    @staticmethod
    def place(messages: Sequence[WireMessage]) -> Any:
        """The column `_cues` of these messages."""
        times = [when for _, when in (one.timestamp() for one in messages)]
        return place_of([one.offset() for one in messages], [one.key() for one in messages], times)

    def placed(self, binding: str, arrays: Sequence[Any], place: Any) -> Any:
        """The same, where the column `_cues` is known."""
        return placed(self.readers[binding].schema, arrays, place)

    def of_values(self, binding: str, values: Sequence[Any], messages: Sequence[WireMessage]) -> Any:
        """
        What the function gets of messages that the codec has decoded.

        Raises:
            CodecError: a column cannot hold a value.
        """
        return self.batch(binding, self.readers[binding].hold(values), messages)

    def made(self, result: Any, place: Any) -> Made:
        """
        Read what a call has returned.

        Args:
            result: of the function.
            place: the column `_cues` of the lead messages of the call.

        Raises:
            OutputError: it does not fit the outputs.
            RetriableError: what a codec asks does not answer.
        """
        given, offsets = [(output, one) for output, one in self._given(result) if one is not None], offsets_of(place)
        found = [rows for output, one in given if (rows := self._rows(output, one, offsets)).at]
        odd = [rows for rows in found if set(map(type, rows.data)) != {bytes}]
        error = next((one for rows in odd for one in rows.data if isinstance(one, Exception)), None)
        return Made(found, error, whole=any(rows.at[-1] == NOWHERE for rows in found))

    def _given(self, result: Any) -> list[tuple[ColumnOutput, Any]]:
        if result is None:
            return []
        if self._shape == "none":
            raise OutputError(
                f"returned {type(result).__name__}, but the processor has no outputs. Return None, or declare outputs=."
            )
        if self._shape == "one":
            return [(next(iter(self._outputs.values())), result)]
        if not isinstance(result, Mapping):
            raise OutputError(
                f"returned {type(result).__name__}, but outputs= has bindings. Return {{binding: batch}} or None. "
                f"Bindings: {quoted(sorted(self._outputs))}."
            )
        if unknown := [name for name in result if name not in self._outputs]:
            raise OutputError(
                f"unknown binding {unknown[0]!r}{hint(str(unknown[0]), self._outputs)}. outputs= has "
                f"{quoted(sorted(self._outputs))}."
            )
        return [(self._outputs[name], given) for name, given in result.items()]

    @staticmethod
    def _rows(output: ColumnOutput, given: Any, offsets: Any) -> OutputRows:
        target = output.target
        batch = rows_of(given, target.topic)
        batch, (at, each) = in_order(batch, origins(batch, offsets, target.topic))
        if len(offsets) == 1:
            at, each = [0] * len(at), len(at) == 1  # all messages of the call are this one
        data: Sequence[bytes | Exception] = output.writer.encode(fitted(batch, output.writer.schema, target.topic))
        plain = target.encode_key is key_bytes
        keys = own_keys(batch, output.key, as_bytes=plain)
        if keys is not None and not (plain and set(map(type, keys)) <= {bytes, type(None)}):
            keys = list(map(target.encode_key, keys))
        times = own_times(batch, target.topic)
        if times is not None:
            wrong = next((one for one in times if one is not None and one < 0), None)
            if wrong is not None:
                raise OutputError(f"column '_timestamp' has {wrong}: milliseconds since the epoch are from 0 on.")
            times = [None if one is None else written_ms(one) for one in times]
        return OutputRows(target, at, data, keys, times, each=each)


def payload_of(row: OutputRow, default_key: bytes | None) -> Payload:
    """
    An output, before its provenance is known.

    Raises:
        OutputError: the topic does not take it.
        Exception: why it has no value.
    """
    target, data, key, timestamp_ms = row
    if isinstance(data, Exception):
        raise data
    if key is None:
        key = default_key if target.inherit is None or default_key is None else target.inherit(default_key)
    if key is None and target.compacted:
        raise OutputError(target.keyless)
    check_size(target, key, data, [])
    return target, key, data, [], timestamp_ms, None
