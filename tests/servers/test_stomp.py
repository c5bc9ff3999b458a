"""JMS queues by STOMP on real brokers: each message comes into Kafka exactly once, whatever dies when."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, Memory, Raw, Sink, Source, Stomp, Topic, start
from cues_kafka.bridges.acked import Acked
from cues_kafka.bridges.stomp.refusals import StompRefused
from cues_kafka.bridges.stomp.source import StompDeliveries
from cues_kafka.testing.tester import Crash
from cues_kafka.verify.scan import verify
from tests.servers.bridge_world import (
    WAIT_S,
    Cut,
    a_tester,
    counted,
    deliver_over_a_death,
    fed,
    numbers,
    payloads,
    run_until,
    until,
)
from tests.servers.fixtures import JmsQueues
from tests.servers.jms_world import JmsClient

BROKERS = ("activemq", "artemis")
CRASHES = (
    ("before", "Call", 1),
    ("after", "Call", 2),
    ("before", "Commit", 1),
    ("before", "Commit", 2),
    ("after", "Commit", 1),
    ("after", "Commit", 2),
)


@pytest.fixture(params=BROKERS)
def jms(request: pytest.FixtureRequest) -> JmsQueues:
    """Both brokers."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, JmsQueues)
    return found


def source_of(jms: JmsQueues, cut: Cut | None = None, **settings: Any) -> Stomp:
    """The queue of this test, also through something that cuts connections."""
    url = f"stomp://127.0.0.1:{cut.port}" if cut else jms.url
    return Stomp(url, **{"queue": jms.name, "prefetch": 10, **settings})


def rows_of(
    source: Acked, count: int, place: Any = None, *, waits_for: tuple[type[Exception], ...] = ()
) -> list[tuple[Any, Any]]:
    """This number of messages behind a place, with theirs. An error of `waits_for` means: not yet."""
    found: list[tuple[Any, Any]] = []

    def more() -> bool:
        with suppress(*waits_for):
            found.extend(source.read(0, found[-1][1] if found else place, count - len(found)))
        return len(found) == count

    until(more)
    return found


def taken(source: Acked, count: int) -> list[bytes]:
    """This number of messages from the beginning."""
    return [bytes(message.value) for message, _ in rows_of(source, count)]


def test_messages_come_once_over_a_death_between_commit_and_acknowledgement(activemq: JmsQueues) -> None:
    """The broker delivers them again, the ledger drops them, and then nothing is left in the queue."""
    with JmsClient(activemq.url) as shop, Cut(activemq.server.port) as cut:
        tester = a_tester(source_of(activemq, cut, key="customer"))
        shop.send(activemq.name, *payloads(30), customer="rome", colour="a:b\n")
        run_until(tester, 30, Crash("after", "Commit", 2), cut=cut)
        assert [one.value for one in tester.messages("ingress")] == payloads(30)
        first = tester.messages("ingress")[0]
        assert (first.key, dict(first.headers)["colour"]) == ("rome", b"a:b\n")
        assert verify(tester.graph, tester.broker).ok
        tester.stop()
        shop.send(activemq.name, b"last")
        assert shop.takes(activemq.name, 1) == [b"last"]


def test_messages_go_out_once_over_a_death_behind_the_brokers_commit(activemq: JmsQueues) -> None:
    """The next owner reads the marker, and sends nothing again. test_stomp_out.py has the matrix."""
    into = Stomp(activemq.url, heart_beat_s=0.5, timeout_s=3.0).to_queue(activemq.name)
    graph = Graph(activemq.name, Source("orders"), Sink("out", inputs="orders", into=into))
    deliver_over_a_death(graph, 9)
    with JmsClient(activemq.url) as shop:
        shop.send(activemq.name, b"last")
        assert shop.takes(activemq.name, 10) == [*(b'{"id": %d}' % number for number in range(9)), b"last"]


# The matrix


