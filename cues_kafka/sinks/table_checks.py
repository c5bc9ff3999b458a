"""Whether a table of the user's takes what a graph writes into it (E2). It is looked at, and never altered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from cues_kafka.errors import RetriableError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.effects import DELETED, OFFSET, SOURCE, Sql, SqlTable, Upsert
from cues_kafka.graph.names import quoted
from cues_kafka.sinks.dialect import Dialect
from cues_kafka.sinks.rows import named

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
    table, columns = named(dialect, declared.table), [column for column, _ in declared.columns]
    if why := _refused(dialect, connection, f"SELECT 1 FROM {table} WHERE 1 = 0"):  # noqa: S608
        yield (
            f"it cannot be read: {why}. Create it, correct its name, or grant SELECT; cues-kafka makes no table of "
            "yours"
        )
        return
    lacking = [one for one in columns if not _has(dialect, connection, table, one)]
    if lacking:
        yield (
            f"it has no column {quoted(lacking)}. Add what is missing, or correct columns=. In PostgreSQL the case of "
            "letters counts"
        )
    found = [] if lacking or not isinstance(declared, Upsert) else list(_no_upsert(dialect, connection, declared))
    yield from found
    if not lacking and not found and (why := _unwritable(dialect, connection, declared)):
        yield f"rows cannot be written: {why}. Grant SELECT, INSERT and UPDATE on it"


def _no_upsert(dialect: Dialect, connection: Any, declared: Upsert) -> Iterator[str]:
    """What a table lacks besides the columns of the values."""
    table, guard = named(dialect, declared.table), GUARD[dialect.name]
    if absent := [one for one in guard if not _has(dialect, connection, table, one.split()[0])]:
        between = f"; ALTER TABLE {declared.table} " if dialect.name == "sqlite" else ", "
        yield (
            "it lacks columns that say which message a row is from, and whether it is deleted. Add them: "
            f"ALTER TABLE {declared.table} {between.join(f'ADD COLUMN {one}' for one in absent)}"
        )
    if not _is_unique(dialect, connection, declared):
        index = f"{declared.table.replace('.', '_')}_key"
        yield (
            f"no primary key and no unique index has exactly the columns {quoted(declared.key)} of key=. Add one: "
            f"CREATE UNIQUE INDEX {index} ON {declared.table} ({', '.join(declared.key)})"
        )


def _has(dialect: Dialect, connection: Any, table: str, column: str) -> bool:
    return not _refused(dialect, connection, f"SELECT {named(dialect, column)} FROM {table} WHERE 1 = 0")  # noqa: S608


def _is_unique(dialect: Dialect, connection: Any, declared: Upsert) -> bool:
    table, keys = named(dialect, declared.table), ", ".join(named(dialect, one) for one in declared.key)
    if dialect.name == "mysql":
        rows = _rows(dialect, connection, f"SHOW INDEX FROM {table} WHERE Non_unique = 0")
        indexes = {row[2]: {one[4].lower() for one in rows if one[2] == row[2]} for row in rows}
        return {one.lower() for one in declared.key} in indexes.values()
    statement = (  # it is not run: the database only says whether there is such an index
        f"EXPLAIN INSERT INTO {table} ({keys}) SELECT {keys} FROM {table} WHERE 1 = 0 "  # noqa: S608
        f"ON CONFLICT ({keys}) DO NOTHING"
    )
    return "ON CONFLICT" not in _refused(dialect, connection, statement)


def _unwritable(dialect: Dialect, connection: Any, declared: SqlTable | Upsert) -> str:
    """Why the database takes no rows from this user; empty: it does. A missing right is no fault of any message."""
    table, columns = named(dialect, declared.table), [column for column, _ in declared.columns]
    names = ", ".join(named(dialect, one) for one in columns)
    probes = [f"INSERT INTO {table} ({names}) SELECT {names} FROM {table} WHERE 1 = 0"]  # noqa: S608
    if isinstance(declared, Upsert):
        probes.append(f"UPDATE {table} SET {OFFSET} = {OFFSET} WHERE 1 = 0")  # noqa: S608
    return next((why for one in probes if (why := _refused(dialect, connection, f"EXPLAIN {one}"))), "")


def _refused(dialect: Dialect, connection: Any, statement: str) -> str:
    """What the database has against a statement; empty: nothing."""
    try:
        _rows(dialect, connection, statement)
    except dialect.errors as error:
        return dialect.address.quiet(error).splitlines()[0]
    return ""


def _rows(dialect: Dialect, connection: Any, statement: str) -> Any:
    """
    What a statement gives.

    Raises:
        RetriableError: the database does not answer. Where it refuses, an exception of the driver is raised.
    """
    try:
        return dialect.execute(connection, statement).fetchall()
    except dialect.errors as error:
        with suppress(dialect.errors):
            dialect.rollback(connection)
        if why := dialect.outage(error, connection):
            raise RetriableError(why, code="TARGET") from None
        raise
