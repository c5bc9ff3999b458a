"""No text shows the address of a database: not what a driver says when it cannot connect, nor of a lost connection."""

from __future__ import annotations

import logging
import socket
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from tenacity import stop_after_attempt

from cues_kafka import ConfigError, Graph, GraphError, Processor, RetriableError, Source, Sql
from cues_kafka.bridges.outbox.declare import SqlOutbox
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.graph import addresses
from cues_kafka.graph.addresses import DatabaseAddress
from cues_kafka.plan.inspectors import Terms
from cues_kafka.sinks import tables
from cues_kafka.sinks.lookup import dialect
from cues_kafka.sinks.mysql import MySql
from cues_kafka.sinks.patience import asking
from cues_kafka.task.making.prepare import plan_start

SECRETS = ("hid", "den", "internal", "127.0.0.1", "5x", "99999", "wilma", "stock")
"""Parts of the addresses below, and of a password that a driver takes for something else."""

NO_ROUTE = "Name or service not known"
UNRESOLVED = f"failed to resolve host ***: [Errno {int(socket.EAI_NONAME)}] {NO_ROUTE}"


def read(order: Any, db: Any) -> None:
    """A function with a database."""
    raise NotImplementedError


@pytest.fixture(autouse=True)
def no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name of a host is known, and no network is asked for it."""
    look_up = socket.getaddrinfo

    def known(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host and "internal" in host and ".." not in host:
            raise socket.gaierror(socket.EAI_NONAME, NO_ROUTE)
        return look_up(host, port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", known)


@pytest.fixture(scope="module")
def closed_port() -> Iterator[int]:
    """A port that refuses: it is taken, and nothing listens at it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


PORT = "the port in the address of the database is not a number from 1 to 65535. Write {}://user@host:{}/database"
LATER: dict[str, str] = {
    "postgresql://wilma:hidden@db.internal.invalid/stock": UNRESOLVED,
    "postgresql://wilma:hid@den@db.internal.invalid/stock": UNRESOLVED,
    "postgresql://wilma:hidden@127.0.0.1:{port}/stock": "PostgreSQL does not answer: Connection refused",
    "mysql://wilma:hidden@db.internal.invalid/stock": f"MySQL does not answer: {NO_ROUTE}",
    "mysql://wilma:hid den@127.0.0.1:{port}/stock": "MySQL does not answer: Connection refused",
    "mysql://wilma:hidden@127.0.0.1/stock?unix_socket=/hid/den": "on *** ([Errno 2] No such file or directory)",
    "sqlite:////no/internal/hidden.db": "the file of SQLite: unable to open database file",
}
"""What is said of an address at which something may answer later."""

NEVER: dict[str, str] = {
    "postgresql://wilma:hid den@127.0.0.1/stock": "unexpected spaces found in ***, use percent-encoded spaces (%20)",
    'postgresql://wilma:hid"%zden@127.0.0.1/stock': "invalid percent-encoded token: ***. Write postgresql://user@host/",
    "postgresql://wilma:hid%den@127.0.0.1/stock": "does not take the address: UnicodeDecodeError. Write postgresql://",
    "postgresql://wilma:hidden@inter..internal/stock": "PostgreSQL's driver does not take the address",
    "postgresql://wilma:hidden@127.0.0.1/stock?sslmode=hidden": "PostgreSQL refuses the connection: connection is bad",
    "postgresql://wilma:hidden@127.0.0.1:5x/stock": PORT.format("postgresql", 5432),
    "postgresql://wilma:hidden@127.0.0.1:99999/stock": PORT.format("postgresql", 5432),
    "postgresql://wilma:hid/den@127.0.0.1/stock": PORT.format("postgresql", 5432),
    "mysql://wilma:hidden@127.0.0.1:5x/stock": PORT.format("mysql", 3306),
    "mysql://wilma:hidden@127.0.0.1:99999/stock": PORT.format("mysql", 3306),
    "mariadb://wilma:hid/den@127.0.0.1/stock": PORT.format("mysql", 3306),
    "mysql://wilma:hid?den=@127.0.0.1/stock": PORT.format("mysql", 3306),
    "mysql://wilma@127.0.0.1/stock?hidden=1": "has options that are not known. There are ssl_ca, ssl_cert, ssl_key",
    "mysql://wilma:hidden\u0142@127.0.0.1/stock": "does not take the host, user or password of the address (Unicode",
    "mysql://wilma:hidden@inter..internal/stock": "does not take the host, user or password of the address (Unicode",
    "sqlite:///hid%00den": "is not a path of a file. Write sqlite:///relative/path",
}
"""What is said of an address that has to be corrected."""


def shown(text: str) -> list[str]:
    """The parts of an address that a text shows."""
    return [one for one in SECRETS if one in text]


