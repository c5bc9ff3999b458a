"""What a function gets of a table of Delta Lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cues_kafka.errors import OutputError
from cues_kafka.graph.targets import Write
from cues_kafka.sinks.columns import ArrowRows


class DeltaRows:
    """What a function gets of `Delta(...).table(...)`. Valid only during the call."""

    __slots__ = ("_columns", "_made", "_table", "_write")

    def __init__(self, write: Write, table: str, columns: Mapping[str, str]) -> None:
        self._write, self._table, self._columns = write, table, columns
        self._made: ArrowRows | None = None

    def write(self, value: Any, message: Any = None) -> None:
        """
        Write a row. It is committed with the outcome of the message, or not at all.

        Args:
            value: a mapping or an object with a field for each column.
            message: in a `Sink`, the message whose value it is; not used here.

        Raises:
            OutputError: a field is missing or does not fit its column.
        """
        del message
        self.write_all((value,))

    def write_all(self, values: Sequence[Any]) -> None:
        """Write a row for each value; see `write`. If one does not fit, none is written."""
        if type(None) in set(map(type, values)):
            raise OutputError(
                f"a message without a value (a tombstone) is no row of Delta table {self._table!r}. Leave tombstones "
                "out, with filter="
            )
        if not values:
            return
        if self._made is None:
            from cues_kafka.sinks.delta.columns import schema_of  # noqa: PLC0415 - it needs pyarrow

            self._made = ArrowRows(self._table, schema_of(self._columns))
        self._write(self._made.made(values))
