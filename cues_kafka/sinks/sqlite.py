"""SQLite: one file, one writer at a time."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import time
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote
from uuid import UUID
from weakref import WeakSet

from cues_kafka.errors import ConfigError, RetriableError
from cues_kafka.graph.addresses import DatabaseAddress
from cues_kafka.sinks.dialect import OUTBOX, RELEASE, SAVEPOINT, TASKS, Dialect, Finish, NotMoved, creating, shape_of
from cues_kafka.sinks.own_statements import Places
from cues_kafka.sinks.statements import SQLITE, refused

sqlite3.register_adapter(Decimal, str)
"""Exact in a column of type TEXT. One of type NUMERIC makes a float of it, of 15 digits, as SQLite has no decimals."""
sqlite3.register_adapter(UUID, str)
sqlite3.register_adapter(time, time.isoformat)

BUSY_S = 30.0
"""How long a transaction waits for the one of another task or process: they write one after the other."""

_DEFERRED = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%INITIALLY%DEFERRED%'"

OUTAGES = {
    sqlite3.SQLITE_BUSY: "another transaction has the database",
    sqlite3.SQLITE_LOCKED: "another transaction has the database",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the file cannot be read or written",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_READONLY: "the file cannot be written",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is not a database",
    sqlite3.SQLITE_INTERRUPT: "the statement was interrupted",
}


_RETURNING: Final = re.compile("RETURNING", re.IGNORECASE)
"""What may have a statement that writes give rows."""


class _SqliteConnection(sqlite3.Connection):
    """
    With what is checked before a commit.

    Attributes:
        deferred: tables with foreign keys that SQLite checks at the commit; None: not yet known.
        before: rows that broke one of them before the first batch.
        results: of statements of the function, as long as they are kept.
    """

    deferred: list[str] | None = None
    before: frozenset[tuple[Any, ...]] = frozenset()

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.results: WeakSet[_Cursor] = WeakSet()

    def end_results(self) -> None:
        """End what the function still reads: it would keep the file as it was then, and its locks behind a close."""
        for one in [*self.results]:
            one.close()
        self.results.clear()

    def broken_keys(self) -> set[tuple[Any, ...]]:
        """Rows of these tables that break a foreign key: table, row, the other table, and which key it is."""
        return {row for table in self.deferred or () for row in self.execute(f'PRAGMA foreign_key_check("{table}")')}


class _Cursor(sqlite3.Cursor):
    """
    A full disk, and other failures, end the transaction. Later statements would commit by themselves.

    Rows of a statement that writes are read at once: no savepoint and no transaction ends before its last one is read.
    """

    _read: Iterator[Any] | None = None

    def execute(self, *args: Any) -> _Cursor:
        self._check()
        super().execute(*args)
        self._read = iter(super().fetchall()) if self.description and _RETURNING.search(args[0]) else None
        return self

    def executemany(self, *args: Any) -> _Cursor:
        self._check()
        return super().executemany(*args)

    def fetchone(self) -> Any:
        if self._read is None:
            return super().fetchone()
        return next(self._read, None)

    def fetchmany(self, size: int | None = 1) -> list[Any]:
        if self._read is None:
            return super().fetchmany(size)
        return [*islice(self._read, size)]

    def fetchall(self) -> list[Any]:
        if self._read is None:
            return super().fetchall()
        return [*self._read]

    def _check(self) -> None:
        if not self.connection.in_transaction:
            raise sqlite3.OperationalError("the transaction has ended")


SHAPE: Final = shape_of("text", number="integer", count="integer", text="text", data="blob")
"""The columns of our tables."""


class Sqlite(Dialect):
    """
    The lock is that of the whole file, and a killed process loses it at once. That of a frozen one is not lost, and no
    connection can end another one. What would change a connection is refused, and no setting limits statements.
    """

    name = "sqlite"
    lock = ""
    errors: type[Exception] = sqlite3.Error
    lock_s = BUSY_S
    locks_rows = False
    shape = SHAPE
    schema: Sequence[str] = creating(SHAPE)

    def __init__(self, url: str) -> None:
        self.address = DatabaseAddress(url)
        self._path = Path(unquote(self.address.parts.path)[1:])

    def connect(self) -> Any:
        try:
            connection = sqlite3.connect(
                self._path,
                timeout=self.lock_s,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
                factory=_SqliteConnection,
            )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.Error as error:
            raise RetriableError(f"the file of SQLite: {self.address.attempt(error)}", code="TARGET") from None
        except ValueError:
            raise ConfigError(
                "the address of SQLite is not a path of a file. Write sqlite:///relative/path or "
                "sqlite:////absolute/path"
            ) from None
        return connection

    def columns(self, connection: Any, table: str) -> Mapping[str, str]:
        return {row[1]: row[2].lower() for row in connection.execute(f"PRAGMA table_info({table})")}

    def places(self, connection: Any) -> Places:
        """See `Dialect`. A temporary table of the same name would come first."""
        return Places(f"main.{TASKS}", f"main.{OUTBOX}")

    def begin(self, connection: Any, statement: str, parameters: Sequence[Any]) -> Any:
        """See `Dialect`. The lock of the file is taken at once: a reader that wants to write later may not wait."""
        connection.execute("BEGIN IMMEDIATE")
        if connection.deferred is None:
            connection.deferred = [row[0] for row in connection.execute(_DEFERRED)]
            connection.before = frozenset(connection.broken_keys())
        found = connection.execute(statement, parameters).fetchone()
        connection.execute(SAVEPOINT)
        return found

    def mark(self, connection: Any) -> None:
        connection.execute(RELEASE)
        connection.execute(SAVEPOINT)

    def finish(self, connection: Any, last: Finish) -> None:
        connection.execute(RELEASE)
        for statement, parameters in last.before:
            connection.execute(statement, parameters)
        connection.execute(*last.advance)
        if last.rows:
            connection.executemany(last.fill, last.rows)
        if connection.execute(*last.moved).fetchone() is None:
            raise NotMoved
        connection.end_results()
        connection.execute("COMMIT")

    def cursor(self, connection: Any) -> Any:
        found = connection.cursor(_Cursor)
        connection.results.add(found)
        return found

    def execute(self, connection: Any, statement: str, parameters: Sequence[Any] = ()) -> Any:
        return connection.execute(statement, parameters)

    def executemany(self, connection: Any, statement: str, rows: Sequence[Sequence[Any]]) -> Any:
        return connection.executemany(statement, rows)

    def insert(self, connection: Any, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", rows)  # noqa: S608

    def rollback(self, connection: Any) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def close(self, connection: Any) -> None:
        connection.end_results()
        connection.close()

    def alive(self, connection: Any) -> bool:
        return bool(connection.in_transaction)

    def broken(self, connection: Any) -> str:
        if not connection.in_transaction:
            raise RetriableError("SQLite has rolled the transaction back", code="TARGET")
        return ""

    def check(self, connection: Any) -> None:
        """
        See `Dialect`. Reads all rows of tables with deferred foreign keys, for lack of another way.

        A table that was made since the connection was opened is not known. Then the commit fails, and the batch is
        called again with a new connection.
        """
        for table, row, parent, _ in sorted(connection.broken_keys() - connection.before, key=repr):
            raise sqlite3.IntegrityError(f"FOREIGN KEY constraint failed: row {row} of {table}, in {parent}")

    def outage(self, error: BaseException, connection: Any = None) -> str:
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:
            return ""
        why = OUTAGES.get(code & 0xFF)
        return f"{why} ({self.address.quiet(error)})" if why else ""

    def refused(self, statement: str, connection: Any) -> str:
        return refused(statement, SQLITE)
