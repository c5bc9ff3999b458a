"""SIGKILL around every commit of a worker with a database, on a real broker; and databases that go away (E1)."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from cues_kafka import CommitPolicy, Graph, Json, Kafka, Message, Processor, Source, Sql, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.client.client import Client
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault import database_world
from tests.fault.database_world import BAD, DOUBLE, KILLED, NIL, PARTITIONS
from tests.fault.killing import Point, forked
from tests.fault.support import Record, Setup, _avro, backing, check_chain, committed, outcomes, produce, until
from tests.integration.databases import FIRST, Shop, Shops

FEW: list[Point] = [
    ("before", "CommitTarget", 2),
    ("inside", "CommitTarget", 3),
    ("after", "CommitTarget", 2),
    ("inside", "Commit", 4),
]
AHEAD: list[Point] = [
    ("ahead", "Call", 1),
    ("ahead", "Commit", 1),
    ("ahead", "Call", 3),
    ("ahead", "Commit", 2),
]
"""With one partition, so that batches are called ahead (P7)."""

COMMITS: list[Point] = [
    *((moment, "CommitTarget", nth) for moment in ("before", "inside", "after") for nth in (1, 2, 5)),
    *((moment, "Commit", nth) for moment in ("before", "inside", "after") for nth in (2, 5, 6)),
]
ALL: list[Point] = [
    *COMMITS,
    *(
        (moment, effect, nth)
        for effect in ("AskTarget", "Begin", "SendOffsets", "Produce", "Flush", "Call")
        for moment, nth in (("before", 2), ("after", 2), ("before", 5), ("after", 4))
        if not (effect == "AskTarget" and nth > 2)
    ),
]

"""What differs between databases is in the commits, so the others are asked about `COMMITS` only."""

VIOLATIONS = {"postgresql": "UniqueViolation", "mysql": "IntegrityError", "sqlite": "IntegrityError"}
"""What the drivers raise for a row that is there already."""


@pytest.fixture(scope="module")
def shops(request: pytest.FixtureRequest) -> Shops:
    """The databases."""
    return Shops(request)


@pytest.fixture
def database(request: pytest.FixtureRequest, shops: Shops, tmp_path: Path) -> Shop:
    """An empty database of the kind that the test names."""
    return shops.give(request.param, tmp_path)


@pytest.fixture(params=FIRST)
def shop(request: pytest.FixtureRequest, shops: Shops, tmp_path: Path) -> Shop:
    """An empty database in a server."""
    return shops.give(request.param, tmp_path)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("database", "points", "partitions"),
    [
        pytest.param("postgresql", FEW, PARTITIONS, id="few"),
        pytest.param("postgresql", AHEAD, 1, id="ahead", marks=pytest.mark.full),
        pytest.param("postgresql", ALL, PARTITIONS, id="all", marks=pytest.mark.full),
        pytest.param("mysql", AHEAD, 1, id="mysql-ahead", marks=pytest.mark.full),
        pytest.param("mysql", COMMITS, PARTITIONS, id="mysql", marks=pytest.mark.full),
        pytest.param("sqlite", COMMITS, PARTITIONS, id="sqlite", marks=pytest.mark.full),
    ],
    indirect=["database"],
)
def test_kills_around_the_commits_of_both_systems_leave_one_outcome(
    kafka: KafkaFixture, database: Shop, points: list[Point], partitions: int
) -> None:
    """One process after the other dies at its point, with new messages before each. All that is there is exact."""
    context = forked()
    prefix, url = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("db")), database.url
    for statement in database_world.TABLES:
        database.query(statement)
    graph = database_world.graph(prefix, url, partitions)
    broker = open_broker(Kafka(kafka.bootstrap))
    client = Client(broker, graph)
    prepare(graph, broker)
    numbers: dict[int, int] = {}

    def run(point: Point | None) -> int | None:
        process = context.Process(target=database_world.run, args=(kafka.bootstrap, prefix, url, point, partitions))
        process.start()
        process.join(120)
        assert process.exitcode is not None, f"the process of {point} hangs"
        return process.exitcode

    unkilled = []
    for point in points:
        for n in range(len(numbers), len(numbers) + 20):
            numbers[n] = n // 2 % partitions
            client.send(f"{prefix}.numbers", Message(n, partition=numbers[n]))
        if run(point) not in KILLED:
            unkilled.append(point)
    assert run(None) == 0
    assert unkilled == [], "a point that no run passes proves nothing"

    kept = database_world.kept(numbers)
    for name in ("one", "many"):
        assert database.query(f"SELECT n, twice FROM {name} ORDER BY n") == [(n, 2 * n) for n in kept]
        messages, failed = (committed(kafka.bootstrap, f"{prefix}.{topic}") for topic in (name, f"failed-{name}"))
        for partition in range(partitions):
            given = [json.loads(m.value() or b"") for m in messages if m.partition() == partition]
            assert given == [n for n in kept if numbers[n] == partition and n % 10 != NIL]
        errors = sorted((_avro(m.value() or b"", "error")["exception"], m.key()) for m in failed)
        assert [one[0] for one in errors].count("ValueError") == sum(n % 10 == BAD for n in numbers)
        assert [one[0] for one in errors].count(VIOLATIONS[database.name]) == sum(n % 10 == DOUBLE for n in numbers)
        assert len(errors) == len(numbers) - len(kept)
        assert set(outcomes([*messages, *failed]).values()) == {1}
        check_chain(backing(kafka.bootstrap, f"{prefix}.{name}.backing"))
    report = verify(graph, broker)
    assert report.ok, str(report)
    client.close()
    broker.close()


def test_database_that_goes_away_under_load_pauses_the_tasks(
    kafka: KafkaFixture, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """They say so, go on by themselves, lose nothing, and do not spin meanwhile. It is down at the start, too."""
    setup = Setup(kafka.bootstrap, kafka.unique("dbdown"))
    server = shop.server

    def work(n: int, db: Any) -> int:
        shop.insert(db, n)
        return n

    graph = setup.graph(work, effects={"db": Sql(shop.url)}, partitions=2)
    server.kill()
    back = threading.Timer(1.0, server.start)
    back.start()
    with setup.start(graph, policy=CommitPolicy(max_messages=10)) as running:
        back.join()
        assert "database not there" in caplog.text
        setup.send(*(Record(b"%d" % n, partition=n % 2) for n in range(150)))
        until(lambda: len(shop.ids()) >= 20, "it works")
        caplog.clear()
        server.kill()
        setup.send(*(Record(b"%d" % n, partition=n % 2) for n in range(150, 300)))
        until(lambda: {"work/0", "work/1"} <= {one.task for one in running.status().stopped}, "both say so")
        time.sleep(1.0)  # a while in which they could spin
        said = caplog.text
        server.start()
        until(lambda: len(shop.ids()) == 300, "all is written")
        running.wait_idle(timeout_s=60)

    assert len(said.splitlines()) <= 2 * 3 * 8, "a line for each round of each task, with pauses that double"
    assert all(f"failed task='{task}' why='" in said for task in ("work/0", "work/1"))
    assert "Connection refused" in said
    world = setup.world()
    assert sorted(world.values) == [*range(300)]
    assert world.totals == {"deliveries": 300, "outputs": 300, "errors": 0, "nils": 0}
    assert set(world.outcomes.values()) == {1}
    assert world.errors == []


@pytest.mark.full
def test_processors_that_lock_rows_in_opposite_order_lose_nothing(
    kafka: KafkaFixture, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """The server ends one of two transactions that wait for each other. Its batch is called again, with no error."""
    name = kafka.unique("dblocks")
    shop.query("DROP TABLE IF EXISTS counts")
    shop.query("CREATE TABLE counts (k integer PRIMARY KEY, up integer NOT NULL, down integer NOT NULL)")
    shop.query(f"INSERT INTO counts VALUES {', '.join(f'({k}, 0, 0)' for k in range(10))}")
    if shop.name == "postgresql":  # it waits for a second by default, and MariaDB not at all
        shop.query(f'ALTER DATABASE "{urlsplit(shop.url).path[1:]}" SET deadlock_timeout = 100')

    def up(n: int, db: Any) -> int:
        db.execute(f"UPDATE counts SET up = up + 1 WHERE k = {n % 10}")
        time.sleep(0.002)
        return n

    def down(n: int, db: Any) -> int:
        db.execute(f"UPDATE counts SET down = down + 1 WHERE k = {9 - n % 10}")
        time.sleep(0.002)
        return n

    effects = {"db": Sql(shop.url)}
    graph = Graph(
        name,
        Source(f"{name}.in"),
        Processor(up, inputs=f"{name}.in", outputs=f"{name}.up", effects=effects),
        Processor(down, inputs=f"{name}.in", outputs=f"{name}.down", effects=effects),
        errors=f"{name}.errors",
        defaults=Topic(value=Json(), partitions=1),
    )
    count = 400
    with start(graph, Kafka(kafka.bootstrap), policy=CommitPolicy(max_messages=20)) as running:
        produce(kafka.bootstrap, f"{name}.in", (b"%d" % n for n in range(count)))
        until(
            lambda: all(len(committed(kafka.bootstrap, f"{name}.{side}")) == count for side in ("up", "down")),
            "all is delivered",
            120,
        )
        running.wait_idle(timeout_s=60)

    assert "deadlock" in caplog.text, "else the test shows nothing"
    assert committed(kafka.bootstrap, f"{name}.errors") == []
    assert shop.query("SELECT up, down FROM counts") == [(count // 10, count // 10)] * 10
    for side in ("up", "down"):
        given = [json.loads(m.value() or b"") for m in committed(kafka.bootstrap, f"{name}.{side}")]
        assert given == [*range(count)]
