"""The column `_cues`: which message each row was read from, and so which message each row that comes back is of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cues_kafka.codecs.arrow.fitting import CUES, KEY, TIMESTAMP, cast
from cues_kafka.errors import OutputError

NOWHERE: Final = -1
"""In the place of a message's index: the row belongs to all messages of its call."""

WHEN: Final = pa.timestamp("ms", tz="UTC")
PLACE: Final = pa.struct([("offset", pa.int64()), ("key", pa.binary()), ("timestamp", WHEN)])


def place_of(offsets: Sequence[int], keys: Sequence[bytes | None], times_ms: Sequence[int]) -> Any:
    """
    The column `_cues`.

    Args:
        offsets: of the messages, one for each row.
        keys: of the messages.
        times_ms: of the messages.
    """
    return pa.StructArray.from_arrays(
        [pa.array(offsets, pa.int64()), pa.array(keys, pa.binary()), pa.array(times_ms, pa.int64()).cast(WHEN)],
        fields=list(PLACE),
    )


def offsets_of(place: Any) -> Any:
    """The offsets in a column `_cues`."""
    return place.field(0)


def of_rows(place: Any, rows: Sequence[int]) -> Any:
    """The column `_cues` of some of its rows."""
    return place if len(rows) == len(place) else place.take(pa.array(rows, pa.int64()))


def placed(schema: Any, arrays: Sequence[Any], place: Any) -> Any:
    """
    A record batch with the column `_cues` behind the others.

    Args:
        schema: of the values.
        arrays: of the values.
        place: the column, with as many rows.
    """
    return pa.RecordBatch.from_arrays([*arrays, place], schema=schema.append(pa.field(CUES, PLACE)))


class Origins(NamedTuple):
    """
    Which message each row is of.

    Attributes:
        at: the index of each row's message, `NOWHERE` for a row that names none.
        each: whether they ascend, and each row is of another message.
    """

    at: Sequence[int]
    each: bool


def origins(rows: Any, offsets: Any, topic: str) -> Origins:
    """
    Which message each row is of.

    Args:
        rows: that came back.
        offsets: of the messages, ascending, as an array of Arrow.
        topic: where the rows go, for errors.

    Raises:
        OutputError: a row names another message.
    """
    if CUES not in rows.schema.names:
        return Origins([NOWHERE] * len(rows), each=False)
    column = rows.column(CUES)
    if not pa.types.is_struct(column.type) or column.type.get_field_index("offset") < 0:
        raise OutputError(
            f"column {CUES!r} of {topic!r} is {column.type}. It says which message a row was made from: keep it as it "
            f"came, or drop it."
        )
    given = pc.struct_field(column, "offset")
    found = _found(cast(given, pa.int64(), f"{CUES}.offset"), offsets)
    if found.null_count > given.null_count:
        wrong = pc.filter(given, pc.and_(pc.is_null(found), pc.is_valid(given)))
        raise OutputError(
            f"column {CUES!r} of {topic!r} names offset {wrong[0].as_py()}, and the call has no such message. Keep the "
            "column as it came, or drop it: then the rows belong to all messages of the call."
        )
    if found.null_count:
        return Origins(pc.fill_null(found, NOWHERE).to_pylist(), each=False)
    if not pc.all(pc.less(found.slice(0, max(len(found) - 1, 0)), found.slice(1))).as_py():
        return Origins(found.to_pylist(), each=len(found) == 1)
    return Origins(range(len(offsets)) if len(found) == len(offsets) else found.to_pylist(), each=True)


def _found(given: Any, offsets: Any) -> Any:
    """The index of the message that has each given offset; null: no message has it."""
    count = len(offsets)
    if not count or offsets[-1].as_py() - offsets[0].as_py() != count - 1:
        return pc.index_in(given, value_set=offsets)
    found = pc.subtract(given, offsets[0])  # there is no gap, so no table is needed
    least, most = pc.min_max(found).values()
    if not least.is_valid or (least.as_py() >= 0 and most.as_py() < count):
        return found
    return pc.index_in(given, value_set=offsets)


def in_order(rows: Any, origin: Origins) -> tuple[Any, Origins]:
    """The rows by the order of their messages, with those that name none behind them. It is stable."""
    if origin.each:
        return rows, origin
    at = origin.at
    ranks = [len(rows) if index == NOWHERE else index for index in at]
    if ranks == sorted(ranks):
        return rows, origin
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    found, each = [at[index] for index in order], len({*at}) == len(at) and NOWHERE not in at
    return rows.take(pa.array(order, pa.int64())), Origins(found, each=each)


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
        column = cast(column, WHEN, f"column {TIMESTAMP!r} of {topic!r}")
    return list(column.cast(pa.int64()).to_pylist())
