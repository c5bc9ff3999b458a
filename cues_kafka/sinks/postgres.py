"""PostgreSQL, by psycopg 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, Final

from cues_kafka.errors import ConfigError, RetriableError
from cues_kafka.extras import PSYCOPG, missing
from cues_kafka.graph.addresses import DatabaseAddress, mask_log
from cues_kafka.sinks.dialect import (
    DEADLOCK,
    IDLE_S,
    LOCK_S,
    OUTBOX,
    RELEASE,
    SAVEPOINT,
    TASKS,
    Dialect,
    Finish,
    NotMoved,
    creating,
    shape_of,
)
from cues_kafka.sinks.own_statements import Places
from cues_kafka.sinks.statements import POSTGRES, refused

try:
    import psycopg
    from psycopg import sql
    from psycopg.pq import TransactionStatus
    from psycopg.types.datetime import DatetimeDumper
except ImportError as error:  # pragma: no cover - the environment of the tests has it
    raise missing("PostgreSQL", PSYCOPG, error=error) from None

CONNECT_S: Final = 10

OUTAGES: Final = {
    "40001": "serialization failure",
    "40P01": DEADLOCK,
    "55P03": "another transaction has the lock",
    "57014": "the statement was cancelled",
    "25P03": "the transaction was idle for longer than idle_in_transaction_session_timeout allows",
    "25P04": "the transaction took longer than transaction_timeout allows",
    "25006": "the server takes no writes",
    "53": "the server lacks resources",
    "57P": "the server ends or starts",
    "58": "the server's system failed",
    "08": "the connection failed",
    "XX": "the server failed",
}
"""SQLSTATE codes, or what they begin with, that are not one step's fault: the whole transaction is tried again."""

DOUBTFUL: Final = frozenset({"25006", "53400", "58P01", "58P02", "XX000"})
"""Those that may be the fault of one statement: it makes the transaction read only, exceeds a limit, names a file that
is not there, or calls an extension that gives all its errors the code of the server's own."""

REFUSED: Final = ("authentication failed", "does not exist", "no pg_hba.conf entry", "connection is bad: invalid ")
"""What texts say of a connection that no later try would open; such an exception has no code."""

CHANGED: Final = "cached plan must not change result type"
"""What the server says, as 0A000, of a prepared statement after `ALTER TABLE`. A new connection prepares it again."""


BY_OTHERS: Final = "user request"
"""What the server says, as 57014, of a statement that another connection has cancelled."""

_OWN_USER: Final = (
    "SELECT pg_catalog.set_config('session_authorization', NULL, false), pg_catalog.set_config('role', NULL, false)"
)
"""Gives the session the user and the role back that it was opened with, which `RESET ALL` does not."""

_OF_CONNECTION: Final = (
    "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgdeferrable), current_setting('statement_timeout') <> '0'"
)

_ONE_ROW: Final = "SELECT 1 / count(*) FROM ({}) AS found"
"""Fails unless the query finds a row."""

_PLACES: Final = (
    "SELECT (SELECT format('%I.%I', nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
    "WHERE c.oid = to_regclass('{}'))"
)


class _InUtc(DatetimeDumper):
    """
    Writes a moment in UTC: a column of type TIMESTAMP leaves the zone of a text out, so one moment became several.

    `COPY` gives all values as text.
    """

    def dump(self, obj: Any) -> Any:
        try:
            return super().dump(obj if obj.utcoffset() is None else obj.astimezone(UTC))
        except OverflowError:  # at an end of the years that Python has
            return super().dump(obj)


class _PostgresConnection(psycopg.Connection[Any]):
    """
    With what is known of it.

    Attributes:
        deferrable: whether the database has constraints that may wait for the commit.
        brief: whether the server ends it if it is idle in a transaction.
        limited: whether the user or the database has a `statement_timeout`.
    """

    deferrable = True
    brief = False
    limited = False


SHAPE: Final = shape_of("text", number="integer", count="bigint", text="text", data="bytea")
"""The columns of our tables."""


