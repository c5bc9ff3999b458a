"""
A database that goes away in mid-run: nothing that a graph tells shows the login or the host, on real servers.

What an attempt to connect says is in `tests/unit/sinks/test_secret_addresses.py`.
"""

from __future__ import annotations

import logging
import socket
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import psycopg
import pymysql
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cues_kafka import (
    Feed,
    Graph,
    Json,
    Memory,
    OpenLineage,
    Processor,
    Source,
    Spans,
    Sql,
    SqlOutbox,
    Topic,
    start,
)
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.ports.observer import Observer
from tests.unit.workers.test_lost_rights import until

PASSWORD = "zq7 Kx/9vT"
HOST = "db.qqhost.internal"
USER = "qqwilma"
SECRETS = (PASSWORD, quote(PASSWORD, safe=""), "zq7", "9vT", "qqhost", USER)


class Login(NamedTuple):
    """
    A user of a database.

    Attributes:
        url: the address, with login and a host by name.
        run: runs statements as the server's owner.
        refuse: statements that change the password, and end the user's connections.
        accept: the one that changes it back.
        quote: stands around names. What the server says of an unknown column repeats its name.
    """

    url: str
    run: Callable[..., Any]
    refuse: tuple[str, ...]
    accept: str
    quote: str


OUTBOX = {
    "postgres": "CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
    "xid xid8 NOT NULL DEFAULT pg_current_xact_id(), key text, value text NOT NULL)",
    "mariadb": "CREATE TABLE outbox (id BIGINT AUTO_INCREMENT PRIMARY KEY, `key` TEXT, value TEXT NOT NULL)",
}


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Names of hosts, which a test may take away; no network is asked for them."""
    known, look_up = {HOST: "127.0.0.1"}, socket.getaddrinfo

    def asked(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(host, str) and host.endswith(".internal"):
            if host not in known:
                raise socket.gaierror(socket.EAI_NONAME, f"Name or service not known: {host}")
            host = known[host]
        return look_up(host, port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", asked)
    return known


@pytest.fixture
def login(request: pytest.FixtureRequest, hosts: dict[str, str]) -> Iterator[Login]:
    """A user with a database of the kind that is asked for, whose owner can take the password away."""
    database = request.getfixturevalue(request.param)
    parts = urlsplit(database.url)
    url = parts._replace(netloc=f"{USER}:{quote(PASSWORD, safe='')}@{HOST}:{parts.port}").geturl()
    if request.param == "postgres":
        with psycopg.connect(database.url, autocommit=True) as owner:
            end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{USER}'"
            change = f"ALTER ROLE {USER} PASSWORD '{{}}'"
            owner.execute(OUTBOX["postgres"])
            owner.execute(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")
            owner.execute(f"GRANT ALL ON SCHEMA public TO {USER}")
            owner.execute(f"GRANT ALL ON outbox TO {USER}")
            yield Login(url, owner.execute, (change.format("other"), end), change.format(PASSWORD), '"')
            owner.execute(end)
            owner.execute(f"DROP OWNED BY {USER}")
            owner.execute(f"DROP ROLE {USER}")
        return
    given = {"host": "127.0.0.1", "port": parts.port or 0, "user": parts.username, "password": parts.password or ""}
    with closing(pymysql.connect(**given, database=database.name, autocommit=True)) as owner:
        run = owner.cursor().execute
        change = f"ALTER USER {USER} IDENTIFIED BY '{{}}'"
        run(OUTBOX["mariadb"])
        run(f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD}'")
        run(f"GRANT ALL ON {database.name}.* TO {USER}")
        yield Login(url, run, (change.format("other"), f"KILL USER {USER}"), change.format(PASSWORD), "`")
        run(f"DROP USER {USER}")


def page(port: int, name: str) -> str:
    """A page of the process, also where it says that the graph is not ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=10) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


