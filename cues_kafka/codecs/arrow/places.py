"""The column `_cues`: which message each row was read from, and so which message each row that comes back is of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cues_kafka.codecs.arrow.fitting import CUES, KEY, TIMESTAMP, cast
from cues_kafka.errors import OutputError

NOWHERE: Final = -1
"""In the place of a message's index: the row belongs to all messages of its call."""

_WHEN: Final = pa.timestamp("ms", tz="UTC")
PLACE: Final = pa.struct([("offset", pa.int64()), ("key", pa.binary()), ("timestamp", _WHEN)])


def placed(
    schema: Any, arrays: Sequence[Any], offsets: Sequence[int], keys: Sequence[bytes | None], times_ms: Sequence[int]
) -> Any:
    """
    A record batch with the column `_cues` behind the others.

    Args:
        schema: of the values.
        arrays: of the values.
        offsets: of the messages, one for each row.
        keys: of the messages.
        times_ms: of the messages.
    """
    place = pa.StructArray.from_arrays(
        [pa.array(offsets, pa.int64()), pa.array(keys, pa.binary()), pa.array(times_ms, pa.int64()).cast(_WHEN)],
        fields=list(PLACE),
    )
    return pa.RecordBatch.from_arrays([*arrays, place], schema=schema.append(pa.field(CUES, PLACE)))


def origins(rows: Any, offsets: Sequence[int], topic: str) -> list[int]:
    """
    The index of each row's message, `NOWHERE` for a row that names none.

    Args:
        rows: that came back.
        offsets: of the messages, ascending.
        topic: where the rows go, for errors.

    Raises:
        OutputError: a row names another message.
    """
    if CUES not in rows.schema.names:
        return [NOWHERE] * len(rows)
    column = rows.column(CUES)
    if not pa.types.is_struct(column.type) or column.type.get_field_index("offset") < 0:
        raise OutputError(
            f"column {CUES!r} of {topic!r} is {column.type}. It says which message a row was made from: keep it as it "
            f"came, or drop it."
        )
    given = pc.struct_field(column, "offset")
    found = pc.index_in(cast(given, pa.int64(), f"{CUES}.offset"), value_set=pa.array(offsets, pa.int64()))
    if found.null_count > given.null_count:
        wrong = pc.filter(given, pc.and_(pc.is_null(found), pc.is_valid(given)))
        raise OutputError(
            f"column {CUES!r} of {topic!r} names offset {wrong[0].as_py()}, and the call has no such message. Keep the "
            "column as it came, or drop it: then the rows belong to all messages of the call."
        )
    return list((pc.fill_null(found, NOWHERE) if found.null_count else found).to_pylist())


def in_order(rows: Any, at: list[int]) -> tuple[Any, list[int]]:
    """The rows by the order of their messages, with those that name none behind them. It is stable."""
    ranks = [len(rows) if index == NOWHERE else index for index in at]
    if ranks == sorted(ranks):
        return rows, at
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    return rows.take(pa.array(order, pa.int64())), [at[index] for index in order]


def own_keys(rows: Any, name: str | None, *, as_bytes: bool) -> list[Any] | None:
    """
    The keys that rows bring; None: they bring none.

    Args:
        rows: that came back.
        name: the column of the topic's `key=` field; None: it has none.
        as_bytes: whether texts are given as bytes of UTF-8.
    """
    found = [_keys(rows.column(one), as_bytes=as_bytes) for one in (KEY, name) if one in rows.schema.names]
    if len(found) < 2:
        return found[0] if found else None
    return [field if own is None else own for own, field in zip(*found, strict=True)]


def _keys(column: Any, *, as_bytes: bool) -> list[Any]:
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return list((column.cast(pa.binary()) if text and as_bytes else column).to_pylist())


def own_times(rows: Any, topic: str) -> list[int | None] | None:
    """
    The times that rows bring, in milliseconds since the epoch; None: they bring none.

    Raises:
        OutputError: the column is of another type.
    """
    if TIMESTAMP not in rows.schema.names:
        return None
    column = rows.column(TIMESTAMP)
    if not pa.types.is_integer(column.type):
        column = cast(column, _WHEN, f"column {TIMESTAMP!r} of {topic!r}")
    return list(column.cast(pa.int64()).to_pylist())
