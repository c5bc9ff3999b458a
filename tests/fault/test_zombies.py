"""Workers that are paused until others have taken their tasks, and wake up (R1, P5): nothing is doubled.

A child process stops itself with SIGSTOP at a named effect; its session ends; another worker takes over and delivers;
then the child goes on exactly where it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Delta, Graph, Sql
from cues_kafka.brokers.local import LocalBroker
from tests.delta_reading import values
from tests.fault.support import Child, Setup, World, backing, until
from tests.integration.databases import SERVERS, Shops

pytestmark = pytest.mark.fault

SHORT: dict[str, Any] = {"session_timeout_s": 1.5, "heartbeat_s": 0.3}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker that lets sessions end after little more than a second."""
    with LocalBroker(overrides={"group.min.session.timeout.ms": "500"}) as broker:
        yield broker.bootstrap


@pytest.fixture
def setup(bootstrap: str, request: pytest.FixtureRequest) -> Setup:
    """Names of the test's own."""
    words = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return Setup(bootstrap, f"z-{words[-50:]}".strip("-"))


def same(value: Any) -> Any:
    """What the workers run."""
    return value


def graph(bootstrap: str, name: str) -> Graph:
    """What the child runs."""
    return Setup(bootstrap, name).graph(same)


def write(value: int, db: Any) -> int:
    """What the workers run where they have a database."""
    db.execute("INSERT INTO shop (id, text) VALUES (%s, '')", (value,))
    return value


def with_database(bootstrap: str, name: str, url: str) -> Graph:
    """What the child runs then."""
    return Setup(bootstrap, name).graph(write, effects={"db": Sql(url)})


def keep(value: int, table: Any) -> int:
    """What the workers run where they have a table of Delta Lake."""
    table.write({"n": value})
    return value


def with_table(bootstrap: str, name: str, url: str) -> Graph:
    """What the child runs then."""
    return Setup(bootstrap, name).graph(keep, effects={"table": Delta(url).table("kept", columns={"n": "long"})})


def pause_and_wake(setup: Setup, where: str, count: int, url: str = "", sessions: int = 0) -> World:
    """The child pauses at its point, this process takes over and delivers, the child wakes up, more comes."""
    args = (setup.bootstrap, setup.name, *([url] if url else []))
    made: Any = graph if not url else with_table if url.startswith("file:") else with_database
    name, ours = made.__name__, made(*args)
    options = SHORT | {"sessions": sessions}
    setup.start(ours, options=options).stop()  # the `Start` is there: the child's commits are its batches
    point = (where, count, "SIGSTOP")
    with Child(setup.bootstrap, f"tests.fault.test_zombies:{name}", *args, options=options, point=point) as zombie:
        setup.send(b"0", b"1", transaction=True)
        zombie.paused()
        with setup.start(ours, options=options) as owner:
            owner.wait_idle(timeout_s=60)
            setup.send(b"2", transaction=True)
            owner.wait_idle(timeout_s=60)
            zombie.resume()
            setup.send(b"3", transaction=True)
            # It has heard that it is out of the group, or that its id is another program's, and came back as a member.
            until(
                lambda: any("lost" in line or "failed" in line or "revoked" in line for line in zombie.lines),
                "it noticed",
            )
            setup.send(b"4", transaction=True)
            until(lambda: delivered(setup) == 5, "everything is delivered, by the worker that has the task now")
            assert not owner.status().stopped
            assert not any(line.startswith("stopped") for line in zombie.lines)
            zombie.stop()
            setup.send(b"5", transaction=True)
            until(lambda: delivered(setup) == 6, "the owner has it, or has it back")
            owner.wait_idle(timeout_s=60)
    return setup.world()


def delivered(setup: Setup) -> int:
    """By the newest backing record."""
    return int(backing(setup.bootstrap, setup.backing)[0][-1]["totals"]["deliveries"])


FEW = [("before Commit", 2)]
"""The second transaction of the child is its batch, the first its snapshot."""

FULL = [("after Call", 1), ("before Init", 1), ("after SendOffsets", 2)]

MORE = [
    ("after Init", 1),
    ("before ReadNewest", 1),
    ("before AssignReader", 1),
    ("before Begin", 1),
    ("before Commit", 1),
    ("after Commit", 1),
    ("before Begin", 2),
    ("before SendOffsets", 2),
    ("before Flush", 2),
    ("after Commit", 2),
]


@pytest.mark.parametrize(
    ("where", "count"),
    [
        *FEW,
        *(pytest.param(*point, marks=pytest.mark.full) for point in FULL),
        *(pytest.param(*point, marks=pytest.mark.slow) for point in MORE),
    ],
)
@pytest.mark.parametrize("sessions", [0, pytest.param(1, marks=pytest.mark.full, id="one session")])
def test_a_worker_that_sleeps_through_its_end_doubles_nothing(
    setup: Setup, where: str, count: int, sessions: int
) -> None:
    """Paused before its init, in mid-transaction, before its commit, in user code."""
    world = pause_and_wake(setup, where, count, sessions=sessions)

    assert world.values == [0, 1, 2, 3, 4, 5]
    assert world.errors == []
    assert world.totals == {"deliveries": 6, "outputs": 6, "errors": 0, "nils": 0}
    assert set(world.outcomes.values()) == {1}


@pytest.mark.full
@pytest.mark.parametrize("point", [("before CommitTarget", 1), ("after CommitTarget", 1), ("before Commit", 2)])
def test_a_worker_with_a_delta_table_that_sleeps_through_its_end_doubles_nothing(
    setup: Setup, point: tuple[str, int], tmp_path: Path
) -> None:
    """What the next owner has kept for the task is not what the sleeper's commit is made over."""
    world = pause_and_wake(setup, *point, f"file://{tmp_path}")

    assert world.values == sorted(values(f"{tmp_path}/kept", "n")) == [0, 1, 2, 3, 4, 5]
    assert world.errors == []
    assert world.totals == {"deliveries": 6, "outputs": 6, "errors": 0, "nils": 0}
    assert set(world.outcomes.values()) == {1}


@pytest.fixture(scope="module")
def shops(request: pytest.FixtureRequest) -> Shops:
    """The databases."""
    return Shops(request)


@pytest.mark.full
@pytest.mark.parametrize(
    "point",
    [
        ("before CommitTarget", 1),
        ("after CommitTarget", 1),
        ("after Call", 1),
        ("before Commit", 2),
        ("after Begin", 2),
    ],
)
@pytest.mark.parametrize("database", SERVERS)
def test_a_worker_with_a_database_that_sleeps_through_its_end_doubles_nothing(
    setup: Setup, database: str, point: tuple[str, int], shops: Shops, tmp_path: Path
) -> None:
    """Where it holds the lock of its row, the next owner ends its connection."""
    shop = shops.give(database, tmp_path)

    world = pause_and_wake(setup, *point, shop.url)

    assert world.values == shop.ids() == [0, 1, 2, 3, 4, 5]
    assert world.errors == []
    assert world.totals == {"deliveries": 6, "outputs": 6, "errors": 0, "nils": 0}
    assert set(world.outcomes.values()) == {1}
