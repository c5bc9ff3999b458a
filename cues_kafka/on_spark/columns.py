"""Conversion between columns of DataFrames and messages of topics.

A message becomes columns: the fields of its value if the topic's codec has a shape, else `value`; and a struct `_cues`
with key, topic, partition, offset, timestamp and headers. A row becomes a message: `_key`, `_headers` and `_timestamp`
if it has them, else the input's key and timestamp; all other columns are the value.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any, Final, NamedTuple

from cues_kafka.codecs.error_messages import as_avro
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.schema import (
    Anything,
    Choice,
    Fixed,
    Items,
    Mapped,
    Null,
    OneOf,
    Ref,
    Scalar,
    Shape,
    Structure,
    shape_name,
)
from cues_kafka.codecs.text import Text, text_of
from cues_kafka.errors import ConfigError, GraphError
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.graph.message import EARLIEST_MS, OWN
from cues_kafka.ports.codec import WireCodec

META: Final = "_cues"
KEY: Final = "_key"
HEADERS: Final = "_headers"
TIMESTAMP: Final = "_timestamp"

PLACE: Final = ("topic", "partition", "offset")
KAFKA: Final = (*PLACE, "key", "timestamp", "timestampType", "headers")
"""Columns of Spark's Kafka source other than the value; they count if there is no `_cues`."""

_OWN: Final = (KEY, HEADERS, TIMESTAMP)

_MICROSECONDS: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"

_TIMES: Final = {"timestampFormat": _MICROSECONDS, "timeZone": "UTC"}
"""Timestamps keep their microseconds. Offsets of a zone before 1900 have seconds, which the format would cut off."""

_TO_JSON: Final = {"ignoreNullFields": "false", **_TIMES}
"""Nulls are values."""

_SCALARS: Final = {
    "bool": "BOOLEAN",
    "int": "BIGINT",
    "float": "DOUBLE",
    "str": "STRING",
    "bytes": "BINARY",
    "datetime": "TIMESTAMP",
    "date": "DATE",
    "UUID": "STRING",
}


def value_type(codec: WireCodec) -> str | None:
    """
    Spark's type of a topic's values as DDL; None: the codec has no schema, so values stay bytes.

    Raises:
        ConfigError: no column can hold a field of the class.
    """
    return None if codec.shape is None else _type(codec.shape, shape_name(codec.shape))


def _type(shape: Shape, where: str) -> str:
    match shape:
        case Scalar(_, digits) if digits is not None:
            return f"DECIMAL({digits.precision}, {digits.scale})"
        case Scalar(cls) if cls.__name__ in _SCALARS:
            return _SCALARS[cls.__name__]
        case Choice(values) if all(isinstance(value, str) for value in values):
            return "STRING"
        case Items(item):
            return f"ARRAY<{_type(item, where)}>"
        case Mapped(value):
            return f"MAP<STRING, {_type(value, where)}>"
        case OneOf(options) if len(rest := [o for o in options if not isinstance(o, Null)]) == 1:
            return _type(rest[0], where)
        case Structure(_, fields):
            inner = ", ".join(
                f"`{f.wire_name.replace('`', '``')}`: {_type(f.shape, f'{where}.{f.name}')}" for f in fields
            )
            return f"STRUCT<{inner}>"
        case Anything() | Choice() | Fixed() | OneOf() | Null() | Ref() | Scalar():
            raise ConfigError(f"{where}: no column of Spark holds this type. Use Raw() and parse it in the function.")
    raise GraphError(f"{where}: {shape!r}")


def key_column(codec: WireCodec, key_field: str | None) -> str | None:
    """The column of a topic's `key=` field: a field with an alias has that name in JSON, so in columns."""
    fields = codec.shape.fields if isinstance(codec.shape, Structure) else ()
    return next((each.wire_name for each in fields if each.name == key_field), key_field)


class ValueForm(NamedTuple):
    """
    How rows become the values of a topic.

    Attributes:
        text: makes values of JSON; None: values are JSON.
        field: Spark's type of the field `value` that the topic's class has; None: a column of text or bytes of that
            name, alone, is the whole value.
    """

    text: Text | None = None
    field: str | None = None


JSON_ROWS: Final = ValueForm()


def form_of(declared: CodecSpec, made_for: MadeFor) -> ValueForm:
    """The form of a topic's values."""
    shape, found = codec_for(as_avro(declared), made_for).shape, None
    fields = shape.fields if isinstance(shape, Structure) else ()
    for own in (each.shape for each in fields if each.wire_name == "value"):
        with suppress(ConfigError):  # its type may be one that no column holds
            found = _type(own, "value").lower()
    return ValueForm(text_of(declared, made_for), found)


