"""The types of the columns of a user's table, as its database writes them. Nothing here writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from cues_kafka.sinks.dialect import Dialect, named

_OF_POSTGRES: Final = """
    SELECT attname, CASE WHEN typbasetype = 0 THEN format_type(atttypid, atttypmod)
                    ELSE format_type(typbasetype, typtypmod) END
    FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
    WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped"""
"""The type of a domain is the one below it."""


def kinds(dialect: Dialect, connection: Any, table: str) -> Mapping[str, str]:
    """The type of each column by its name; the names as the database has them."""
    return _KINDS[dialect.name](dialect, connection, table)


def _postgres(dialect: Dialect, connection: Any, table: str) -> Mapping[str, str]:
    return dict(dialect.execute(connection, _OF_POSTGRES, (named(dialect, table),)).fetchall())


def _sqlite(dialect: Dialect, connection: Any, table: str) -> Mapping[str, str]:
    *schema, name = table.split(".")
    statement = "SELECT name, type FROM pragma_table_info(?, ?)"
    return dict(dialect.execute(connection, statement, (name, schema[0] if schema else None)).fetchall())


def _mysql(dialect: Dialect, connection: Any, table: str) -> Mapping[str, str]:
    found = dialect.execute(connection, f"SHOW COLUMNS FROM {named(dialect, table)}").fetchall()
    return {name: kind for name, kind, *_ in found}


_KINDS: Final[Mapping[str, Callable[[Dialect, Any, str], Mapping[str, str]]]] = {
    "postgresql": _postgres, "mysql": _mysql, "sqlite": _sqlite,
}  # fmt: skip
