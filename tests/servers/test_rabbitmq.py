"""RabbitMQ on a real broker: messages come exactly once into Kafka, whatever dies when; short cases of the way out."""

from __future__ import annotations

import os
import socket
from collections import Counter
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from random import Random
from threading import Event, Thread
from typing import Any

import psutil
import pytest
from pika.exceptions import AMQPError, UnroutableError

from cues_kafka import (
    Graph,
    Json,
    Memory,
    Message,
    RabbitMq,
    Raw,
    RecoveryError,
    Sink,
    Source,
    TaskStopped,
    Topic,
    start,
)
from cues_kafka.bridges.rabbitmq.queues import OFTEN
from cues_kafka.bridges.rabbitmq.stream_client import StreamConnection
from cues_kafka.errors import RetriableError
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify
from tests.fault.support import until
from tests.servers.bridge_world import a_tester, counted, deliver_over_a_death, fed, payloads, run_until
from tests.servers.fixtures import RabbitMqQueues
from tests.servers.packages import ServerError
from tests.servers.rabbitmq_world import Shop, bodies_of, new_stream, out

KINDS = ("classic", "quorum", "stream")
QUEUES = ("classic", "quorum")


def source_of(rabbitmq: RabbitMqQueues, kind: str, **settings: Any) -> Any:
    """A queue or a stream of this test."""
    broker, name = RabbitMq(rabbitmq.url), f"{rabbitmq.name}-{kind}"
    return broker.stream(name, **settings) if kind == "stream" else broker.queue(name, **{"prefetch": 10, **settings})


def sever(port: int) -> None:
    """Close this process's connections to a port, as the system does for a process that dies."""
    for connection in psutil.Process().net_connections("tcp"):
        if connection.raddr and connection.raddr.port == port and connection.fd >= 0:
            with suppress(OSError), socket.socket(fileno=os.dup(connection.fd)) as twin:  # it may have ended by itself
                twin.shutdown(socket.SHUT_RDWR)


def out_of(into: Any, **settings: Any) -> Graph:
    """A sink."""
    settings = {"defaults": Topic(value=Json(), partitions=1), "errors": "g.errors", **settings}
    return Graph("g", Source("paid"), Sink("ship", inputs="paid", into=into), **settings)


def test_messages_come_once_over_a_death_between_commit_and_acknowledgement(rabbitmq: RabbitMqQueues) -> None:
    """The broker delivers them again, the ledger drops them, and then nothing is left at the broker."""
    queue = f"{rabbitmq.name}-classic"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, "classic")
        shop.publish_many(queue, payloads(30))
    tester = a_tester(source_of(rabbitmq, "classic", key="message_id"))
    run_until(tester, 30, Crash("after", "Commit", 2), lambda: sever(rabbitmq.server.port))
    tester.run()

    assert [one.value for one in tester.messages("ingress")] == payloads(30)
    assert [one.key for one in tester.messages("ingress")] == [f"id-{n}" for n in range(30)]
    assert verify(tester.graph, tester.broker).ok
    tester.stop()
    sever(rabbitmq.server.port)
    with Shop(rabbitmq.server) as shop:
        until(lambda: shop.left(queue) == 0, "nothing is left")


def test_messages_go_out_with_an_id_and_are_confirmed_before_the_commit(rabbitmq: RabbitMqQueues) -> None:
    """What a crash repeats has the same id; keys and fields lead to queues."""
    queue = f"{rabbitmq.name}-eu"
    into = RabbitMq(rabbitmq.url).exchange(
        "", f"{rabbitmq.name}-{{country}}", headers=["unit"], content_type="application/json"
    )
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, "classic")
        tester = Tester(out_of(into))
        for n in range(5):
            tester.send("paid", Message({"country": "eu", "n": n}, key=f"k{n}", headers={"unit": "C"}))
        tester.run(crash=Crash("before", "Commit", 3))  # behind those of the first record and of the snapshot
        tester.run()
        got = shop.takes(queue, 10)
    by_id = {properties.message_id: body for properties, body in got}
    assert sorted(by_id.values()) == [b'{"country":"eu","n":%d}' % n for n in range(5)]
    assert {(one.headers["unit"], one.content_type, one.delivery_mode) for one, _ in got} == {
        ("C", "application/json", 2)
    }
    tester.stop()
    sever(rabbitmq.server.port)


