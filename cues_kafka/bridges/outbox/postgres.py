"""
An outbox in PostgreSQL.

Numbers of rows are given when rows are written, and rows are seen when their transactions commit: row 7 may be there
before row 6. So rows are read in the order of their transactions, and only those of transactions that are older than
the oldest one that still runs. Nothing can come any more among them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any, Final

import psycopg
from psycopg.types.json import set_json_loads

from cues_kafka.bridges.outbox.reader import OutboxReader, OutboxTable
from cues_kafka.errors import BrokerError, ConfigError, RecoveryError, RetriableError
from cues_kafka.graph.addresses import mask_log
from cues_kafka.graph.message import Message
from cues_kafka.observe.log import get_logger

log = get_logger("cues_kafka.bridges")

CONNECT_S: Final = 10
LISTEN_S: Final = 5.0
AGAIN_S: Final = 5.0

JSON_TYPES: Final = frozenset({114, 3802})
"""The numbers of the types `json` and `jsonb`, which the driver parses."""


def json_value(data: bytes | str) -> Any:
    """What JSON means; a number with more digits than a float keeps is a `Decimal`, and not another number."""
    return json.loads(data, parse_float=_number)


def _number(text: str) -> float | Decimal:
    near, exact = float(text), Decimal(text)
    return near if Decimal(repr(near)) == exact else exact


class PostgresOutbox(OutboxReader):
    """Reads rows behind the place; see `OutboxReader`. The place is a transaction, a row of it and its mark."""

    def __init__(self, outbox: OutboxTable, url: str) -> None:
        super().__init__(outbox, url)
        mask_log("psycopg", self._address)
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        self._closed = threading.Event()
        self._listens: psycopg.Connection[Any] | None = None

    def read(self, part: int, place: str | None, limit: int) -> Iterator[tuple[Message[Any], str]]:
        if place is not None:
            with self._connected() as connection:
                self._check(connection, place)
        return self.in_pages(self._page, place, limit)

    def _page(self, place: str | None, limit: int) -> Sequence[tuple[Sequence[Any], str]]:
        xid, number, table = self.name(self.outbox.xid), self.name(self.outbox.id), self.name(self.outbox.table)
        behind = "" if place is None else f" AND ({xid}, {number}) > (%s::xid8, %s)"
        query = (
            f"SELECT {xid}::text, {number}, {self.columns} FROM {table} "
            f"WHERE {xid} < pg_snapshot_xmin(pg_current_snapshot()){behind} ORDER BY {xid}, {number} LIMIT %s"
        )
        given = (limit,) if place is None else (*_place(place), limit)
        with self._connected() as connection:
            cursor = connection.execute(query.encode(), given)
            rows = cursor.fetchall()
            self._parsed = cursor.description is not None and cursor.description[2].type_code in JSON_TYPES
        return [(row[2:], f"{row[0]}:{row[1]}#{self.mark(row[2:])}") for row in rows]

    def _check(self, connection: psycopg.Connection[Any], place: str) -> None:
        """
        Check that the server counts its transactions on from where it was, and that the newest delivered row is there.

        Raises:
            RecoveryError: it does not, or it is not.
        """
        xid, number = _place(place)
        [past] = connection.execute(
            b"SELECT %s::xid8 >= pg_snapshot_xmax(pg_current_snapshot())", (xid,)
        ).fetchone() or [False]
        if past:
            raise RecoveryError(
                f"a row of transaction {xid} was delivered from the outbox {self.outbox.table!r}, and the server has "
                "not come so far: it was restored from a backup, or replaced",
                remedy="restore a newer backup; or delete the rows that were delivered, and give the feed a new name=",
            )
        where = f"{self.name(self.outbox.xid)} = %s::xid8 AND {self.name(self.outbox.id)} = %s"
        query = f"SELECT {self.columns} FROM {self.name(self.outbox.table)} WHERE {where}"
        self.check_row(place, connection.execute(query.encode(), (xid, number)).fetchone())

    def committed(self, part: int, place: str) -> None:
        """
        Delete what is delivered, if it is not to be kept. The newest row stays: it shows that the table is the same.

        A place without a mark deletes nothing, because it cannot show that.
        """
        if self.outbox.keep or "#" not in place:
            return
        xid, number, table = self.name(self.outbox.xid), self.name(self.outbox.id), self.name(self.outbox.table)
        query = f"DELETE FROM {table} WHERE ({xid}, {number}) < (%s::xid8, %s)"
        with self._connected() as connection:
            self._check(connection, place)
            connection.execute(query.encode(), _place(place))

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            self._disconnect()
        if (listens := self._listens) is not None:
            with suppress(psycopg.Error):
                listens.close()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                yield self._connection
            except psycopg.ProgrammingError as error:
                raise self.refuse(error, self.quiet(error)) from error
            except psycopg.Error as error:
                self._disconnect()
                raise RetriableError(f"the database: {self.quiet(error)}") from error

    def _connect(self) -> psycopg.Connection[Any]:
        address = self._address
        try:
            connection = psycopg.connect(address.url, autocommit=True, connect_timeout=CONNECT_S)
            set_json_loads(json_value, connection)
            return connection
        except psycopg.OperationalError as error:
            address.refuse_port(error)
            raise RetriableError(f"the database: {address.attempt(error)}") from None
        except (psycopg.Error, ValueError) as error:
            raise address.unreadable(error) from None

    # News

    def notify(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever the application notifies the channel, and when the connection may have missed it."""
        if self.outbox.channel is not None:
            threading.Thread(target=self._listen, args=(wake,), name="outbox-listen", daemon=True).start()

    def _listen(self, wake: Callable[[], None]) -> None:
        query = f"LISTEN {self.name(self.outbox.channel or '')}".encode()
        while not self._closed.is_set():
            try:
                with self._connect() as connection:
                    self._listens = connection
                    connection.execute(query)
                    wake()
                    while not self._closed.is_set():
                        for _ in connection.notifies(timeout=LISTEN_S, stop_after=1):
                            wake()
            except (psycopg.Error, BrokerError, ConfigError) as error:
                if not self._closed.wait(AGAIN_S):
                    log.info("listens again", table=self.outbox.table, why=self.quiet(error))


def _place(place: str) -> tuple[str, int]:
    xid, _, number = place.partition("#")[0].partition(":")
    try:
        return str(int(xid)), int(number)
    except ValueError as error:
        raise RecoveryError(
            f"{place[:80]!r} is not a position in a table of PostgreSQL: the feed had another source before",
            remedy="give the feed a new name=, or its former source",
        ) from error
