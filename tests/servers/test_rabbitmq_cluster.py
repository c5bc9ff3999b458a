"""E1: streams of a RabbitMQ of three nodes, whose leaders change under a task that publishes."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from cues_kafka import CommitPolicy, Graph, Memory, Processor, RabbitMq, Source, Topic, start
from tests.fault.support import until
from tests.servers.fixtures import RabbitMqQueues, started
from tests.servers.rabbitmq import RabbitMq as Server
from tests.servers.rabbitmq_world import Shop, bodies_of
from tests.servers.server import owner

pytestmark = [pytest.mark.bridge, pytest.mark.timeout(600)]

NAMES = ("rabbit", "hare", "coney")


class Node(Server):
    """One of three nodes, which find each other by one register of ports."""

    more_ports = 4

    def __init__(self, name: str, first: Node | None) -> None:
        nodes = {f"cluster_formation.classic_config.nodes.{n}": f"{one}@localhost" for n, one in enumerate(NAMES, 1)}
        super().__init__(settings={"cluster_formation.peer_discovery_backend": "classic_config", **nodes})
        self.name, self.first = name, first or self
        self.password = self.first.password

    def environment(self) -> Mapping[str, str]:
        cookie = self.data / ".erlang.cookie"
        if not cookie.exists():
            cookie.parent.mkdir(parents=True, exist_ok=True)
            cookie.write_text(self.first.password)
            cookie.chmod(0o400)
            os.chown(cookie, *owner())
        own = {"RABBITMQ_NODENAME": f"{self.name}@localhost", "ERL_EPMD_PORT": str(self.first.ports[-1])}
        return {**super().environment(), **own}


@pytest.fixture
def nodes() -> Iterator[Sequence[Node]]:
    """Three of them, and a register that outlives each."""
    made = [first := Node(NAMES[0], None), *(Node(name, first) for name in NAMES[1:])]
    with ExitStack() as running:
        for node in made:
            started(running, node)
        yield made


def tell(number: int, parcels: Any) -> str:
    """It says something else whenever it is called."""
    said = f"{number}-{secrets.token_hex(4)}"
    parcels.publish(said)
    return said


def declare(node: Node, stream: str) -> None:
    """A stream with a replica on each node, whose leader is this one."""
    with Shop(node) as shop:
        arguments = {"x-queue-type": "stream", "x-initial-cluster-size": 3, "x-queue-leader-locator": "client-local"}
        shop.channel.queue_declare(stream, durable=True, arguments=arguments)


def test_leader_that_dies_under_load_repeats_and_loses_nothing(
    nodes: Sequence[Node], caplog: pytest.LogCaptureFixture
) -> None:
    """The node that leads the stream is killed, and comes back; the task is connected to another one."""
    first, second, _ = nodes
    declare(second, "parcels")
    parcels = RabbitMq(first.url(), timeout_s=5.0).to_stream("parcels", port=first.stream_port)
    function = Processor(tell, inputs="numbers", outputs="told", effects={"parcels": parcels})
    graph = Graph("g", Source("numbers"), function, defaults=Topic(partitions=1))
    with start(graph, Memory(), policy=CommitPolicy(max_messages=5)) as running:
        for number in range(40):
            running.send("numbers", number)
        until(lambda: len(running.messages("told")) >= 10, "the first ones")
        second.kill()
        for number in range(40, 200):
            running.send("numbers", number)
        until(lambda: len(running.messages("told")) >= 100, "it goes on with another leader", timeout_s=200)
        second.start()
        until(lambda: len(running.messages("told")) == 200, "all of them", timeout_s=200)
        assert "a stream moves, or was deleted" in caplog.text
        told = [one.value for one in running.messages("told")]
    assert [int(one.partition("-")[0]) for one in told] == list(range(200))
    assert bodies_of(RabbitMqQueues("", first.url(), first), "parcels") == [one.encode() for one in told]