@pytest.mark.parametrize("url", LATER)
def test_database_that_does_not_answer_is_told_without_its_address(
    url: str, closed_port: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In plans, as text and as data, in the log, and in what a start raises; texts have target and kind of failure."""
    sql = Sql(url.format(port=closed_port))
    graph = Graph("g", Source("a"), Processor(read, inputs="a", effects={"db": sql}))

    twice = stop_after_attempt(2)
    monkeypatch.setattr(tables, "asking", lambda *given: asking(*given).copy(stop=twice, sleep=lambda seconds: None))

    planned = plan_start(graph, MemoryBroker(), Terms())
    with pytest.raises(RetriableError) as raised:
        tables.make_tables(sql, "the test", create=True)

    [warning] = [one for one in planned.warnings if "effects['db']" in one]
    assert LATER[url] in warning
    assert LATER[url] in str(raised.value)
    assert "database not there" in caplog.text
    for text in (planned.text(topics=True, acls=True), str(planned.to_dict()), str(raised.value), caplog.text):
        assert str(closed_port) not in text
        assert not shown(text)


@pytest.mark.parametrize("given", ["url", "env"])
@pytest.mark.parametrize("url", NEVER)
def test_address_that_no_driver_takes_is_refused_without_it(
    url: str, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan has the refusal, which says what to write."""
    monkeypatch.setenv("SHOP_DATABASE", url)
    sql = Sql(url) if given == "url" else Sql(env="SHOP_DATABASE")
    graph = Graph("g", Source("a"), Processor(read, inputs="a", effects={"db": sql}))

    planned = plan_start(graph, MemoryBroker(), Terms())
    with pytest.raises(ConfigError) as raised:
        dialect(sql).connect()

    [refusal] = planned.refusals
    assert NEVER[url] in refusal
    assert NEVER[url] in str(raised.value)
    assert not shown(f"{planned.text(topics=True, acls=True)}{planned.to_dict()}{raised.value}")


@pytest.mark.parametrize("url", [url for url in (*LATER, *NEVER) if "?" not in url and "sqlite" not in url])
def test_outbox_that_cannot_be_reached_is_told_without_its_address(url: str, closed_port: int) -> None:
    """A wrong port too is an error of ours, with what to write."""
    expected = NEVER.get(url) or LATER[url].rpartition(": ")[2]

    with pytest.raises((RetriableError, ConfigError)) as raised:
        list(SqlOutbox(url.format(port=closed_port)).open().read(0, None, 1))

    assert isinstance(raised.value, ConfigError) == (url in NEVER)
    assert expected in str(raised.value)
    assert not shown(str(raised.value))


@pytest.mark.parametrize(
    "url",
    ["postgresql://wilma:hidden@[::1/stock", "mysql://wilma:hid@den\u2100/stock", "wilma:hidden@internal/stock"],
)
def test_address_that_is_none_is_refused_without_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the declaration; and in a plan where it is in a variable."""
    for declare in (Sql, SqlOutbox):
        with pytest.raises(GraphError, match="Write postgresql://") as declared:
            declare(url)
        assert not shown(str(declared.value))
    monkeypatch.setenv("SHOP_DATABASE", url)
    for connect in (lambda: dialect(Sql(env="SHOP_DATABASE")), SqlOutbox(env="SHOP_DATABASE").open):
        with pytest.raises(ConfigError, match="Write postgresql://") as raised:
            connect()
        assert not shown(str(raised.value))


ANSWERS: dict[str, str] = {
    'connection failed: connection to server at "10.1.2.3", port 5432 failed: FATAL:  password authentication failed '
    'for user "wilma"': "FATAL:  password authentication failed for user ***",
    'FATAL:  no pg_hba.conf entry for host "10.1.2.3", user "wilma", database "stock", no encryption': (
        "FATAL:  no pg_hba.conf entry for host ***, no encryption"
    ),
    "FATAL:  Passwort-Authentifizierung für Benutzer »wilma« fehlgeschlagen": (
        "FATAL:  Passwort-Authentifizierung für Benutzer *** fehlgeschlagen"
    ),
    'unexpected spaces found in "hid\nden", use percent-encoded spaces (%20) instead': (
        "unexpected spaces found in ***, use percent-encoded spaces (%20) instead"
    ),
    "multiple\nConnection attempts failed at 10.1.2.3 port 5432": "multiple",
}
"""What servers say of an attempt, and what is shown of it."""

LOST: dict[str, str] = {
    'connection to server at "db.internal" (10.1.2.3), port 5432 failed: server closed the connection unexpectedly': (
        "server closed the connection unexpectedly"
    ),
    'permission denied for table stock, user "wilma"': "permission denied for table stock, user ***",
    "SELECT command denied to user 'wilma'@'10.1.2.3' for table `stock`.`rows`": (
        "SELECT command denied to user *** for table `stock`.`rows`"
    ),
    "lost db.internal, hidden, postgresql://wilma:hidden@db.internal/stock": "lost ***, ***, ***",
    'null value in column "db" of relation "stock"': 'null value in column "db" of relation "stock"',
}
"""What drivers say on an open connection, and what is shown of it: names of tables and columns stay."""


def test_what_servers_say_is_shown_without_the_address() -> None:
    """Of an attempt to connect only the kind of failure stays, of an open connection all but the address."""
    address = DatabaseAddress("postgresql://wilma:hidden@db.internal/stock")

    assert {text: address.attempt(psycopg.OperationalError(text)) for text in ANSWERS} == ANSWERS
    assert {text: address.quiet(psycopg.OperationalError(text)) for text in LOST} == LOST
    assert address.quiet(psycopg.OperationalError()) == "OperationalError"


def test_closed_connection_of_mysql_is_named() -> None:
    """Its driver says a number and no word. The log had `InterfaceError: 0`."""
    address = DatabaseAddress("mysql://wilma:hidden@db.internal/stock")
    closed = pymysql.connect(defer_connect=True)

    with pytest.raises(pymysql.InterfaceError) as caught:
        closed.query("SELECT 1")

    assert address.quiet(caught.value) == "the connection is closed"


def test_error_that_goes_to_a_function_is_the_drivers_without_the_address() -> None:
    """Its code stays, which functions ask for."""
    error = pymysql.OperationalError(1142, "SELECT command denied to user 'wilma'@'10.1.2.3' for table 'rows'")

    DatabaseAddress("mysql://wilma:hidden@db.internal/stock").hide(error)

    assert error.args == (1142, "SELECT command denied to user *** for table 'rows'")


def test_what_led_to_a_drivers_error_has_no_address_either() -> None:
    """It goes into error messages as a cause, and into tracebacks."""
    try:
        try:
            raise ConnectionResetError(104, "reset by db.internal", "/hidden/socket")
        except OSError as first:
            raise psycopg.OperationalError("lost db.internal, as wilma with hidden") from first
    except psycopg.OperationalError as error:
        DatabaseAddress("postgresql://wilma:hidden@db.internal/stock").hide(error)
        told = "".join(traceback.format_exception(error))

    assert "psycopg.OperationalError: lost ***, as wilma with ***" in told
    assert "ConnectionResetError: [Errno 104] reset by ***: '***'" in told


def test_lines_of_a_driver_have_no_address_and_those_of_other_connections_stay(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With any level on. The driver names the connection where an error hides another one."""
    monkeypatch.setattr(addresses._MASKING, "addresses", {})  # those of other tests
    dialect(Sql("postgresql://internal/"))
    dialect(Sql("postgresql://wilma:hid%20den@db.internal/stock"))
    caplog.set_level("DEBUG", logger="psycopg")
    log = logging.getLogger("psycopg")

    log.warning(
        "error ignored terminating %r: %s", "<Pipeline (host=db.internal user=wilma database=stock)>", "hid den"
    )
    log.warning("error ignored terminating %r", "<Pipeline (host=db.elsewhere user=fred)>")

    assert caplog.messages == [
        "error ignored terminating '<Pipeline (host=*** user=*** database=***)>': ***",
        "error ignored terminating '<Pipeline (host=db.elsewhere user=fred)>'",
    ]


def test_columns_that_may_not_be_read_are_told_without_the_user() -> None:
    """A server names the user and its host in such a refusal."""
    talk = Fake()

    told = list(tables.misshapen(talk, None))

    assert all("SELECT command denied to user *** for table" in one for one in told)
    assert len(told) == 2


class Fake(MySql):
    """A server that refuses each question."""

    def __init__(self) -> None:
        super().__init__("mysql://wilma:hidden@db.internal/stock")

    def columns(self, connection: Any, table: str) -> Any:
        raise pymysql.OperationalError(1142, f"SELECT command denied to user 'wilma'@'10.1.2.3' for table {table}")


def test_file_of_sqlite_shows_in_no_text(tmp_path: Path) -> None:
    """If a file is no database, `plan` shows neither its name nor its directory."""
    path = tmp_path / "hidden.db"
    path.write_text("no database, but a text that is long enough to be one" * 9)
    graph = Graph("g", Source("a"), Processor(read, inputs="a", effects={"db": Sql(f"sqlite:///{path}")}))

    [warning] = [one for one in plan_start(graph, MemoryBroker(), Terms()).warnings if "effects['db']" in one]

    assert "the file of SQLite: file is not a database" in warning
    assert "hidden" not in warning
    assert str(tmp_path) not in warning
