"""Columns of tables of Delta Lake: their types in Arrow, and whether a table fits what is declared (E6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from cues_kafka.graph.names import quoted
from cues_kafka.sinks.columns import library
from cues_kafka.sinks.delta.column_types import ColumnType, Decimal, ListOf, StructOf, column_type

_PLAIN: Final = {
    "string": "string",
    "long": "int64",
    "integer": "int32",
    "short": "int16",
    "byte": "int8",
    "double": "double",
    "float": "float",
    "boolean": "bool",
    "binary": "binary",
    "date": "date32",
    "timestamp_ntz": "timestamp[us]",
}
"""By type of Delta, that of Arrow."""


class Declared(Protocol):
    """What a declaration says of a table; see `DeltaTarget`."""

    @property
    def options(self) -> Mapping[str, str]:
        """The `storage_options` of deltalake."""
        ...

    def url(self) -> str:
        """The address of the table."""
        ...

    @property
    def columns(self) -> Mapping[str, str]:
        """By column, its type."""
        ...

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns that files are divided by."""
        ...

    @property
    def leave(self) -> tuple[str, ...]:
        """Columns of the table that stay null."""
        ...


class DeltaColumn(NamedTuple):
    """
    A column of a table.

    Attributes:
        name: of the column.
        type: as Delta names it.
        nullable: whether it may be null.
    """

    name: str
    type: str
    nullable: bool


class TableMismatch(NamedTuple):
    """
    Why something cannot be written to a table.

    Attributes:
        why: what does not fit, without a full stop.
        remedy: what to do, without a full stop.
    """

    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.why}. {self.remedy}"


class TableShape(NamedTuple):
    """
    What counts of a table for those who write to it.

    Attributes:
        columns: in order.
        partition_by: the columns that files are divided by.
        settings: the table's properties.
    """

    columns: tuple[DeltaColumn, ...]
    partition_by: tuple[str, ...]
    settings: Mapping[str, str | None]

    def added(self, declared: Declared) -> dict[str, str]:
        """The declared columns that the table lacks."""
        there = {one.name for one in self.columns}
        return {name: kind for name, kind in declared.columns.items() if name not in there}

    def unfit(self, declared: Declared, *, running: bool = False) -> Iterator[TableMismatch]:
        """
        Why a declaration cannot be written to the table.

        Args:
            declared: what is declared.
            running: a task asks that has started. It leaves columns null that it does not know, because a newer version
                of the program may have added them, and adds none.
        """
        yield from self._types_unfit(declared)
        strange = [one.name for one in self.columns if one.name not in {*declared.columns, *declared.leave}]
        if strange and not running:
            yield TableMismatch(
                f"the table has columns that are not declared: {quoted(strange)}",
                f"Declare them. If they were removed or renamed: a table keeps its columns; write leave={strange!r}, "
                "and they are null from now on",
            )
        needed = [one.name for one in self.columns if not one.nullable and one.name not in declared.columns]
        if needed:
            yield TableMismatch(
                f"the table has columns that may not be null, and are not declared: {quoted(needed)}", "Declare them"
            )
        if running and (lacking := self.added(declared)):
            yield TableMismatch(f"the table lacks columns: {quoted(lacking)}", "Restart the worker, which adds them")
        if self.partition_by != declared.partition_by:
            yield TableMismatch(
                f"the table is divided by {_named(self.partition_by)}, and partition_by= names "
                f"{_named(declared.partition_by)}",
                "A table stays divided as it is: declare the same, or write to another table",
            )
        if self.settings.get(FORGETS):
            yield TableMismatch(
                f"the table has the property {FORGETS}: with it Delta forgets how far a task is that rests for so long",
                "Unset the property",
            )

    def unchecked(self) -> Iterator[TableMismatch]:
        """Why files may not be added that the library has not written: it checks rows, and not files."""
        if asked := [name for name in self.settings if name.startswith("delta.constraints.")]:
            yield TableMismatch(
                f"the table has constraints, which rows from Spark are not compared with: {quoted(asked)}",
                "Drop them, and have the function give error messages or leave rows out; or write to the table from a "
                "native Sink",
            )
        if self.settings.get(MAPPED, "none") != "none":
            yield TableMismatch(f"the table has the property {MAPPED}, and files have no mapped names", "Unset it")

    def _types_unfit(self, declared: Declared) -> Iterator[TableMismatch]:
        for one in self.columns:
            kind = declared.columns.get(one.name)
            if kind is not None and kind != one.type:
                yield TableMismatch(
                    f"column {one.name!r} is {one.type!r} in the table and {kind!r} in the declaration",
                    f"A column keeps its type: declare columns={{{one.name!r}: {one.type!r}}}, or give the new one "
                    "another name",
                )
        lower = {one.name.lower(): one.name for one in self.columns}
        for name in self.added(declared):
            if name.lower() in lower:
                there = lower[name.lower()]
                yield TableMismatch(f"column {name!r} differs from {there!r} of the table by case only", "Rename it")


def _named(names: Sequence[str]) -> str:
    return quoted(names) if names else "no column"


MAPPED: Final = "delta.columnMapping.mode"
"""The property by which columns have other names in files."""

FORGETS: Final = "delta.setTransactionRetentionDuration"
"""The property by which a table forgets application transactions."""


def schema_of(columns: Mapping[str, str]) -> Any:
    """The schema of columns, as pyarrow has it."""
    pa = library("A Delta table")
    return pa.schema([pa.field(name, _arrow_type(pa, column_type(kind))) for name, kind in columns.items()])


def delta_type(kind: Any) -> str:
    """The type of a column of Arrow, as Delta names it; empty: tables have none of it here."""
    pa = library("A Delta table")
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = delta_type(kind.value_type)
        return f"array<{item}>" if item else ""
    if pa.types.is_struct(kind):
        inner = [(field.name, delta_type(field.type)) for field in kind]
        return f"struct<{','.join(f'{name}:{one}' for name, one in inner)}>" if all(one for _, one in inner) else ""
    plain = {name: _arrow_type(pa, name) for name in (*_PLAIN, "timestamp")}
    kind = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)
    return next((name for name, one in plain.items() if one == kind), "")


def _arrow_type(pa: Any, kind: ColumnType) -> Any:
    match kind:
        case "timestamp":
            return pa.timestamp("us", "UTC")
        case str():
            return pa.type_for_alias(_PLAIN[kind])
        case Decimal():
            return pa.decimal128(kind.precision, kind.scale)
        case ListOf():
            return pa.list_(pa.field("element", _arrow_type(pa, kind.item)))
        case StructOf():
            return pa.struct([pa.field(name, _arrow_type(pa, one)) for name, one in kind.fields])
