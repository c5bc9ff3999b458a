"""The three databases for tests of `Sql(...)`: a table of the user's, and plain clients that look at what is there."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from cues_kafka.sinks.dialect import Dialect

SERVERS = ("postgresql", "mysql")
DIALECTS = ("sqlite", *SERVERS)
FIRST = [SERVERS[0], *(pytest.param(name, marks=pytest.mark.full) for name in SERVERS[1:])]
"""One server for `make test`, all of them for `make test-full`."""

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
            cursor.execute(statement.replace("?", self.mark), *([tuple(parameters)] if parameters else []))
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def ids(self) -> list[int]:
        """The ids in the user's table."""
        return [row[0] for row in self.query("SELECT id FROM shop ORDER BY id")]

    def insert(self, db: Any, id_: int, text: str = "") -> None:
        """Write one row as a function does."""
        db.execute(f"INSERT INTO shop (id, text) VALUES ({self.mark}, {self.mark})", (id_, text))

    def dialect(self) -> Dialect:
        """How the product talks to it."""
        from cues_kafka import Sql
        from cues_kafka.sinks.lookup import dialect

        return dialect(Sql(self.url))


class Shops:
    """The databases of a run of tests, each made when it is first asked for: a new one costs a second."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self._found: dict[str, Shop] = {}

    def give(self, name: str, path: Path) -> Shop:
        """An empty database with the user's table; SQLite's file is in the directory `path`."""
        if name == "sqlite":
            file = path / "shop.db"
            shop = Shop(name, f"sqlite:///{file}", "?", lambda: sqlite3.connect(file, isolation_level=None))
            shop.query(TABLE)
            return shop
        if name not in self._found:
            self._found[name] = self._make(name)
            self._found[name].query(TABLE)
            return self._found[name]
        shop = self._found[name]
        if not shop.server.running:
            shop.server.start()
        for table in ("parts", "cues_task", "cues_outbox"):
            shop.query(f"DROP TABLE IF EXISTS {table}")
        shop.query("DELETE FROM shop")
        return shop

    def _make(self, name: str) -> Shop:
        server = self._request.getfixturevalue("postgres_server" if name == "postgresql" else "mariadb_server")
        return served(name, server, f"shop_{uuid.uuid4().hex[:12]}")


def served(name: str, server: Any, database: str) -> Shop:
    """A new database in a server, without the user's table."""
    url = server.create_database(database)
    if name == "postgresql":
        return Shop(name, url, "%s", lambda: psycopg.connect(url, autocommit=True), server)

    def connect() -> pymysql.Connection:
        opened: pymysql.Connection = server.connect(database)
        opened.autocommit(True)
        return opened

    return Shop(name, url, "%s", connect, server)
