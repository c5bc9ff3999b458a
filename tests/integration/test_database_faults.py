"""Databases that refuse, go away, or are someone else's for a while (E1): never an error message, nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from cues_kafka import CommitPolicy, ConfigError, Graph, Processor, RetriableError, Source, Sql, TaskStopped, Topic
from cues_kafka.graph.targets import TaskName
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.dialect import Dialect
from cues_kafka.sinks.lookup import dialect
from cues_kafka.sinks.sql import SqlTarget
from cues_kafka.testing.tester import Tester
from tests.fault.support import until
from tests.integration.databases import FIRST, SERVERS, TABLE, Shop, Shops, served

TASK = TaskName("g", "book", 0)


@pytest.fixture(scope="module")
def shops(request: pytest.FixtureRequest) -> Shops:
    """The databases."""
    return Shops(request)


@pytest.fixture(params=FIRST)
def shop(request: pytest.FixtureRequest, shops: Shops, tmp_path: Path) -> Shop:
    """An empty database in a server."""
    return shops.give(request.param, tmp_path)


def loaded(shop: Shop, fn: Any, count: int = 6, batch: int = 100, *, url: str = "", **settings: Any) -> Tester:
    """A tester with one processor and that many orders."""
    settings = {"inputs": "orders", "outputs": "booked", "effects": {"db": Sql(url or shop.url)}} | settings
    processor = Processor(fn, name="book", **settings)
    graph = Graph("g", Source("orders"), processor, errors="errors", defaults=Topic(partitions=1))
    tester = Tester(graph, policy=CommitPolicy(max_messages=batch))
    for i in range(count):
        tester.send("orders", i)
    return tester


def whole(tester: Tester, shop: Shop, count: int = 6) -> bool:
    """Whether each order has its row and its message, and none an error."""
    assert tester.errors() == []
    assert tester.values("booked") == shop.ids() == [*range(count)]
    assert tester.totals("book").deliveries == count
    return True


# ---- the database takes nothing now


@pytest.mark.parametrize("swallowed", [False, True])
def test_deadlock_is_called_again(shop: Shop, swallowed: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The function's transaction is the victim; where the function takes the exception, its batch is void, too."""
    shop.query("INSERT INTO shop (id, text) VALUES (1001, ''), (1002, '')")
    many = ", ".join(f"({i}, '')" for i in range(2000, 2200))
    calls: list[int] = []
    other: list[threading.Thread] = []
    has_second, ours_waits = threading.Event(), threading.Event()

    def against() -> None:
        with shop.opened() as connection:
            cursor = connection.cursor()
            if shop.name == "postgresql":
                cursor.execute("SET deadlock_timeout = '20s'")  # the other one looks first, and is the victim
            cursor.execute("BEGIN")
            cursor.execute(f"INSERT INTO shop (id, text) VALUES {many}")  # MariaDB ends the smaller one
            cursor.execute("UPDATE shop SET text = 'b' WHERE id = 1002")
            has_second.set()
            ours_waits.wait(20)
            cursor.execute("UPDATE shop SET text = 'b' WHERE id = 1001")
            cursor.execute("ROLLBACK")

    def book(order: int, db: Any) -> int:
        calls.append(order)
        shop.insert(db, order)
        if order == 3 and calls.count(3) == 1:
            other.append(threading.Thread(target=against))
            other[0].start()
            has_second.wait(20)
            db.execute("UPDATE shop SET text = 'a' WHERE id = 1001")
            ours_waits.set()
            with suppress(Exception if swallowed else ZeroDivisionError):
                db.execute("UPDATE shop SET text = 'a' WHERE id = 1002")
        return order

    tester = loaded(shop, book).run()

    other[0].join()
    assert calls.count(0) == 2, "all of the batch is called again"
    assert "key the messages by the row" in caplog.text
    shop.query("DELETE FROM shop WHERE id > 1000")
    assert whole(tester, shop)


def connecting(shop: Shop, monkeypatch: pytest.MonkeyPatch, prepare: Callable[[Dialect, Any], None]) -> None:
    """Each new connection of the task's is prepared so."""
    kind = type(shop.dialect())
    connect = kind.connect

    def connected(self: Dialect) -> Any:
        connection = connect(self)
        prepare(self, connection)
        return connection

    monkeypatch.setattr(kind, "connect", connected)


