"""What a function is given of a database: statements in the open transaction, and nothing that would end it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from cues_kafka.errors import OutputError, RetriableError
from cues_kafka.sinks.dialect import Dialect


class InTransaction(Protocol):
    """Where the open transaction is."""

    @property
    def dialect(self) -> Dialect:
        """How to talk to the database."""
        ...

    @property
    def in_use(self) -> Any:
        """
        The driver's connection, in the open transaction.

        Raises:
            RuntimeError: no transaction is open: the call is over.
        """
        ...

    @property
    def noted(self) -> str:
        """Why the batch must be called again; empty: it need not."""
        ...

    def note(self, error: BaseException) -> None:
        """Hear of an exception of the driver."""
        ...


class Database:
    """
    A connection to the database of `Sql(...)`, in an open transaction.

    What is written is committed with the step, or taken back with it. There is no `commit` and no `rollback`, and
    statements that would end the transaction are refused. It is valid only during the call.

    Placeholders are those of the driver: `%s` for PostgreSQL (psycopg) and MySQL, `?` for SQLite.
    """

    __slots__ = ("_depth", "_target")

    def __init__(self, target: InTransaction) -> None:
        self._target = target
        self._depth = 0

    def execute(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """
        Run one statement.

        Returns:
            The driver's cursor: iterate over it, or call `fetchone` or `fetchall`.

        Raises:
            OutputError: the statement would end the transaction.
            RetriableError: the batch is void, because of an exception before: it is called again.
        """
        cursor = self._cursor(statement)
        try:
            cursor.execute(statement, parameters) if parameters else cursor.execute(statement)
        except self._target.dialect.errors as error:
            self._target.note(error)
            raise
        return cursor

    def executemany(self, statement: str, rows: Sequence[Sequence[Any] | Mapping[str, Any]]) -> Any:
        """
        Run one statement for many rows, in as few round trips as the driver can.

        Raises:
            OutputError: the statement would end the transaction.
        """
        cursor = self._cursor(statement)
        try:
            cursor.executemany(statement, rows)
        except self._target.dialect.errors as error:
            self._target.note(error)
            raise
        return cursor

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """
        Insert rows in the fastest way that the database has: `COPY` where it is PostgreSQL.

        Args:
            table: its name; with a schema, `schema.table`.
            columns: their names.
            rows: values in the order of the columns.
        """
        try:
            self._target.dialect.insert(self._ready(), table, columns, rows)
        except self._target.dialect.errors as error:
            self._target.note(error)
            raise

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """
        What is written in this block is taken back if an exception leaves it, and the transaction goes on.

        For a statement whose failure the function takes, such as a key that may be there already.
        """
        self._depth += 1
        try:
            yield from self._own_savepoint(f"cues_own_{self._depth}")
        finally:
            self._depth -= 1

    def _own_savepoint(self, name: str) -> Iterator[None]:
        dialect, connection = self._target.dialect, self._ready()
        with self._noting():
            dialect.execute(connection, f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            if not self._target.noted:
                with self._noting():
                    dialect.execute(connection, f"ROLLBACK TO SAVEPOINT {name}")
                    dialect.execute(connection, f"RELEASE SAVEPOINT {name}")
            raise
        with self._noting():
            dialect.execute(connection, f"RELEASE SAVEPOINT {name}")

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Tell the target of an outage, which counts also where the function takes the exception."""
        try:
            yield
        except self._target.dialect.errors as error:
            self._target.note(error)
            raise

    def _cursor(self, statement: str) -> Any:
        if why := self._target.dialect.refused(statement):
            raise OutputError(why)
        return self._target.dialect.cursor(self._ready())

    def _ready(self) -> Any:
        """The connection, where it can take more."""
        if self._target.noted:
            raise RetriableError(self._target.noted, code="TARGET")
        return self._target.in_use
