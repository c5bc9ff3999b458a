"""Whether the columns that a function returns fit a topic. Nothing is coerced: a number is not text, nothing is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cues_kafka.errors import OutputError

CUES: Final = "_cues"
KEY: Final = "_key"
TIMESTAMP: Final = "_timestamp"

OWN: Final = (CUES, KEY, TIMESTAMP)
"""Columns that are no part of the value, by the names that Spark's have."""

_FAMILIES: Final[tuple[tuple[str, Callable[[Any], bool]], ...]] = (
    ("whole", pa.types.is_integer),
    ("number", pa.types.is_floating),
    ("text", pa.types.is_string),
    ("text", pa.types.is_large_string),
    ("text", pa.types.is_string_view),
    ("bytes", pa.types.is_binary),
    ("bytes", pa.types.is_large_binary),
    ("bytes", pa.types.is_fixed_size_binary),
    ("decimal", pa.types.is_decimal),
    ("time", pa.types.is_timestamp),
    ("date", pa.types.is_date),
    ("list", pa.types.is_list),
    ("list", pa.types.is_large_list),
    ("map", pa.types.is_map),
    ("struct", pa.types.is_struct),
    ("bool", pa.types.is_boolean),
)

_TAKES: Final = {("whole", "number"), ("whole", "decimal")}
"""What is another family's value as it is."""


def rows_of(given: Any, topic: str) -> Any:
    """
    What a function returned for one topic, as a `pyarrow.RecordBatch`.

    Raises:
        OutputError: it is something else.
    """
    if isinstance(given, pa.RecordBatch):
        return given
    if isinstance(given, pa.Table):
        arrays = [_one(column) for column in given.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=given.schema)
    raise OutputError(
        f"returned {type(given).__name__} for {topic!r}. With batch='arrow', return a pyarrow.RecordBatch or Table, or "
        "None."
    )


def _one(column: Any) -> Any:
    made = column.combine_chunks()
    return pa.concat_arrays(made.chunks) if isinstance(made, pa.ChunkedArray) else made


def fitted(given: Any, schema: Any, topic: str) -> Any:
    """
    The columns of the values, in the order of the topic's class and with its types.

    Args:
        given: a record batch.
        schema: of the topic; None: any columns are the fields of its values.
        topic: its name.

    Raises:
        OutputError: a column is missing, unknown, or of another type, or has a null or a number that does not fit.
    """
    names = [name for name in given.schema.names if name not in OWN]
    if len(set(names)) < len(names):
        raise OutputError(f"{topic!r}: two columns have one name: {_listed(names)}. Drop one of them.")
    if schema is None:
        return given.select(names)
    if unknown := [name for name in names if name not in schema.names]:
        raise OutputError(
            f"{topic!r} has no field {unknown[0]!r}. Its fields: {_listed(schema.names)}. Drop the column: "
            f"batch.drop_columns([{unknown[0]!r}])."
        )
    arrays = [_column(given, field, topic) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(given: Any, field: Any, topic: str) -> Any:
    where = f"column {field.name!r} of {topic!r}"
    if field.name not in given.schema.names:
        if field.nullable:
            return pa.nulls(len(given), field.type)
        raise OutputError(
            f"the columns for {topic!r} lack {field.name!r}. Returned: {_listed(given.schema.names)}. Append it, or "
            "give it in the class of the topic the type ... | None."
        )
    column = cast(given.column(field.name), field.type, where)
    if column.null_count and not field.nullable:
        raise OutputError(f"{where} has {column.null_count} nulls, and the field takes none. Fill or filter them.")
    return column


def cast(column: Any, kind: Any, where: str) -> Any:
    """
    A column with another type, if each value stays what it is.

    Raises:
        OutputError: it would not.
    """
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        return cast(column.dictionary_decode(), kind, where)
    came, goes = _family(column.type), _family(kind)
    naive = came == "time" and column.type.tz is None
    if not pa.types.is_null(column.type) and ((came != goes and (came, goes) not in _TAKES) or naive):
        zone = " Give it a zone: pc.assume_timezone(column, 'UTC')." if naive else " Cast it in the function."
        raise OutputError(f"{where} is {column.type}, not {kind}.{zone}")
    try:
        return pc.cast(column, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise OutputError(f"{where} is {column.type}, and does not fit {kind}: {error}") from error


def _family(kind: Any) -> str:
    return next((name for name, is_one in _FAMILIES if is_one(kind)), str(kind))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