def everything_in(memory: Memory) -> Iterator[str]:
    """All records of all topics: error messages, status, attempts and outputs among them."""
    [broker] = memory.held
    assert isinstance(broker, MemoryBroker)
    for topic, partitions in broker.partitions().items():
        for partition in range(partitions):
            log = broker.topics.log_of((topic, partition))
            yield f"{topic}: {[(one.key(), one.value(), one.headers()) for one in log.messages]}"


@pytest.mark.parametrize(
    ("login", "fault"),
    [
        ("postgres", "refused"),
        pytest.param("postgres", "unknown", marks=pytest.mark.full),
        pytest.param("mariadb", "refused", marks=pytest.mark.full),
        pytest.param("mariadb", "unknown", marks=pytest.mark.full),
    ],
    indirect=["login"],
)
def test_a_login_that_a_database_refuses_in_mid_run_shows_nowhere(
    fault: str, login: Login, hosts: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """
    Neither the password nor the host: in no line of a log, status, metric, span, event, error message or traceback.

    First statements of the function fail, whose texts the server makes of parts of the address. Then the server refuses
    the password, or the host has no name any more. In the end it is there again, and nothing is lost.
    """
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="psycopg")
    name = f"{login.quote}{PASSWORD} on {HOST}{login.quote}"

    def book(order: int, db: Any) -> int:
        match order:
            case 1:
                db.execute(f"SELECT {name}")
            case 2:
                try:
                    db.execute(f"SELECT {name}")
                except Exception as error:
                    raise ValueError("no such order") from error
        return order

    exporter, provider, events = InMemorySpanExporter(), TracerProvider(), list[Any]()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    memory, [port] = Memory(status_every_s=0.1), free_ports(1)
    graph = Graph(
        "shop",
        Source("orders"),
        Feed(SqlOutbox(login.url), into="told", name="boxed"),
        Processor(book, inputs="orders", outputs="booked", effects={"db": Sql(login.url)}),
        errors="errors",
        defaults=Topic(value=Json(), partitions=1),
    )
    watching: list[Observer] = [Spans(1, provider=provider), OpenLineage(events.append)]
    with start(graph, memory, observers=watching, http=str(port)) as running:
        running.send_many("orders", [0, 1, 2])
        running.wait_idle()
        errors = list(running.messages("errors"))

        if fault == "unknown":
            hosts.clear()
        for statement in login.refuse[fault == "unknown" :]:
            login.run(statement)
        running.send("orders", 3)
        until(running, lambda: list(running._stops()) and "source does not answer" in caplog.text)
        stops = [stop for _, stop in running._stops()]
        told = [str(running.status()), str(running.collect()), page(port, "metrics"), page(port, "readyz")]

        login.run(login.accept)
        hosts[HOST] = "127.0.0.1"
        until(running, lambda: not list(running._stops()))
        running.wait_idle()
        booked = [one.value for one in running.messages("booked")]

    assert booked == [0, 3]
    raised, wrapped = (one.value for one in errors)
    assert "*** on ***" in raised.text
    assert "*** on ***" in wrapped.causes[0].text
    kind = {"refused": " refuses the connection: ", "unknown": "does not answer: "}[fault]
    assert all(kind in str(stop) and "***" in str(stop) for stop in stops)
    events_of_spans = [dict(event.attributes or {}) for one in exporter.get_finished_spans() for event in one.events]
    assert sum("*** on ***" in str(one["exception.stacktrace"]) for one in events_of_spans) >= 2
    told += ["".join(traceback.format_exception(stop)) for stop in stops]
    told += [str(events_of_spans), str([one.status for one in exporter.get_finished_spans()])]
    told += [str(events), str(errors), caplog.text, *map(str, (record.exc_info for record in caplog.records))]
    told += everything_in(memory)
    assert any(text.startswith("shop.status: ") and "***" in text for text in told)
    for text in told:
        assert [secret for secret in SECRETS if secret in text] == [], text
