"""What differs between databases: connecting, locking, savepoints, errors, and writing many rows fast."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from cues_kafka.graph.addresses import DatabaseAddress
from cues_kafka.sinks.own_statements import Places

TASKS = "cues_task"
"""The table with a row for each task: where the target stands (E1)."""

OUTBOX = "cues_outbox"
"""The table of what Kafka gets in the newest attempt of each task; see `packing`."""

KEYS = {TASKS: ("graph", "processor", "part"), OUTBOX: ("graph", "processor", "part", "place")}
"""The columns of their primary keys."""

MARK = f"cues_{secrets.token_hex(4)}"
"""The name of our savepoint, another one in each process: who ends the transaction cannot put another in its place."""

SAVEPOINT, RELEASE, BACK = f"SAVEPOINT {MARK}", f"RELEASE SAVEPOINT {MARK}", f"ROLLBACK TO SAVEPOINT {MARK}"
"""Where a step's writes begin, in the transaction of its batch."""

LOCK_S = 5.0
"""How long a task waits for the lock of its row before it ends the connection that holds it. A batch's transaction is
open while user code runs, so a successor may meet that of a process that is still alive, or frozen."""


IDLE_S = 30
"""For how long a connection that no row names may be idle in a transaction."""


DEADLOCK = (
    "deadlock, as tasks change the same rows in another order: key the messages by the row, or change rows in the "
    "order of their keys"
)
"""What is said of one, with the remedy: the batch is called again, and may meet the next one."""


class NotMoved(Exception):
    """The row of the task, or its outbox, is not what the statements of ours have made of it."""


class Finish(NamedTuple):
    """
    What ends the transaction of a batch.

    Attributes:
        before: statements, each with its parameters.
        advance: moves the row of the task, with its parameters.
        fill: puts a row into the outbox.
        rows: the parameters of `fill`, once for each row.
        moved: a query behind all of them, with its parameters. It finds a row if both tables hold what was written: a
            trigger or a rule may have changed that, and the number of rows that a statement changed does not show it.
    """

    before: Sequence[tuple[str, Sequence[Any]]]
    advance: tuple[str, Sequence[Any]]
    fill: str
    rows: Sequence[Sequence[Any]]
    moved: tuple[str, Sequence[Any]]


def shape_of(word: str, *, number: str, count: str, text: str, data: str) -> Mapping[str, Mapping[str, str]]:
    """
    The columns of our tables.

    Args:
        word: the type of short texts.
        number: of partitions and places.
        count: of steps.
        text: of long texts.
        data: of bytes.
    """
    task = {"graph": word, "processor": word, "part": number}
    return {
        TASKS: {**task, "base": count, "step": count, "owner": count, "attempt": text, "backend": word},
        OUTBOX: {**task, "place": number, "records": data},
    }


def creating(shape: Mapping[str, Mapping[str, str]], behind: str = "") -> tuple[str, ...]:
    """The statements that make tables of these columns where they are missing; no column takes NULL."""
    found = []
    for table, columns in shape.items():
        each = [f"{name} {kind} NOT NULL" for name, kind in columns.items()]
        keys = f"PRIMARY KEY ({', '.join(KEYS[table])})"
        found.append(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join([*each, keys])}){behind}")
    return tuple(found)


def named(dialect: Dialect, name: str) -> str:
    """A name of a table or column as it is written in statements."""
    # SQLite takes a name in double quotes for text where there is no such column.
    mark = '"' if dialect.name == "postgresql" else "`"
    return ".".join(f"{mark}{part}{mark}" for part in name.split("."))