@pytest.mark.bridge
@pytest.mark.parametrize("broker", ["lives", "dies"])
@pytest.mark.parametrize("crash", CRASHES, ids=str)
def test_messages_come_once_whatever_dies(jms: JmsQueues, crash: tuple[Any, str, int], broker: str) -> None:
    """The process at each moment, alone or together with the broker; more is sent meanwhile."""
    with JmsClient(jms.url) as shop:
        shop.send(jms.name, *payloads(30))

    def between() -> None:
        if broker == "dies":
            jms.server.kill()
            jms.server.start(timeout_s=60)
        with JmsClient(jms.url) as other:
            other.send(jms.name, *payloads(30, 30))

    with Cut(jms.server.port) as cut:
        tester = a_tester(source_of(jms, cut))
        run_until(tester, 60, Crash(*crash), cut=cut, between=between)
        tester.restart()
        cut.cut()
        tester.run()
        assert counted(tester) == dict.fromkeys(payloads(60), 1)
        assert verify(tester.graph, tester.broker).ok
        tester.stop()


@pytest.mark.bridge
def test_messages_come_once_while_the_broker_dies_and_comes_back(jms: JmsQueues) -> None:
    """Three times, under a feed that goes on, with messages between; the feed connects again by itself."""
    with start(fed(source_of(jms)), Memory()) as running:
        for turn in range(4):
            with JmsClient(jms.url) as shop:
                shop.send(jms.name, *payloads(50, 50 * turn))
            if turn < 3:
                jms.server.kill()
                jms.server.start(timeout_s=60)
        until(lambda: len(running.messages("ingress")) >= 200)
        assert numbers(running.messages("ingress")) == list(range(200))


@pytest.mark.bridge
def test_messages_come_once_over_connections_that_are_cut(jms: JmsQueues) -> None:
    """At any moment, in both directions, by something between the two; more often than a broker tries by default."""
    with (
        Cut(jms.server.port) as cut,
        JmsClient(jms.url) as shop,
        start(fed(source_of(jms, cut)), Memory()) as running,
    ):
        for turn in range(20):
            shop.send(jms.name, *payloads(20, 20 * turn))
            cut.cut()
        until(lambda: len(running.messages("ingress")) >= 400)
        assert numbers(running.messages("ingress")) == list(range(400))


@pytest.mark.bridge
def test_messages_of_a_broker_that_was_made_again_are_new(artemis: JmsQueues, tmp_path: Path) -> None:
    """Artemis then gives them the numbers that other messages had."""
    tester = a_tester(source_of(artemis))
    with JmsClient(artemis.url) as shop:
        shop.send(artemis.name, *payloads(200))
    run_until(tester, 200)
    empty = tmp_path / "empty"
    empty.mkdir()
    artemis.server.restore(empty)
    with JmsClient(artemis.url) as shop:
        shop.send(artemis.name, *payloads(200, 200))
    run_until(tester, 400)
    assert counted(tester) == dict.fromkeys(payloads(400), 1)
    tester.stop()


@pytest.mark.bridge
def test_restarts_in_order_spend_no_attempt_at_delivery(jms: JmsQueues) -> None:
    """Brokers give up what they delivered too often, such as ten times; a goodbye does not count."""
    with JmsClient(jms.url) as shop:
        shop.send(jms.name, *payloads(5))
    for _ in range(15):
        source = source_of(jms).open()
        found = taken(source, 5)
        source.close()
    assert sorted(found) == payloads(5)
    with JmsClient(jms.url) as shop:
        assert sorted(shop.takes(jms.name, 5)) == payloads(5)


@pytest.mark.bridge
def test_a_successor_of_a_process_that_stands_still_gets_its_messages_soon(jms: JmsQueues) -> None:
    """The broker ends the connection that has no heart-beats any more; Classic gives others nothing until then."""
    with JmsClient(jms.url) as shop:
        shop.send(jms.name, *payloads(5))
    held = source_of(jms, heart_beat_s=1.0).open()
    assert sorted(taken(held, 5)) == payloads(5)
    frozen = held._parts[0]._connection
    assert isinstance(frozen, StompDeliveries)
    with frozen._open._writing:  # its heart-beats wait, as in a process that was stopped
        began_s = time.monotonic()
        successor = source_of(jms).open()
        assert sorted(taken(successor, 5)) == payloads(5)
        assert time.monotonic() - began_s < 8
    successor.close()
    held.close()


