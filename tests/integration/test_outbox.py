"""Outboxes in real databases, with transactions that commit late, kills between two commits, and servers that go."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from cues_kafka import Feed, Graph, Json, Memory, RecoveryError, SqlOutbox, Topic, start
from cues_kafka.bridges.outbox.mysql import _settings
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.testing.tester import Crash, Tester
from tests.fault.support import until
from tests.servers.fixtures import MariaDbDatabase, PostgresDatabase

TABLES = {
    "sqlite": "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, value TEXT NOT NULL)",
    "postgres": "CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY, "
    "xid xid8 NOT NULL DEFAULT pg_current_xact_id(), key text, value jsonb NOT NULL, PRIMARY KEY (xid, id))",
    "mariadb": "CREATE TABLE outbox (id BIGINT AUTO_INCREMENT PRIMARY KEY, `key` VARCHAR(80), value JSON NOT NULL)",
}


@dataclass
class Database:
    """
    One database with an empty outbox.

    Attributes:
        kind: a key of `TABLES`.
        url: its address.
        connect: opens a connection of an application, not autocommitting.
    """

    kind: str
    url: str
    connect: Callable[[], Any]

    def insert(self, connection: Any, *numbers: int) -> None:
        """Write rows in the connection's transaction."""
        mark, key = ("?", "key") if self.kind == "sqlite" else ("%s", "`key`" if self.kind == "mariadb" else "key")
        cursor = connection.cursor()
        for n in numbers:
            cursor.execute(f"INSERT INTO outbox ({key}, value) VALUES ({mark}, {mark})", (f"k{n}", json.dumps(n)))

    def write(self, *numbers: int) -> None:
        """Write rows and commit them."""
        with closing(self.connect()) as connection:
            self.insert(connection, *numbers)
            connection.commit()

    def count(self) -> int:
        """Rows that are there."""
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT count(*) FROM outbox")
            return int(cursor.fetchone()[0])


def _made(kind: str, url: str, connect: Callable[[], Any]) -> Database:
    with closing(connect()) as connection:
        connection.cursor().execute(TABLES[kind])
        connection.commit()
    return Database(kind, url, connect)