def test_messages_go_to_a_stream_once_over_a_death_behind_the_entry(rabbitmq: RabbitMqQueues) -> None:
    """The next owner publishes it again, and the stream drops it. test_rabbitmq_streams_out.py has the matrix."""
    stream = new_stream(rabbitmq)
    deliver_over_a_death(
        Graph(rabbitmq.name, Source("orders"), Sink("out", inputs="orders", into=out(rabbitmq, stream))), 9
    )
    assert bodies_of(rabbitmq, stream) == [b'{"id":%d}' % number for number in range(9)]


# The matrix. A restart of RabbitMQ takes three seconds, and twenty on a machine that is busy.

CRASHES = (
    ("before", "Call", 2),
    ("after", "Call", 2),
    ("before", "Commit", 2),
    ("after", "Commit", 2),
    ("after", "Commit", 3),
    ("before", "Init", 1),
)


@pytest.mark.bridge
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("broker", ["lives", "dies"])
@pytest.mark.parametrize("crash", CRASHES, ids=str)
def test_messages_come_once_whatever_dies(
    rabbitmq: RabbitMqQueues, crash: tuple[Any, str, int], broker: str, kind: str
) -> None:
    """The process at each moment, alone or together with the broker; more is published meanwhile."""
    queue = f"{rabbitmq.name}-{kind}"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, kind)
        shop.publish_many(queue, payloads(30))
    tester = a_tester(source_of(rabbitmq, kind))

    def between() -> None:
        sever(rabbitmq.server.port)
        if broker == "dies":
            rabbitmq.server.kill()
            rabbitmq.server.start()
        with Shop(rabbitmq.server) as shop:
            until(lambda: published(rabbitmq, shop, queue), "the queue takes messages", 120)
            shop.publish_many(queue, payloads(29, 31))

    run_until(tester, 60, Crash(*crash), between)
    sever(rabbitmq.server.port)
    tester.restart()
    tester.run()
    assert counted(tester) == dict.fromkeys(payloads(60), 1)
    assert verify(tester.graph, tester.broker).ok
    tester.stop()
    sever(rabbitmq.server.port)


# Brokers that deliver again behind what is new: the window is 2, and the ledger names 8 messages.


def test_a_redelivery_behind_messages_of_a_higher_priority_is_dropped(
    rabbitmq: RabbitMqQueues, caplog: pytest.LogCaptureFixture
) -> None:
    """B1: the ledger has forgotten it. The process that began with it in its ledger knows it, and says so."""
    queue = f"{rabbitmq.name}-classic"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, "classic", **{"x-max-priority": 5})
        shop.publish_many(queue, payloads(10))
    tester = a_tester(source_of(rabbitmq, "classic", prefetch=2))

    def between() -> None:
        sever(rabbitmq.server.port)
        with Shop(rabbitmq.server) as shop:
            for body in payloads(30, 10):
                shop.publish(queue, body, message_id=f"id-{body.decode()}", priority=5)

    run_until(tester, 40, Crash("after", "Commit", 3), between)

    values = [int(one.value) for one in tester.messages("ingress")]
    assert sorted(values) == list(range(40))
    assert set(values[10:]) & set(range(10)), "no message of a lower priority came later"
    assert "behind more new messages than the ledger names" in caplog.text
    tester.stop()
    sever(rabbitmq.server.port)


@pytest.mark.bridge
def test_a_redelivery_that_another_program_has_held_back_is_dropped(rabbitmq: RabbitMqQueues) -> None:
    """A program that asks a classic queue for single messages is no consumer of it. It gives them back late."""
    queue = f"{rabbitmq.name}-classic"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, "classic")
        shop.publish_many(queue, payloads(6))
    tester = a_tester(source_of(rabbitmq, "classic", prefetch=2))
    with ExitStack() as opened:
        held: list[bytes] = []

        def between() -> None:
            sever(rabbitmq.server.port)
            other = opened.enter_context(Shop(rabbitmq.server))
            until(lambda: not other.consumers(queue), "the feed is gone")
            held.extend(other.channel.basic_get(queue)[2] for _ in range(3))
            opened.callback(lambda: other.channel.basic_nack(0, multiple=True, requeue=True))
            with Shop(rabbitmq.server) as shop:
                shop.publish_many(queue, payloads(30, 6))

        run_until(tester, 34, Crash("after", "Commit", 3), between)
        assert sum(counted(tester)[body] for body in held) == 1, "one of them was committed"
    run_until(tester, 36)
    tester.stop()
    sever(rabbitmq.server.port)
    with Shop(rabbitmq.server) as shop:
        until(lambda: shop.left(queue) == 0, "nothing is left")
    assert counted(tester) == dict.fromkeys(payloads(36), 1)


