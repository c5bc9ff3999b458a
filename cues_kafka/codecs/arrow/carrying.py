"""What messages carry, by column: for the records that come of them, and for the column `_cues`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from cues_kafka.codecs.arrow.compiled import ColumnsModule, module
from cues_kafka.codecs.arrow.places import PLACE, WHEN, place_of
from cues_kafka.ports.log import UNREADABLE, Headers, WireMessage, headers_of_each


class Carrying(NamedTuple):
    """
    What some messages carry.

    Attributes:
        values: their values.
        keys: their keys.
        came: their headers.
        times: their timestamps, in milliseconds; numbers are made where they are asked for.
        place: the column `_cues`.
    """

    values: list[bytes | None]
    keys: list[bytes | None]
    came: list[Headers | None]
    times: Sequence[int]
    place: Any


def carrying(messages: Sequence[WireMessage]) -> Carrying | None:
    """What messages of one class carry; None: the headers of one cannot be read."""
    return carrying_with(module(), messages)


def carrying_with(compiled: ColumnsModule | None, messages: Sequence[WireMessage]) -> Carrying | None:
    """The same with this module; None: without one."""
    found = None if compiled is None else compiled.carried(messages if isinstance(messages, list) else [*messages])
    if found is not None:
        values, keys, came, *buffers = found
        if came.count(None) < len(came) and _unreadable(came):  # most messages have none, and it counts by identity
            return None
        times: Any = memoryview(buffers[1] or b"").cast("q")
        return Carrying(values, keys, came, times, _place(len(keys), buffers))
    kind_of: Any = type(messages[0])
    came = headers_of_each(messages)
    if _unreadable(came):
        return None
    keys, times = list(map(kind_of.key, messages)), [when for _, when in map(kind_of.timestamp, messages)]
    place = place_of(list(map(kind_of.offset, messages)), keys, times)
    return Carrying(list(map(kind_of.value, messages)), keys, came, times, place)


def _unreadable(came: Sequence[Headers | None]) -> bool:
    """Whether one of these headers stands for those that cannot be read."""
    return any(one is UNREADABLE for one in came)


def _place(count: int, buffers: Sequence[bytes | None]) -> Any:
    offsets, whens, valid, ends, data = (None if one is None else pa.py_buffer(one) for one in buffers)
    return pa.StructArray.from_arrays(
        [
            pa.Array.from_buffers(pa.int64(), count, [None, offsets]),
            pa.Array.from_buffers(pa.binary(), count, [valid, ends, data]),
            pa.Array.from_buffers(WHEN, count, [None, whens]),
        ],
        fields=list(PLACE),
    )