@pytest.fixture(params=list(TABLES))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Each kind of database in turn, the servers real ones."""
    if request.param == "sqlite":
        path = tmp_path / "shop.db"
        return _made("sqlite", f"sqlite:///{path}", lambda: sqlite3.connect(path))
    if request.param == "postgres":
        found: PostgresDatabase = request.getfixturevalue("postgres")
        return _made("postgres", found.url, lambda: psycopg.connect(found.url))
    there: MariaDbDatabase = request.getfixturevalue("mariadb")
    return _made("mariadb", there.url, lambda: pymysql.connect(**_settings(there.url)))


def graph_of(url: str, **options: Any) -> Graph:
    """An outbox alone."""
    return Graph(
        "shop",
        Feed(SqlOutbox(url, **options), into="orders", name="outbox", poll_seconds=0.05),
        defaults=Topic(value=Json(int), partitions=1),
    )


JSON_VALUES = ["123", "true", "text", "", 5, True, [1], {"x": "1"}, '{"x": 1}']


def delivered_json(database: Database) -> list[Any]:
    """The JSON values of messages whose rows were written as JSON."""
    with closing(database.connect()) as connection:
        cursor = connection.cursor()
        mark = "?" if database.kind == "sqlite" else "%s"
        for one in JSON_VALUES:
            cursor.execute(f"INSERT INTO outbox (value) VALUES ({mark})", (json.dumps(one),))
        connection.commit()
    feed = Feed(SqlOutbox(database.url), into="orders", name="outbox")
    tester = Tester(Graph("shop", feed, defaults=Topic(value=Json(), partitions=1)))
    try:
        return tester.run().values("orders")
    finally:
        tester.stop()


def test_json_keeps_its_types(database: Database) -> None:
    """A JSON text that looks like a number is no number, whether the database parses JSON or has text."""
    assert delivered_json(database) == JSON_VALUES


@pytest.mark.parametrize("column", ["json", "text"])
def test_json_keeps_its_types_in_each_column_of_postgresql(postgres: PostgresDatabase, column: str) -> None:
    """The driver parses some of them."""
    made = _made("postgres", postgres.url, lambda: psycopg.connect(postgres.url))
    with closing(made.connect()) as connection:
        connection.execute(f"ALTER TABLE outbox ALTER COLUMN value TYPE {column}".encode())
        connection.commit()
    assert delivered_json(made) == JSON_VALUES


def test_number_that_a_float_would_change_is_refused_and_the_rows_beside_it_are_delivered(
    postgres: PostgresDatabase,
) -> None:
    """12345678901234567.89 became 1.2345678901234568e+16, without a word."""
    with psycopg.connect(postgres.url) as connection:
        connection.execute(TABLES["postgres"])
        for text in ("1.10", "12345678901234567.89", str(2**70), "[0.1]"):
            connection.execute("INSERT INTO outbox (value) VALUES (%s)", (text,))
    feed = Feed(SqlOutbox(postgres.url), into="orders", name="outbox")
    tester = Tester(Graph("shop", feed, defaults=Topic(value=Json(), partitions=1), errors="shop.errors"))
    tester.run()

    assert tester.values("orders") == [1.1, 2**70, [0.1]]
    assert ["no form for Decimal" in one.text for one in tester.errors()] == [True]


def test_rows_are_delivered_once_in_order_with_their_keys(database: Database) -> None:
    """Rows of before the start and of later, over a restart of the process."""
    database.write(*range(5))
    tester = Tester(graph_of(database.url))

    assert tester.run().values("orders") == [0, 1, 2, 3, 4]
    database.write(5, 6)
    assert tester.run().values("orders") == [0, 1, 2, 3, 4, 5, 6]
    database.write(7)
    assert tester.restart().run().values("orders") == list(range(8))
    assert [m.key for m in tester.messages("orders")] == [f"k{n}" for n in range(8)]
    tester.stop()


@pytest.mark.parametrize("database", ["postgres", "mariadb"], indirect=True)
def test_rows_that_commit_late_are_not_skipped(database: Database) -> None:
    """
    An early transaction writes first and commits last; others commit before, behind, and while it is open.

    SQLite lets one transaction write at a time, so there a commit is never late.
    """
    tester = Tester(graph_of(database.url))
    with closing(database.connect()) as early, closing(database.connect()) as other:
        database.insert(early, 1)
        database.write(2)
        tester.run()
        database.insert(other, 3)
        database.insert(early, 4)
        database.write(5)
        tester.run()
        other.rollback()
        tester.restart().run()
        database.write(6)
        early.commit()
    tester.run()

    assert sorted(tester.values("orders")) == [1, 2, 4, 5, 6]
    database.write(7)
    assert sorted(tester.run().values("orders")) == [1, 2, 4, 5, 6, 7]
    tester.stop()


KILLS = [("before", "Call"), ("after", "Call"), ("after", "Produce"), ("before", "Commit"), ("after", "Commit")]


@pytest.mark.parametrize(
    ("moment", "effect"),
    [
        *(pytest.param(*point, marks=pytest.mark.full) for point in KILLS[:-2]),
        *KILLS[-2:],
    ],
)
def test_kills_around_the_commit_lose_and_repeat_no_row(database: Database, moment: str, effect: str) -> None:
    """Between Kafka's commit and what the database is told of it, too; rows are not kept."""
    tester = Tester(graph_of(database.url, keep=False), policy=CommitPolicy(max_messages=3))
    written = 0
    for nth in (1, 2, 3):
        database.write(*range(written, written + 7))
        written += 7
        tester.run(crash=Crash(moment, effect, nth))
        assert tester.crashed
    tester.run()
    database.write(written)
    tester.run().run()

    assert tester.values("orders") == list(range(written + 1))
    assert database.count() <= 1, "all but what the last commit is not told of yet"
    tester.stop()