def published(rabbitmq: RabbitMqQueues, shop: Shop, queue: str) -> bool:
    """
    Whether the message 30 is published; behind a restart a stream is not there at once, a classic queue is.

    RabbitMQ may take a message for a stream that has no leader yet, and never confirm it. One that can be read has one.
    """
    try:
        if queue.endswith("-stream"):
            shop.read_nothing(queue)
        shop.publish_many(queue, payloads(1, 30))
    except UnroutableError:
        if queue.endswith("-classic"):
            raise ServerError(f"RabbitMQ has lost a queue. {rabbitmq.server.remains_of(queue)}") from None
        return False
    except AMQPError:
        shop.reopen()
        return False
    return True


@pytest.mark.bridge
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", KINDS)
def test_messages_come_once_while_the_broker_dies_and_comes_back(rabbitmq: RabbitMqQueues, kind: str) -> None:
    """Under a feed that goes on; it reconnects by itself."""
    queue = f"{rabbitmq.name}-{kind}"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, kind)
        shop.publish_many(queue, payloads(30))
    with start(fed(source_of(rabbitmq, kind)), Memory()) as running:
        rabbitmq.server.kill()
        rabbitmq.server.start()
        with Shop(rabbitmq.server) as shop:
            until(lambda: published(rabbitmq, shop, queue), "the queue takes messages", 120)
            shop.publish_many(queue, payloads(69, 31))
        until(lambda: len(running.messages("ingress")) >= 100, "all messages")
        assert sorted(int(one.value) for one in running.messages("ingress")) == list(range(100))


@pytest.mark.bridge
@pytest.mark.parametrize("kind", KINDS)
def test_messages_come_once_over_connections_that_are_cut(rabbitmq: RabbitMqQueues, kind: str) -> None:
    """At any moment, in both directions."""
    queue = f"{rabbitmq.name}-{kind}"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, kind)
    with start(fed(source_of(rabbitmq, kind)), Memory()) as running:
        for turn in range(10):
            with Shop(rabbitmq.server) as shop:
                shop.publish_many(queue, payloads(20, 20 * turn))
            sever(rabbitmq.server.port)
        until(lambda: len(running.messages("ingress")) >= 200, "all messages")
        assert sorted(int(one.value) for one in running.messages("ingress")) == list(range(200))


@pytest.mark.bridge
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", KINDS)
def test_messages_come_once_through_kills_of_the_broker_under_load(rabbitmq: RabbitMqQueues, kind: str) -> None:
    """Of the broker or of all connections, while messages are published as quickly as they are confirmed."""
    queue, random, confirmed, done = f"{rabbitmq.name}-{kind}", Random(kind), set[bytes](), Event()
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, kind)

    def publish() -> None:
        """What was not confirmed may be there; its number is not used again."""
        shop: Shop | None = None
        for n in count():
            if done.is_set():
                return
            try:
                shop = shop or Shop(rabbitmq.server)
                shop.publish_many(queue, payloads(1, n))
                confirmed.add(b"%d" % n)
            except (OSError, AMQPError):
                shop = None
                done.wait(0.05)

    publisher = Thread(target=publish)
    publisher.start()
    try:
        with start(fed(source_of(rabbitmq, kind, prefetch=100)), Memory()) as running:
            for turn in range(3):
                done.wait(random.uniform(0.5, 1.5))
                if turn == 1:
                    sever(rabbitmq.server.port)
                else:
                    rabbitmq.server.kill()
                    rabbitmq.server.start()
            done.wait(1)
            done.set()
            publisher.join()
            until(lambda: confirmed <= set(taken(running)), "what was confirmed", 60)
            assert set(Counter(taken(running)).values()) == {1}
    finally:
        done.set()
        publisher.join()


def taken(running: Any) -> list[bytes]:
    """The payloads in the topic."""
    return [bytes(one.value) for one in running.messages("ingress")]


@pytest.mark.bridge
@pytest.mark.parametrize("kind", KINDS)
def test_a_full_window_goes_on(rabbitmq: RabbitMqQueues, kind: str) -> None:
    """One message under way at a time; each waits for the commit of the one before."""
    queue = f"{rabbitmq.name}-{kind}"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, kind)
        shop.publish_many(queue, payloads(40))
    with start(fed(source_of(rabbitmq, kind, prefetch=1)), Memory()) as running:
        until(lambda: len(running.messages("ingress")) >= 40, "all messages")
        assert [one.value for one in running.messages("ingress")] == payloads(40)


