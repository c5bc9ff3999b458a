"""Values as columns of Arrow: each value fits its type as it is, or is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate, chain
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
        self._loses, self._exact = fit.loses, cache(fit.exact)

    def made(self, values: Sequence[Any]) -> Any:
        """
        The values as a `pyarrow.RecordBatch`.

        Raises:
            OutputError: a value lacks a field, or has one that does not fit.
        """
        try:
            arrays = self._fields(self._schema, "", values)
            return self._arrow.RecordBatch.from_arrays(arrays, schema=self._schema)
        except (self._arrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise OutputError(f"table {self._table!r}: a value does not fit the schema: {error}") from error

    def _fields(self, fields: Iterable[Any], within: str, values: Sequence[Any]) -> list[Any]:
        """A column for each field of these values, none of which is None."""
        classes = set(map(type, values))
        return [
            self._array(within + field.name, field.type, self._column(field.name, within, values, classes))
            for field in fields
        ]

    def _array(self, name: str, kind: Any, values: list[Any]) -> Any:
        """Refuse values that pyarrow has cut, such as 70.99 in a column of whole numbers."""
        if self._arrow.types.is_list(kind):
            return self._lists(name, kind, values)
        if self._arrow.types.is_struct(kind):
            return self._structs(name, kind, values)
        made = self._arrow.array(values, kind)
        if not self._exact(kind).issuperset(map(type, values)) and self._loses(values, made):
            raise ValueError(f"a part of field {name!r} would be lost as {kind}")
        return made

    def _lists(self, name: str, kind: Any, values: list[Any]) -> Any:
        there = [value for value in values if value is not None]
        if not all(isinstance(value, list | tuple) for value in there):
            raise ValueError(f"a value of field {name!r} is no list")
        items = self._array(f"{name}[]", kind.value_type, list(chain.from_iterable(there)))
        offsets = accumulate((0 if value is None else len(value) for value in values), initial=0)
        return self._arrow.ListArray.from_arrays(
            self._arrow.array(offsets, self._arrow.int32()), items, type=kind, mask=self._nulls(values)
        )

    def _structs(self, name: str, kind: Any, values: list[Any]) -> Any:
        there = [value for value in values if value is not None]
        made = self._fields(kind, f"{name}.", there)
        if len(there) < len(values):
            at = accumulate((value is not None for value in values), initial=0)
            places = [None if value is None else place for place, value in zip(at, values, strict=False)]
            made = [one.take(self._arrow.array(places, self._arrow.int64())) for one in made]
        return self._arrow.StructArray.from_arrays(made, fields=list(kind), mask=self._nulls(values))

    def _nulls(self, values: list[Any]) -> Any:
        return self._arrow.array([value is None for value in values], self._arrow.bool_())

    def _column(self, name: str, within: str, values: Sequence[Any], classes: set[type]) -> list[Any]:
        try:
            if len(classes) == 1 and not issubclass(next(iter(classes)), Mapping) and "." not in name:
                return list(map(attrgetter(name), values))
            if classes == {dict}:
                return list(map(itemgetter(name), values))
            return [value[name] if isinstance(value, Mapping) else getattr(value, name) for value in values]
        except (KeyError, AttributeError) as error:
            raise OutputError(f"the value lacks the field {within + name!r} of table {self._table!r}") from error