def test_an_address_is_nowhere_to_be_seen(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in repr, plan, data nor texts of errors; a graph with a variable can be written down and read back."""
    secret = "postgresql://cues:secret@db.example.com:5432/shop"
    graph = graph_of(secret)
    assert "secret" not in repr(graph)
    assert "example" not in repr(graph)
    from cues_kafka.plan.plan import plan

    assert "example" not in plan(graph).text(topics=True, acls=True) + json.dumps(plan(graph).to_dict())
    from cues_kafka import GraphError

    with pytest.raises(GraphError, match="env=") as refused:
        graph.to_dict()
    assert "secret" not in str(refused.value)
    monkeypatch.setenv("SHOP_DB", database.url)
    named = Graph.from_dict(json.loads(json.dumps(graph_of("", env="SHOP_DB").to_dict())))
    assert named == graph_of("", env="SHOP_DB")
    database.write(1)
    assert Tester(named).run().values("orders") == [1]


def test_a_table_that_is_not_there_stops_the_task_with_the_remedy(database: Database) -> None:
    """It says what is missing, without the address."""
    with pytest.raises(Exception, match="misspelt") as stopped:
        Tester(graph_of(database.url, table="misspelt")).run()
    assert "docs/feeds.md" in str(getattr(stopped.value, "remedy", "")) or "docs/feeds.md" in str(stopped.value)


def test_a_row_whose_headers_are_no_object_stops_the_feed_and_is_named(tmp_path: Path) -> None:
    """The rows before it are delivered; once it is corrected, the feed goes on with it."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, key, value, headers)")
        rows = [("1", None), ("2", '{"a": "b"}'), ("3", "no JSON"), ("4", None)]
        connection.executemany("INSERT INTO outbox (value, headers) VALUES (?, ?)", rows)
        connection.commit()
    tester = Tester(graph_of(f"sqlite:///{path}", headers="headers"))
    with pytest.raises(RecoveryError, match="headers of row 3 of 'outbox' are 'no JSON'") as stopped:
        tester.run()
    assert "store a JSON object" in stopped.value.remedy
    assert tester.values("orders") == [1, 2]

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE outbox SET headers = '[1]' WHERE id = 3")
        connection.commit()
    with pytest.raises(RecoveryError, match=r"headers of row 3 of 'outbox' are '\[1\]'"):
        tester.run()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE outbox SET headers = '{}' WHERE id = 3")
        connection.commit()
    assert tester.run().values("orders") == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["postgres", pytest.param("mariadb", marks=pytest.mark.full)])