@pytest.mark.bridge
def test_a_broker_that_is_away_at_the_start_is_waited_for(rabbitmq: RabbitMqQueues) -> None:
    """The status says so, and it goes on by itself."""
    queue = f"{rabbitmq.name}-quorum"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue)
        shop.publish_many(queue, payloads(1))
    rabbitmq.server.kill()
    with start(fed(source_of(rabbitmq, "quorum")), Memory()) as running:
        with pytest.raises(TimeoutError, match=r"source does not answer .*refused"):
            running.wait_idle(timeout_s=1)
        rabbitmq.server.start()
        until(lambda: len(running.messages("ingress")) == 1, "the message")


@pytest.mark.bridge
@pytest.mark.parametrize("kind", QUEUES)
def test_a_second_feed_of_a_queue_waits_and_says_why(rabbitmq: RabbitMqQueues, kind: str) -> None:
    """Else what the first one has not acknowledged would come to the second one later, as new messages."""
    queue = f"{rabbitmq.name}-{kind}"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, kind)
        shop.publish_many(queue, payloads(5))
    with start(fed(source_of(rabbitmq, kind)), Memory()) as first:
        until(lambda: len(first.messages("ingress")) == 5, "the first one reads")
        with start(fed(source_of(rabbitmq, kind)), Memory()) as second:
            with pytest.raises(TimeoutError, match="has 1 other consumers; a feed reads a queue alone"):
                second.wait_idle(timeout_s=1)
            first.stop()
            with Shop(rabbitmq.server) as shop:
                shop.publish_many(queue, payloads(5, 5))
            until(lambda: len(second.messages("ingress")) == 5, "the second one reads")


@pytest.mark.bridge
@pytest.mark.parametrize("kind", KINDS)
def test_payloads_and_headers_that_others_chose_come_as_they_are(rabbitmq: RabbitMqQueues, kind: str) -> None:
    """Empty, binary and large ones, and headers of all kinds; what does not fit the topic becomes an error message."""
    queue = f"{rabbitmq.name}-{kind}"
    given = [b"", b"\x00\xff\xfe", b"x" * 200_000, b"{", "\u2028".encode()]
    headers: dict[Any, Any] = {
        "text": "ü", "bytes": b"\xff\x00", "number": 2**40, "yes": True, "none": None, "list": [1, {"a": [b"\xff"]}],
        "time": datetime(2026, 1, 2, tzinfo=UTC), "": "x", "cues": "forged", "cues-meta": "forged", b"\xff": "no text",
        "rabbitmq.routing-key": "forged", "x" * 255: "long", "deep": nested(100), "decimal": Decimal("1.5"),
    }  # fmt: skip
    if kind == "stream":  # RabbitMQ 3.10 ends the connection of a publisher that gives a stream tables or decimals
        headers = {name: value for name, value in headers.items() if not isinstance(value, list | dict | Decimal)}
    ids = ["same", "same", "", "\u4e2d" * 80, "same"]
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, kind)
        for body, name in zip(given, ids, strict=True):
            shop.publish(queue, body, message_id=name, headers=headers, timestamp=2**62, user_id="cues")
        shop.publish(queue, b"y" * 3_000_000, message_id="large")
        shop.publish(queue, b"end")
    tester = a_tester(source_of(rabbitmq, kind))
    run_until(tester, len(given) + 1)

    assert [one.value for one in tester.messages("ingress")] == [*given, b"end"]
    got = dict(tester.messages("ingress")[0].headers)
    assert (got["text"], got["bytes"], got["number"], got["yes"]) == (
        "ü".encode(),
        b"\xff\x00",
        b"1099511627776",
        b"true",
    )
    assert got.get("list") == (None if kind == "stream" else b'[1, {"a": ["\\\\xff"]}]')
    assert got["rabbitmq.routing-key"] == queue.encode()
    assert got["\\xff"] == b"no text"
    assert len(tester.errors()) == 1
    assert verify(tester.graph, tester.broker).ok
    tester.stop()
    sever(rabbitmq.server.port)


def nested(depth: int) -> dict[str, Any]:
    """A table in a table."""
    return {"in": nested(depth - 1)} if depth else {}


