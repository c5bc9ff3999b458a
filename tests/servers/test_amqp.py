"""Queues by AMQP 1.0 on real brokers: each message comes into Kafka exactly once, whatever dies when."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest

from cues_kafka import Amqp, Memory, Raw, Topic, start
from cues_kafka.bridges.acked import Acked
from cues_kafka.bridges.amqp.declare import AmqpQueue
from cues_kafka.bridges.amqp.source import AmqpDeliveries
from cues_kafka.bridges.ledger import Ledger
from cues_kafka.testing.tester import Crash
from cues_kafka.verify.scan import verify
from tests.servers.amqp_world import AmqpShop, amqp_url
from tests.servers.bridge_world import Cut, a_tester, counted, fed, numbers, payloads, run_until, until
from tests.servers.fixtures import JmsQueues
from tests.servers.jms_world import JmsClient

CRASHES = (
    ("before", "Call", 1),
    ("after", "Call", 2),
    ("before", "Commit", 1),
    ("before", "Commit", 2),
    ("after", "Commit", 1),
    ("after", "Commit", 2),
)


def source_of(jms: JmsQueues, cut: Cut | None = None, **settings: Any) -> AmqpQueue:
    """The queue of this test, also through something that cuts connections."""
    broker = Amqp(f"amqp://127.0.0.1:{cut.port}" if cut else amqp_url(jms))
    return broker.queue(jms.name, **{"prefetch": 10, **settings})


def taken(source: Acked, count: int) -> list[bytes]:
    """This number of messages from the beginning."""
    found: list[tuple[Any, str]] = []

    def more() -> bool:
        found.extend(source.read(0, found[-1][1] if found else None, count - len(found)))
        return len(found) == count

    until(more)
    return [bytes(message.value) for message, _ in found]


def test_messages_come_once_over_a_death_between_commit_and_acknowledgement(artemis: JmsQueues) -> None:
    """B1, B2: the broker delivers them again, the ledger drops them, and then nothing is left in the queue."""
    with AmqpShop(amqp_url(artemis)) as shop, Cut(artemis.server.amqp_port) as cut:  # type: ignore[union-attr]
        tester = a_tester(source_of(artemis, cut, key="properties.customer"))
        shop.send(artemis.name, *payloads(30), customer="rome", colour="a:b\n")
        run_until(tester, 30, Crash("after", "Commit", 2), cut=cut)
        assert [one.value for one in tester.messages("ingress")] == payloads(30)
        first = tester.messages("ingress")[0]
        assert (first.key, dict(first.headers)["colour"]) == ("rome", b"a:b\n")
        assert dict(first.headers)["amqp.message-id"] == b"id-b'0'"
        assert verify(tester.graph, tester.broker).ok
        tester.stop()
        shop.send(artemis.name, b"last")
        assert [one.body for one in shop.takes(artemis.name, 1)] == [b"last"]


# The matrix


@pytest.mark.bridge
@pytest.mark.parametrize("broker", ["lives", "dies"])
@pytest.mark.parametrize("crash", CRASHES, ids=str)
def test_messages_come_once_whatever_dies(artemis: JmsQueues, crash: tuple[Any, str, int], broker: str) -> None:
    """The process at each moment, alone or together with the broker; more is sent meanwhile."""
    with AmqpShop(amqp_url(artemis)) as shop:
        shop.send(artemis.name, *payloads(30))

    def between() -> None:
        if broker == "dies":
            artemis.server.kill()
            artemis.server.start(timeout_s=60)
        with AmqpShop(amqp_url(artemis)) as other:
            other.send(artemis.name, *payloads(30, 30))

    with Cut(artemis.server.amqp_port) as cut:  # type: ignore[union-attr]
        tester = a_tester(source_of(artemis, cut))
        run_until(tester, 60, Crash(*crash), cut=cut, between=between)
        tester.restart()
        cut.cut()
        tester.run()
        assert counted(tester) == dict.fromkeys(payloads(60), 1)
        assert verify(tester.graph, tester.broker).ok
        tester.stop()


@pytest.mark.bridge
def test_messages_come_once_while_the_broker_dies_and_comes_back(artemis: JmsQueues) -> None:
    """Three times, under a feed that goes on, with messages between; the feed connects again by itself."""
    with start(fed(source_of(artemis)), Memory()) as running:
        for turn in range(4):
            with AmqpShop(amqp_url(artemis)) as shop:
                shop.send(artemis.name, *payloads(50, 50 * turn))
            if turn < 3:
                artemis.server.kill()
                artemis.server.start(timeout_s=60)
        until(lambda: len(running.messages("ingress")) >= 200)
        assert numbers(running.messages("ingress")) == list(range(200))


@pytest.mark.bridge
def test_messages_come_once_over_connections_that_are_cut(artemis: JmsQueues) -> None:
    """At any moment, in both directions, also in the middle of the transaction that acknowledges."""
    with (
        Cut(artemis.server.amqp_port) as cut,  # type: ignore[union-attr]
        AmqpShop(amqp_url(artemis)) as shop,
        start(fed(source_of(artemis, cut)), Memory()) as running,
    ):
        for turn in range(20):
            shop.send(artemis.name, *payloads(20, 20 * turn))
            cut.cut()
        until(lambda: len(running.messages("ingress")) >= 400)
        assert numbers(running.messages("ingress")) == list(range(400))


@pytest.mark.bridge
def test_restarts_in_order_spend_no_attempt_at_delivery(artemis: JmsQueues) -> None:
    """Brokers give up what they delivered too often, such as ten times; a goodbye does not count."""
    with AmqpShop(amqp_url(artemis)) as shop:
        shop.send(artemis.name, *payloads(5))
    for _ in range(15):
        source = source_of(artemis).open()
        found = taken(source, 5)
        source.close()
    assert sorted(found) == payloads(5)
    with AmqpShop(amqp_url(artemis)) as shop:
        left = shop.takes(artemis.name, 5)
    assert sorted(one.body for one in left) == payloads(5)
    assert [one.header[4:] for one in left] == [[]] * 5


@pytest.mark.bridge
def test_a_successor_of_a_process_that_stands_still_gets_its_messages(artemis: JmsQueues) -> None:
    """The broker ends the connection that is silent, after the time that it tells its clients."""
    with AmqpShop(amqp_url(artemis)) as shop:
        shop.send(artemis.name, *payloads(5))
    held = source_of(artemis).open()
    assert sorted(taken(held, 5)) == payloads(5)
    frozen = held._parts[0]._connection
    assert isinstance(frozen, AmqpDeliveries)
    with frozen._connection.news:  # its thread waits, as in a process that was stopped
        began_s = time.monotonic()
        successor = source_of(artemis).open()
        assert sorted(taken(successor, 5)) == payloads(5)
        assert time.monotonic() - began_s < 10
    successor.close()
    held.close()


@pytest.mark.bridge
@pytest.mark.parametrize(("consumers", "successors", "repeated"), [("one", 1, 0), ("several", 1, 0), ("several", 2, 5)])
def test_frozen_process_repeats_messages_only_where_the_queue_has_several_consumers_and_its_successor_dies(
    artemis: JmsQueues, consumers: str, successors: int, repeated: int
) -> None:
    """It freezes behind its commit in Kafka. Its successor reads more new messages than the ledger has room for."""
    queue = f"cues.{artemis.name}" if consumers == "one" else artemis.name  # broker.xml gives the first one consumer
    declared = Amqp(amqp_url(artemis)).queue(queue, prefetch=5)
    with AmqpShop(amqp_url(artemis)) as shop:
        shop.send(queue, *payloads(5))
        held = declared.open()
        rows: list[Any] = []

        def more() -> bool:
            rows.extend(held.read(0, rows[-1][1] if rows else None, 5 - len(rows)))
            return len(rows) == 5

        until(more)
        frozen = held._parts[0]._connection
        assert isinstance(frozen, AmqpDeliveries)
        with frozen._connection.news:  # its thread waits, as in a process that was stopped
            shop.send(queue, *payloads(40, 5))
            successor, place = declared.open(), str(rows[-1][1])
            found, place = continued(successor, place, 40)
            if successors == 2:
                successor.close()
                successor = declared.open()
            elif consumers == "several":
                until(lambda: [*successor.read(0, place, 5)] == [] and knows_again(successor, str(rows[-1][1])))
            found += continued(successor, place, repeated)[0]
            assert found == payloads(40, 5) + payloads(repeated)
            successor.close()
        held.close()
        shop.send(queue, b"last")
        assert [one.body for one in shop.takes(queue, 1)] == [b"last"]


def knows_again(source: Acked, place: str) -> bool:
    """Whether a process has dropped redeliveries of all that a place names: their ids are among its newest again."""
    memory = source._parts[0]._memory
    return memory is not None and {*Ledger.read(place).split()} <= memory._counts.keys()


def continued(source: Acked, place: str, count: int) -> tuple[list[bytes], str]:
    """This number of messages behind a place, and the place behind them; each batch is committed."""
    found: list[bytes] = []
    source.committed(0, place)  # as a feed does behind its recovery

    def more() -> bool:
        nonlocal place
        with suppress(ConnectionError):  # another process is its only consumer still
            rows = list(source.read(0, place, 5))
            if rows:
                place = str(rows[-1][1])
                found.extend(bytes(message.value) for message, _ in rows)
                source.committed(0, place)
        return len(found) >= count

    until(more)
    return found, place


@pytest.mark.bridge
def test_a_full_window_goes_on(artemis: JmsQueues) -> None:
    """B5: one message under way at a time; each waits for the commit of the one before."""
    with AmqpShop(amqp_url(artemis)) as shop, start(fed(source_of(artemis, prefetch=1)), Memory()) as running:
        shop.send(artemis.name, *payloads(40))
        until(lambda: len(running.messages("ingress")) >= 40)
        assert [one.value for one in running.messages("ingress")] == payloads(40)


@pytest.mark.bridge
def test_a_broker_that_is_away_at_the_start_is_waited_for(artemis: JmsQueues) -> None:
    """The status says so, and it goes on by itself."""
    with AmqpShop(amqp_url(artemis)) as shop:
        shop.send(artemis.name, b"1")
    artemis.server.kill()
    with start(fed(source_of(artemis)), Memory()) as running:
        with pytest.raises(TimeoutError, match=r"source does not answer .*AMQP broker does not answer"):
            running.wait_idle(timeout_s=1)
        artemis.server.start(timeout_s=60)
        until(lambda: len(running.messages("ingress")) == 1)


@pytest.mark.bridge
def test_selectors_share_a_queue_between_parts(artemis: JmsQueues) -> None:
    """Each message comes by the part whose selector it matches; one that matches none stays in the queue."""
    source = source_of(artemis, selector=["half = 'even'", "half = 'odd'"])
    with AmqpShop(amqp_url(artemis)) as shop:
        for n in range(40):
            shop.send(artemis.name, b"%d" % n, half="odd" if n % 2 else "even")
        shop.send(artemis.name, b"none", half="neither")
        with start(fed(source, defaults=Topic(value=Raw(), partitions=2)), Memory()) as running:
            until(lambda: len(running.messages("ingress")) >= 40)
            assert numbers(running.messages("ingress")) == list(range(40))
        assert b"none" in [one.body for one in shop.takes(artemis.name, 1, quiet_s=0.5)]


@pytest.mark.bridge
def test_a_wrong_selector_stops_the_task_with_the_remedy(artemis: JmsQueues) -> None:
    """As the broker says it."""
    running = start(fed(source_of(artemis, selector="half = ")), Memory(), timeout_s=None)
    try:
        with pytest.raises(Exception, match="amqp:invalid-field"):
            running.wait_idle(timeout_s=30)
    finally:
        running.stop()


@pytest.mark.bridge
def test_messages_of_another_protocol_have_no_ids_and_none_is_lost(artemis: JmsQueues) -> None:
    """B6: Artemis gives what was sent by STOMP no message-id, so a crash may repeat it: at least once."""
    with JmsClient(artemis.url) as shop, Cut(artemis.server.amqp_port) as cut:  # type: ignore[union-attr]
        shop.send(artemis.name, *payloads(30), colour="red")
        tester = a_tester(source_of(artemis, cut))
        run_until(tester, 30, Crash("after", "Commit", 2), cut=cut)

        def all_are_there() -> bool:
            tester.run()
            return set(counted(tester)) == set(payloads(30))

        until(all_are_there, lambda: counted(tester))
        assert "amqp.message-id" not in dict(tester.messages("ingress")[0].headers)
        tester.stop()


@pytest.mark.bridge
def test_payloads_and_headers_that_others_chose_come_as_they_are(artemis: JmsQueues) -> None:
    """Empty, binary and large ones, a map, and bytes that are no message; what does not fit is an error."""
    given = [b"", b"\0\xff\xfe", b"x" * 200_000, b"{"]
    tester = a_tester(source_of(artemis))
    with AmqpShop(amqp_url(artemis)) as shop:
        shop.send(artemis.name, *given, cues="forged", text="\u00fc:\u4e2d\\c\n", raw=b"\xff", nan=float("nan"))
        broken = b"\x00Sw\xd1\0\0\0\x08\0\0\0\x02C\xa1\x00"  # it says a byte more than it has
        shop.send_encoded(artemis.name, broken.replace(b"\x08", b"\x07"), broken)
        shop.send(artemis.name, b"y" * 3_000_000)
        shop.send(artemis.name, b"end")
    run_until(tester, len(given) + 3)
    found = [bytes(one.value) for one in tester.messages("ingress")]
    assert found == [*given, b'{"0": ""}', broken, b"end"]
    headers = dict(tester.messages("ingress")[0].headers)
    assert (headers["text"], headers["raw"], headers["nan"]) == ("\u00fc:\u4e2d\\c\n".encode(), b"\xff", b"nan")
    assert ["are more than the" in error.text for error in tester.errors()] == [True]
    assert verify(tester.graph, tester.broker).ok
    tester.stop()


@pytest.mark.bridge
def test_two_feeds_of_one_queue_do_not_share_it_where_it_has_one_consumer(artemis: JmsQueues) -> None:
    """The second one waits, and its status says why."""
    queue = f"cues.{artemis.name}"  # of those that broker.xml gives one consumer
    with AmqpShop(amqp_url(artemis)) as shop:
        shop.send(queue, *payloads(5))
    source = Amqp(amqp_url(artemis)).queue(queue, prefetch=10)
    first, second = source.open(), source.open()
    assert sorted(taken(first, 5)) == payloads(5)
    with pytest.raises(ConnectionError, match="Maximum Consumer Limit"):
        list(second.read(0, None, 1))
    first.close()
    assert sorted(taken(second, 5)) == payloads(5)
    second.close()
