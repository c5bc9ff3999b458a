"""MySQL and MariaDB, by PyMySQL."""

from __future__ import annotations

import math
import re
import secrets
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time
from decimal import Decimal
from select import select
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from cues_kafka.errors import ConfigError, RetriableError
from cues_kafka.extras import PYMYSQL, missing
from cues_kafka.graph.addresses import DatabaseAddress
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
from cues_kafka.sinks.statements import MYSQL, lasting, refused

try:
    import pymysql
    import pymysql.cursors
    from pymysql import converters
    from pymysql.constants import SERVER_STATUS
except ImportError as error:  # pragma: no cover - the environment of the tests has it
    raise missing("MySQL or MariaDB", PYMYSQL, error=error) from None

CONNECT_S: Final = 10

TOO_LARGE: Final = 1153
"""The server's number for a statement that is longer than it takes."""

OUTAGES: Final = {
    1205: "another transaction has the lock",
    1213: DEADLOCK,
    1020: "another transaction has changed the row",
    1021: "the disk is full",
    1037: "the server lacks memory",
    1040: "the server has too many connections",
    1041: "the server lacks memory",
    1053: "the server ends",
    1114: "the table is full",
    1180: "the server could not commit",
    1203: "the user has too many connections",
    1226: "the user has used up a resource",
    1290: "the server takes no writes",
    1317: "the statement was cancelled",
    1836: "the server takes no writes",
    1927: "the connection was ended",
    4031: "the connection was idle for too long",
}
"""Error numbers that are not one step's fault: the whole transaction is tried again. From 2000 on the client speaks."""

TIME_LIMITS: Final = {1969: "max_statement_time", 3024: "max_execution_time"}
"""The settings by which a statement takes too long, by error number: MariaDB's and MySQL's."""

OF_FILES: Final = "the server failed to use a file of its own"
MOST_DIGITS: Final = 100
"""More than a decimal of the server has."""

LAST_OF_FILES: Final = 999
"""Lower numbers are of the server's operations on files, such as a full disk or too many open files."""

OPTIONS: Final = frozenset({"ssl_ca", "ssl_cert", "ssl_key", "unix_socket"})
"""What may follow `?` in the address; the meaning is PyMySQL's."""

