"""E1 on SQLite, PostgreSQL and MariaDB: each message has one outcome, in the database and in Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import CommitPolicy, Graph, Processor, Source, Sql, Topic
from cues_kafka.testing.tester import Tester
from tests.integration.databases import DIALECTS, Shop, shop_of


@pytest.fixture(params=DIALECTS)
def shop(request: pytest.FixtureRequest) -> Shop:
    """An empty database of each kind."""
    return shop_of(request, request.param)


def graph_of(shop: Shop, fn: Any, *, partitions: int = 1, **settings: Any) -> Graph:
    """One processor `book` with the database."""
    settings = {"inputs": "orders", "outputs": "booked"} | settings
    return Graph(
        "g",
        Source("orders"),
        Processor(fn, name="book", effects={"db": Sql(shop.url)}, **settings),
        errors="errors",
        defaults=Topic(partitions=partitions),
    )


def loaded(graph: Graph, count: int, batch: int = 100) -> Tester:
    """With that many orders."""
    tester = Tester(graph, policy=CommitPolicy(max_messages=batch))
    for i in range(count):
        tester.send("orders", i, key=str(i))
    return tester


def test_each_message_has_one_outcome(shop: Shop) -> None:
    def book(order: int, db: Any) -> int | None:
        shop.insert(db, order)
        if order % 10 == 3:
            raise ValueError("three")
        return order if order % 2 == 0 else None

    tester = loaded(graph_of(shop, book, partitions=3), 40, batch=7).run()

    assert shop.ids() == [i for i in range(40) if i % 10 != 3]
    assert sorted(tester.values("booked")) == [i for i in range(40) if i % 2 == 0]
    assert len(tester.errors()) == 4
