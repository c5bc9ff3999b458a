"""Time limits that a user or a database has for statements, on servers: E1 tells a slow statement from an outage."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import CommitPolicy, Graph, Processor, Source, Sql, Topic
from cues_kafka.graph.targets import TaskName
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.sql import SqlTarget
from cues_kafka.sinks.tables import make_tables
from cues_kafka.testing.tester import Tester
from tests.integration.databases import FIRST, Shop, Shops

LIMIT_S = 0.4

SLOW = {"postgresql": "SELECT pg_sleep(20)", "mysql": "SELECT SLEEP(20) FROM shop"}
"""Statements that take longer; MariaDB's SLEEP alone ends early and gives no error."""

CANCEL = {"postgresql": "SELECT pg_cancel_backend(pg_backend_pid())", "mysql": "KILL QUERY CONNECTION_ID()"}
"""What an operator runs."""

LATE = {"postgresql": "canceling statement due to statement timeout", "mysql": "(max_statement_time exceeded)"}
"""What the server says."""

SETTINGS = {"postgresql": "statement_timeout", "mysql": "max_statement_time"}


@pytest.fixture(scope="module")
def shops(request: pytest.FixtureRequest) -> Shops:
    """The databases."""
    return Shops(request)


@pytest.fixture(params=FIRST)
def shop(request: pytest.FixtureRequest, shops: Shops, tmp_path: Path) -> Iterator[Shop]:
    """A database whose connections get the limit from its administrator."""
    shop = shops.give(request.param, tmp_path)
    if shop.name == "postgresql":
        database = shop.query("SELECT quote_ident(current_database())")[0][0]
        limit, unlimited = (
            f"ALTER DATABASE {database} SET statement_timeout = '{LIMIT_S * 1000:.0f}ms'",
            f"ALTER DATABASE {database} RESET statement_timeout",
        )
    else:
        limit, unlimited = (f"SET GLOBAL max_statement_time = {one}" for one in (LIMIT_S, 0))
    shop.query(limit)
    yield shop
    shop.query(unlimited)


def booked(shop: Shop, act: Any, orders: int = 6) -> tuple[Tester, list[int]]:
    """A graph that has run; the function writes a row for each order and then acts. And the calls, by order."""
    calls: list[int] = []

    def book(order: int, db: Any) -> int:
        calls.append(order)
        shop.insert(db, order)
        act(order, calls.count(order), db)
        return order

    processor = Processor(book, inputs="orders", outputs="booked", effects={"db": Sql(shop.url)})
    graph = Graph("g", Source("orders"), processor, errors="errors", defaults=Topic(partitions=1))
    tester = Tester(graph, policy=CommitPolicy(max_messages=100))
    tester.send_many("orders", list(range(orders)))
    return tester.run(), calls


def test_statement_that_always_takes_too_long_is_an_error_of_its_message(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """The task used to call its batch again without end. The step is called with others, and twice alone."""

    def act(order: int, _: int, db: Any) -> None:
        if order == 3:
            db.execute(SLOW[shop.name])

    tester, calls = booked(shop, act)

    [error] = tester.errors()
    assert LATE[shop.name] in str(error)
    assert calls.count(3) == 3
    assert tester.values("booked") == shop.ids() == [0, 1, 2, 4, 5]
    assert f"a statement took longer than {SETTINGS[shop.name]} allows" in caplog.text
    assert f"Raise {SETTINGS[shop.name]} of the user or the database" in caplog.text


@pytest.mark.parametrize("times", [1, 2])
def test_statement_of_a_database_that_is_busy_for_a_while_is_tried_again(shop: Shop, times: int) -> None:
    """No message becomes an error because of it, whether the batch was slow once, or the step was alone then, too."""

    def act(order: int, call: int, db: Any) -> None:
        if order == 3 and call <= times:
            db.execute(SLOW[shop.name])

    tester, _ = booked(shop, act)

    assert tester.errors() == []
    assert tester.values("booked") == shop.ids() == [*range(6)]


def test_statement_that_an_operator_cancels_is_no_error_of_its_message(shop: Shop) -> None:
    """However often; the limit is there, and was not reached."""

    def act(order: int, call: int, db: Any) -> None:
        if order == 3 and call <= 4:
            db.execute(CANCEL[shop.name])
            db.execute("SELECT 1")

    tester, calls = booked(shop, act)

    assert calls.count(3) == 5
    assert tester.errors() == []
    assert tester.values("booked") == shop.ids() == [*range(6)]


def test_limit_does_not_end_the_wait_for_a_row_of_a_task(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """A frozen worker's connection was never ended: the limit ended each wait before it had lasted long enough."""
    make_tables(Sql(shop.url), "the test", create=True)
    dialects = shop.dialect(), shop.dialect()
    for one in dialects:
        one.lock_s = 2 * LIMIT_S
    old, new = (SqlTarget(one, TaskName("g", "book", 0)) for one in dialects)
    assert old.ask(1, 0) is None
    old.begin_batch(1, 0)
    old.mark()
    shop.insert(old.value, 1)

    found: list[HeldAttempt | None] = []
    other = threading.Thread(target=lambda: found.append(new.ask(2, 0)))
    other.start()
    other.join(30)

    assert found == [HeldAttempt(0, 0, 1, "")]
    assert "ended a connection" in caplog.text
    old.close()
    new.close()
