"""A server that is killed under load and comes back from a backup that is behind its tasks, and the remedies (E1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cues_kafka import CommitPolicy, Graph, Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.loading import load_graph
from cues_kafka.cli.main import app
from cues_kafka.running.running import Running
from cues_kafka.task.making.prepare import prepare
from cues_kafka.task.status import TaskStatus
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import PATIENCE_S, Load, Setup, until
from tests.integration.databases import Shop, Shops

pytestmark = [pytest.mark.full, pytest.mark.fault, pytest.mark.timeout(200)]

CASES = [("postgresql", 2), ("postgresql", 1), ("mysql", 2)]
"""Databases and partitions. With one partition a batch is called while Kafka commits the one before it (P7)."""

BEHIND = "restored from a backup"
POLICY = CommitPolicy(max_messages=10)

MODULE = """
from cues_kafka import Graph, Json, Processor, Source, Sql, Topic


def work(value: list[int], db) -> list[int]:
    db.execute("INSERT INTO work VALUES ({mark}, {mark})", value)
    return value


graph = Graph(
    {name!r},
    Source("{name}.in"),
    Processor(work, inputs="{name}.in", outputs="{name}.out", effects={{"db": Sql(env="SHOP")}}),
    errors="{name}.errors",
    defaults=Topic(value=Json(), partitions={partitions}),
)
"""

Place = tuple[int, int]
"""A message of the load: its partition, and which one it is there."""


class Books:
    """A graph that writes a row and a message for each message, as a module for the commands, and the load on it."""

    def __init__(self, bootstrap: str, name: str, shop: Shop, partitions: int, directory: Path) -> None:
        self.setup, self.shop, self._directory = Setup(bootstrap, name), shop, directory
        self.parts = range(partitions)
        shop.query("DROP TABLE IF EXISTS work")
        shop.query("CREATE TABLE work (part integer NOT NULL, n integer NOT NULL)")  # no key forbids a second row
        self.module = directory / "books.py"
        self.module.write_text(MODULE.format(name=name, mark=shop.mark, partitions=partitions))
        self.graph: Graph = load_graph(f"{self.module}:graph")
        self.broker = open_broker(Kafka(bootstrap))
        prepare(self.graph, self.broker)

    def load(self) -> Load:
        """What writes messages to all partitions."""
        return Load(self.setup.bootstrap, self.setup.source, len(self.parts))

    def start(self) -> Running:
        """A worker."""
        return self.setup.start(self.graph, policy=POLICY)

    def rows(self) -> list[Place]:
        """What the database holds, in the order of places; it may hold one twice."""
        return [(part, n) for part, n in self.shop.query("SELECT part, n FROM work ORDER BY part, n")]

    def more_rows(self, count: int) -> None:
        """Wait until each task has written that many rows more."""
        wanted = Counter(dict.fromkeys(self.parts, count)) + Counter(part for part, _ in self.rows())
        until(lambda: wanted <= Counter(part for part, _ in self.rows()), f"{count} rows more of each task")

    def told(self) -> list[Place]:
        """What Kafka holds, in the order of places."""
        world = self.setup.world()
        assert world.errors == []
        return sorted((part, n) for part, n in world.values)

    def lose(self) -> Path:
        """Kill the server, and start it with what it held 50 rows of each task before; gives a copy of what it lost."""
        behind, newest = self._directory / "behind", self._directory / "newest"
        server = self.shop.server
        server.backup(behind)  # it is stopped for that, and the tasks go on behind it
        self.more_rows(50)
        server.kill()
        server.backup(newest)
        server.restore(behind)
        server.start()
        return newest

    def reset(self) -> str:
        """What the command prints that the tasks name as their remedy."""
        command = ["reset", f"{self.module}:graph", "work", "--to", "database", "--yes"]
        done = CliRunner().invoke(app, [*command, "--bootstrap", self.setup.bootstrap])
        assert done.exit_code == 0, done.output
        return done.output


@pytest.fixture(scope="module")
def shops(request: pytest.FixtureRequest) -> Shops:
    """The databases."""
    return Shops(request)


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def books(
    request: pytest.FixtureRequest, shops: Shops, kafka: KafkaFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Books]:
    """The graph, on each server."""
    database, partitions = request.param
    shop = shops.give(database, tmp_path)
    monkeypatch.setenv("SHOP", shop.url)
    found = Books(kafka.bootstrap, kafka.unique("books").replace("_", "-"), shop, partitions, tmp_path)
    yield found
    found.broker.close()


def prefixes(places: list[Place]) -> dict[int, int]:
    """How many messages of each partition there are: the first ones, each once."""
    counts = Counter(part for part, _ in places)
    assert places == [(part, n) for part in sorted(counts) for n in range(counts[part])]
    return dict(counts)


def stop_behind(books: Books, running: Running, caplog: pytest.LogCaptureFixture) -> tuple[Path, int]:
    """Lose the newest rows under load; the tasks stop, say the remedy, and write nothing while they are tried again."""
    books.more_rows(50)
    newest = books.lose()

    def behind() -> list[TaskStatus]:
        found = [one for one in running.status().stopped if BEHIND in str(one.stopped)]
        return found if len(found) == len(books.parts) else []

    stopped = until(behind, "all tasks say that the database is behind")
    there, told = prefixes(books.rows()), prefixes(books.told())
    assert all(there[part] < told[part] for part in books.parts), "the load was on all tasks"
    for one in stopped:
        assert "restore a newer backup" in str(one.remedy)
        assert "`cues-kafka reset MODULE:GRAPH work --to database`" in str(one.remedy)

    tries = caplog.text.count(BEHIND)
    until(lambda: caplog.text.count(BEHIND) >= tries + len(books.parts), "they are tried again")
    assert prefixes(books.rows()) == there, "no row is written behind those that are gone"
    assert prefixes(books.told()) == told
    return newest, sum(told.values()) - sum(there.values())


def test_tasks_behind_a_restored_backup_stop_until_a_reset_to_the_database(
    books: Books, caplog: pytest.LogCaptureFixture
) -> None:
    """Each message then has its row once. Those between backup and restore have their message to Kafka twice."""
    with books.load() as load:
        with ExitStack() as ends:
            running = books.start()
            ends.callback(running.stop)
            _, lost = stop_behind(books, running, caplog)
        there, told = prefixes(books.rows()), prefixes(books.told())
        said = books.reset()
        for part in books.parts:
            assert f"the database lacks {told[part] - there[part]} steps that Kafka has" in " ".join(said.split())
        with books.start() as running:
            books.more_rows(50)
            load.finish()
            running.wait_idle(timeout_s=PATIENCE_S)

    every = [(part, n) for part in books.parts for n in range(load.count)]
    again = [(part, n) for part in books.parts for n in range(there[part], told[part])]
    assert books.rows() == every
    assert books.told() == sorted([*every, *again])
    report = verify(books.graph, books.broker)
    assert not report.ok
    assert report["work"].duplicated == lost == len(again)
    assert report["work"].lost == 0


def test_tasks_behind_a_restored_backup_go_on_by_themselves_with_a_newer_one(
    books: Books, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk of the killed server is the newest backup. With it each message has one row and one message to Kafka."""
    with books.load() as load, books.start() as running:
        newest, _ = stop_behind(books, running, caplog)
        books.shop.server.restore(newest)
        books.more_rows(50)
        load.finish()
        running.wait_idle(timeout_s=PATIENCE_S)

    every = [(part, n) for part in books.parts for n in range(load.count)]
    assert books.rows() == books.told() == every
    report = verify(books.graph, books.broker)
    assert report.ok, str(report)