_TCP: Final = {"TCP_NODELAY": 1, "TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}

KEEP_ALIVE: Final = (
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    *(((socket.IPPROTO_TCP, getattr(socket, name)), value) for name, value in _TCP.items() if hasattr(socket, name)),
)
"""Options of a socket; some systems lack some of them."""


class _MySqlConnection(pymysql.Connection):  # type: ignore[misc]
    """
    With what is known of it.

    Attributes:
        changed: whether a function may have changed it in a way that a commit keeps.
        packet: the most bytes of a statement. At a longer one the server ends the connection, as in an outage.
        limited: whether MariaDB limits how long a statement may take.
    """

    changed = False
    limited = False
    packet = 1 << 30


class _BoundedCursor(pymysql.cursors.Cursor):  # type: ignore[misc]
    """That of user code."""

    def _query(self, text: Any) -> Any:
        most = self.connection.packet
        size = len(text.encode()) if isinstance(text, str) and len(text) * 4 >= most else len(text)
        if size >= most:
            raise pymysql.err.DataError(
                TOO_LARGE, f"a statement with its values has {size:,} bytes; max_allowed_packet is {most:,}"
            )
        return super()._query(text)


_UNHIDE: Final = "DROP TEMPORARY TABLE IF EXISTS {}, {}"
"""Takes temporary tables of our names away, and commits nothing."""

REFUSED: Final = frozenset({1044, 1045, 1049, 1698})
"""Error numbers of a connection that no later try would open."""


SHAPE: Final = shape_of("varchar(80)", number="int", count="bigint", text="longtext", data="longblob")
"""The columns of our tables."""


def _moment(value: datetime, mapping: Any) -> Any:
    """Write a moment in UTC. MySQL has no zones, and the driver would leave one out: one moment became several."""
    plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return converters.escape_datetime(plain, mapping)


def _clock(value: time, mapping: Any) -> Any:
    if value.tzinfo is not None:
        raise pymysql.ProgrammingError("MySQL has no time of day with a zone")
    return converters.escape_time(value, mapping)


def _digits(value: Decimal, mapping: Any) -> str:
    """Write all digits: the driver writes `1.5E+25`, which the server reads as a number of 15 digits."""
    del mapping
    return format(value, "f") if abs(value.adjusted()) <= MOST_DIGITS else str(value)


CONVERSIONS: Final = {**converters.conversions, datetime: _moment, time: _clock, Decimal: _digits}
"""What the driver does with values, where it is not the driver's own."""


class MySql(Dialect):
    """MySQL or MariaDB. DDL commits the transaction silently, so it is refused; there are no constraints that wait."""

    name = "mysql"
    lock = " FOR UPDATE"
    errors: type[Exception] = pymysql.MySQLError
    lock_s = LOCK_S
    locks_rows = True
    shape = SHAPE
    schema: Sequence[str] = creating(SHAPE, " ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")

    def __init__(self, url: str) -> None:
        self.address = DatabaseAddress(url)
        self._parts = self.address.parts
        self._options = dict(parse_qsl(self._parts.query, keep_blank_values=True))

    def connect(self) -> Any:
        parts = self._parts
        if self._options.keys() - OPTIONS:  # they may be the end of a password
            raise ConfigError(
                f"the address of MySQL has options that are not known. There are {', '.join(sorted(OPTIONS))}. In a "
                "password write %3F for '?'"
            )
        wait = f"SET SESSION innodb_lock_wait_timeout = {math.ceil(self.lock_s)}"
        try:
            connection = _MySqlConnection(
                host=parts.hostname or "localhost",
                port=parts.port or 3306,
                user=unquote(parts.username) if parts.username else None,
                password=unquote(parts.password or ""),
                database=unquote(parts.path.strip("/")) or None,
                charset="utf8mb4",
                autocommit=False,  # a deadlock ends the transaction; what follows must not be committed by itself
                connect_timeout=CONNECT_S,
                init_command=wait,
                conv=CONVERSIONS,
                defer_connect=True,
                **self._options,
            )
            connection.connect(None if connection.unix_socket else self._reached())
            # At REPEATABLE READ a transaction would see rows as they were before it had the lock.
            self.execute(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            connection.packet = int(self.execute(connection, "SELECT @@max_allowed_packet").fetchone()[0])
            connection.limited = self._limited(connection)
        except OSError as error:
            raise RetriableError(f"MySQL does not answer: {self.address.attempt(error)}", code="TARGET") from None
        except pymysql.MySQLError as error:
            text = self.address.attempt(error)
            if error.args and error.args[0] in REFUSED:
                raise ConfigError(
                    f"MySQL refuses the connection: {text}. Correct the address, or the user's rights"
                ) from None
            raise RetriableError(f"MySQL does not answer: {text}", code="TARGET") from None
        except ValueError as error:
            raise self.address.unusable(error) from None
        return connection

    def _limited(self, connection: Any) -> bool:
        """Whether MariaDB limits how long a statement may take. MySQL does not have the variable."""
        row = self.execute(connection, "SHOW VARIABLES LIKE 'max_statement_time'").fetchone()
        return row is not None and float(row[1]) > 0

    def _reached(self) -> socket.socket:
        """A socket that notices within half a minute that the server's host is gone without a word."""
        parts = self._parts
        opened = socket.create_connection((parts.hostname or "localhost", parts.port or 3306), CONNECT_S)
        for option, value in KEEP_ALIVE:
            opened.setsockopt(*option, value)
        if not select([opened], [], [], CONNECT_S)[0]:  # the server speaks first, unless it is frozen
            opened.close()
            raise TimeoutError(f"it does not answer within {CONNECT_S} s")
        opened.settimeout(None)
        return opened

    def columns(self, connection: Any, table: str) -> Mapping[str, str]:
        """See `Dialect`. Some releases give whole numbers a width, `int(11)`, which means nothing."""
        found = self.execute(
            connection,
            "SELECT column_name, column_type FROM information_schema.columns "
            "WHERE table_schema = DATABASE() AND table_name = ? ORDER BY ordinal_position",
            (table,),
        )
        return {name: re.sub(r"^((?:big)?int)\(\d+\)", r"\1", kind.lower()) for name, kind in found.fetchall()}

    def places(self, connection: Any) -> Places:
        """See `Dialect`. They are in the database of the address, whatever a procedure has made of it."""
        database = unquote(self._parts.path.strip("/")).replace("`", "``")
        plain = not database or set(database) & {"%", "?"}  # which mean parameters
        return Places(*(one if plain else f"`{database}`.{one}" for one in (TASKS, OUTBOX)))

    def begin(self, connection: Any, statement: str, parameters: Sequence[Any]) -> Any:
        """See `Dialect`. The first statement begins the transaction. MySQL limits only statements that lock nothing."""
        unlimited = "SET STATEMENT max_statement_time = 0 FOR " if connection.limited else ""
        found = self.execute(connection, f"{unlimited}{statement}", parameters).fetchone()
        self.execute(connection, SAVEPOINT)
        return found

    def mark(self, connection: Any) -> None:
        """See `Dialect`. Where the name is taken, the new savepoint takes the place of the old one."""
        self.execute(connection, RELEASE)
        self.execute(connection, SAVEPOINT)

    def finish(self, connection: Any, last: Finish) -> None:
        """See `Dialect`. A temporary table hides one of the same name even where the schema is named."""
        self.execute(connection, RELEASE)
        self.execute(connection, _UNHIDE.format(*self.places(connection)))
        for statement, parameters in last.before:
            self.execute(connection, statement, parameters)
        self.execute(connection, *last.advance)
        for row in last.rows:  # the server limits the size of one statement
            self.execute(connection, last.fill, row)
        if self.execute(connection, *last.moved).fetchone() is None:
            raise NotMoved
        self.execute(connection, "COMMIT AND NO CHAIN NO RELEASE")  # whatever `completion_type` is

    def cursor(self, connection: Any) -> Any:
        return connection.cursor(_BoundedCursor)

    def execute(self, connection: Any, statement: str, parameters: Sequence[Any] = ()) -> Any:
        cursor = connection.cursor()
        cursor.execute(statement.replace("?", "%s"), tuple(parameters) or None)
        return cursor

    def executemany(self, connection: Any, statement: str, rows: Sequence[Sequence[Any]]) -> Any:
        cursor = connection.cursor()
        cursor.executemany(statement.replace("?", "%s"), rows)
        return cursor

    def insert(self, connection: Any, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """See `Dialect`. The driver makes one statement of many rows."""
        into = ".".join(f"`{part}`" for part in table.split("."))
        names, marks = ", ".join(f"`{name}`" for name in columns), ", ".join(["%s"] * len(columns))
        connection.cursor(_BoundedCursor).executemany(f"INSERT INTO {into} ({names}) VALUES ({marks})", rows)  # noqa: S608

    def rollback(self, connection: Any) -> None:
        self.execute(connection, "ROLLBACK")

    def close(self, connection: Any) -> None:
        """See `Dialect`. The driver raises for a connection that is closed already."""
        if connection.open:
            connection.close()

    def alive(self, connection: Any) -> bool:
        return bool(connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)

    def changed(self, connection: Any) -> bool:
        """See `Dialect`. Neither a commit nor a rollback takes back what `SET` has done."""
        return bool(connection.changed)

    def broken(self, connection: Any) -> str:
        """See `Dialect`. A deadlock, and DDL, end the transaction without a word to the function that goes on."""
        if not connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS:
            raise RetriableError("MySQL: the transaction has ended", code="TARGET")
        return ""

    def outage(self, error: BaseException, connection: Any = None) -> str:
        code = _code(error)
        if code is None or code == 0 or 2000 <= code < 3000:
            return self.address.quiet(error) if connection is None or not connection.open else ""
        why = OUTAGES.get(code, OF_FILES if code <= LAST_OF_FILES else "")
        return f"{why} ({self.address.quiet(error)})" if why else ""

    def cancelled(self, error: BaseException) -> bool:
        return _code(error) in TIME_LIMITS

    def time_limit(self, error: BaseException) -> str:
        return TIME_LIMITS.get(_code(error) or 0, "")

    def locked_out(self, error: BaseException) -> bool:
        return _code(error) == 1205

    def brief(self, connection: Any, *, on: bool) -> None:
        self.execute(connection, f"SET SESSION wait_timeout = {IDLE_S if on else 'DEFAULT'}")

    def name_of(self, connection: Any) -> str:
        """See `Dialect`. A lock of the server's that the connection holds: its number may be another one's later."""
        name = f"cues {secrets.token_hex(16)}"
        self.execute(connection, "SELECT GET_LOCK(?, 0)", (name,)).fetchone()
        return name

    def end(self, connection: Any, name: str) -> bool:
        row = self.execute(connection, "SELECT IS_USED_LOCK(?)", (name,)).fetchone()
        if row is None or row[0] is None or row[0] == connection.thread_id():
            return False
        try:
            self.execute(connection, f"KILL {int(row[0])}")
        except pymysql.MySQLError:  # it has ended already, or may not be ended
            return False
        return True

    def refused(self, statement: str, connection: Any) -> str:
        connection.changed = connection.changed or lasting(statement, MYSQL)
        return refused(statement, MYSQL)


def _code(error: BaseException) -> int | None:
    return error.args[0] if error.args and isinstance(error.args[0], int) else None