def _column(name: str) -> Any:
    """A column by its name, whatever characters the name has: dots and backticks mean something to Spark."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.col(f"`{name.replace('`', '``')}`")


def as_columns(frame: Any, kind: str | None) -> Any:
    """
    Convert messages (columns of the source `cues`) to the columns that a function of DataFrames gets.

    Args:
        frame: messages, decoded.
        kind: Spark's type of their values; None: they are bytes.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - a graph is planned without Spark

    names = [name for name in KAFKA if name in frame.columns]
    meta = f.struct(*[f.col(name) for name in names]).alias(META)
    return frame.select("value.*" if kind is not None and kind.startswith("STRUCT") else "value", meta)


def as_messages(frame: Any, key_field: str | None = None, form: ValueForm = JSON_ROWS) -> Any:
    """
    Convert rows to messages: columns topic, partition, offset (of the input), key, value, headers, timestamp (ms).

    Args:
        frame: rows.
        key_field: the column that is the key where there is no `_key`.
        form: of the topic's values.

    Raises:
        ConfigError: a necessary column is missing.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    nested = META in frame.columns
    if not nested and (missing := [name for name in PLACE if name not in frame.columns]):
        raise ConfigError(
            f"columns {missing} are gone, and there is no {META!r}: they say which message a row was made from. Keep "
            f"{META!r}, or topic, partition and offset, in what the function returns."
        )
    came = _came(frame, plain=True)
    own = {META, KEY, HEADERS, TIMESTAMP, *(() if nested else KAFKA)}
    headers = HEADERS if HEADERS in frame.columns else None
    made = _message(frame, came, own, key_field, form, headers=headers, headed=headers is not None)
    return frame.select(
        *[came[name].alias(name) for name in PLACE], *made, f.coalesce(_when(frame, came), f.lit(0)).alias("timestamp")
    )


def brought(frame: Any, form: ValueForm = JSON_ROWS) -> set[str]:
    """Columns among headers and timestamp that the rows of a staged processor have; carrying another one costs time."""
    plain = _is_plain(frame, form)
    headers = HEADERS in frame.columns or ("headers" in frame.columns and plain and not _is_message(frame))
    timestamps = TIMESTAMP in frame.columns or "timestamp" in _came(frame, plain=plain)
    return {name for name, has in (("headers", headers), ("timestamp", timestamps)) if has}


def _came(frame: Any, *, plain: bool) -> dict[str, Any]:
    """Columns of the message that a row of a staged processor was made from, if the row has them."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    nested = META in frame.columns
    inner = frame.schema[META].dataType.names if nested else frame.columns if plain else ()
    return {name: f.col(f"{META}.{name}" if nested else name) for name in inner if name in KAFKA}


def _is_plain(frame: Any, form: ValueForm) -> bool:
    """Whether the value is a column of that name, as Spark's own Kafka sink takes it."""
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    return META not in types and _is_whole(types.get("value"), form) and set(types) <= {"value", *_OWN, *KAFKA}


def _is_whole(kind: str | None, form: ValueForm) -> bool:
    """Whether a column `value` of a type is a whole value if it is alone."""
    return kind in ("binary", "string") and kind != form.field


def _is_message(frame: Any) -> bool:
    """Whether rows are those of the source, whose headers are not copied."""
    return set(PLACE) <= set(frame.columns)


def as_outputs(
    frame: Any, key_field: str | None = None, form: ValueForm = JSON_ROWS, *, columns: Collection[str] = ()
) -> Any:
    """
    Convert rows of a staged processor to messages: columns key, value, and headers and timestamp (ms) if asked.

    Rows need not name the message that they were made from, because an aggregate was made from many. `_key`,
    `_headers`, `_timestamp` and `_cues` mean what they mean elsewhere, and every other column belongs to the value. A
    frame of `key` and `value` (`headers`, `timestamp`) means what it means for Spark's own Kafka sink.

    Args:
        frame: rows.
        key_field: the column that is the key where there is no `_key`.
        form: of the topic's values.
        columns: what any output of the processor has (`brought`), because all outputs get the same columns.

    Raises:
        ConfigError: no column is left for the value, or `topic` or `partition` is there, which Spark's sink would use.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    plain = _is_plain(frame, form)
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    if plain and (where := {"topic", "partition"} & set(types)) and not _is_message(frame):
        raise ConfigError(
            f"columns {sorted(where)} say where a row goes in Spark's own Kafka sink; here the declared topic does, "
            "and the key. Drop them, or name them otherwise if they belong to the value"
        )
    came, own = _came(frame, plain=plain), {META, KEY, HEADERS, TIMESTAMP, *(KAFKA if plain else ())}
    if plain and "key" in types and types["key"] not in ("binary", "string"):
        came["key"] = came["key"].cast("string")
    headers = ("headers" if HEADERS not in types else HEADERS) if "headers" in brought(frame, form) else None
    key, value, given = _message(frame, came, own, key_field, form, headers=headers, headed=True)
    when = f.coalesce(_when(frame, came), f.unix_millis(f.current_timestamp()))
    optional = {"headers": given, "timestamp": when}
    return frame.select(key, value, *[optional[name].alias(name) for name in sorted(columns)])


def messages_of(frames: Sequence[tuple[int, Any]], key_fields: Sequence[str | None], forms: Sequence[ValueForm]) -> Any:
    """
    Join the DataFrames of a function into one frame of messages; `chunks.Pack` adds columns that are constant.

    Args:
        frames: (number of the output, rows).
        key_fields: `key=` of the output topics, by number.
        forms: of the values, by number.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    columns = set().union(*[brought(frame, forms[number]) for number, frame in frames])
    made = [
        as_outputs(frame, key_fields[number], forms[number], columns=columns).withColumn("output", f.lit(number))
        for number, frame in frames
    ]
    if len(made) == 1 and frames[0][0] == 0:
        return made[0].drop("output")
    return reduce(lambda whole, one: whole.union(one), made)


