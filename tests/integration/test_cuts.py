"""`drain --cut` and `reset --to cut:NAME` as programs on a real broker, beside worker processes that work (X4)."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest

from cues_kafka import Graph, Kafka, connect, start
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.cli.loading import load_graph
from cues_kafka.operate.cut.control import cuts_of
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.scanning import read_range
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import PATIENCE_S, Program, committed, until

PROGRAM = [sys.executable, "-m", "cues_kafka.cli.main"]
WIDTH, CUSTOMERS = 3, 20

MODULE = """
from typing import Any
from cues_kafka import Graph, Json, Processor, Source, State, Store, Topic

def check(order: dict[str, Any], seen: State[int]) -> dict[str, Any]:
    customer = order["customer"]
    seen[customer] = seen.get(customer, 0) + 1
    return {{**order, "nth": seen[customer]}}

def total(order: dict[str, Any], sums: State[int]) -> dict[str, Any]:
    customer = order["customer"]
    if order["cents"] % 7 == 0:
        sums.pop(customer, None)
    else:
        sums[customer] = sums.get(customer, 0) + order["cents"]
    return order

graph = Graph(
    {name!r},
    Source("{name}.orders"),
    Processor(check, inputs="{name}.orders", outputs="{name}.checked", state={{"seen": Store(Json(int))}}),
    Processor(total, inputs="{name}.checked", outputs="{name}.done", state={{"sums": Store(Json(int))}}),
    defaults=Topic(value=Json(), partitions={width}),
    cuts="1 day",
)
"""


class World(NamedTuple):
    """A graph in a module of its own, on the cluster."""

    graph: Graph
    target: str
    cluster: Kafka
    log: Path

    def command(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the program to its end."""
        program = [*PROGRAM, verb, self.target, *arguments, "--bootstrap", self.cluster.bootstrap]
        return subprocess.run(program, capture_output=True, text=True, check=False, timeout=100)

    def done(self, verb: str, *arguments: str) -> str:
        """What it prints where it succeeds."""
        ended = self.command(verb, *arguments)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    @contextmanager
    def workers(self, count: int = 2) -> Iterator[None]:
        """The graph at work in processes of their own."""
        with self.log.open("wb") as out:
            program = [*PROGRAM, "run", self.target, "--workers", str(count), "--bootstrap", self.cluster.bootstrap]
            process = subprocess.Popen(program, stdout=out, stderr=subprocess.STDOUT)
            try:
                until(lambda: self.log.read_bytes().count(b"ready after") == count, "workers are ready")
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE_S) == 0

    def orders(self, ends: Any = None) -> list[list[dict[str, Any]]]:
        """What was sent, by partition; up to these offsets."""
        found: list[list[dict[str, Any]]] = [[] for _ in range(WIDTH)]
        with connect(self.cluster, self.graph) as client:
            for message in client.messages(f"{self.graph.name}.orders", last=100_000):
                if ends is None or message.offset < ends[message.partition]:
                    found[message.partition].append(message.value)
        return found

    def stores(self) -> tuple[dict[str, int], dict[str, int]]:
        """Both stores as they are committed."""
        with connect(self.cluster, self.graph) as client:
            return client.table("check", "seen").copy(), client.table("total", "sums").copy()


def world_of(kafka: KafkaFixture, directory: Path) -> World:
    """The graph with names of its own."""
    name = kafka.unique("cut")
    file = directory / f"graph_{name.replace('-', '_')}.py"
    file.write_text(dedent(MODULE.format(name=name, width=WIDTH)))
    return World(load_graph(f"{file}:graph"), f"{file}:graph", Kafka(kafka.bootstrap), directory / "log")


def model(orders: list[list[dict[str, Any]]]) -> tuple[dict[str, int], dict[str, int]]:
    """What the stores hold behind these orders, in plain Python."""
    seen, sums = Counter[str](), dict[str, int]()
    for order in (order for partition in orders for order in partition):
        seen[order["customer"]] += 1
        if order["cents"] % 7 == 0:
            sums.pop(order["customer"], None)
        else:
            sums[order["customer"]] = sums.get(order["customer"], 0) + order["cents"]
    return seen, sums


