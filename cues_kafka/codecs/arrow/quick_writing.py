"""From columns to JSON by the compiled module: the bytes are those that the codec of the class writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cues_kafka.codecs.arrow.compiled import KINDS, WRITTEN, ColumnsModule

Texts = Callable[[Any], Any]
"""Makes JSON of each value of a column; None: one of them has none."""


class QuickRows:
    """Writes the rows of a class with plain fields."""

    def __init__(self, module: ColumnsModule, fields: Sequence[tuple[bytes, type[Any], Texts]]) -> None:
        """
        Args:
            module: what writes.
            fields: what stands before a value, its class, and what makes JSON of classes that the module cannot write.
        """
        self._write = module.write_json
        own = {cls: kind for cls, kind in KINDS.items() if cls is not float}  # msgspec alone writes its floats
        self._fields = [(prefix, own.get(cls, WRITTEN), texts) for prefix, cls, texts in fields]

    def encode(self, batch: Any) -> list[bytes] | None:
        """The rows; None: one of them is not usual, and nothing is known of the others."""
        columns = []
        for (prefix, kind, texts), given in zip(self._fields, batch.columns, strict=True):
            column = texts(given) if kind == WRITTEN else given
            if column is None:
                return None
            valid, *rest = column.buffers()
            ends, data = rest if len(rest) == 2 else (None, *rest)
            columns.append((prefix, kind, column.offset, valid, ends, data))
        return self._write(len(batch), tuple(columns))
