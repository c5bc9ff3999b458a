"""What a database says of a table of the user's: its columns and its unique indexes (E2). Nothing here writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from cues_kafka.errors import RetriableError
from cues_kafka.sinks.dialect import Dialect, named


def rows(dialect: Dialect, connection: Any, statement: str, *parameters: Any) -> Any:
    """
    What a statement gives.

    Raises:
        RetriableError: the database does not answer. If it refuses, an exception of the driver is raised.
    """
    try:
        return dialect.execute(connection, statement, parameters).fetchall()
    except dialect.errors as error:
        with suppress(dialect.errors):
            dialect.rollback(connection)
        if why := dialect.outage(error, connection):
            raise RetriableError(why, code="TARGET") from None
        raise


def refusal(dialect: Dialect, connection: Any, statement: str) -> str:
    """What the database has against a statement; empty: nothing."""
    try:
        rows(dialect, connection, statement)
    except dialect.errors as error:
        return dialect.address.quiet(error).splitlines()[0]
    return ""


def has_column(dialect: Dialect, connection: Any, table: str, column: str) -> bool:
    """Whether a table has a column that this user may read."""
    statement = f"SELECT {named(dialect, column)} FROM {named(dialect, table)} WHERE 1 = 0"  # noqa: S608
    return not refusal(dialect, connection, statement)


def same(dialect: Dialect, names: Iterable[str]) -> frozenset[str]:
    """Names of columns as the database compares them: only in PostgreSQL the case of letters counts."""
    return frozenset(names if dialect.name == "postgresql" else (one.lower() for one in names))


# Columns that each row must fill

_NEEDED_POSTGRES: Final = """
    SELECT attname FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
    WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped
    AND (attnotnull OR typnotnull) AND NOT atthasdef AND attidentity = '' AND typdefault IS NULL
    AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = attrelid AND tgenabled <> 'D' AND tgtype & 7 = 7)
    ORDER BY attnum"""
"""A trigger before each row that is inserted (the bits 1, 2 and 4) may fill columns."""

_NEEDED_SQLITE: Final = """
    SELECT name, pk AND upper(type) = 'INTEGER' AND (SELECT count(*) FROM pragma_table_info(?1, ?2) WHERE pk) = 1
    FROM pragma_table_info(?1, ?2) WHERE "notnull" AND dflt_value IS NULL ORDER BY cid"""
"""Besides, which column is the number of the row, in a table that has one."""


def needed(dialect: Dialect, connection: Any, table: str) -> list[str]:
    """Columns that take no NULL, and that the database does not fill if a row leaves them out."""
    return _NEEDED[dialect.name](dialect, connection, table)


def _needed_postgres(dialect: Dialect, connection: Any, table: str) -> list[str]:
    return [name for (name,) in rows(dialect, connection, _NEEDED_POSTGRES, named(dialect, table))]


def _needed_sqlite(dialect: Dialect, connection: Any, table: str) -> list[str]:
    *schema, name = table.split(".")
    found = rows(dialect, connection, _NEEDED_SQLITE, name, schema[0] if schema else None)
    numbered = has_column(dialect, connection, table, "_rowid_")
    return [column for column, number in found if not (number and numbered)]


def _needed_mysql(dialect: Dialect, connection: Any, table: str) -> list[str]:
    """A server without strict mode fills all columns. A trigger may fill them. An enum has a default in any case."""
    *schema, name = table.split(".")
    [(mode,)] = rows(dialect, connection, "SELECT @@SESSION.sql_mode")
    place = f"FROM {named(dialect, schema[0])} " if schema else ""
    triggers = rows(
        dialect,
        connection,
        f"SHOW TRIGGERS {place}WHERE `Table` = ? AND Timing = 'BEFORE' AND LOCATE('INSERT', Event) > 0",
        name,
    )
    if "STRICT" not in mode or triggers:
        return []
    found = columns_of_mysql(dialect, connection, table)
    return [one.name for one in found if not (one.absent or one.made or one.default or one.kind.startswith("enum"))]


_NEEDED: Final[Mapping[str, Callable[[Dialect, Any, str], list[str]]]] = {
    "postgresql": _needed_postgres,
    "sqlite": _needed_sqlite,
    "mysql": _needed_mysql,
}


# MySQL and MariaDB, where EXPLAIN and ON DUPLICATE KEY say less than what the other databases have in their place


class Column(NamedTuple):
    """
    A column.

    Attributes:
        kind: its type, in small letters.
        absent: it takes NULL.
        default: it has a default that is not NULL.
        counted: the server counts its values.
        computed: the server computes it from the row, and takes no value for it.
    """

    name: str
    kind: str
    absent: bool
    default: bool
    counted: bool
    computed: bool

    @property
    def made(self) -> bool:
        """The server makes its value."""
        return self.counted or self.computed


class Index(NamedTuple):
    """
    A unique index.

    Attributes:
        columns: in small letters.
        whole: it compares whole columns, and not their first characters or an expression.
    """

    name: str
    columns: frozenset[str]
    whole: bool


_COMPUTED: Final = re.compile(r"(?<!DEFAULT_)GENERATED")
"""What `SHOW COLUMNS` says of such a column; DEFAULT_GENERATED means a default that is an expression."""


def columns_of_mysql(dialect: Dialect, connection: Any, table: str) -> list[Column]:
    """All columns of a table."""
    found = rows(dialect, connection, f"SHOW COLUMNS FROM {named(dialect, table)}")
    return [
        Column(
            name,
            kind.lower(),
            null == "YES",
            default not in (None, "NULL"),
            "auto_increment" in extra,
            bool(_COMPUTED.search(extra.upper())),
        )
        for name, kind, null, _, default, extra, *_ in found
    ]


def unique_of_mysql(dialect: Dialect, connection: Any, table: str) -> Iterator[Index]:
    """The primary key and all unique indexes of a table."""
    found = rows(dialect, connection, f"SHOW INDEX FROM {named(dialect, table)} WHERE Non_unique = 0")
    for name, group in groupby(found, itemgetter(2)):
        parts = [(row[4], row[7]) for row in group]
        columns = frozenset(column.lower() for column, _ in parts if column)
        yield Index(name, columns, all(column and length is None for column, length in parts))


# Unique indexes of PostgreSQL

_DEFERRABLE: Final = """
    SELECT conname, (SELECT array_agg(attname::text) FROM pg_attribute
                     WHERE attrelid = conrelid AND attnum = ANY (conkey))
    FROM pg_constraint WHERE conrelid = to_regclass(?) AND contype IN ('p', 'u') AND condeferrable"""


def deferrable(dialect: Dialect, connection: Any, table: str, columns: Iterable[str]) -> list[str]:
    """Unique constraints of exactly these columns that may wait for the commit: ON CONFLICT takes none of them."""
    wanted = set(columns)
    found = rows(dialect, connection, _DEFERRABLE, named(dialect, table))
    return [name for name, of in found if set(of) == wanted]
