"""From JSON to columns by the compiled module. What is not usual is read as without it, and put between the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from cues_kafka.codecs.arrow.compiled import KINDS, Buffers, ColumnsModule, PlainField


class QuickColumns:
    """
    Reads the usual values of a class with plain fields.

    Attributes:
        kinds: Arrow's types of the columns.
    """

    def __init__(
        self, module: ColumnsModule, fields: Sequence[PlainField], kinds: Sequence[Any], *, strict: bool
    ) -> None:
        """
        Args:
            module: what reads.
            fields: of the class, whose types are those of `KINDS`.
            kinds: Arrow's types of them.
            strict: whether the class refuses unknown fields.
        """
        self._read, self._strict, self.kinds = module.read_json, strict, kinds
        self._fields = tuple((each.name.encode(), KINDS[each.cls], each.flags) for each in fields)

    def usual(self, values: Sequence[bytes | None]) -> tuple[list[Any], list[int]]:
        """The columns of all usual values, and the indices of the others, in order."""
        rows, columns, others = self._read(list(values), self._fields, self._strict)
        return [_array(kind, rows, one) for kind, one in zip(self.kinds, columns, strict=True)], others


def _array(kind: Any, rows: int, buffers: Buffers) -> Any:
    valid, ends, data = buffers
    given = [None if valid is None else pa.py_buffer(valid)]
    if ends is not None:
        given.append(pa.py_buffer(ends))
    return pa.Array.from_buffers(kind, rows, [*given, pa.py_buffer(data)])


def merged(usual: list[Any], rest: list[Any], others: Sequence[int], failed: set[int]) -> list[Any]:
    """
    The columns of all rows, in the order of the messages.

    Args:
        usual: the columns of the usual values.
        rest: the columns of the other ones, of which some have no row.
        others: the indices of the other ones among all, in order.
        failed: those of them that have no row.
    """
    if len(failed) == len(others):
        return usual
    order: list[int] = []
    begun, rows, coming = 0, len(usual[0]), len(usual[0])
    for number, index in enumerate(others):
        order.extend(range(begun, begun := index - number))
        if index not in failed:
            order.append(coming)
            coming += 1
    order.extend(range(begun, rows))
    taken = pa.array(order, pa.int64())
    return [pa.concat_arrays(pair).take(taken) for pair in zip(usual, rest, strict=True)]
