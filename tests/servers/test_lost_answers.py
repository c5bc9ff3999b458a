"""
Commits whose answer is lost, at bridges between real brokers: the client cannot know what was done, and finds out.

The answer of Kafka is lost (a suspect commit, P8), or that of the other broker.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from cues_kafka import CommitPolicy, Feed, Graph, Kafka, Raw, Topic, start
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.testing.tester import Tester
from cues_kafka.verify.scan import verify
from tests.fault.proxy import END_TXN, INIT_PRODUCER_ID, Deed, Proxy, Side
from tests.servers.bridge_world import a_tester, counted, payloads, run_until, until
from tests.servers.losing import ACK_BY_STOMP, DISCHARGE_BY_AMQP, Losing
from tests.servers.other_broker import BY_AMQP, LAST, QUEUES, OtherBroker, other_broker
from tests.servers.outgoing import ONCE, REPEATED, Outgoing, outgoing, telling

pytestmark = [pytest.mark.bridge, pytest.mark.timeout(300)]

SOCKET_TIMEOUT_S = 1.0
WAIT_S = 90.0
EACH = 5
"""Messages of a batch."""

COUNT = 40
numbers = itertools.count()

LOSSES: list[tuple[Side, Deed]] = [("response", "hold"), ("response", "cut"), ("request", "drop")]
"""What becomes of two EndTxn: answered too late, committed without an answer, lost on the way and sent again."""


@pytest.fixture(scope="module")
def between() -> Iterator[Proxy]:
    """A Kafka that advertises the proxy in front of it."""
    front, back = free_ports(2)
    overrides = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{front}"}
    with Proxy(front, back) as proxy, LocalBroker(port=back, overrides=overrides):
        yield proxy


@pytest.fixture
def proxy(between: Proxy) -> Iterator[Proxy]:
    """Without faults of another test."""
    yield between
    between.heal()


def kafka_of(proxy: Proxy) -> Kafka:
    """With a time-out of requests that is short enough for tests."""
    return Kafka(f"127.0.0.1:{proxy.port}", socket_timeout_s=SOCKET_TIMEOUT_S, transaction_timeout_s=20)


@pytest.fixture(params=QUEUES)
def other(request: pytest.FixtureRequest) -> OtherBroker:
    """A queue or a session of this test in each broker."""
    return other_broker(request, request.param)


@pytest.fixture(params=[*ONCE, *REPEATED])
def into(request: pytest.FixtureRequest) -> Iterator[Outgoing]:
    """What is written to, in each broker."""
    with ExitStack() as opened:
        yield outgoing(request, opened)


# Kafka's answer


@pytest.mark.parametrize(("side", "deed"), LOSSES)
def test_feed_has_each_message_once_behind_suspect_commits(
    proxy: Proxy, other: OtherBroker, side: Side, deed: Deed
) -> None:
    """
    The session is given up, although its commit has succeeded, and with it the connection to the other broker.

    What was read ahead, and is void, comes again on the next connection. What was committed does not come twice.
    """
    name = f"lost-{next(numbers)}"
    feed = Feed(other.source(), into=f"{name}.ingress", name="feed", poll_seconds=0.05)
    graph = Graph(name, feed, defaults=Topic(value=Raw(), partitions=1))
    with start(graph, kafka_of(proxy), policy=CommitPolicy(max_messages=EACH)) as running:
        running.wait_idle(timeout_s=WAIT_S)
        other.send(*payloads(EACH))
        until(lambda: len(running.messages(f"{name}.ingress")) == EACH)
        sessions = proxy.seen[INIT_PRODUCER_ID]
        fault = proxy.inject(END_TXN, side, deed, hold_s=2.5 * SOCKET_TIMEOUT_S, times=2)
        other.send(*payloads(COUNT - EACH, EACH))
        assert fault.bit.wait(WAIT_S)
        until(lambda: fault.bites == 2 and len(running.messages(f"{name}.ingress")) >= COUNT)
        running.wait_idle(timeout_s=WAIT_S)
        assert sorted(int(one.value) for one in running.messages(f"{name}.ingress")) == list(range(COUNT))
        assert proxy.seen[INIT_PRODUCER_ID] > sessions, "no commit was suspect"
    assert other.left() == [LAST]


@pytest.mark.parametrize(("side", "deed"), LOSSES[:2])
def test_target_has_what_kafka_has_behind_suspect_commits(proxy: Proxy, into: Outgoing, side: Side, deed: Deed) -> None:
    """The other broker has committed before Kafka. A target that repeats a message repeats its id."""
    name = f"lost-{next(numbers)}"
    graph = telling(into.target(), name, topics=f"{name}.")
    with start(graph, kafka_of(proxy), policy=CommitPolicy(max_messages=EACH)) as running:
        running.wait_idle(timeout_s=WAIT_S)
        sessions = proxy.seen[INIT_PRODUCER_ID]
        fault = proxy.inject(END_TXN, side, deed, hold_s=2.5 * SOCKET_TIMEOUT_S, times=2)
        for payload in payloads(COUNT):
            running.send(f"{name}.numbers", payload)
        running.wait_idle(timeout_s=WAIT_S)
        assert fault.bites == 2
        assert proxy.seen[INIT_PRODUCER_ID] > sessions, "no commit was suspect"
        told = [bytes(one.value) for one in running.messages(f"{name}.told")]
    agree(into, told)


def agree(into: Outgoing, told: list[bytes]) -> None:
    """
    Kafka has an outcome for each message, in order, and the other broker has the same ones.

    A broker that repeats has, under the id of each step, what the last attempt at it gave, and perhaps what others did.
    """
    assert [int(one.partition(b"-")[0]) for one in told] == list(range(COUNT))
    came = into.came(COUNT)
    if into.kind in ONCE:
        assert [body for _, body in came] == told
    else:
        by_id: dict[str, set[bytes]] = {}
        for name, body in came:
            by_id.setdefault(name, set()).add(body.partition(b"-")[0])
        assert set(told) <= {body for _, body in came}
        assert sorted(by_id.values(), key=lambda one: int(min(one))) == [{one} for one in payloads(COUNT)]


# The other broker's answer


@pytest.mark.parametrize("nth", [2, 4])
def test_target_has_what_kafka_has_when_its_answer_to_a_commit_is_lost(into: Outgoing, nth: int) -> None:
    """It has the messages, and its client does not know. The first commit is that by which a task begins."""
    with Losing(into.port, into.decides, nth) as losing:
        tester = Tester(telling(into.target(losing.port), into.found.name), policy=CommitPolicy(max_messages=EACH))
        for payload in payloads(COUNT):
            tester.send("numbers", payload)
        tester.run()
        assert losing.lost.is_set()
        told = [bytes(one) for one in tester.values("told")]
        assert verify(tester.graph, tester.broker).ok
        tester.stop()
    agree(into, told)


@pytest.mark.parametrize("other", ["activemq", "artemis", *BY_AMQP], indirect=True)
@pytest.mark.parametrize("nth", [1, 6])
def test_feed_has_each_message_once_when_the_answer_to_an_acknowledgement_is_lost(other: OtherBroker, nth: int) -> None:
    """The broker has forgotten these messages, and delivers none of them again. MQTT and RabbitMQ have no answer."""
    asked = ACK_BY_STOMP if other.url.startswith("stomp") else DISCHARGE_BY_AMQP
    other.send(*payloads(COUNT))
    with Losing(other.port, asked, nth) as losing:
        tester = a_tester(other.source(other.through(losing.port), prefetch=2 * EACH), most=EACH)
        run_until(tester, COUNT)
        until(lambda: tester.run() and losing.lost.is_set())
        tester.run()
        assert counted(tester) == dict.fromkeys(payloads(COUNT), 1)
        assert verify(tester.graph, tester.broker).ok
        tester.stop()
    assert other.left() == [LAST]
