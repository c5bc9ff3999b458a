"""Values as columns of Arrow: each value fits its type as it is, or is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from cues_kafka.errors import OutputError
from cues_kafka.extras import PYARROW, missing


def library(what: str) -> Any:
    """
    Load pyarrow.

    Args:
        what: who needs it, as the subject of a sentence in the singular.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415
    except ImportError as error:
        raise missing(what, PYARROW, error=error) from None
    return pa


class ArrowRows:
    """Makes columns of values, which are mappings or objects with a field for each column."""

    def __init__(self, table: str, schema: Any) -> None:
        """
        Args:
            table: name of the table, for errors.
            schema: of the columns, as pyarrow has it.
        """
        from cues_kafka.sinks.blobs import fit  # noqa: PLC0415  it needs pyarrow

        self._table, self._schema = table, schema
        self._arrow = library(f"table {table!r}")
        self._loses = fit.loses
        self._exact = [fit.exact(field.type) for field in schema]

    def made(self, values: Sequence[Any]) -> Any:
        """
        The values as a `pyarrow.RecordBatch`.

        Raises:
            OutputError: a value lacks a field, or has one that does not fit.
        """
        classes = set(map(type, values))
        try:
            arrays = [
                self._array(field, exact, self._column(field.name, values, classes))
                for field, exact in zip(self._schema, self._exact, strict=True)
            ]
            return self._arrow.RecordBatch.from_arrays(arrays, schema=self._schema)
        except (self._arrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise OutputError(f"table {self._table!r}: a value does not fit the schema: {error}") from error

    def _array(self, field: Any, exact: frozenset[type], values: list[Any]) -> Any:
        """Refuse values that pyarrow has cut, such as 70.99 in a column of whole numbers."""
        made = self._arrow.array(values, field.type)
        if not exact.issuperset(map(type, values)) and self._loses(values, made):
            raise ValueError(f"a part of field {field.name!r} would be lost as {field.type}")
        return made

    def _column(self, name: str, values: Sequence[Any], classes: set[type]) -> list[Any]:
        try:
            if len(classes) == 1 and not issubclass(next(iter(classes)), Mapping) and "." not in name:
                return list(map(attrgetter(name), values))
            if classes == {dict}:
                return list(map(itemgetter(name), values))
            return [value[name] if isinstance(value, Mapping) else getattr(value, name) for value in values]
        except (KeyError, AttributeError) as error:
            raise OutputError(f"the value lacks the field {name!r} of table {self._table!r}") from error