def test_serialization_failure_is_called_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Another transaction has changed the row since the transaction took its snapshot.

    On MariaDB our transactions take one for each statement. Here they do otherwise until the failure: the task connects
    again then.
    """
    shop.query("INSERT INTO shop (id, text) VALUES (1001, '')")
    settings: tuple[str, ...] = ()
    url, fails = shop.url, 2
    if shop.name == "postgresql":
        url += "?options=-c%20default_transaction_isolation%3Dserializable"
    else:
        settings, fails = ("TRANSACTION ISOLATION LEVEL REPEATABLE READ", "innodb_snapshot_isolation = ON"), 1
    calls: list[int] = []

    def isolate(dialect: Dialect, connection: Any) -> None:
        for setting in settings if calls.count(3) < fails else ():
            dialect.execute(connection, f"SET SESSION {setting}")
        if settings:
            dialect.commit(connection)

    connecting(shop, monkeypatch, isolate)

    def book(order: int, db: Any) -> int:
        calls.append(order)
        shop.insert(db, order)
        if order == 3 and calls.count(3) <= fails:
            db.execute("SELECT text FROM shop WHERE id = 1001").fetchall()
            shop.query("UPDATE shop SET text = 'theirs' WHERE id = 1001")
            db.execute("UPDATE shop SET text = 'ours' WHERE id = 1001")
        return order

    tester = loaded(shop, book, batch=2, url=url).run()

    assert calls.count(2) == calls.count(3) == fails + 1, "all of the batch is called again"
    shop.query("DELETE FROM shop WHERE id > 1000")
    assert whole(tester, shop)


def test_lock_that_another_application_keeps_is_waited_for(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a statement waits: the batch is called again, and no connection but the task's is ended."""
    monkeypatch.setattr(type(shop.dialect()), "lock_s", 1.0)
    shop.query("INSERT INTO shop (id, text) VALUES (1001, '')")
    calls: list[int] = []
    with shop.opened() as other:
        cursor = other.cursor()

        def book(order: int, db: Any) -> int:
            calls.append(order)
            shop.insert(db, order)
            if order == 3 and calls.count(3) == 1:
                cursor.execute("BEGIN")
                cursor.execute("UPDATE shop SET text = 'theirs' WHERE id = 1001")
            if order == 3 and calls.count(3) == 2:
                cursor.execute("COMMIT")
            if order == 3:
                db.execute("UPDATE shop SET text = 'ours' WHERE id = 1001")
            return order

        tester = loaded(shop, book).run()

    assert calls.count(0) == 2
    assert shop.query("SELECT text FROM shop WHERE id = 1001") == [("ours",)]
    shop.query("DELETE FROM shop WHERE id > 1000")
    assert whole(tester, shop)


