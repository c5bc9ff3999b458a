"""From the bytes of messages to columns. What cannot be read, or what no column can hold, is told apart row by row."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import pyarrow as pa

from cues_kafka.codecs.arrow.compiled import KINDS, MOST_FIELDS, ColumnsModule, module, plain_fields
from cues_kafka.codecs.arrow.kinds import schema_of
from cues_kafka.codecs.arrow.quick_reading import QuickColumns, merged
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.codecs.json_twins import is_native
from cues_kafka.codecs.plain_values import plain
from cues_kafka.codecs.schema import Null, OneOf, Scalar, Shape, Structure, is_struct
from cues_kafka.errors import CodecError, RetriableError
from cues_kafka.ports.codec import WireCodec

_MISFITS: Final = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)
"""What Arrow raises for a value that a column cannot hold."""

_LIGHT: Final = (bool, int, float, str, bytes)
"""Fields of these classes are read without an instance of the topic's class."""

Decode = Callable[[bytes | None], Any]


class ReadColumns(NamedTuple):
    """
    The columns of some messages.

    Attributes:
        arrays: by column, with a row for each message that could be read.
        failed: the others: their indices, in order, and why.
    """

    arrays: list[Any]
    failed: list[tuple[int, Exception]]


class ColumnReader(Protocol):
    """Reads the values of one topic into columns."""

    @property
    def schema(self) -> Any:
        """The columns, as a `pyarrow.Schema`."""
        ...

    def read(self, values: Sequence[bytes | None]) -> ReadColumns:
        """
        Read the values of messages.

        Raises:
            RetriableError: what the codec asks does not answer.
            Interrupt: the codec stops the task.
        """
        ...

    def hold(self, values: Sequence[Any]) -> list[Any]:
        """
        The columns of values that were decoded by the codec of the topic.

        Raises:
            CodecError: a column cannot hold one.
        """
        ...


def reader_of(codec: WireCodec, decode: Decode) -> ColumnReader:
    """
    Make the reader that costs least.

    Args:
        codec: of the topic.
        decode: as `codec.decode`, also of a message without a value.

    Raises:
        ConfigError: no column can hold a field of the topic's class.
    """
    return reader_with(module(), codec, decode)


def reader_with(compiled: ColumnsModule | None, codec: WireCodec, decode: Decode) -> ColumnReader:
    """The same with this module; None: without one."""
    rows = DecodedReader(codec.shape, decode)
    light = _light_class(codec)
    if light is None:
        return rows
    reader, fields = LightReader(rows, decode, light), plain_fields(codec.shape)
    if compiled is None or fields is None or len(fields) > MOST_FIELDS:
        return reader
    if not all(each.cls in KINDS for each in fields):
        return reader
    strict = bool(light.__struct_config__.forbid_unknown_fields)
    return QuickReader(reader, QuickColumns(compiled, fields, rows.schema.types, strict=strict))


class DecodedReader:
    """Reads any values, by way of what the codec of the topic makes of each."""

    def __init__(self, shape: Shape | None, decode: Decode) -> None:
        self.schema = schema_of(shape)
        self._decode = decode
        self._convert = None if shape is None else plain(shape)
        self._record = isinstance(shape, Structure)
        self._struct = pa.struct(list(self.schema))

    def read(self, values: Sequence[bytes | None]) -> ReadColumns:
        return self.found(*decoded(self._decode, self._decode, values))

    def found(self, rows: list[Any], failed: list[tuple[int, Exception]]) -> ReadColumns:
        """The columns of decoded values, of which the failed ones are left out."""
        return held(self._arrays, rows, failed)

    def hold(self, values: Sequence[Any]) -> list[Any]:
        try:
            return self._arrays(values)
        except _MISFITS as error:
            raise _unheld(error) from error

    def _arrays(self, values: Sequence[Any]) -> list[Any]:
        if self._convert is not None:
            convert = self._convert
            values = [None if value is None else convert(value) for value in values]
        if not self._record:
            return [pa.array(values, self.schema.field(0).type)]
        return list(pa.array(values, self._struct).flatten())