class Load(threading.Thread):
    """Sends orders until it is told to stop."""

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self._world, self._stopping, self.sent = world, threading.Event(), 0

    def run(self) -> None:
        """Send."""
        with connect(self._world.cluster, self._world.graph) as client:
            while not self._stopping.wait(0.002):
                customer = f"c{self.sent * 7919 % CUSTOMERS}"
                value = {"id": self.sent, "customer": customer, "cents": self.sent % 100}
                client.send(f"{self._world.graph.name}.orders", value, key=customer)
                self.sent += 1

    def stop(self) -> None:
        """Stop, and wait for what is under way."""
        self._stopping.set()
        self.join(PATIENCE_S)


def delivered(world: World, count: int) -> bool:
    """Whether this many outputs are there."""
    return len(committed(world.cluster.bootstrap, f"{world.graph.name}.done")) >= count


@pytest.mark.full
def test_a_graph_goes_back_to_a_cut_that_was_taken_under_load(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Its stores are what the orders below the cut make of them, and in the end what all orders make, once."""
    world = world_of(kafka, tmp_path)
    load = Load(world)
    with world.workers():
        load.start()
        until(lambda: load.sent >= 200, "orders are sent")
        until(lambda: delivered(world, 1), "workers deliver")
        told = world.done("drain", "--cut", "one")
        assert "cut one is taken: 6 tasks, 2 stores" in told
        again = load.sent + 200
        until(lambda: load.sent >= again, "orders are sent beside the workers")
        load.stop()
        until(lambda: delivered(world, load.sent), "all orders are delivered")
        assert "has members" in world.command("reset", "--to", "cut:one", "--yes").stderr
    assert world.stores() == model(world.orders())

    [cut] = cuts_of(world.graph, KafkaBroker(world.cluster))
    assert world.done("cuts").startswith("one  ")
    [at] = cut.processors["check"].inputs.values()
    below = world.orders(at.offsets)
    assert 0 < sum(map(len, below)) < load.sent
    said = world.command("reset", "--to", "cut:one")
    assert said.returncode == 1
    assert "is delivered AGAIN, with the same delivery hashes" in said.stdout
    assert world.stores() == model(world.orders()), "nothing was changed without --yes"
    world.done("reset", "--to", "cut:one", "--yes")
    assert world.stores() == model(below)
    assert "nothing to do" in world.done("reset", "--to", "cut:one", "--yes")

    with world.workers():
        repeated = load.sent - sum(map(len, below))
        until(lambda: delivered(world, load.sent + repeated), "what came behind the cut is delivered again")
    assert world.stores() == model(world.orders())


DRAIN = """
import sys
from cues_kafka import Kafka
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.cli.loading import load_graph
from cues_kafka.operate.cut.drain import Drain

graph, bootstrap = load_graph(sys.argv[1]), sys.argv[2]
Drain(graph, KafkaBroker(Kafka(bootstrap)), who="drain on here", lease_s=2.0).take("one", tell=print)
"""


@pytest.mark.full
def test_workers_go_on_when_a_drain_is_killed_or_interrupted(kafka: KafkaFixture, tmp_path: Path) -> None:
    """By its lease, or at once. Its messages say what it waited for; a cut of the same name is taken afterwards."""
    world = world_of(kafka, tmp_path)
    orders = f"{world.graph.name}.orders"

    def held() -> bool:
        return all(task.held for task in running.status().tasks)

    with start(world.graph, world.cluster):
        pass
    with start(world.graph, world.cluster, only=["check"]) as running:
        running.send(orders, {"id": 1, "customer": "c1", "cents": 1}, key="c1")
        running.wait_idle()
        program = [sys.executable, "-u", "-c", DRAIN, world.target, world.cluster.bootstrap]
        with Program(program) as tool:  # total has a message to deliver, and no worker
            tool.expect("waiting: total/")
            until(held, "check is paused")
            tool.kill()
        running.send(orders, {"id": 2, "customer": "c1", "cents": 1}, key="c1")
        running.wait_idle()
        assert not held()

        with Program([*PROGRAM, "drain", world.target, "--cut", "one", "--bootstrap", world.cluster.bootstrap]) as tool:
            tool.expect("waiting: total/")
            until(held, "check is paused again")
            tool.process.send_signal(signal.SIGINT)
            tool.expect("interrupted: the cut was not taken, and the workers go on")
            assert tool.dead() == 1
        until(lambda: not held(), "the pause is taken back")
    with start(world.graph, world.cluster) as running:
        running.wait_idle()
        world.done("drain", "--cut", "one")


@pytest.mark.full
def test_what_is_gone_is_refused_by_name(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Messages that were deleted, a changelog that keeps too little, and one that is gone."""
    world, broker = world_of(kafka, tmp_path), KafkaBroker(Kafka(kafka.bootstrap))
    name = world.graph.name
    with start(world.graph, world.cluster) as running:
        for n in range(20):
            running.send(f"{name}.orders", {"id": n, "customer": f"c{n}", "cents": n}, key=f"c{n}")
        running.wait_idle()
        world.done("drain", "--cut", "one")
        for n in range(20, 40):
            running.send(f"{name}.orders", {"id": n, "customer": f"c{n}", "cents": n}, key=f"c{n}")
        running.wait_idle()
    assert "no cut 'two'. The cuts of this graph are 'one'" in world.command("reset", "--to", "cut:two").stderr
    assert "Leave out PROCESSOR" in world.command("reset", "check", "--to", "cut:one").stderr

    place = TopicPartition(f"{name}.orders", 0)
    broker.trim({place: broker.watermarks([place])[place].high})
    refused = world.command("reset", "--to", "cut:one", "--yes")
    assert refused.returncode == 1
    assert f"{name}.orders/0 begins at" in refused.stderr

    changelog = f"{name}.total.sums.changelog"
    config = broker.facts([changelog]).topics[changelog].config
    assert config["min.compaction.lag.ms"] == str(25 * 60 * 60 * 1000)
    broker.configure(changelog, {"min.compaction.lag.ms": "1000"})
    refused = world.command("drain", "--cut", "two")
    assert refused.returncode == 2
    assert f"{changelog} has min.compaction.lag.ms=1000, and 90000000 is needed" in refused.stderr
    assert f"{changelog}: min.compaction.lag.ms from 1000 to 90000000" in world.done("plan", "--apply")
    world.done("drain", "--cut", "two")
    broker.delete([changelog])
    refused = world.command("drain", "--cut", "three")
    assert f"topics '{changelog}' do not exist" in refused.stderr


EAGER = {"segment.ms": "300", "min.cleanable.dirty.ratio": "0.01"}


@pytest.mark.full
def test_kafka_compacts_a_changelog_past_a_cut_only_where_it_may(kafka: KafkaFixture, tmp_path: Path) -> None:
    """One keeps the time of cuts=; of the other the cut is gone, and no setting that was put back hides that."""
    world, broker = world_of(kafka, tmp_path), KafkaBroker(Kafka(kafka.bootstrap))
    name = world.graph.name
    keeps, loses = f"{name}.check.seen.changelog", f"{name}.total.sums.changelog"
    with start(world.graph, world.cluster) as running:

        def send(n: int) -> None:
            running.send(f"{name}.orders", {"id": n, "customer": "c1", "cents": 1}, key="c1")
            running.wait_idle()

        for n in range(10):
            send(n)
        world.done("drain", "--cut", "one")
        [cut] = cuts_of(world.graph, broker)
        stores = {at.topic: at for part in cut.processors.values() for at in part.stores.values()}
        partition = max(range(WIDTH), key=lambda p: stores[keeps].ends[p])

        def below(topic: str) -> list[bytes | None]:
            place, end = TopicPartition(topic, partition), stores[topic].ends[partition]
            return [message.key() for message in read_range(broker, place, 0, end)]

        before = below(keeps)
        broker.configure(keeps, EAGER)
        broker.configure(loses, {**EAGER, "min.compaction.lag.ms": "0"})
        numbers = itertools.count(100)

        def compacted() -> bool:
            send(next(numbers))
            return not below(loses)

        until(compacted, "Kafka compacts the changelog", timeout_s=100)
        assert below(keeps) == before
    broker.configure(loses, {"min.compaction.lag.ms": str(25 * 60 * 60 * 1000)})
    refused = world.command("reset", "--to", "cut:one", "--yes")
    assert refused.returncode == 1
    assert (
        f"{loses}/{partition} below {stores[loses].ends[partition]} is not what it was at cut 'one'" in refused.stderr
    )
