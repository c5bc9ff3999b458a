"""RabbitMQ by AMQP 1.0, with its plugin: queues come exactly once, and messages go there at least once."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from cues_kafka import Amqp, CommitPolicy, Graph, Memory, Raw, Sink, Source, Topic, start
from cues_kafka.bridges.amqp.client import AmqpConnection, Taken
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.targets import TaskName
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify
from tests.servers.bridge_world import Cut, a_tester, counted, fed, payloads, run_until, until
from tests.servers.rabbitmq import RabbitMq as Server
from tests.servers.rabbitmq_world import Shop

pytestmark = pytest.mark.bridge

QUEUE = "orders"
READS = 20
WAIT_S = 30.0


@pytest.fixture
def server(rabbitmq_servers: Callable[..., Server]) -> Server:
    """One with the plugin."""
    return rabbitmq_servers(plugins=["rabbitmq_amqp1_0"])


def broker_of(server: Server, port: int = 0, **given: Any) -> Amqp:
    """Its declaration, also through something that cuts connections."""
    return Amqp(f"amqp://cues:{server.password}@127.0.0.1:{port or server.port}", **{"timeout_s": 5.0, **given})


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_messages_come_once_whatever_dies(server: Server, kind: str) -> None:
    """The process before and behind the commit, alone and with the broker."""
    with Shop(server) as shop:
        shop.declare(QUEUE, kind)
    begin = 0
    for moment in ("before", "after"):
        for broker in ("lives", "dies"):
            with Shop(server) as shop:
                shop.publish_many(QUEUE, payloads(30, begin))

            def between(broker: str = broker, begin: int = begin) -> None:
                if broker == "dies":
                    server.kill()
                    server.start(timeout_s=60)
                with Shop(server) as other:
                    other.publish_many(QUEUE, payloads(30, begin + 30))

            with Cut(server.port) as cut:
                tester = a_tester(broker_of(server, cut.port).queue(f"/amq/queue/{QUEUE}", prefetch=10))
                run_until(tester, 60, Crash(moment, "Commit", 2), cut=cut, between=between)
                with Shop(server) as shop:
                    until(partial(emptied, tester, cut, shop))
                assert counted(tester) == dict.fromkeys(payloads(60, begin), 1)
                assert verify(tester.graph, tester.broker).ok
                tester.stop()
            begin += 60


def emptied(tester: Tester, cut: Cut, shop: Shop) -> bool:
    """
    End the feed's connection, let it take what comes again, and see whether anything is left then.

    Acknowledgements get lost with a connection, so some rounds may be needed. RabbitMQ puts back what a connection had
    when it has noticed its end, and a tester does not wait for what is under way.
    """
    tester.restart()
    cut.cut()
    until(lambda: shop.consumers(QUEUE) == 0)
    if shop.left(QUEUE) == 0:
        return True
    for _ in range(READS):
        tester.run()
        time.sleep(0.01)
    return False


def test_rabbitmq_has_never_more_deliveries_than_it_may(server: Server) -> None:
    """However many acknowledgements are under way. The ledger rests on that (B1); RabbitMQ reads credit its own way."""
    for kind in ("classic", "quorum"):
        with Shop(server) as shop:
            shop.declare(kind, kind)
        for prefetch, each in ((20, 1), (20, 10), (100, 5)):
            with Shop(server) as shop:
                shop.publish_many(kind, payloads(600))
            assert most_deliveries(broker_of(server), kind, 600, prefetch, each) <= prefetch


def most_deliveries(broker: Amqp, name: str, count: int, prefetch: int, each: int) -> int:
    """Take all messages of a queue, each time some of them; gives how many were there without an acknowledgement."""
    got, held = queue.Queue[Taken](), list[int]()
    most = taken = 0
    with closing(AmqpConnection(broker.login(), "test")) as connection:
        connection.receive(f"/amq/queue/{name}", got.put, credit=prefetch)
        while taken + len(held) < count:
            held.append(got.get(timeout=WAIT_S).number)
            held += [got.get().number for _ in range(got.qsize())]
            most = max(most, len(held))
            while len(held) >= each:
                connection.take(held[:each])
                taken += each
                del held[:each]
    return most


def test_what_rabbitmq_lacks_is_refused_by_name(server: Server) -> None:
    """Transactions and selectors; a missing queue and a wrong login."""
    broker = broker_of(server)
    with pytest.raises(ConfigError, match=r"RabbitMQ.* has no transactions"):
        list(broker.to_queue("a").home.inspect())
    with pytest.raises(ConfigError, match=r"Amqp\(...\).address"):
        broker.target().open(TaskName("g", "p", 0)).ask()
    with Shop(server) as shop:
        shop.declare(QUEUE, "classic")
    for source, words in (
        (broker.queue(f"/amq/queue/{QUEUE}", selector="a = 1"), "ignores the selector"),
        (broker.queue("/amq/queue/none"), "NOT_FOUND"),
    ):
        running = start(fed(source), Memory(), timeout_s=None)
        try:
            with pytest.raises(Exception, match=words):
                running.wait_idle(timeout_s=30)
        finally:
            running.stop()
    wrong = Amqp(f"amqp://cues:wrong@127.0.0.1:{server.port}", timeout_s=5.0)
    with pytest.raises(RecoveryError, match="refuses the login: it does not know this user"):
        list(wrong.target().inspect())


def test_messages_go_out_again_with_the_same_ids(server: Server) -> None:
    """A crash behind the confirmation repeats one batch; the broker dies, too."""
    graph = Graph(
        "out",
        Source("paid"),
        Sink("ship", inputs="paid", into=broker_of(server).address("/queue/ship-{key}", headers=["tenant"])),
        defaults=Topic(value=Raw(), partitions=1),
        errors="errors",
    )
    with Shop(server) as shop:
        for key in "ab":
            shop.declare(f"ship-{key}", "classic")
    tester = Tester(graph, policy=CommitPolicy(max_messages=3))
    for number in range(9):
        tester.send("paid", b"%d" % number, key="ab"[number % 2])
    tester.send("paid", b"bad", key="a/b")
    tester.run(crash=Crash("before", "Commit", 3))
    assert tester.crashed
    server.kill()
    server.start(timeout_s=60)
    tester.restart().run()
    tester.stop()
    with Shop(server) as shop:
        found = [one for key in "ab" for one in shop.takes(f"ship-{key}", shop.left(f"ship-{key}"))]
    assert {body for _, body in found} == set(payloads(9))
    assert len({(properties.message_id, body) for properties, body in found}) == 9
    assert len(found) > 9
    assert ["would lead to another address" in one.text for one in tester.errors()] == [True]
