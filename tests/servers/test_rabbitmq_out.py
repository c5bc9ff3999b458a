"""Messages of Kafka go to a real RabbitMQ: all of them, and what a crash repeats has the same id."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Feed, Graph, Memory, Message, Processor, RabbitMq, Raw, Source, Topic, start
from cues_kafka.testing.tester import Crash, Tester
from tests.fault.support import until
from tests.servers.bridge_world import payloads, run_until
from tests.servers.fixtures import RabbitMqQueues
from tests.servers.rabbitmq_world import Shop
from tests.servers.test_rabbitmq import out_of, published, sever


@pytest.mark.bridge
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("broker", ["lives", "dies"])
def test_nothing_is_lost_on_the_way_out(rabbitmq: RabbitMqQueues, moment: Any, broker: str, kind: str) -> None:
    """What a crash repeats is what the batch had, with the same ids."""
    queue = f"{rabbitmq.name}-{kind}"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, kind)
    graph = out_of(RabbitMq(rabbitmq.url).exchange("", queue), defaults=Topic(value=Raw(), partitions=1))
    tester = Tester(graph)
    for payload in payloads(20):
        tester.send("paid", payload)
    tester.run(crash=Crash(moment, "Commit", 3))
    assert tester.crashed
    sever(rabbitmq.server.port)
    if broker == "dies":
        rabbitmq.server.kill()
        rabbitmq.server.start()
        with Shop(rabbitmq.server) as shop:
            until(lambda: published(rabbitmq, shop, queue), "the queue takes messages")
    for payload in payloads(20, 20):
        tester.send("paid", payload)
    tester.run()
    tester.stop()

    with Shop(rabbitmq.server) as shop:
        first = {"x-stream-offset": "first"} if kind == "stream" else None
        got = shop.takes(queue, (60 if moment == "before" else 40) + (broker == "dies"), first)
    by_id = {properties.message_id: body for properties, body in got if properties.message_id != "id-30"}
    assert sorted(by_id.values()) == sorted(payloads(40))


@pytest.mark.bridge
def test_the_broker_dies_and_comes_back_under_a_sink(rabbitmq: RabbitMqQueues) -> None:
    """It goes on by itself; each message is there, perhaps more than once."""
    queue = f"{rabbitmq.name}-quorum"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue)
    graph = out_of(RabbitMq(rabbitmq.url).exchange("", queue), defaults=Topic(value=Raw(), partitions=1))
    with start(graph, Memory()) as running:
        for payload in payloads(20):
            running.send("paid", payload)
        running.wait_idle(timeout_s=30)
        rabbitmq.server.kill()
        for payload in payloads(20, 20):
            running.send("paid", payload)
        rabbitmq.server.start()
        with Shop(rabbitmq.server) as shop:
            until(lambda: shop.left(queue) >= 40, "all are delivered")
        running.wait_idle(timeout_s=60)
    with Shop(rabbitmq.server) as shop:
        bodies = [body for _, body in shop.takes(queue, shop.left(queue))]
    assert set(bodies) == set(payloads(40))


@pytest.mark.bridge
def test_message_that_no_queue_takes_waits_for_one(rabbitmq: RabbitMqQueues) -> None:
    """It is not dropped, as RabbitMQ would; the reason is in the log, and the task goes on by itself."""
    queue = f"{rabbitmq.name}-late"
    graph = out_of(RabbitMq(rabbitmq.url).exchange("", queue), defaults=Topic(value=Raw(), partitions=1))
    running = start(graph, Memory(), timeout_s=None)
    try:
        running.send("paid", b"1")
        with pytest.raises(Exception, match="no queue is bound"):
            running.wait_idle(timeout_s=20)
        with Shop(rabbitmq.server) as shop:
            shop.declare(queue, "classic")
            until(lambda: shop.left(queue) == 1, "the message")
    finally:
        running.stop()


@pytest.mark.bridge
def test_missing_exchange_is_named(rabbitmq: RabbitMqQueues) -> None:
    """With the remedy."""
    graph = out_of(RabbitMq(rabbitmq.url).exchange(rabbitmq.name), defaults=Topic(value=Raw(), partitions=1))
    running = start(graph, Memory(), timeout_s=None)
    try:
        running.send("paid", Message(b"1", key="k"))
        with pytest.raises(Exception, match=r"no exchange .*declare it at the broker"):
            running.wait_idle(timeout_s=20)
    finally:
        running.stop()


@pytest.mark.bridge
def test_values_that_cannot_be_published_become_error_messages(rabbitmq: RabbitMqQueues) -> None:
    """A key that is missing, too long, or would lead elsewhere; the others go out."""
    into = RabbitMq(rabbitmq.url).exchange("amq.topic", f"{rabbitmq.name}.{{key}}", max_bytes=100)
    queue = f"{rabbitmq.name}-all"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, "classic")
        shop.channel.queue_bind(queue, "amq.topic", f"{rabbitmq.name}.#")
        tester = Tester(out_of(into, defaults=Topic(value=Raw(), partitions=1)))
        for key in ("good", None, "", "a.b", "x" * 300, "#", "\u4e2d"):
            tester.send("paid", Message(b"v", key=key))
        tester.send("paid", Message(b"v" * 101, key="large"))
        tester.run()
        assert [body for _, body in shop.takes(queue, 3)] == [b"v"] * 3
    assert len(tester.errors()) == 5
    tester.stop()
    sever(rabbitmq.server.port)


@pytest.mark.bridge
def test_a_function_publishes_and_a_feed_drops_what_a_crash_repeats(rabbitmq: RabbitMqQueues) -> None:
    """From Kafka to Kafka by way of RabbitMQ: the ids of the first make the second exactly once."""
    queue = f"{rabbitmq.name}-between"

    def publish(value: bytes, step: Any, out: Any) -> None:
        out.publish(value + b"!", step, routing_key=queue)

    broker = RabbitMq(rabbitmq.url)
    first = Graph(
        "first",
        Source("paid"),
        Processor(publish, inputs="paid", effects={"out": broker.exchange("", "elsewhere")}),
        defaults=Topic(value=Raw(), partitions=1),
    )
    second = Graph(
        "second",
        Feed(broker.queue(queue), into="ingress", name="feed"),
        defaults=Topic(value=Raw(), partitions=1),
    )
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue)
    sender, receiver = Tester(first), Tester(second)
    for payload in payloads(10):
        sender.send("paid", payload)
    sender.run(crash=Crash("before", "Commit", 3))
    sender.run()
    run_until(receiver, 10)
    receiver.run()
    assert sorted(one.value for one in receiver.messages("ingress")) == [one + b"!" for one in payloads(10)]
    sender.stop()
    receiver.stop()
    sever(rabbitmq.server.port)
