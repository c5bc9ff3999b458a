"""E1, B1: a real Artemis that pages to its disk; feeds and sinks lose and double nothing, and do not stand still."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from cues_kafka import CommitPolicy, Graph, Memory, Message, Raw, Sink, Source, Stomp, Topic, start
from cues_kafka.bridges.stomp.session import StompSession
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify
from tests.servers.artemis import Artemis
from tests.servers.bridge_world import Cut, a_tester, counted, fed, run_until, until
from tests.servers.fixtures import started
from tests.servers.jms_world import JmsClient

pytestmark = [pytest.mark.bridge, pytest.mark.timeout(300)]

QUEUE = "paged"
QUIET_S = 1.0
"""A queue is empty if nothing comes for so long; what is paged is read by a thread of its own."""

PAGED = {"address-full-policy": "PAGE", "page-size-bytes": "50000", "max-size-bytes": "100000"}
"""Of 1,000-byte messages 100 are in memory, and two pages, of 50 each, are read ahead."""

PAGED_MARKERS = {"address-full-policy": "PAGE", "page-size-bytes": "1000", "max-size-bytes": "2000"}


class PagingArtemis(Artemis):
    """It keeps little of a queue in memory, and less of a marker queue."""

    def addresses(self) -> str:
        paged, markers = (_settings(one) for one in (PAGED, PAGED_MARKERS))
        return (
            f'{super().addresses()}<address-setting match="{QUEUE}.#">{paged}</address-setting>'
            f'<address-setting match="cues.marker.#">{markers}</address-setting>'
        )


def _settings(given: dict[str, str]) -> str:
    return "".join(f"<{name}>{value}</{name}>" for name, value in given.items())


@pytest.fixture
def artemis() -> Iterator[Artemis]:
    """One of each test."""
    with ExitStack() as running:
        yield started(running, PagingArtemis())


def large(count: int, begin: int = 0) -> list[bytes]:
    """Different payloads of a thousand bytes."""
    return [b"%06d" % n + bytes(994) for n in range(begin, begin + count)]


def pages(artemis: Artemis) -> int:
    """How many pages are on its disk."""
    return len([*artemis.directory.rglob("*.page")])


def source_of(artemis: Artemis, cut: Cut) -> Stomp:
    """A window of more messages than the broker reads of pages before some are acknowledged."""
    return Stomp(f"stomp://127.0.0.1:{cut.port}", queue=f"{QUEUE}.in", prefetch=200, window_bytes=1_000_000)


@pytest.mark.parametrize("broker", ["lives", "dies"])
@pytest.mark.parametrize("crash", [("before", "Commit", 4), ("after", "Commit", 4)], ids=str)
def test_paged_messages_come_once_whatever_dies(artemis: Artemis, crash: tuple[Any, str, int], broker: str) -> None:
    """The feed commits 20 at a time; more messages come while it reads."""
    with JmsClient(artemis.url()) as shop:
        shop.send(f"{QUEUE}.in", *large(600))
    before = pages(artemis)
    assert before > 3

    def between() -> None:
        if broker == "dies":
            artemis.kill()
            artemis.start(timeout_s=60)
        with JmsClient(artemis.url()) as other:
            other.send(f"{QUEUE}.in", *large(300, 600))

    with Cut(artemis.port) as cut:
        tester = a_tester(source_of(artemis, cut), most=20)
        run_until(tester, 900, Crash(*crash), cut=cut, between=between)
        tester.restart()
        cut.cut()
        tester.run()
        assert counted(tester) == dict.fromkeys(large(900), 1)
        assert verify(tester.graph, tester.broker).ok
        tester.stop()
    with JmsClient(artemis.url()) as shop:
        shop.send(f"{QUEUE}.in", b"last")
        assert shop.takes(f"{QUEUE}.in", 1) == [b"last"]


def test_slow_feed_reads_paged_messages_on_while_others_are_sent(artemis: Artemis) -> None:
    """It never waits for a full window, which the broker does not give; its connection is cut now and then."""
    sent = 0
    policy = CommitPolicy(max_messages=20)
    with (
        Cut(artemis.port) as cut,
        JmsClient(artemis.url()) as shop,
        start(fed(source_of(artemis, cut)), Memory(), policy=policy) as running,
    ):
        for turn in range(5):
            shop.send(f"{QUEUE}.in", *large(400, sent))
            sent += 400
            if turn % 2:
                cut.cut()
        until(lambda: len(running.messages("ingress")) >= sent, lambda: len(running.messages("ingress")))
        found = sorted(bytes(one.value) for one in running.messages("ingress"))
    assert found == large(sent)


def taken(artemis: Artemis, count: int) -> list[bytes]:
    """Take all messages of the queue that is written to, slowly: each one is acknowledged before the next one comes."""
    found: list[bytes] = []
    with closing(StompSession(Stomp(artemis.url()).login())) as session:
        where = session.destination("queue", f"{QUEUE}.out")
        own = {"id": "1", "ack": "client-individual", "consumer-window-size": "1", "subscription-type": "ANYCAST"}
        session.send("SUBSCRIBE", {**own, **where}, receipt=True)
        while (message := session.message(QUIET_S)) is not None or len(found) < count:
            assert message is not None, f"{len(found)} of {count} messages came"
            session.acknowledge(message)
            found.append(message.body)
        session.send("UNSUBSCRIBE", {"id": "1"}, receipt=True)
    return found


CRASHES = (None, ("before", "CommitTarget", 2), ("after", "CommitTarget", 2), ("after", "Commit", 1))


@pytest.mark.parametrize("broker", ["lives", "dies"])
def test_queue_that_pages_gets_each_message_once_whatever_dies(artemis: Artemis, broker: str) -> None:
    """The marker queue pages, too: then the marker comes before the guard, and a committed one has to come back."""
    expected: list[bytes] = []
    with Cut(artemis.port) as cut:
        into = Stomp(f"stomp://127.0.0.1:{cut.port}", heart_beat_s=0.5, timeout_s=5.0).to_queue(f"{QUEUE}.out")
        graph = Graph(
            "paging",
            Source("numbers"),
            Sink("out", inputs="numbers", into=into),
            topics={"numbers": Topic(value=Raw(), partitions=1)},
        )
        tester = Tester(graph, policy=CommitPolicy(max_messages=20))
        for turn, crash in enumerate(CRASHES):
            for value in large(120, 120 * turn):
                expected.append(value)
                tester.send("numbers", Message(value, partition=0))
            if crash is not None:
                tester.run(crash=Crash(*crash))
                assert tester.crashed
                cut.cut()
                if broker == "dies":
                    artemis.kill()
                    artemis.start(timeout_s=60)
                tester.restart()
            began_s = time.monotonic()
            tester.run()
            assert time.monotonic() - began_s < 60.0
        tester.stop()
    assert pages(artemis) > 3
    assert taken(artemis, len(expected)) == expected
