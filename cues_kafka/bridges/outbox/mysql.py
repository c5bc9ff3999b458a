"""
An outbox in MySQL or MariaDB.

A row may commit after one with a greater number, and these databases do not say which transactions still run to a user
without rights. So no number says "everything below is read". Rows are claimed instead: whatever row is there is
delivered, its number is in the place, and it is deleted behind the commit in Kafka. A row that is there again after a
death between the two is in the place of the newest record, and is deleted, not delivered. Numbers leave the place only
when the database has answered that their rows are gone.

The rows of one read are a group, with a mark over all of them. Rows that another connection has read are deleted only
if the mark fits: a database that was restored gives the same numbers to new rows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import pymysql

from cues_kafka.bridges.outbox.reader import AT_ONCE, OutboxReader, OutboxTable
from cues_kafka.errors import ConfigError, RecoveryError, RetriableError
from cues_kafka.graph.addresses import DatabaseAddress
from cues_kafka.graph.message import Message

CONNECT_S: Final = 10
ANSWER_S: Final = 60

NOT_THERE: Final = frozenset({1044, 1054, 1142, 1143, 1146})
"""No database, column, right, right on a column, table."""

MOST: Final = 5_000
"""Rows of one batch. Their numbers are in its place, and in that of the next one."""


class MysqlOutbox(OutboxReader):
    """Claims rows, and deletes them behind the commit; see `OutboxReader`. The place is groups of claimed rows."""

    quote = "`"
    most = MOST

    def __init__(self, outbox: OutboxTable, url: str) -> None:
        super().__init__(outbox, url)
        self._lock = threading.Lock()
        self._connection: Any = None
        self._gone: set[str] = set()
        self._seen: set[int] = set()  # claimed rows that this connection has read

    def read(self, part: int, place: str | None, limit: int) -> Iterator[tuple[Message[Any], str]]:
        self._gone.intersection_update(_groups(place))  # it was told of the others, or never will be
        groups = [one for one in _groups(place) if one not in self._gone]
        claimed = {number for one in groups for number in _numbers(one)}
        self._seen &= claimed
        earlier = "".join(f"{one};" for one in groups)
        begin, first, last, mark = "", 0, 0, ""
        left = limit
        while left > 0:
            asked = min(left, AT_ONCE)
            rows = [row for row in self._rows(asked + len(claimed)) if row[0] not in claimed][:asked]
            for row in rows:
                claimed.add(row[0])
                self._seen.add(row[0])
                mark = self.mark(row, mark)
                if row[0] != last + 1 or not last:
                    begin, first = _joined(begin, first, last), row[0]
                last = row[0]
                at = f"{earlier}{_joined(begin, first, last)}#{mark}"
                yield self.message(at, *row[1:]), at
            if len(rows) < asked:
                return
            left -= len(rows)

    def _rows(self, limit: int) -> list[tuple[Any, ...]]:
        number, table = self.name(self.outbox.id), self.name(self.outbox.table)
        query = f"SELECT {number}, {self.columns} FROM {table} ORDER BY {number} LIMIT %s"
        with self._connected() as cursor:
            cursor.execute(query, (limit,))
            return list(cursor.fetchall())

    def committed(self, part: int, place: str) -> None:
        """
        Delete the rows of these numbers: they are delivered. Again is the same as once.

        Raises:
            RecoveryError: rows with these numbers are there, and are other ones.
        """
        number, table = self.name(self.outbox.id), self.name(self.outbox.table)
        for group in _groups(place):
            if group in self._gone:
                continue
            seen = self._seen.issuperset(_numbers(group))
            with self._connected() as cursor:
                cursor.execute("BEGIN")
                if not seen:
                    self._check(cursor, group)
                for run in _runs(group):
                    cursor.execute(f"DELETE FROM {table} WHERE {number} BETWEEN %s AND %s", run)
                cursor.execute("COMMIT")
            self._gone.add(group)

    def _check(self, cursor: Any, group: str) -> None:
        """Check that the rows of a group are all there and the same, or none is."""
        number, table = self.name(self.outbox.id), self.name(self.outbox.table)
        query = f"SELECT {number}, {self.columns} FROM {table} WHERE {number} BETWEEN %s AND %s ORDER BY {number}"
        mark = ""
        for run in _runs(group):
            cursor.execute(query, run)
            for row in cursor.fetchall():
                mark = self.mark(row, mark)
        if mark and not self.fits(group.partition("#")[2], mark):
            cursor.execute("ROLLBACK")
            raise self.restored(f"rows up to {self.show(group)} were delivered, and other ones have their numbers")

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(pymysql.Error):
                self._connection.close()
            self._connection = None
            self._seen.clear()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                with self._connection.cursor() as cursor:
                    yield cursor
            except (pymysql.Error, OSError) as error:
                self._disconnect()
                code = error.args[0] if error.args else 0
                if code in NOT_THERE or isinstance(error, pymysql.ProgrammingError):
                    raise self.refuse(error, self.quiet(error)) from error
                raise RetriableError(f"the database: {type(error).__name__} {self.quiet(error)}") from error

    def _connect(self) -> Any:
        address = self._address
        try:
            return pymysql.connect(
                **_settings(address.url),
                autocommit=True,
                connect_timeout=CONNECT_S,
                read_timeout=ANSWER_S,
                charset="utf8mb4",
            )
        except (pymysql.Error, OSError) as error:
            text = address.attempt(error)
            if error.args and error.args[0] in NOT_THERE:
                raise self.refuse(error, text) from None
            raise RetriableError(f"the database: {type(error).__name__} {text}") from None
        except ValueError as error:
            raise address.unusable(error) from None


def _settings(url: str) -> dict[str, Any]:
    parts = DatabaseAddress(url).parts
    if parse_qsl(parts.query):
        raise ConfigError("SqlOutbox(url): options after '?' are not known for MySQL and MariaDB. Leave them out.")
    return {
        "host": parts.hostname or "127.0.0.1",
        "port": parts.port or 3306,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": parts.path.lstrip("/") or None,
    }


def _groups(place: str | None) -> list[str]:
    """The groups of a place: `3-7,9#mark;12#mark`. A place of an older release is one group without a mark."""
    return place.split(";") if place else []


def _runs(group: str) -> list[tuple[int, int]]:
    """First and last of each run of numbers, in the order in which they were read."""
    try:
        parts = [part.partition("-") for part in group.partition("#")[0].split(",")]
        return [(int(first), int(last or first)) for first, _, last in parts]
    except ValueError as error:
        raise RecoveryError(
            f"{group[:80]!r} is not a position in a table of MySQL: the feed had another source before",
            remedy="give the feed a new name=, or its former source",
        ) from error


def _numbers(group: str) -> Iterator[int]:
    """The numbers of a group."""
    for first, last in _runs(group):
        yield from range(first, last + 1)


def _joined(begin: str, first: int, last: int) -> str:
    """A place with one more run of numbers; none where `last` is 0."""
    if not last:
        return begin
    run = f"{first}-{last}" if last > first else str(first)
    return f"{begin},{run}" if begin else run
