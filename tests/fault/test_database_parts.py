"""Workers that are killed or paused between two parts of a batch, on a real broker and real databases (E1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, Sql
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.task.parts.part_commits import MOST
from tests.fault.support import Child, Setup, backing, until
from tests.integration.databases import SERVERS, Shop, Shops

pytestmark = pytest.mark.fault

SHORT: dict[str, Any] = {"session_timeout_s": 1.5, "heartbeat_s": 0.3}
SMALL: dict[str, Any] = {"max_messages": 2}
FIRST, PARTS = 2, 2 * MOST
"""Messages of the first batch of a start, under its snapshot, and of the parts behind it."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker that lets sessions end after little more than a second."""
    with LocalBroker(overrides={"group.min.session.timeout.ms": "500"}) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def shops(request: pytest.FixtureRequest) -> Shops:
    """The databases."""
    return Shops(request)


@pytest.fixture
def setup(bootstrap: str, request: pytest.FixtureRequest) -> Setup:
    """Names of the test's own."""
    words = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return Setup(bootstrap, f"p-{words[-50:]}".strip("-"))


def keep(value: int, db: Any) -> None:
    """A row for each message, and no message."""
    db.execute("INSERT INTO shop (id, text) VALUES (%s, '')", (value,))


def graph(bootstrap: str, name: str, url: str) -> Graph:
    """What all processes run. Quarantine is off: the processes die often, and one message may meet three deaths."""
    return Setup(bootstrap, name).graph(keep, outputs=None, effects={"db": Sql(url)}, quarantine_after=None)


def child(setup: Setup, shop: Shop, where: str, nth: int, sign: str) -> Child:
    """A worker that sends itself a signal at a point."""
    return Child(
        setup.bootstrap,
        "tests.fault.test_database_parts:graph",
        *(setup.bootstrap, setup.name, shop.url),
        options=SHORT,
        policy=SMALL,
        instance="one",
        point=(where, nth, sign),
    )


def check(setup: Setup, shop: Shop, messages: int) -> None:
    """Each message has one row, and is counted once."""
    assert shop.ids() == [*range(messages)]
    world = setup.world(sinks=[])
    assert world.errors == []
    assert world.totals == {"deliveries": messages, "outputs": 0, "errors": 0, "nils": messages}


POINTS = [
    ("after CommitTarget", 2),
    ("before CommitTarget", 4),
    ("after CommitTarget", 8),
    ("before Begin", 3),
    ("after SendOffsets", 3),
    ("before Init", 1),
    ("after Call", 4),
]
"""The third transaction of a start is that of its parts: its snapshot and the first batch come before."""


@pytest.mark.full
@pytest.mark.parametrize("database", SERVERS)
def test_kills_around_parts_leave_each_row_once(database: str, setup: Setup, shops: Shops, tmp_path: Path) -> None:
    """What the row is ahead with is counted, and only what is behind it is called again."""
    shop = shops.give(database, tmp_path)
    ours = graph(setup.bootstrap, setup.name, shop.url)
    setup.start(ours, options=SHORT).stop()
    sent = 0
    for where, nth in POINTS:
        with child(setup, shop, where, nth, "SIGKILL") as dying:
            setup.send(*(b"%d" % n for n in range(sent, sent + FIRST + PARTS)), transaction=True)
            sent += FIRST + PARTS
            assert dying.dead() == -9, f"a point that no run passes proves nothing: {where} {nth}"
    with setup.start(ours, options=SHORT) as running:
        running.wait_idle(timeout_s=60)
    check(setup, shop, sent)


@pytest.mark.full
@pytest.mark.parametrize("point", [("after CommitTarget", 2), ("before CommitTarget", 3)])
@pytest.mark.parametrize("database", SERVERS)
def test_a_worker_that_sleeps_between_parts_writes_no_row_twice(
    database: str, point: tuple[str, int], setup: Setup, shops: Shops, tmp_path: Path
) -> None:
    """Another one takes over meanwhile; then the first one goes on where it was."""
    shop = shops.give(database, tmp_path)
    ours = graph(setup.bootstrap, setup.name, shop.url)
    setup.start(ours, options=SHORT).stop()
    with child(setup, shop, *point, "SIGSTOP") as zombie:
        setup.send(*(b"%d" % n for n in range(FIRST + PARTS)), transaction=True)
        zombie.paused()
        with setup.start(ours, options=SHORT) as owner:
            owner.wait_idle(timeout_s=60)
            assert shop.ids() == [*range(FIRST + PARTS)]
            zombie.resume()
            setup.send(b"%d" % (FIRST + PARTS), transaction=True)
            until(
                lambda: any("lost" in line or "failed" in line or "revoked" in line for line in zombie.lines),
                "it noticed",
            )
            until(
                lambda: backing(setup.bootstrap, setup.backing)[0][-1]["totals"]["deliveries"] == FIRST + PARTS + 1,
                "everything is delivered",
            )
            zombie.stop()
    check(setup, shop, FIRST + PARTS + 1)
