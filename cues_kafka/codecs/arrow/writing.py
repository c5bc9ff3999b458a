"""From columns to the bytes of messages, one for each row; the error in place of a row that cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from cues_kafka.codecs.arrow.compiled import ColumnsModule, PlainField, module, plain_fields
from cues_kafka.codecs.arrow.kinds import schema_of
from cues_kafka.codecs.arrow.quick_writing import QuickRows
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.codecs.json_checks import as_json
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.plain_values import revived
from cues_kafka.codecs.schema import Shape, Structure, is_struct
from cues_kafka.errors import ConfigError, RetriableError
from cues_kafka.graph.declare import CodecSpec, Json, Raw
from cues_kafka.graph.formats import Avro

Encoded = list[bytes | Exception]
"""The bytes of each row, or why it has none."""


class ColumnWriter(Protocol):
    """Writes the values of one topic."""

    @property
    def schema(self) -> Any:
        """The columns, as a `pyarrow.Schema`; None: any columns are the fields of a value."""
        ...

    def encode(self, batch: Any) -> Encoded:
        """
        Write rows whose columns are those of the schema.

        Raises:
            RetriableError: what the codec asks does not answer.
        """
        ...


def writer_of(declared: CodecSpec, made_for: MadeFor) -> ColumnWriter:
    """
    Make the writer of a topic.

    Raises:
        ConfigError: the codec has no schema, or no column can hold a field.
    """
    return writer_with(module(), declared, made_for)


def writer_with(compiled: ColumnsModule | None, declared: CodecSpec, made_for: MadeFor) -> ColumnWriter:
    """The same with this module; None: without one."""
    codec = codec_for(declared, made_for)
    match declared:
        case Raw():
            return ValueWriter(schema_of(None), bytes, record=False)
        case Json(cls=None):
            return ValueWriter(None, codec.encode)
        case Json():
            return _json_writer(codec, compiled)
        case Avro() if codec.shape is not None:
            return _avro_writer(declared, made_for, codec.shape)
    raise ConfigError(
        f"{made_for.topic!r}: batch='arrow' cannot write {declared!r:.100}. Declare Json(SomeDataclass), Avro(...) "
        "with a schema, or Raw()."
    )


class ValueWriter:
    """Writes rows one by one, by the codec of the topic."""

    def __init__(self, schema: Any, encode: Callable[[Any], bytes], *, record: bool = True) -> None:
        self.schema = schema
        self._encode, self._record = encode, record

    def encode(self, batch: Any) -> Encoded:
        rows = (batch if self._record else batch.column(0)).to_pylist(maps_as_pydicts="strict")
        made: Encoded = []
        for row in rows:
            try:
                made.append(self._encode(row))
            except RetriableError:
                raise
            except Exception as error:  # noqa: BLE001 - a class may raise what it likes when it validates itself
                made.append(error)
        return made


def _json_writer(codec: Any, compiled: ColumnsModule | None) -> ColumnWriter:
    """A value is read again as its class before it is written: so it is checked as any other one."""
    shape: Shape = codec.shape
    plainly = msgspec.json.Encoder(enc_hook=as_json, decimal_format="string").encode
    rows = ValueWriter(
        schema_of(shape), lambda row: codec.encode(codec.decode(plainly(row))), record=isinstance(shape, Structure)
    )
    fields = _light_fields(codec)
    return rows if fields is None else LightJsonWriter(rows, fields, compiled)


def _avro_writer(declared: Avro, made_for: MadeFor, shape: Shape) -> ColumnWriter:
    from cues_kafka.codecs.avro import schema_text  # noqa: PLC0415 - it imports the format's library

    of_rows = replace(declared, schema=schema_text(declared), cls=None)
    encode, revive = codec_for(of_rows, made_for).encode, revived(shape)
    write = encode if revive is None else lambda row: encode(revive(row))
    return ValueWriter(schema_of(shape), write, record=isinstance(shape, Structure))


_SPECIAL: Final = bytes([*range(32), *b'"\\'])
"""Bytes that JSON does not take in a text as they are."""

_lines = msgspec.json.Encoder().encode_lines


class LightJsonWriter:
    """Writes JSON of a class with plain fields, column by column, as the codec of the class would."""

    def __init__(self, rows: ValueWriter, fields: Sequence[PlainField], compiled: ColumnsModule | None) -> None:
        self.schema = rows.schema
        self._rows = rows
        prefixes = [f'{"," if number else "{"}"{each.name}":' for number, each in enumerate(fields)]
        texts = [_TEXTS[each.cls] for each in fields]
        self._fields = [*zip(map(pa.scalar, prefixes), texts, strict=True)]
        classes = [each.cls for each in fields]
        given = [*zip(map(str.encode, prefixes), classes, texts, strict=True)]
        self._quick = None if compiled is None else QuickRows(compiled, given)

    def encode(self, batch: Any) -> Encoded:
        if self._quick is not None and (quick := self._quick.encode(batch)) is not None:
            return cast(Encoded, quick)
        parts: list[Any] = []
        for (prefix, text), column in zip(self._fields, batch.columns, strict=True):
            if (made := text(column)) is None:
                return self._rows.encode(batch)
            parts += [prefix, pc.fill_null(made, "null") if made.null_count else made]
        joined = pc.binary_join_element_wise(*parts, pa.scalar("}"), pa.scalar(""))
        return list(joined.cast(pa.binary()).to_pylist())


def _light_fields(codec: Any) -> list[PlainField] | None:
    """The fields of a class that checks nothing but their types; None: an instance is asked."""
    shape = codec.shape
    if type(codec) is not JsonCodec or not isinstance(shape, Structure) or shape.tag is not None:
        return None
    shortened = is_struct(shape.cls) and shape.cls.__struct_config__.omit_defaults
    if shortened or hasattr(shape.cls, "__post_init__"):
        return None
    return plain_fields(shape)


def _whole(column: Any) -> Any:
    return pc.cast(column, pa.string())


def _flag(column: Any) -> Any:
    return pc.if_else(column, "true", "false")


def _number(column: Any) -> Any:
    """None: one of them is no number, which JSON does not have."""
    return _each(column) if pc.all(pc.is_finite(column)).as_py() in (True, None) else None


def _text(column: Any) -> Any:
    data = column.buffers()[2]
    if data is not None and len(data.to_pybytes().translate(None, _SPECIAL)) < len(data):
        return _each(column)
    quote = pa.scalar('"')
    return pc.binary_join_element_wise(quote, column, quote, pa.scalar(""))


def _each(column: Any) -> Any:
    return _of_lines(column.to_pylist())


def _of_lines(values: Sequence[Any]) -> Any:
    """JSON of each value: an encoded text has no line end."""
    return pa.array(_lines(values).split(b"\n")[:-1], pa.string())


_TEXTS: Final[dict[type[Any], Callable[[Any], Any]]] = {
    int: _whole, bool: _flag, float: _number, str: _text, bytes: _each,
}  # fmt: skip
