"""Whether a table of the user's takes what a graph writes into it (E2). It is looked at, and never altered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cues_kafka.graph.definition import Graph
from cues_kafka.graph.effects import DELETED, OFFSET, SOURCE, Sql, SqlTable, Upsert
from cues_kafka.graph.names import quoted
from cues_kafka.sinks.dialect import Dialect, named
from cues_kafka.sinks.table_facts import (
    columns_of_mysql,
    deferrable,
    has_column,
    needed,
    refusal,
    same,
    unique_of_mysql,
)

GUARD = {
    "postgresql": (f"{SOURCE} text", f"{OFFSET} bigint", f"{DELETED} boolean NOT NULL DEFAULT false"),
    "sqlite": (f"{SOURCE} TEXT", f"{OFFSET} INTEGER", f"{DELETED} BOOLEAN NOT NULL DEFAULT FALSE"),
    "mysql": (f"{SOURCE} VARCHAR(40)", f"{OFFSET} BIGINT", f"{DELETED} BOOLEAN NOT NULL DEFAULT FALSE"),
}
"""The columns of an upsert that no value fills, as each kind of database declares them."""


def tables_in(graph: Graph, database: Sql, names: Iterable[str] | None) -> Iterator[tuple[str, SqlTable | Upsert]]:
    """The tables of this database that these processors write, each with where it is declared."""
    for where, one in graph.declared_targets(names):
        if isinstance(one, SqlTable | Upsert) and one.sql == database:
            yield f"{where}, table {one.table!r}", one


def check_table(dialect: Dialect, connection: Any, declared: SqlTable | Upsert) -> Iterator[str]:
    """
    Why rows cannot be written into a table, each with the remedy.

    Raises:
        RetriableError: the database does not answer.
    """
    table = named(dialect, declared.table)
    if why := refusal(dialect, connection, f"SELECT 1 FROM {table} WHERE 1 = 0"):  # noqa: S608
        yield (
            f"it cannot be read: {why}. Create it, correct its name, or grant SELECT; cues-kafka makes no table of "
            "yours"
        )
        return
    columns = [column for column, _ in declared.columns]
    lacking = [one for one in columns if not has_column(dialect, connection, declared.table, one)]
    if lacking:
        yield (
            f"it has no column {quoted(lacking)}. Add what is missing, or correct columns=. In PostgreSQL the case of "
            "letters counts"
        )
    found = list(_unfilled(dialect, connection, declared))
    if not lacking and isinstance(declared, Upsert):
        found += _no_upsert(dialect, connection, declared)
    yield from found
    if not lacking and not found and (why := _unwritable(dialect, connection, declared)):
        yield (
            f"rows cannot be written: {why}. Grant SELECT, INSERT and UPDATE on it, and leave columns that the "
            "database computes out of columns="
        )


def _written(declared: SqlTable | Upsert) -> list[str]:
    """The columns that each row fills."""
    columns = [column for column, _ in declared.columns]
    return [*columns, SOURCE, OFFSET, DELETED] if isinstance(declared, Upsert) else columns


def _unfilled(dialect: Dialect, connection: Any, declared: SqlTable | Upsert) -> Iterator[str]:
    """Columns because of which the database would refuse each row: it fills them no more than a value does."""
    written = same(dialect, _written(declared))
    if left := [one for one in needed(dialect, connection, declared.table) if not same(dialect, [one]) <= written]:
        yield (
            f"no row can be inserted without the column {quoted(left)}, which takes no NULL and has no default. Name "
            "what is missing in columns=, or give it a default"
        )


def _no_upsert(dialect: Dialect, connection: Any, declared: Upsert) -> Iterator[str]:
    """What a table lacks besides the columns of the values."""
    guard = GUARD[dialect.name]
    if absent := [one for one in guard if not has_column(dialect, connection, declared.table, one.split()[0])]:
        between = f"; ALTER TABLE {declared.table} " if dialect.name == "sqlite" else ", "
        yield (
            "it lacks columns that say which message a row is from, and whether it is deleted. Add them: "
            f"ALTER TABLE {declared.table} {between.join(f'ADD COLUMN {one}' for one in absent)}"
        )
    if dialect.name == "mysql":
        yield from _keys_of_mysql(dialect, connection, declared)
        return
    table, keys = named(dialect, declared.table), ", ".join(named(dialect, one) for one in declared.key)
    statement = (  # it is not run: the database only says whether there is such an index
        f"EXPLAIN INSERT INTO {table} ({keys}) SELECT {keys} FROM {table} WHERE 1 = 0 "  # noqa: S608
        f"ON CONFLICT ({keys}) DO NOTHING"
    )
    if "ON CONFLICT" in refusal(dialect, connection, statement):
        yield _no_key(declared)
    elif dialect.name == "postgresql" and (late := deferrable(dialect, connection, declared.table, declared.key)):
        yield (
            f"the unique constraint {quoted(late)} may wait for the commit (DEFERRABLE), and PostgreSQL takes no such "
            f"constraint for an upsert. Put one that does not wait in its place: ALTER TABLE {declared.table} DROP "
            f"CONSTRAINT {late[0]}, ADD UNIQUE ({', '.join(declared.key)})"
        )


def _no_key(declared: Upsert) -> str:
    index = f"{declared.table.replace('.', '_')}_key"
    return (
        f"no primary key and no unique index has exactly the columns {quoted(declared.key)} of key=. Add one: "
        f"CREATE UNIQUE INDEX {index} ON {declared.table} ({', '.join(declared.key)})"
    )


def _keys_of_mysql(dialect: Dialect, connection: Any, declared: Upsert) -> Iterator[str]:
    """
    Whether ON DUPLICATE KEY finds rows by their key alone: it takes each unique index of the table.

    An index tells the same rows apart if it has all columns of the key. One with a column that no row fills, and that
    the server counts or leaves NULL, never meets a row.
    """
    key, written = same(dialect, declared.key), same(dialect, _written(declared))
    indexes = list(unique_of_mysql(dialect, connection, declared.table))
    if not any(one.whole and one.columns == key for one in indexes):
        yield _no_key(declared)
    columns = columns_of_mysql(dialect, connection, declared.table)
    apart = {one.name.lower() for one in columns if one.counted or (one.absent and not one.default)} - written
    if others := [one.name for one in indexes if not (one.whole and one.columns >= key) and not one.columns & apart]:
        yield (
            f"the unique index {quoted(others)} has other columns than key=. MySQL would take a row with the same "
            "values there for the row of the key, and change it. Drop the index, or write the table in a function, "
            "with Sql(...)"
        )


def _unwritable(dialect: Dialect, connection: Any, declared: SqlTable | Upsert) -> str:
    """Why the database takes no rows from this user; empty: it does. A missing right is no fault of any message."""
    table, columns = named(dialect, declared.table), [column for column, _ in declared.columns]
    names = ", ".join(named(dialect, one) for one in columns)
    # In MySQL, EXPLAIN of INSERT ... SELECT does not know that a trigger fills columns.
    rows = (
        f"VALUES ({', '.join(['NULL'] * len(columns))})"
        if dialect.name == "mysql"
        else f"SELECT {names} FROM {table} WHERE 1 = 0"  # noqa: S608
    )
    # COPY gives each identity column its value.
    over = "OVERRIDING SYSTEM VALUE " if dialect.name == "postgresql" and isinstance(declared, SqlTable) else ""
    probes = [f"EXPLAIN INSERT INTO {table} ({names}) {over}{rows}"]
    if isinstance(declared, Upsert):
        probes.append(f"EXPLAIN UPDATE {table} SET {OFFSET} = {OFFSET} WHERE 1 = 0")  # noqa: S608
    if why := next((why for one in probes if (why := refusal(dialect, connection, one))), ""):
        return why
    if dialect.name != "mysql":
        return ""
    given = same(dialect, columns)
    computed = [
        one.name
        for one in columns_of_mysql(dialect, connection, declared.table)
        if one.computed and one.name.lower() in given
    ]
    return f"MySQL computes the column {quoted(computed)}, and takes no value for it" if computed else ""
