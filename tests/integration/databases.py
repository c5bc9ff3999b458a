"""The three databases for tests of `Sql(...)`: a table of the user's, and plain clients that look at what is there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pymysql

from cues_kafka.sinks.dialect import Dialect

DIALECTS = ("sqlite", "postgresql", "mysql")

TABLE = "CREATE TABLE shop (id INTEGER PRIMARY KEY, text VARCHAR(80))"


@dataclass(frozen=True, slots=True)
class Shop:
    """
    One database with the table `shop`.

    Attributes:
        name: of the dialect.
        url: its address.
        mark: how the driver writes a parameter.
        connect: opens a plain connection that commits each statement.
        server: the server; None: there is none.
    """

    name: str
    url: str
    mark: str
    connect: Callable[[], Any]
    server: Any = None

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """A plain connection, closed behind the block."""
        connection = self.connect()
        try:
            yield connection
        finally:
            connection.close()

    def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement with `?` for parameters, and give its rows."""
        with self.opened() as connection:
            cursor = connection.cursor()
            cursor.execute(statement.replace("?", self.mark), tuple(parameters))
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def ids(self) -> list[int]:
        """The ids in the user's table."""
        return [row[0] for row in self.query("SELECT id FROM shop ORDER BY id")]

    def insert(self, db: Any, id_: int, text: str = "") -> None:
        """Write one row as a function does."""
        db.execute(f"INSERT INTO shop (id, text) VALUES ({self.mark}, {self.mark})", (id_, text))  # noqa: S608

    def dialect(self) -> Dialect:
        """How the product talks to it."""
        from cues_kafka import Sql
        from cues_kafka.sinks.lookup import dialect

        return dialect(Sql(self.url))


def shop_of(request: Any, name: str) -> Shop:
    """The database of one test, with its table."""
    if name == "sqlite":
        path = request.getfixturevalue("tmp_path") / "shop.db"
        found = Shop(name, f"sqlite:///{path}", "?", lambda: sqlite3.connect(path, isolation_level=None))
    elif name == "postgresql":
        database = request.getfixturevalue("postgres")
        url = database.url
        found = Shop(name, url, "%s", lambda: psycopg.connect(url, autocommit=True), database.server)
    else:
        database = request.getfixturevalue("mariadb")

        def connect() -> pymysql.Connection:
            opened: pymysql.Connection = database.server.connect(database.name)
            opened.autocommit(True)
            return opened

        found = Shop(name, database.url, "%s", connect, database.server)
    found.query(TABLE)
    return found