@pytest.mark.bridge
def test_parts_have_queues_of_their_own(rabbitmq: RabbitMqQueues) -> None:
    """Each message comes from one of them."""
    names = [f"{rabbitmq.name}-{n}" for n in range(2)]
    with Shop(rabbitmq.server) as shop:
        for at, name in enumerate(names):
            shop.declare(name)
            shop.publish_many(name, payloads(20, 20 * at))
    graph = fed(RabbitMq(rabbitmq.url).queue(names), defaults=Topic(value=Raw(), partitions=2))
    with start(graph, Memory()) as running:
        until(lambda: len(running.messages("ingress")) >= 40, "all messages")
        assert sorted(int(one.value) for one in running.messages("ingress")) == list(range(40))


@pytest.mark.bridge
def test_lost_deliveries_are_said_before_a_quorum_queue_gives_messages_up(
    rabbitmq: RabbitMqQueues, caplog: pytest.LogCaptureFixture
) -> None:
    """Each lost connection counts for all that is under way, and a limit drops it without a word."""
    queue = f"{rabbitmq.name}-quorum"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, "quorum", **{"x-delivery-limit": OFTEN})
        shop.publish_many(queue, payloads(20))
    source = source_of(rabbitmq, "quorum")
    for _ in range(OFTEN):
        assert "delivered often" not in caplog.text
        read_and_lose(source, rabbitmq)
    tester = a_tester(source)
    run_until(tester, 20)
    assert "delivered often" in caplog.text
    assert f"deliveries={OFTEN}" in caplog.text
    assert counted(tester) == dict.fromkeys(payloads(20), 1)
    tester.stop()


def read_and_lose(source: Any, rabbitmq: RabbitMqQueues) -> None:
    """Read messages, and lose the connection."""
    opened = source.open()
    found: list[tuple[Any, str]] = []

    def more() -> bool:
        with suppress(RetriableError):  # the broker may not have seen yet that the connection before is lost
            found.extend(opened.read(0, found[-1][1] if found else None, 10 - len(found)))
        return len(found) == 10

    until(more, "messages")
    sever(rabbitmq.server.port)
    opened.close()


@pytest.mark.bridge
@pytest.mark.parametrize("crash", [None, Crash("after", "Commit", 2)], ids=["none", "after"])
def test_messages_without_ids_come_at_least_once(rabbitmq: RabbitMqQueues, crash: Crash | None) -> None:
    """A crash between commit and acknowledgement repeats them; nothing else does."""
    queue = f"{rabbitmq.name}-quorum"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue)
        shop.publish_many(queue, payloads(30), ids=False)
    tester = a_tester(source_of(rabbitmq, "quorum", ids=False))
    run_until(tester, 30, crash, lambda: sever(rabbitmq.server.port))
    tester.run()

    assert counted(tester).keys() == set(payloads(30))
    assert (max(counted(tester).values()) > 1) == (crash is not None)
    tester.stop()
    sever(rabbitmq.server.port)


@pytest.mark.bridge
@pytest.mark.parametrize("kind", KINDS)
def test_missing_queue_stops_the_task_until_it_is_declared(rabbitmq: RabbitMqQueues, kind: str) -> None:
    """The remedy says so."""
    queue = f"{rabbitmq.name}-{kind}"
    running = start(fed(source_of(rabbitmq, kind)), Memory(), timeout_s=None)
    try:
        with pytest.raises(TaskStopped, match=r"no queue .*declare it at the broker"):
            running.wait_idle(timeout_s=20)
        with Shop(rabbitmq.server) as shop:
            shop.declare(queue, kind)
            shop.publish_many(queue, payloads(3))
        until(lambda: len(running.messages("ingress")) == 3, "it goes on")
    finally:
        running.stop()


@pytest.mark.bridge
def test_refused_login_stops_the_task_and_shows_no_password(rabbitmq: RabbitMqQueues) -> None:
    """With the remedy."""
    source = RabbitMq(f"amqp://intruder:s3cret@127.0.0.1:{rabbitmq.server.port}").queue("orders")
    running = start(fed(source), Memory(), timeout_s=None)
    try:
        with pytest.raises(TaskStopped, match="correct user and password") as stopped:
            running.wait_idle(timeout_s=20)
        assert "s3cret" not in str(stopped.value)
        assert "intruder" not in str(stopped.value)
    finally:
        running.stop()