class Dialect(Protocol):
    """
    One kind of database. What a database does not have stands here, so that its dialect leaves it out.

    Attributes:
        name: as people know it.
        shape: the columns of our two tables, each with its type as `columns` gives it.
        schema: the statements that make our two tables, each of which may be run again.
        lock: ends the statement that reads a task's row, so that no other transaction changes it meanwhile.
        errors: the base class of the driver's exceptions.
        lock_s: how long locks are waited for, in seconds; see `LOCK_S`.
        locks_rows: whether transactions that write lock rows only, and not the whole database.
        address: of the database; what the driver says is shown only as its `attempt` and `quiet` give it.
    """

    name: str
    shape: Mapping[str, Mapping[str, str]]
    schema: Sequence[str]
    lock: str
    errors: type[Exception]
    lock_s: float
    locks_rows: bool
    address: DatabaseAddress

    def connect(self) -> Any:
        """
        Open a connection on which no transaction is open.

        Raises:
            RetriableError: the database does not answer.
            ConfigError: it answers, and refuses.
        """
        ...

    def columns(self, connection: Any, table: str) -> Mapping[str, str]:
        """The columns that a table of ours has, each with its type in small letters; empty: there is no such table."""
        ...

    def places(self, connection: Any) -> Places:
        """Our tables as statements name them on this connection, with the schema in which they are found now."""
        ...

    def begin(self, connection: Any, statement: str, parameters: Sequence[Any]) -> Any:
        """
        Begin a transaction, in which locks are waited for up to `lock_s`, run a query, and set our savepoint.

        The query waits for a lock, so a limit of the user or the database for statements does not hold for it.

        Returns:
            The first row of the query; None: the query finds no row.
        """
        ...

    def mark(self, connection: Any) -> None:
        """Release our savepoint and set it again, at what is written now."""
        ...

    def finish(self, connection: Any, last: Finish) -> None:
        """
        Release our savepoint, run these statements, put the rows into the outbox, and commit.

        The savepoint must still be there: it is gone where something in the function has ended the transaction. An
        exception leaves it open whether the transaction is committed.

        Raises:
            NotMoved: `moved` finds no row; nothing is committed.
        """
        ...

    def cursor(self, connection: Any) -> Any:
        """A cursor for user code, which takes no statement behind the transaction's end."""
        return connection.cursor()

    def execute(self, connection: Any, statement: str, parameters: Sequence[Any] = ()) -> Any:
        """Run one statement whose parameters are written `?`; gives a cursor."""
        ...

    def executemany(self, connection: Any, statement: str, rows: Sequence[Sequence[Any]]) -> Any:
        """The same statement for many rows."""
        ...

    def insert(self, connection: Any, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows in the fastest way that there is."""
        ...

    def commit(self, connection: Any) -> None:
        """Commit. An exception leaves it open whether that happened."""
        self.execute(connection, "COMMIT")

    def rollback(self, connection: Any) -> None:
        """Roll back the open transaction."""
        ...

    def close(self, connection: Any) -> None:
        """Close, whatever state it is in; raises nothing."""
        connection.close()

    def alive(self, connection: Any) -> bool:
        """Whether a transaction is open, as far as the client knows without a question; failed ones are, too."""
        ...

    def changed(self, connection: Any) -> bool:
        """Whether a function has changed the connection in a way that a commit keeps, so that it is given up."""
        return False

    def broken(self, connection: Any) -> str:
        """Why the open transaction cannot go on; empty: it can."""
        ...

    def check(self, connection: Any) -> None:
        """Have constraints that wait for the commit speak now, as an exception of the driver."""
        return

    def outage(self, error: BaseException, connection: Any = None) -> str:
        """
        Why the whole transaction must be tried again, if the driver's exception says so; empty: one step's fault.

        Args:
            error: an exception of the driver.
            connection: where it comes from. An exception of the client's alone counts only where this is at its end.
        """
        ...

    def doubtful(self, error: BaseException) -> bool:
        """Whether what is an outage may also be the fault of one statement: then it comes again where it is alone."""
        return False

    def cancelled(self, error: BaseException) -> bool:
        """Whether a statement took longer than it may, or was cancelled."""
        return False

    def time_limit(self, error: BaseException) -> str:
        """The setting of the user or the database by which a statement took too long; empty: that is not the cause."""
        return ""

    def locked_out(self, error: BaseException) -> bool:
        """Whether another connection kept a lock for longer than `lock_s`."""
        return False

    def brief(self, connection: Any, *, on: bool) -> None:
        """
        Have the server end this connection if it is idle for `IDLE_S`, or no longer have it do so.

        A transaction that holds a task's lock before the row names its connection must not outlive a process that is
        frozen in it: no other process could end it.
        """
        return

    def name_of(self, connection: Any) -> str:
        """A name by which another connection can end this one; empty: there is none."""
        return ""

    def end(self, connection: Any, name: str) -> bool:
        """End the connection of that name; False: it has ended already, or must not be ended."""
        return False

    def refused(self, statement: str, connection: Any) -> str:
        """Why user code must not run this statement on this connection; empty: it may."""
        ...