def test_a_server_that_is_down_at_the_start_or_goes_away_loses_nothing(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """Killed with rows in it and started again, twice; the feed says so meanwhile, and goes on by itself."""
    found: Any = request.getfixturevalue(kind)
    connects: dict[str, Callable[[], Any]] = {
        "postgres": lambda: psycopg.connect(found.url),
        "mariadb": lambda: pymysql.connect(**_settings(found.url)),
    }
    database = _made(kind, found.url, connects[kind])
    database.write(*range(100))
    found.server.kill()
    with start(graph_of(found.url), Memory()) as running:
        until(lambda: running.status().tasks[0].silent)
        found.server.start()
        running.wait_idle(timeout_s=30)
        assert not running.status().tasks[0].silent
        found.server.kill()
        until(lambda: running.status().tasks[0].silent)
        assert "127.0.0.1" not in str(running.status())
        assert not running.status().stopped
        found.server.start()
        database.write(*range(100, 200))
        running.wait_idle(timeout_s=30)
        assert [m.value for m in running.messages("orders")] == list(range(200))
        assert not running.status().tasks[0].silent


def test_a_notification_wakes_a_feed_that_polls_seldom(postgres: PostgresDatabase) -> None:
    """The row is there long before the next poll."""
    database = _made("postgres", postgres.url, lambda: psycopg.connect(postgres.url))
    graph = Graph(
        "shop",
        Feed(SqlOutbox(postgres.url, channel="news"), into="orders", name="outbox", poll_seconds=600.0),
        defaults=Topic(value=Json(int), partitions=1),
    )
    with start(graph, Memory()) as running:
        running.wait_idle(timeout_s=20)

        def listens() -> bool:
            with closing(database.connect()) as connection:
                found = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
                return bool(found.fetchone()[0])

        until(listens)
        with closing(database.connect()) as connection:
            database.insert(connection, 7)
            connection.execute("NOTIFY news")
            connection.commit()
        until(lambda: [m.value for m in running.messages("orders")] == [7])


def test_a_restored_backup_is_refused_by_name(tmp_path: Path) -> None:
    """SQLite: numbers begin again; what they name now was not delivered."""
    path = tmp_path / "shop.db"
    database = _made("sqlite", f"sqlite:///{path}", lambda: sqlite3.connect(path))
    database.write(1, 2, 3)
    tester = Tester(graph_of(database.url))
    tester.run()
    path.unlink()
    _made("sqlite", f"sqlite:///{path}", lambda: sqlite3.connect(path))

    with pytest.raises(Exception, match="recreated, or restored"):
        tester.restart().run()


def test_a_server_that_counts_transactions_from_an_older_place_is_refused(postgres: PostgresDatabase) -> None:
    """As after a restore: rows of now would be taken for delivered ones."""
    _made("postgres", postgres.url, lambda: psycopg.connect(postgres.url))
    source = SqlOutbox(postgres.url).open()
    with pytest.raises(RecoveryError, match="restored from a backup"):
        list(source.read(0, "999999999:1", 10))
    source.close()


@pytest.mark.parametrize("keep", [True, False])
def test_a_row_with_the_numbers_of_a_delivered_one_is_refused_and_stays(postgres: PostgresDatabase, keep: bool) -> None:
    """PostgreSQL after a restore: the place names another row, or none."""
    database = _made("postgres", postgres.url, lambda: psycopg.connect(postgres.url))
    database.write(1, 2, 3)
    tester = Tester(graph_of(database.url, keep=keep))
    tester.run().run()
    assert database.count() == (3 if keep else 1)
    for change, now in (("UPDATE outbox SET value = '9'", "is another one"), ("DELETE FROM outbox", "is gone")):
        with closing(database.connect()) as connection:
            connection.execute(f"{change} WHERE id = 3".encode())
            connection.commit()
        database.write(4)
        there = database.count()
        with pytest.raises(RecoveryError, match=f"row 3 of 'outbox' was delivered, and {now}"):
            tester.restart().run()
        assert database.count() == there
    assert tester.values("orders") == [1, 2, 3]
    tester.stop()


def test_mysql_deletes_only_rows_that_were_delivered(mariadb: MariaDbDatabase) -> None:
    """After a restore new rows have claimed numbers: another process refuses them, and deletes nothing."""
    outbox = SqlOutbox(mariadb.url)
    database = _made("mariadb", mariadb.url, lambda: pymysql.connect(**_settings(mariadb.url)))
    database.write(1, 2, 3)
    first = outbox.open()
    place = [at for _, at in first.read(0, None, 10)][-1]

    def rewrite(*values: int) -> None:
        with closing(database.connect()) as connection:
            connection.cursor().execute("TRUNCATE outbox")
            connection.commit()
        database.write(*values)

    for values in ((1, 2, 9), (1, 2), (7, 8, 9, 10)):
        rewrite(*values)
        later: Any = outbox.open()
        for _ in range(2):
            with pytest.raises(RecoveryError, match="rows up to row 3 of 'outbox' were delivered, and other ones"):
                later.committed(0, place)
        later.close()
        assert database.count() == len(values)

    rewrite(1, 2, 3, 4)
    later = outbox.open()
    later.committed(0, place)
    assert [value.key for value, _ in later.read(0, place, 10)] == ["k4"]
    assert database.count() == 1
    later.committed(0, "3,4")
    assert database.count() == 0, "a place of an older release deletes its rows"
    later.close()
    first.close()