def _message(
    frame: Any,
    came: dict[str, Any],
    own: set[str],
    key_field: str | None,
    form: ValueForm,
    *,
    headers: str | None,
    headed: bool,
) -> list[Any]:
    """
    Columns key, value and headers.

    On its way to Python a list of structs costs eight times what all other columns cost together, null or not. So if no
    row has headers, the column is one of bytes.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    rest = [name for name in frame.columns if name not in own]
    if not rest:
        raise ConfigError("no column is left for the value. Return at least one besides the coordinates.")
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    if rest == ["value"] and _is_whole(types["value"], form):
        value = f.col("value").cast("binary")
    else:
        fields = {field.name: field.dataType for field in frame.schema.fields}
        columns = [_column(name) if form.text else _timed(_column(name), fields[name]).alias(name) for name in rest]
        value = f.to_json(f.struct(*columns), _TO_JSON)
        value = f.udf(form.text.encode, "binary")(value) if form.text else value.cast("binary")
    keys = [name for name in (KEY, key_field or "") if name in {KEY, *rest} & set(frame.columns)]
    key = _column(keys[0]) if keys else came.get("key", f.lit(None))
    key_type = types[keys[0]] if keys else "binary"
    if key_type not in ("binary", "string"):
        key = key.cast("string")
    kind = "array<struct<key:string,value:binary>>" if headed else "binary"
    given = (f.col(headers) if headers else f.lit(None)).cast(kind)
    if headers:  # without ours, which came with the input; a header without a name stays, and is refused
        given = f.filter(given, lambda one: ~f.coalesce(one["key"].isin(*OWN), f.lit(False)))
    return [key.cast("binary").alias("key"), value.alias("value"), given.alias("headers")]


def _timed(column: Any, kind: Any) -> Any:
    """A column with its timestamps as text: three digits, as Spark writes them, or six where three would lose some."""
    from pyspark.sql import functions as f  # noqa: PLC0415
    from pyspark.sql import types  # noqa: PLC0415

    if "timestamp" not in kind.simpleString():
        return column
    match kind:
        case types.TimestampType():
            # Only functions of a data format make text of a time in another zone than the session's.
            text = f.to_csv(f.struct(column.alias("time")), _TIMES)
            return f.when(column.isNotNull(), f.regexp_replace(text, r"(\.\d{3})000", "$1"))
        case types.ArrayType(elementType=inner):
            return f.transform(column, lambda item: _timed(item, inner))
        case types.MapType(valueType=inner):
            return f.transform_values(column, lambda _, item: _timed(item, inner))
        case types.StructType(fields=fields):
            made = [_timed(column.getField(each.name), each.dataType).alias(each.name) for each in fields]
            return f.when(column.isNotNull(), f.struct(*made))
    return column


def _when(frame: Any, came: dict[str, Any]) -> Any:
    """
    The timestamp in milliseconds since the epoch: `_timestamp`, else the input's, else null.

    As natively, 0 becomes `EARLIEST_MS`. A negative one of a row is refused later; an input's counts as 0.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    when = f.col(TIMESTAMP) if TIMESTAMP in frame.columns else came.get("timestamp")
    if when is None:
        return f.lit(None).cast("bigint")
    given = (f.unix_millis(when) if types.get(TIMESTAMP, "timestamp") == "timestamp" else when).cast("bigint")
    early = given == 0 if TIMESTAMP in frame.columns else given < EARLIEST_MS
    return f.when(early, f.lit(EARLIEST_MS).cast("bigint")).otherwise(given)
