"""What a function is given of a database: statements in the open transaction, and nothing that would end it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from cues_kafka.errors import OutputError, RetriableError
from cues_kafka.sinks.dialect import Dialect
from cues_kafka.sinks.results import Result
from cues_kafka.sinks.statements import limits, ours_in


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
            RetriableError: something has ended the transaction; what was written in it is taken back.
        """
        ...

    @property
    def noted(self) -> str:
        """Why the batch must be called again; empty: it need not."""
        ...

    def note(self, error: BaseException) -> None:
        """Hear of an exception of the driver."""
        ...

    def limited(self) -> None:
        """Hear that the function has bounded how long statements may take."""
        ...


class Database:
    """
    A connection to the database of `Sql(...)`, in an open transaction.

    What is written is committed with the step, or taken back with it. There is no `commit` and no `rollback`, and
    statements that would end the transaction are refused. It is valid only during the call.

    Placeholders are those of the driver: `%s` for PostgreSQL (psycopg) and MySQL, `?` for SQLite.
    """

    __slots__ = ("_copies", "_opened", "_target")

    def __init__(self, target: InTransaction) -> None:
        self._target = target
        self._opened: list[str] = []
        self._copies = False  # rows of `insert` are on their way

    def execute(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Result:
        """
        Run one statement.

        Returns:
            Its rows: iterate over them, or call `fetchone` or `fetchall`.

        Raises:
            OutputError: the statement would end the transaction.
            RetriableError: the batch is void, because of an exception before: it is called again.
        """
        cursor = self._cursor(statement)
        with self._noting():
            cursor.execute(statement, parameters) if parameters else cursor.execute(statement)
        self._target.in_use  # noqa: B018  it raises where the statement has ended the transaction
        return Result(cursor)

    def executemany(self, statement: str, rows: Sequence[Sequence[Any] | Mapping[str, Any]]) -> Result:
        """
        Run one statement for many rows, in as few round trips as the driver can.

        Raises:
            OutputError: the statement would end the transaction.
        """
        # psycopg holds its lock while it takes the rows: code that gives them would wait for it without end.
        given = rows if isinstance(rows, list | tuple) else [*rows]
        cursor = self._cursor(statement)
        with self._noting():
            cursor.executemany(statement, given)
        self._target.in_use  # noqa: B018  as above
        return Result(cursor)

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """
        Insert rows in the fastest way that the database has: `COPY` where it is PostgreSQL.

        Args:
            table: its name; with a schema, `schema.table`.
            columns: their names.
            rows: values in the order of the columns.

        Raises:
            OutputError: the rows come of code that runs statements meanwhile; PostgreSQL would not answer them.
        """
        if why := ours_in(table):
            raise OutputError(why)
        connection, self._copies = self._ready(), True
        try:
            with self._noting():
                self._target.dialect.insert(connection, table, columns, rows)
        finally:
            self._copies = False

    def savepoint(self) -> AbstractContextManager[None]:
        """
        What is written in this block is taken back if an exception leaves it, and the transaction goes on.

        For a statement whose failure the function takes, such as a key that may be there already.
        """
        return _Savepoint(self._savepoint, self._target, self._opened)

    @property
    def left_open(self) -> str:
        """What is wrong with the savepoints of the step that has ended; empty: all of them have ended."""
        if not self._opened:
            return ""
        return (
            "a savepoint is still open when the function returns, so the writes after it are neither kept nor undone. "
            "Write `with db.savepoint():`"
        )

    def forget_savepoints(self) -> None:
        """A step begins, or is taken back: its savepoints are gone."""
        self._opened.clear()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Tell the target of an outage, which counts also where the function takes the exception."""
        try:
            yield
        except self._target.dialect.errors as error:
            self._target.note(error)
            raise

    def _savepoint(self, statement: str) -> None:
        with self._noting():
            self._target.dialect.execute(self._ready(), statement)

    def _cursor(self, statement: str) -> Any:
        connection = self._ready()
        if why := ours_in(statement) or self._target.dialect.refused(statement, connection):
            raise OutputError(why)
        if limits(statement):
            self._target.limited()
        return self._target.dialect.cursor(connection)

    def _ready(self) -> Any:
        """The connection, where it can take more."""
        if self._target.noted:
            raise RetriableError(self._target.noted, code="TARGET")
        if self._copies:
            raise OutputError("db.insert is still taking rows, so no statement can run. Give it a list of the rows")
        return self._target.in_use


class _Savepoint:
    """A block of `Database.savepoint`. No collector ends it: when that comes is chance."""

    def __init__(self, run: Callable[[str], None], target: InTransaction, opened: list[str]) -> None:
        """
        Args:
            run: runs a statement.
            target: where the transaction is.
            opened: the names of those that are open.
        """
        self._run, self._target, self._opened = run, target, opened
        self._name = ""

    def __enter__(self) -> None:
        self._name = f"cues_own_{len(self._opened) + 1}"
        self._run(f"SAVEPOINT {self._name}")
        self._opened.append(self._name)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._name in self._opened:
            self._opened.remove(self._name)
        if kind is None:
            self._run(f"RELEASE SAVEPOINT {self._name}")
        elif not self._target.noted:
            self._run(f"ROLLBACK TO SAVEPOINT {self._name}")
            self._run(f"RELEASE SAVEPOINT {self._name}")