@pytest.mark.bridge
def test_two_feeds_of_one_queue_do_not_share_it_where_it_has_one_consumer(jms: JmsQueues) -> None:
    """Classic gives all to the first one. Artemis refuses the second one, and says why."""
    queue = f"cues.{jms.name}"  # of those that broker.xml gives one consumer
    first, second = (source_of(jms, queue=queue).open() for _ in range(2))
    with JmsClient(jms.url) as shop:
        shop.send(queue, *payloads(5))
        rows = rows_of(first, 5)
        if jms.server.kind == "artemis":
            with pytest.raises(StompRefused):
                list(second.read(0, None, 1))
        else:
            assert not list(second.read(0, None, 1))
        shop.send(queue, *payloads(5, 5))
        rows += rows_of(first, 5, rows[-1][1])
        assert [bytes(message.value) for message, _ in rows] == payloads(10)
    first.close()
    rows = rows_of(second, 10, waits_for=(StompRefused,))  # until the broker has seen the end of the first one
    assert sorted(bytes(message.value) for message, _ in rows) == payloads(10)
    second.close()


@pytest.mark.bridge
def test_a_full_window_goes_on(jms: JmsQueues) -> None:
    """One message under way at a time; each waits for the commit of the one before."""
    with JmsClient(jms.url) as shop, start(fed(source_of(jms, prefetch=1, window_bytes=1)), Memory()) as running:
        shop.send(jms.name, *payloads(40))
        until(lambda: len(running.messages("ingress")) >= 40)
        assert [one.value for one in running.messages("ingress")] == payloads(40)


@pytest.mark.bridge
def test_a_broker_that_is_away_at_the_start_is_waited_for(jms: JmsQueues) -> None:
    """The status says so, and it goes on by itself."""
    with JmsClient(jms.url) as shop:
        shop.send(jms.name, b"1")
    jms.server.kill()
    with start(fed(source_of(jms)), Memory()) as running:
        with pytest.raises(TimeoutError, match=r"source does not answer .*STOMP broker does not answer"):
            running.wait_idle(timeout_s=1)
        jms.server.start(timeout_s=60)
        until(lambda: len(running.messages("ingress")) == 1)


@pytest.mark.bridge
def test_selectors_share_a_queue_between_parts(jms: JmsQueues) -> None:
    """Each message comes by the part whose selector it matches; one that matches none stays in the queue."""
    source = source_of(jms, selector=["half = 'even'", "half = 'odd'"])
    with JmsClient(jms.url) as shop:
        for n in range(40):
            shop.send(jms.name, b"%d" % n, half="odd" if n % 2 else "even")
        shop.send(jms.name, b"none", half="neither")
        with start(fed(source, defaults=Topic(value=Raw(), partitions=2)), Memory()) as running:
            until(lambda: len(running.messages("ingress")) >= 40)
            assert numbers(running.messages("ingress")) == list(range(40))
        left = shop.takes(jms.name, 1)
        while left[-1] != b"none":  # a part may have stopped before it acknowledged its last batch
            left.append(shop.got.get(timeout=WAIT_S).body)
        assert {int(one) for one in left[:-1]} <= set(range(40))


@pytest.mark.bridge
def test_payloads_and_headers_that_others_chose_come_as_they_are(jms: JmsQueues) -> None:
    """Empty, binary and large ones, texts of all kinds; what does not fit the topic becomes an error message."""
    given = [b"", b"\0\xff\xfe", b"x" * 200_000, b"{", "\u2028".encode(), b"a\0b\n\n\0"]
    headers = {"cues": "forged", "text": "\u00fc:\u4e2d\\c\n"}
    tester = a_tester(source_of(jms))
    with JmsClient(jms.url) as shop:
        shop.send(jms.name, *given, **headers)
        shop.send(jms.name, b"y" * 3_000_000)
        shop.send(jms.name, b"end")
    run_until(tester, len(given) + 1)
    assert [one.value for one in tester.messages("ingress")] == [*given, b"end"]
    assert dict(tester.messages("ingress")[0].headers)["text"] == headers["text"].encode()
    assert ["are more than the" in error.text for error in tester.errors()] == [True]
    assert verify(tester.graph, tester.broker).ok
    tester.stop()


@pytest.mark.bridge
def test_a_wrong_selector_stops_the_task_with_the_remedy(activemq: JmsQueues) -> None:
    """As the broker says it."""
    running = start(fed(source_of(activemq, selector="half = ")), Memory(), timeout_s=None)
    try:
        with pytest.raises(Exception, match="InvalidSelector"):
            running.wait_idle(timeout_s=30)
    finally:
        running.stop()