def test_full_database_is_an_outage(shops: Shops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's limit stands for a full disk: the same error, at the same places."""
    shop = shops.give("sqlite", tmp_path)
    full = True

    def limit(dialect: Dialect, connection: Any) -> None:
        if full:
            dialect.execute(connection, "PRAGMA max_page_count = 10").fetchone()

    connecting(shop, monkeypatch, limit)

    def book(order: int, db: Any) -> int:
        shop.insert(db, order)
        db.execute("UPDATE shop SET text = ? WHERE id = ?", ("x" * 100_000, order))
        return order

    tester = loaded(shop, book)
    with pytest.raises(TaskStopped, match="the disk is full"):
        tester.run()
    assert shop.ids() == []
    full = False

    assert whole(tester.run(), shop)


FULL = {
    "postgresql": (
        (
            "CREATE OR REPLACE FUNCTION full() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100', MESSAGE = 'could not extend file'; END $$"
        ),
        "CREATE TRIGGER full_disk BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION full()",
        "DROP TRIGGER full_disk ON {table}",
    ),
    "mysql": (
        (
            "CREATE TRIGGER full_disk BEFORE {event} ON {table} FOR EACH ROW "
            "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1021, MESSAGE_TEXT = 'Disk full'"
        ),
        "DROP TRIGGER full_disk",
    ),
}
"""How a server says that its disk is full, and stops saying so."""


@pytest.mark.parametrize(("table", "event"), [("shop", "INSERT"), ("cues_task", "UPDATE")])
def test_disk_that_is_full_is_an_outage(shop: Shop, table: str, event: str) -> None:
    """
    Whether a row of the function's meets it, or the row that says where the task stands.

    A trigger raises the error that the server has for it, because one whose disk is full may end without a word.
    """

    def book(order: int, db: Any) -> int:
        shop.insert(db, order)
        return order

    tester = loaded(shop, book, count=3).run()
    *full, free = (text.format(table=table, event=event) for text in FULL[shop.name])
    for statement in full:
        shop.query(statement)
    for order in range(3, 6):
        tester.send("orders", order)
    with pytest.raises(TaskStopped, match=r"(?i)lacks resources|disk is full|could not extend|disk full"):
        tester.run()
    assert shop.ids() == [0, 1, 2]
    shop.query(free)

    assert whole(tester.run(), shop)


LIMITS = {
    "postgresql": {"max_connections": "5", "superuser_reserved_connections": "0"},
    "mysql": {"max-connections": "10"},
}
"""Settings of a server that takes few connections; MariaDB takes no fewer."""


def test_server_that_dies_of_its_full_disk_is_an_outage(shop: Shop) -> None:
    """It cannot write its log, so it ends with the commit. It is started again when there is room."""
    filled: list[int] = []

    def book(order: int, db: Any) -> int:
        shop.insert(db, order)
        if order == 4 and not filled:
            shop.server.fill_disk()
            filled.append(order)
        return order

    tester = loaded(shop, book, batch=2)
    with pytest.raises(TaskStopped, match=r"the task then resumes by itself"):
        tester.run()
    until(lambda: not shop.server.running, "the server has ended")
    shop.server.start()

    assert shop.ids() == tester.values("booked") == [0, 1, 2, 3]
    assert whole(tester.run(), shop)


def take_connections(shop: Shop, taken: ExitStack) -> None:
    """Open connections until the server refuses one."""
    while True:
        taken.enter_context(closing(shop.connect()))


@pytest.mark.parametrize("name", SERVERS)
def test_connection_limit_is_an_outage(name: str, request: pytest.FixtureRequest) -> None:
    servers = request.getfixturevalue("postgres_servers" if name == "postgresql" else "mariadb_servers")
    shop = served(name, servers(settings=LIMITS[name]), "shop")
    shop.query(TABLE)

    def book(order: int, db: Any) -> int:
        shop.insert(db, order)
        return order

    tester = loaded(shop, book)
    with ExitStack() as taken:
        with pytest.raises(shop.dialect().errors, match=r"(?i)too many"):
            take_connections(shop, taken)
        with pytest.raises(TaskStopped, match=r"(?i)too many"):
            tester.run()

    assert whole(tester.run(), shop)


# ---- the database goes away


def test_server_killed_during_a_call_is_an_outage(shop: Shop) -> None:
    """Whether the function's next statement meets it, or nothing but the commit does."""
    calls: list[int] = []

    def book(order: int, db: Any) -> int:
        calls.append(order)
        shop.insert(db, order)
        if order in (2, 5) and calls.count(order) == 1:
            shop.server.kill()
            shop.server.start()
        return order

    tester = loaded(shop, book, count=6).run()

    assert whole(tester, shop)


REFUSALS = {
    "postgresql": ("password authentication failed for user ***", "database *** does not exist"),
    "mysql": ("Access denied for user *** (using password: YES)", "Unknown database ***"),
}
"""What a server says of a wrong password, and of a database that it does not have."""


def test_server_that_refuses_is_told_without_its_address(shop: Shop) -> None:
    """The text has the kind of refusal; the user, the host, the port and the names are masked."""
    parts = urlsplit(shop.url)
    wrong = (shop.url.replace(f":{parts.password}@", ":hidden@"), shop.url.replace(parts.path, "/hidden"))
    for url, why in zip(wrong, REFUSALS[shop.name], strict=True):
        with pytest.raises(ConfigError, match="SQL refuses the connection: ") as refused:
            dialect(Sql(url)).connect()
        assert why in str(refused.value)
        for part in ("hidden", parts.username, parts.hostname, str(parts.port), parts.password):
            assert str(part) not in str(refused.value)


def test_connection_that_an_operator_ends_is_an_outage(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """The log says so, and names no address."""
    calls: list[int] = []

    def book(order: int, db: Any) -> int:
        calls.append(order)
        shop.insert(db, order)
        if order == 3 and calls.count(3) == 1:
            own = "pg_backend_pid()" if shop.name == "postgresql" else "connection_id()"
            number = db.execute(f"SELECT {own}").fetchone()[0]
            shop.query(f"SELECT pg_terminate_backend({number})" if shop.name == "postgresql" else f"KILL {number}")
            with suppress(Exception):
                shop.insert(db, 77)
        return order

    assert whole(loaded(shop, book).run(), shop)
    parts = urlsplit(shop.url)
    assert "the database of book/0" in caplog.text
    for part in (parts.hostname, str(parts.port), parts.password):
        assert str(part) not in caplog.text


@pytest.mark.parametrize("moment", ["before", "after"])
def test_commit_of_unknown_outcome_is_found_out(shop: Shop, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is killed right before or behind the commit, and no answer comes."""
    kind = type(shop.dialect())
    finish = kind.finish
    done: list[str] = []

    def hurt(self: Dialect, connection: Any, *args: Any) -> None:
        if done:
            finish(self, connection, *args)
            return
        done.append(moment)
        if moment == "after":
            finish(self, connection, *args)
        shop.server.kill()
        shop.server.start()
        self.execute(connection, "SELECT 1")  # fails, as a commit without an answer does
        raise AssertionError("the connection outlives its server")

    monkeypatch.setattr(kind, "finish", hurt)
    calls: list[int] = []

    def book(order: int, db: Any) -> int:
        calls.append(order)
        shop.insert(db, order)
        return order

    tester = loaded(shop, book, batch=3).run()

    assert done
    assert whole(tester, shop)
    assert calls.count(0) == (2 if moment == "before" else 1)


def test_table_changed_under_a_running_task_needs_no_restart(shops: Shops, tmp_path: Path) -> None:
    """PostgreSQL refuses the prepared statement that names all columns."""
    shop = shops.give("postgresql", tmp_path)
    shop.query("INSERT INTO shop (id, text) VALUES (1001, '')")
    seen: list[int] = []

    def book(order: int, db: Any) -> int:
        shop.insert(db, order)
        seen.append(len(db.execute("SELECT * FROM shop WHERE id = %s", (1001,)).fetchone()))
        return order

    tester = loaded(shop, book, count=20).run()
    shop.query("ALTER TABLE shop ADD COLUMN more INTEGER")
    for i in range(20, 40):
        tester.send("orders", i)
    tester.run()

    shop.query("ALTER TABLE shop DROP COLUMN more")
    shop.query("DELETE FROM shop WHERE id > 1000")
    assert seen[-1] == 3
    assert whole(tester, shop, 40)


def test_server_restored_from_a_backup_is_refused(shop: Shop, tmp_path: Path) -> None:

    def book(order: int, db: Any) -> int:
        shop.insert(db, order)
        return order

    tester = loaded(shop, book, count=3).run()
    shop.server.backup(tmp_path / "backup")
    for i in range(3, 6):
        tester.send("orders", i)
    tester.run()
    shop.server.restore(tmp_path / "backup")
    tester.send("orders", 6)

    with pytest.raises(TaskStopped, match=r"stands at step 3, its newest record at step 6.*book --to database`"):
        tester.run()
    assert shop.ids() == [0, 1, 2]


def test_database_recreated_empty_is_refused(shop: Shop) -> None:
    def book(order: int, db: Any) -> int:
        shop.insert(db, order)
        return order

    tester = loaded(shop, book, count=3).run()
    for table in ("shop", "cues_task", "cues_outbox"):
        shop.query(f"DELETE FROM {table}")
    tester.send("orders", 3)

    with pytest.raises(TaskStopped, match=r"has no row of it, although it has taken 3 steps.*book --to here`"):
        tester.run()
    assert shop.ids() == []


# ---- zombies


def target(shop: Shop, lock_s: float = 1.0) -> SqlTarget:
    """That of the task, as a process has it."""
    talk = shop.dialect()
    talk.lock_s = lock_s
    return SqlTarget(talk, TASK)


def prepared(shop: Shop) -> Shop:
    """With our tables."""
    talk = shop.dialect()
    for statement in talk.schema:
        shop.query(statement)
    return shop


def test_zombie_that_holds_the_row_loses_its_connection(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """It is in a call that does not return. When it does, nothing of it can be committed."""
    old, new = target(prepared(shop)), target(shop)
    assert old.ask(1, 0) is None
    old.begin_batch(1, 0)
    old.mark()
    shop.insert(old.value, 1)

    held = new.ask(2, 0)

    assert held == HeldAttempt(0, 0, 1, "")
    assert "ended a connection" in caplog.text
    with pytest.raises(RetriableError):
        old.commit(HeldAttempt(0, 1, 1, "old"), [])
    with pytest.raises(RetriableError, match="owner 2"):
        old.begin_batch(1, 0)
    new.begin_batch(2, 0)
    new.mark()
    shop.insert(new.value, 1)
    assert new.check() == ""
    new.commit(HeldAttempt(0, 1, 2, "new"), [])
    assert shop.query("SELECT step, owner, attempt FROM cues_task") == [(1, 2, "new")]
    assert shop.ids() == [1]


def test_zombie_does_not_end_the_connection_of_a_later_owner(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """It does not get the lock, which the later owner has while its function runs."""
    old, new = target(prepared(shop)), target(shop)
    old.ask(1, 0)
    new.ask(2, 0)
    new.begin_batch(2, 0)
    new.mark()
    shop.insert(new.value, 1)

    with pytest.raises(RetriableError):
        old.begin_batch(1, 0)

    assert "ended a connection" not in caplog.text
    new.commit(HeldAttempt(0, 1, 2, "new"), [])
    assert shop.ids() == [1]


FROZEN = """
import os, signal, sys
from cues_kafka.errors import RetriableError
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.lookup import dialect
from cues_kafka import Sql
from cues_kafka.sinks.sql import SqlTarget
from cues_kafka.graph.targets import TaskName
target = SqlTarget(dialect(Sql(env="SHOP")), TaskName("g", "book", 0))
target.ask(1, 0)
target.begin_batch(1, 0)
target.mark()
target.value.execute("INSERT INTO shop (id, text) VALUES (1, 'zombie')")
os.kill(os.getpid(), signal.SIGSTOP)
try:
    target.commit(HeldAttempt(0, 1, 1, "zombie"), [])
except RetriableError as error:
    print("refused", error)
try:
    target.begin_batch(1, 0)
except RetriableError as error:
    print("refused again", error)
"""


def test_frozen_process_that_wakes_up_cannot_commit(shop: Shop) -> None:
    """SIGSTOP between its writes and its commit; meanwhile another process takes the task over, and goes on."""
    prepared(shop)
    zombie = subprocess.Popen(
        [sys.executable, "-c", FROZEN], env={**os.environ, "SHOP": shop.url}, stdout=subprocess.PIPE, text=True
    )
    try:
        _, status = os.waitpid(zombie.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        new = target(shop)
        new.ask(2, 0)
        new.begin_batch(2, 0)
        new.mark()
        shop.insert(new.value, 1, "new")
        new.commit(HeldAttempt(0, 1, 2, "new"), [])
        os.kill(zombie.pid, signal.SIGCONT)
        said, _ = zombie.communicate(timeout=30)
    finally:
        zombie.kill()
        zombie.wait()

    assert [line.partition(" the ")[0] for line in said.splitlines()] == ["refused", "refused again"], said
    assert shop.query("SELECT id, text FROM shop") == [(1, "new")]
    assert shop.query("SELECT step, owner, attempt FROM cues_task") == [(1, 2, "new")]