class LightReader:
    """
    Reads JSON of a class with plain fields into structs that the garbage collector does not look into.

    They have the fields and constraints of the class. A message that they refuse is read by the codec, which says why.
    """

    def __init__(self, rows: DecodedReader, decode: Decode, light: type[msgspec.Struct]) -> None:
        self.schema = rows.schema
        self._rows, self._decode = rows, decode
        self._quick: Callable[[Any], Any] = msgspec.json.Decoder(light).decode
        names: list[str] = list(light.__struct_fields__)
        self._columns = [(attrgetter(name), field.type) for name, field in zip(names, self.schema, strict=True)]

    def read(self, values: Sequence[bytes | None]) -> ReadColumns:
        return held(self._arrays, *decoded(self._quick, self._decode, values))

    def hold(self, values: Sequence[Any]) -> list[Any]:
        return self._rows.hold(values)

    def _arrays(self, rows: Sequence[Any]) -> list[Any]:
        return [pa.array(list(map(field, rows)), kind) for field, kind in self._columns]


class QuickReader:
    """Reads what is usual by the compiled module, and what it leaves as without it."""

    def __init__(self, rest: LightReader, quick: QuickColumns) -> None:
        self.schema = rest.schema
        self._rest, self._quick = rest, quick

    def read(self, values: Sequence[bytes | None]) -> ReadColumns:
        arrays, others = self._quick.usual(values)
        if not others:
            return ReadColumns(arrays, [])
        rest, failed = self._rest.read([values[index] for index in others])
        wrong = [(others[index], error) for index, error in failed]
        return ReadColumns(merged(arrays, rest, others, {index for index, _ in wrong}), wrong)

    def hold(self, values: Sequence[Any]) -> list[Any]:
        return self._rest.hold(values)


def decoded(
    quick: Callable[[Any], Any], decode: Decode, values: Sequence[bytes | None]
) -> tuple[list[Any], list[tuple[int, Exception]]]:
    """
    The decoded values, and the indices of the others with the errors; both in order.

    Args:
        quick: reads what is usual.
        decode: reads what `quick` refuses, or says why it cannot be read.
        values: the bytes.

    Raises:
        RetriableError: what the codec asks does not answer.
    """
    rows: list[Any] = []
    failed: list[tuple[int, Exception]] = []
    rest = map(quick, values)
    while True:
        try:
            rows.extend(rest)  # keeps what came before an exception, and the iterator goes on behind it
            return rows, failed
        except RetriableError:
            raise
        except Exception:  # noqa: BLE001 - a codec of a user may raise what it likes
            index = len(rows) + len(failed)
        try:
            rows.append(decode(values[index]))
        except RetriableError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            failed.append((index, error))


def held(
    arrays_of: Callable[[Sequence[Any]], list[Any]], rows: list[Any], failed: list[tuple[int, Exception]]
) -> ReadColumns:
    """The columns of these rows; those that no column can hold, such as numbers beyond 64 bits, are told apart."""
    try:
        return ReadColumns(arrays_of(rows), failed)
    except _MISFITS:
        pass
    wrong = {index for index, _ in failed}
    places = [index for index in range(len(rows) + len(failed)) if index not in wrong]
    kept: list[Any] = []
    more: list[tuple[int, Exception]] = []
    for index, row in zip(places, rows, strict=True):
        try:
            arrays_of([row])
            kept.append(row)
        except _MISFITS as error:
            more.append((index, _unheld(error)))
    return ReadColumns(arrays_of(kept), sorted([*failed, *more], key=lambda one: one[0]))


def _unheld(error: Exception) -> CodecError:
    return CodecError(
        f"A column of Arrow cannot hold the value: {error}. Declare Raw(), and parse the bytes in the function."
    )


def _light_class(codec: WireCodec) -> type[msgspec.Struct] | None:
    """A struct with the fields of a JSON codec's class; None: an instance of the class may be something else."""
    shape = codec.shape
    if not isinstance(codec, JsonCodec) or not isinstance(shape, Structure) or shape.tag is not None:
        return None
    cls = shape.cls
    known = is_struct(cls) or dataclasses.is_dataclass(cls)
    if not known or hasattr(cls, "__post_init__") or not is_native(shape):
        return None
    if not all(_is_light(each.shape) for each in shape.fields):
        return None
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = []
    for number, each in enumerate(shape.fields):
        default: dict[str, Any] = {} if each.default is None else {"default_factory": each.default}
        fields.append((f"f{number}", hints[each.name], msgspec.field(name=each.wire_name, **default)))
    strict = is_struct(cls) and bool(cls.__struct_config__.forbid_unknown_fields)
    return msgspec.defstruct(cls.__name__, fields, kw_only=True, gc=False, forbid_unknown_fields=strict)


def _is_light(shape: Shape) -> bool:
    if isinstance(shape, OneOf):
        rest = [one for one in shape.options if not isinstance(one, Null)]
        return len(rest) == 1 and _is_light(rest[0])
    return isinstance(shape, Scalar) and shape.cls in _LIGHT