@pytest.mark.bridge
def test_stream_that_was_declared_again_is_not_read_on(rabbitmq: RabbitMqQueues) -> None:
    """Its offsets mean other messages; nothing of the new one is skipped in silence."""
    queue = f"{rabbitmq.name}-stream"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, "stream")
        shop.publish_many(queue, payloads(10))
    tester = a_tester(source_of(rabbitmq, "stream"))
    run_until(tester, 10)
    with Shop(rabbitmq.server) as shop:
        shop.channel.queue_delete(queue)
        shop.declare(queue, "stream")
        shop.publish_many(queue, payloads(20, 100))
    with pytest.raises(RecoveryError, match="was deleted and declared again"):
        run_until(tester, 11)
    assert counted(tester) == dict.fromkeys(payloads(10), 1)


@pytest.mark.bridge
def test_stream_that_was_declared_again_is_told_by_the_ids_of_equal_bodies(rabbitmq: RabbitMqQueues) -> None:
    """As with a sensor that says the same again and again."""
    queue = f"{rabbitmq.name}-stream"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, "stream")
        for n in range(10):
            shop.publish(queue, b"same", message_id=f"first-{n}")
    tester = a_tester(source_of(rabbitmq, "stream"))
    run_until(tester, 10)
    with Shop(rabbitmq.server) as shop:
        shop.channel.queue_delete(queue)
        shop.declare(queue, "stream")
        for n in range(20):
            shop.publish(queue, b"same", message_id=f"second-{n}")
    with pytest.raises(RecoveryError, match="was deleted and declared again"):
        run_until(tester, 11)


def read_from_a_short_stream(rabbitmq: RabbitMqQueues) -> tuple[str, Tester]:
    """A stream that soon drops messages, and a feed that has read ten."""
    queue = f"{rabbitmq.name}-stream"
    limits = {"x-max-length-bytes": 20_000, "x-stream-max-segment-size-bytes": 10_000}
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, "stream", **limits)
        shop.publish_many(queue, payloads(10))
    tester = a_tester(source_of(rabbitmq, "stream"))
    run_until(tester, 10)
    return queue, tester


@pytest.mark.bridge
def test_stream_that_drops_messages_under_a_slow_feed_is_not_read_on(rabbitmq: RabbitMqQueues) -> None:
    """RabbitMQ moves the feed on behind what its retention has dropped, on an open connection, and says nothing."""
    queue, tester = read_from_a_short_stream(rabbitmq)
    with Shop(rabbitmq.server) as shop:
        for n in range(400):
            shop.publish(queue, b"%04d" % n + b"x" * 1_000)
    with pytest.raises(RecoveryError, match="it has dropped messages"):
        run_until(tester, 400)
    found = [int(one.value[:4]) for one in tester.messages("ingress")[10:]]
    assert found == list(range(len(found)))


@pytest.mark.bridge
def test_offsets_that_rabbitmq_takes_for_itself_are_no_gap(rabbitmq: RabbitMqQueues) -> None:
    """It has a record for each offset that another reader stores."""
    queue = f"{rabbitmq.name}-stream"
    with Shop(rabbitmq.server) as shop:
        shop.declare(queue, "stream")
        reader = StreamConnection(RabbitMq(rabbitmq.url).stream_login(rabbitmq.server.stream_port), "reader")
        assert reader.offset("reader", queue) is None
        for n in range(30):
            shop.publish_many(queue, payloads(1, n))
            reader.store_offset("reader", queue, n)
            until(lambda: reader.offset("reader", queue) == n, "the offset is stored")  # noqa: B023  it is done at once
        reader.close()
    tester = a_tester(source_of(rabbitmq, "stream"))
    run_until(tester, 30)
    offset = int(tester.records("feed")[-1].place.partition(":")[0])
    assert offset > 29
    assert [one.value for one in tester.messages("ingress")] == payloads(30)


@pytest.mark.bridge
def test_stream_that_has_dropped_unread_messages_is_not_read_on(rabbitmq: RabbitMqQueues) -> None:
    """Its retention was too short for a feed that was away."""
    queue, tester = read_from_a_short_stream(rabbitmq)
    sever(rabbitmq.server.port)
    with Shop(rabbitmq.server) as shop:
        for _ in range(200):
            shop.publish(queue, b"x" * 1_000)
    tester.restart()
    with pytest.raises(RecoveryError, match="it has dropped messages"):
        run_until(tester, 11)