class Postgres(Dialect):
    """PostgreSQL, by psycopg. `finish` sets back what a function has changed of the connection."""

    name = "postgresql"
    lock = " FOR UPDATE"
    errors: type[Exception] = psycopg.Error
    lock_s = LOCK_S
    locks_rows = True
    shape = SHAPE
    schema: Sequence[str] = (
        *creating(SHAPE),
        f"ALTER TABLE {OUTBOX} ALTER records SET STORAGE EXTERNAL",  # compressing takes longer than writing
    )

    def __init__(self, url: str) -> None:
        self.address = DatabaseAddress(url)
        mask_log("psycopg", self.address)

    def connect(self) -> Any:
        try:
            connection = _PostgresConnection.connect(
                self.address.url,
                autocommit=True,
                connect_timeout=CONNECT_S,
                application_name="cues-kafka",
                # A host that is gone without a word is noticed; the transaction of a former owner is ended by its name.
                keepalives_idle=10,
                keepalives_interval=5,
                keepalives_count=3,
                tcp_user_timeout=30_000,
            )
            connection.adapters.register_dumper(datetime, _InUtc)
            row = connection.execute(_OF_CONNECTION).fetchone()
            connection.deferrable, connection.limited = row or (True, False)
        except psycopg.OperationalError as error:
            self.address.refuse_port(error)
            if any(word in str(error) for word in REFUSED):
                raise self._refusal(error) from None
            text = self.address.attempt(error)
            raise RetriableError(f"PostgreSQL does not answer: {text}", code="TARGET") from None
        except (psycopg.Error, ValueError) as error:
            answered = getattr(error, "sqlstate", None) is not None
            raise (self._refusal(error) if answered else self.address.unreadable(error)) from None
        return connection

    def columns(self, connection: Any, table: str) -> Mapping[str, str]:
        found = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (table,),
        )
        return dict(found.fetchall())

    def _refusal(self, error: BaseException) -> ConfigError:
        text = self.address.attempt(error)
        return ConfigError(f"PostgreSQL refuses the connection: {text}. Correct the address, or the user's rights")

    def places(self, connection: Any) -> Places:
        """See `Dialect`. It is asked before a function has the connection."""
        found = [connection.execute(_PLACES.format(one)).fetchone() for one in (TASKS, OUTBOX)]
        return Places(*(row[0] or name for row, name in zip(found, (TASKS, OUTBOX), strict=True)))

    def begin(self, connection: Any, statement: str, parameters: Sequence[Any]) -> Any:
        """See `Dialect`. One round trip; four where idle connections are ended: in a pipeline none is."""
        with nullcontext() if connection.brief else connection.pipeline():
            connection.execute("BEGIN")
            connection.execute(f"SET LOCAL lock_timeout = '{self.lock_s * 1000:.0f}ms'")
            if connection.limited:  # it would end the statement before it has waited for the lock
                connection.execute("SET LOCAL statement_timeout = 0")
            found = self.execute(connection, statement, parameters)
            if connection.limited:
                connection.execute("SET LOCAL statement_timeout TO DEFAULT")
            connection.execute(SAVEPOINT)
            return found.fetchone()

    def mark(self, connection: Any) -> None:
        """See `Dialect`. One round trip."""
        connection.execute(f"{RELEASE}; {SAVEPOINT}")

    def finish(self, connection: Any, last: Finish) -> None:
        """
        See `Dialect`. One round trip.

        What a function has set, such as a role or a time limit, must not meet our statements or the next batch. What
        waits for the commit, such as a deferred trigger, acts before our tables are looked at for the last time. That
        is done in the server, because all answers come behind the commit.
        """
        try:
            with connection.pipeline():
                connection.execute(RELEASE)
                connection.execute(_OWN_USER)
                connection.execute("RESET ALL")
                for statement, parameters in last.before:
                    self.execute(connection, statement, parameters)
                self.execute(connection, *last.advance)
                for row in last.rows:
                    self.execute(connection, last.fill, row)
                connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
                moved, parameters = last.moved
                self.execute(connection, _ONE_ROW.format(moved), parameters)
                connection.execute("COMMIT")
        except psycopg.errors.DivisionByZero:
            raise NotMoved from None

    def execute(self, connection: Any, statement: str, parameters: Sequence[Any] = ()) -> Any:
        if not parameters:
            return connection.execute(statement)
        return connection.execute(statement.replace("?", "%s"), parameters)

    def executemany(self, connection: Any, statement: str, rows: Sequence[Sequence[Any]]) -> Any:
        cursor = connection.cursor()
        cursor.executemany(statement.replace("?", "%s"), rows)
        return cursor

    def insert(self, connection: Any, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """See `Dialect`. `COPY` takes a third of the time of an `INSERT` for many rows."""
        into = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(*table.split(".")), sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        with connection.cursor() as cursor, cursor.copy(into) as copy:
            for row in rows:
                copy.write_row(row)

    def rollback(self, connection: Any) -> None:
        if connection.info.transaction_status is not TransactionStatus.IDLE:
            connection.execute("ROLLBACK")

    def alive(self, connection: Any) -> bool:
        return connection.info.transaction_status is not TransactionStatus.IDLE

    def broken(self, connection: Any) -> str:
        match connection.info.transaction_status:
            case TransactionStatus.INTRANS:
                return ""
            case TransactionStatus.INERROR:
                return (
                    "a statement failed, and the function went on as if it had not: PostgreSQL takes nothing more in "
                    "this transaction. Let the exception pass, or do the statement under `with db.savepoint():`"
                )
            case status:
                raise RetriableError(f"PostgreSQL: the transaction has ended ({status.name})", code="TARGET")

    def check(self, connection: Any) -> None:
        """
        See `Dialect`. One round trip, and what is immediate in it is deferred again behind it.

        A constraint that was made since the connection was opened is not known. Then the commit fails, and the batch
        is called again with a new connection.
        """
        if not connection.deferrable:
            return
        connection.execute(
            "SAVEPOINT cues_check; SET CONSTRAINTS ALL IMMEDIATE; ROLLBACK TO SAVEPOINT cues_check; "
            "RELEASE SAVEPOINT cues_check"
        )

    def outage(self, error: BaseException, connection: Any = None) -> str:
        code = getattr(error, "sqlstate", None)
        if code is None:
            return self._brief(error) if connection is None or connection.closed else ""
        if code == "0A000" and CHANGED in str(error):
            return f"a table was changed ({self._brief(error)})"
        for begin, why in OUTAGES.items():
            if code.startswith(begin):
                return f"{why} ({self._brief(error)})"
        return ""

    def _brief(self, error: BaseException) -> str:
        """The first line: it names what happened."""
        return self.address.quiet(error).splitlines()[0]

    def doubtful(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) in DOUBTFUL

    def cancelled(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) == "57014"

    def time_limit(self, error: BaseException) -> str:
        """See `Dialect`. Only the server's text says why, in its language; an operator's cancel is not repeated."""
        return "statement_timeout" if self.cancelled(error) and BY_OTHERS not in str(error) else ""

    def locked_out(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) == "55P03"

    def brief(self, connection: Any, *, on: bool) -> None:
        connection.brief = on
        limit = f"'{IDLE_S}s'" if on else "DEFAULT"
        connection.execute(f"SET idle_in_transaction_session_timeout = {limit}")

    def name_of(self, connection: Any) -> str:
        """See `Dialect`. A process number is used again, so the time at which it began belongs to it."""
        row = connection.execute(
            "SELECT pid || ' ' || extract(epoch FROM backend_start) FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        ).fetchone()
        return str(row[0])

    def end(self, connection: Any, name: str) -> bool:
        row = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND pid <> pg_backend_pid() "
            "AND extract(epoch FROM backend_start)::text = %s",
            name.split(" "),
        ).fetchone()
        return row is not None and bool(row[0])

    def refused(self, statement: str, connection: Any) -> str:
        """See `Dialect`. The server reports each change of how it reads a backslash."""
        if "\\" in statement and connection.info.parameter_status("standard_conforming_strings") != "on":
            return (
                "a statement with a backslash, while standard_conforming_strings is off: its texts cannot be told from "
                "its statements. Write the text as a parameter, or as E'...' with the setting on"
            )
        return refused(statement, POSTGRES)
