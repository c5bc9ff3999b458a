"""An outbox in SQLite. One transaction writes at a time, so rows commit in the order of their numbers."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from cues_kafka.bridges.outbox.reader import OutboxReader, OutboxTable
from cues_kafka.errors import RecoveryError, RetriableError
from cues_kafka.graph.message import Message


class SqliteOutbox(OutboxReader):
    """Reads rows above the place; see `OutboxReader`. The place is a row's number and mark."""

    def __init__(self, outbox: OutboxTable, url: str) -> None:
        super().__init__(outbox, url)
        self._path = Path(unquote(self._address.parts.path)[1:])
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def read(self, part: int, place: str | None, limit: int) -> Iterator[tuple[Message[Any], str]]:
        with self._connected() as connection:
            self._check(connection, place)
        return self.in_pages(self._page, place, limit)

    def _page(self, place: str | None, limit: int) -> Sequence[tuple[Sequence[Any], str]]:
        number, table = self.name(self.outbox.id), self.name(self.outbox.table)
        query = f"SELECT {number}, {self.columns} FROM {table} WHERE {number} > ? ORDER BY {number} LIMIT ?"
        with self._connected() as connection:
            rows = connection.execute(query, (_number(place), limit)).fetchall()
        return [(row[1:], f"{row[0]}#{self.mark(row[1:])}") for row in rows]

    def committed(self, part: int, place: str) -> None:
        """
        Delete what is delivered, if it is not to be kept. The newest row stays: it shows that the table is the same.

        A place without a mark deletes nothing, because it cannot show that.
        """
        if self.outbox.keep or "#" not in place:
            return
        with self._connected() as connection:
            self._check(connection, place)
            table, number = self.name(self.outbox.table), self.name(self.outbox.id)
            connection.execute(f"DELETE FROM {table} WHERE {number} < ?", (_number(place),))

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                if self._connection is None:
                    uri = f"{self._path.absolute().as_uri()}?mode=rw"
                    self._connection = sqlite3.connect(
                        uri, uri=True, timeout=1.0, isolation_level=None, check_same_thread=False
                    )
                yield self._connection
            except sqlite3.OperationalError as error:
                if re.search("no such (table|column)", str(error)):
                    raise self.refuse(error, str(error)) from error
                raise RetriableError(f"the database: {self.quiet(error)}") from error
            except sqlite3.DatabaseError as error:
                raise RetriableError(f"the database: {self.quiet(error)}") from error

    def _check(self, connection: sqlite3.Connection, place: str | None) -> None:
        """
        Check that rows are numbered as they must be, and that the newest delivered row is there.

        Raises:
            RecoveryError: they are not; or the table was recreated, or restored from a backup.
        """
        schema, _, table = self.outbox.table.rpartition(".")
        within = f"{self.name(schema)}." if schema else ""
        found = connection.execute(
            f"SELECT sql FROM {within}sqlite_master WHERE type = 'table' AND name = ?", (table,)
        ).fetchone()
        if found is None:
            raise RecoveryError(f"there is no table {table!r}", remedy="create it, see docs/feeds.md")
        if not re.search(r"\bAUTOINCREMENT\b", found[0], re.IGNORECASE):
            raise RecoveryError(
                f"the outbox {table!r} may give the number of a deleted row to a new one, which a feed would skip",
                remedy=f"declare its key as {self.outbox.id} INTEGER PRIMARY KEY AUTOINCREMENT",
            )
        last = connection.execute(f"SELECT seq FROM {within}sqlite_sequence WHERE name = ?", (table,)).fetchone()
        newest = last[0] if last else 0
        if newest < _number(place):
            raise RecoveryError(
                f"the outbox {table!r} has numbered {newest} rows, and row {_number(place)} was delivered: it was "
                "recreated, or restored from a backup",
                remedy="restore a newer backup; or delete the rows that were delivered, and give the feed a new name=",
            )
        if place is not None:
            number = self.name(self.outbox.id)
            query = f"SELECT {self.columns} FROM {self.name(self.outbox.table)} WHERE {number} = ?"
            self.check_row(place, connection.execute(query, (_number(place),)).fetchone())


def _number(place: str | None) -> int:
    if place is None:
        return 0
    try:
        return int(place.partition("#")[0])
    except ValueError as error:
        raise RecoveryError(
            f"{place[:80]!r} is not a position in a table of SQLite: the feed had another source before",
            remedy="give the feed a new name=, or its former source",
        ) from error
