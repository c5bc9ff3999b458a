"""What the scanner of statements says, beside what real databases do with the same texts in an open transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pymysql
import pytest
from psycopg.pq import TransactionStatus
from pymysql.constants import CLIENT

from cues_kafka.sinks.dialect import BACK, SAVEPOINT
from cues_kafka.sinks.statements import refused
from tests.unit.sinks.test_statements import ALL, MYSQL_REFUSES, ONE_PASSES, ONE_REFUSES, PASS, REFUSED

OWN = "INSERT INTO own VALUES (1)"

TABLES = {
    "postgres": ("own (n INTEGER)", "t (n VARCHAR(20), a jsonb)", '"begin" ("commit" INTEGER)'),
    "mysql": ("own (n INTEGER)", "t (a VARCHAR(20))"),
    "sqlite": ("own (n INTEGER)", "t (a VARCHAR(20))", '"begin" ("commit" INTEGER)'),
}

SAVEPOINTS = {"SAVEPOINT cues"}
DDL = {"DROP TABLE t", "create index i on t (a)"}
NEEDLESS: dict[str, set[str]] = {
    "postgres": SAVEPOINTS | DDL | {"TRUNCATE t", "/* a */ BEGIN", "/* a **/ BEGIN"},
    "mysql": SAVEPOINTS
    | {"unlock tables", "LOAD INDEX INTO CACHE t"}
    | {
        "SELECT RELEASE_ALL_LOCKS()",
        "SELECT 1 /*M!999999 ' */ FROM t /* ' */",
        "/* %s */ INSERT INTO t VALUES (1)",
        "/* a */ -- %(x)s\nINSERT INTO t VALUES (1)",
    },
    "sqlite": SAVEPOINTS | DDL,
}
"""What is refused although the database takes it and the transaction goes on. Savepoints of the function would meet
those of the steps, and a graph may move to a database that commits at DDL. MySQL's manual has the first two of its own
among the statements at which it commits. The others may hide a statement from other releases, or behind a parameter."""


class Fate(NamedTuple):
    """
    What became of a transaction in which a text was run.

    Attributes:
        ended: what it had written before is committed, or gone.
        error: what the database says of the text; empty: it takes it.
    """

    ended: bool
    error: str = ""


class Database(NamedTuple):
    """
    One kind of database.

    Attributes:
        kind: as the cases name it.
        connect: open a connection that takes several statements in one text, and begins nothing by itself.
        run: run a text in the transaction of a connection.
        errors: what the driver raises.
    """

    kind: str
    connect: Callable[[], Any]
    run: Callable[[Any, str], None]
    errors: type[Exception]

    def fate(self, text: str) -> Fate:
        """Write a row, set the savepoint, run the text, and look who sees the row."""
        with closing(self.connect()) as one:
            error = ""
            try:
                self.run(one, f"BEGIN; {OWN}; {SAVEPOINT}")
                self.run(one, text)
            except self.errors as problem:
                error = f"{type(problem).__name__}: {problem}"
            if self.kind == "postgres" and one.info.transaction_status is TransactionStatus.INERROR:
                self.run(one, BACK)  # else it answers nothing
            seen = self._rows(one)
            with closing(self.connect()) as other:
                committed = self._rows(other)
        return Fate(seen == 0 or committed != 0, error)

    def _rows(self, connection: Any) -> int | None:
        """How many rows are seen; None: the connection has locked other tables."""
        cursor = connection.cursor()
        try:
            cursor.execute("SELECT count(*) FROM own")
        except pymysql.err.OperationalError:
            return None
        return int(cursor.fetchone()[0])

    def clean(self) -> None:
        """Take back what a text has committed."""
        with closing(self.connect()) as connection:
            for table in TABLES[self.kind]:
                connection.cursor().execute(f"CREATE TABLE IF NOT EXISTS {table}")
            connection.cursor().execute("DELETE FROM own")
            connection.commit()


def run_mysql(connection: Any, text: str) -> None:
    """Run each statement of the text, as the server takes it apart."""
    if text.strip():
        cursor = connection.cursor()
        cursor.execute(text)
        while cursor.nextset():
            pass


def run_sqlite(connection: Any, text: str) -> None:
    """The module takes one statement; only a script is taken apart by SQLite, and it begins with a commit."""
    if text.startswith("BEGIN; "):
        connection.before = text
    else:
        connection.executescript(f"{connection.before}; {text}")


class _Sqlite(sqlite3.Connection):
    before = ""


@pytest.fixture(params=sorted(ALL))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """An empty database of each kind."""
    match request.param:
        case "postgres":
            url = request.getfixturevalue("postgres").url
            found = Database(
                "postgres",
                lambda: psycopg.connect(url, autocommit=True),
                lambda connection, text: connection.execute(text),
                psycopg.Error,
            )
        case "mysql":
            place = request.getfixturevalue("mariadb")

            def connect() -> Any:
                opened = place.server.connect(place.name)
                options = {"host": opened.host, "port": opened.port, "user": opened.user, "password": opened.password}
                opened.close()
                return pymysql.connect(
                    **options, database=place.name, autocommit=False, client_flag=CLIENT.MULTI_STATEMENTS
                )

            found = Database("mysql", connect, run_mysql, pymysql.MySQLError)
        case _:
            found = Database(
                "sqlite",
                lambda: sqlite3.connect(tmp_path / "t.db", isolation_level=None, factory=_Sqlite),
                run_sqlite,
                sqlite3.Error,
            )
    return found


@pytest.mark.full
def test_scanner_refuses_every_text_that_ends_a_transaction_of_a_real_database(database: Database) -> None:
    """What it lets pass ends none. What it refuses ends one, is an error, or is known to be refused without need."""
    kind = database.kind
    ended, needless = set(), set()
    texts = [*PASS, *REFUSED, *MYSQL_REFUSES, *(text for one, text in (*ONE_PASSES, *ONE_REFUSES) if one == kind)]
    for text in texts:
        database.clean()
        fate, why = database.fate(text), refused(text, ALL[kind])
        assert why or not fate.ended, f"{kind} ends the transaction at {text!r}"
        if fate.ended:
            ended.add(text)
        elif why and not fate.error:
            needless.add(text)
    assert {"COMMIT", "-- why not\nROLLBACK", "SELECT 1; COMMIT"} <= ended
    assert needless == NEEDLESS[kind]
