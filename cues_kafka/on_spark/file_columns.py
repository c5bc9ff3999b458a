"""Columns of DataFrames as columns of a table (E5): what is left out or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException

from cues_kafka.errors import ConfigError
from cues_kafka.graph.blobs import FileTable
from cues_kafka.graph.names import hint, quoted
from cues_kafka.on_spark.columns import HEADERS, KEY, META, TIMESTAMP
from cues_kafka.sinks.blobs.tables import schema_of


def file_columns(frame: Any, table: FileTable, label: str) -> tuple[Any, pa.Schema]:
    """
    Return the columns of a DataFrame that go to files, and the schema of these files.

    Without a declared schema it is that of the DataFrame.

    Raises:
        ConfigError: see `chosen_columns` and `refuse_casts`.
    """
    where = f"schema= of table {table.table!r}"
    rows, given = chosen_columns(frame, list(table.schema), label, where)
    if not table.schema:
        return rows, given
    schema = schema_of(table)
    refuse_casts(given, schema, label, where)
    return rows, schema


def chosen_columns(frame: Any, declared: Sequence[str], label: str, where: str) -> tuple[Any, pa.Schema]:
    """
    Return the columns of a DataFrame that go to a table, and their types. The struct `_cues` is left out.

    Args:
        frame: what a function of DataFrames returns.
        declared: names of columns; empty: all of them.
        label: how texts name the processor.
        where: what declares the columns, such as `schema= of table 'orders'`.

    Raises:
        ConfigError: a column has a meaning for messages only, is there twice or not at all, or has a type that no table
            can have.
    """
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - a graph is planned without Spark

    names = [name for name in frame.columns if name != META]
    if own := sorted({KEY, HEADERS, TIMESTAMP} & set(names)):
        raise ConfigError(
            f"{label}: the columns {quoted(own)} are the key, headers and timestamp of a message, and the rows go to "
            f"a table. Drop them, or give them other names: withColumnRenamed({own[0]!r}, {own[0].lstrip('_')!r})"
        )
    folded = [name.lower() for name in names]  # readers such as Spark take no notice of case
    if twice := sorted({name for name in names if folded.count(name.lower()) > 1}):
        raise ConfigError(
            f"{label}: the columns {quoted(twice)} have one name for those who read the table, because case does not "
            "count there. Give each column a name of its own"
        )
    if missing := [name for name in declared if name not in names]:
        raise ConfigError(
            f"{label}: the DataFrame has no column {quoted(missing)}, which {where} names{hint(missing[0], names)}. "
            f"Columns: {quoted(names)}"
        )
    wanted = list(declared) or names
    if not wanted:
        raise ConfigError(f"{label}: no column is left for its table. Return at least one besides {META!r}")
    rows = frame.select(*[f"`{name.replace('`', '``')}`" for name in wanted])
    try:
        given = to_arrow_schema(rows.schema, timezone="UTC")
    except PySparkException as error:
        raise ConfigError(f"{label}: a column has a type that files cannot have; cast it: {error}") from None
    return rows, pa.schema([field.with_nullable(nullable=True) for field in given])


def refuse_casts(given: pa.Schema, schema: pa.Schema, label: str, where: str) -> None:
    """
    Refuse columns that cannot be of the types that are declared for them; see `chosen_columns`.

    Raises:
        ConfigError: then.
    """
    for field in schema:
        own_type = given.field(field.name).type
        try:
            pa.array([], own_type).cast(field.type)
        except pa.ArrowNotImplementedError:
            raise ConfigError(
                f"{label}: the column {field.name!r} is {own_type}, and {where} says {field.type}. Correct one of them"
            ) from None
