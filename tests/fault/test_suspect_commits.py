"""Commits that succeed and are nevertheless suspect (P8), on a real broker behind a proxy that hurts EndTxn.

librdkafka repeats an EndTxn that was not answered, in silence. The first one may still be on its way and end the next
transaction of the same epoch; so a commit with trouble on the coordinator's connection must say so, although it worked.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator

import pytest

from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.brokers.kafka.session import KafkaSession
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.brokers.options import Kafka
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Fetched, TopicPartition
from tests.fault.proxy import END_TXN, PRODUCE, Deed, Proxy, Side

SOCKET_TIMEOUT_S = 1.0
TOPIC = "suspects"
numbers = itertools.count()


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    """A broker that advertises the proxy in front of it."""
    front, back = free_ports(2)
    overrides = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{front}"}
    with Proxy(front, back) as proxy, LocalBroker(port=back, overrides=overrides):
        yield proxy


@pytest.fixture(scope="module")
def broker(proxy: Proxy) -> KafkaBroker:
    """The adapter, with a socket time-out short enough for tests."""
    options = Kafka(f"127.0.0.1:{proxy.port}", socket_timeout_s=SOCKET_TIMEOUT_S, transaction_timeout_s=20)
    broker = KafkaBroker(options)
    broker.create([NewTopic(TOPIC, 1)])
    return broker


@pytest.fixture
def session(broker: KafkaBroker, proxy: Proxy) -> Iterator[KafkaSession]:
    """A session that has committed once without trouble, with an id of its own."""
    session = broker.session(f"suspect.{next(numbers)}")
    session.init(timeout_s=20)
    assert commit(session) is None
    yield session
    proxy.heal()
    session.abandon()


def commit(session: KafkaSession, value: bytes = b"v") -> str | None:
    """One transaction of one record."""
    session.begin()
    session.produce([(TOPIC, 0, b"k", value, None, 0)])
    assert session.flush().delivered == 1
    return session.commit()


def values(broker: KafkaBroker) -> list[bytes | None]:
    """All committed values of the topic."""
    reader = broker.reader("suspects.check")
    place = TopicPartition(TOPIC, 0)
    reader.assign({place: 0})
    end = broker.watermarks([place])[place].high
    found: list[Fetched] = []
    while not any(f.eof is not None and f.eof >= end for f in found):
        found += reader.poll(1.0)
    reader.close()
    return [message.value() for f in found for message in f.messages]


def test_commits_without_trouble_are_not_suspect(session: KafkaSession) -> None:
    """Twenty in a row: no false alarm."""
    assert [commit(session) for _ in range(20)] == [None] * 20


def test_a_slow_commit_that_succeeds_is_suspect(session: KafkaSession, broker: KafkaBroker, proxy: Proxy) -> None:
    """The broker commits at once; its answer is held for longer than a request may take."""
    fault = proxy.inject(END_TXN, "response", "hold", hold_s=2.5 * SOCKET_TIMEOUT_S)
    reason = commit(session, b"slow")

    assert fault.bites == 1
    assert reason is not None
    assert "socket_timeout_s" in reason
    assert values(broker).count(b"slow") == 1


@pytest.mark.parametrize("side", ["request", "response"])
def test_a_commit_whose_connection_breaks_is_suspect(
    session: KafkaSession, broker: KafkaBroker, proxy: Proxy, side: Side
) -> None:
    """The connection breaks under EndTxn, before or after the broker got it; the client repeats it and is happy."""
    fault, before = proxy.inject(END_TXN, side, "cut"), proxy.seen[END_TXN]
    reason = commit(session, b"cut " + side.encode())

    assert fault.bites == 1
    assert proxy.seen[END_TXN] >= before + 2  # on a busy machine it is repeated more than once
    assert reason is not None
    assert "TxnCoordinator" in reason
    assert values(broker).count(b"cut " + side.encode()) == 1


@pytest.mark.parametrize("side", ["request", "response"])
def test_a_commit_that_gets_no_answer_is_suspect(session: KafkaSession, proxy: Proxy, side: Side) -> None:
    """EndTxn or its answer vanishes without a trace; the client waits, gives up the connection, and repeats it."""
    fault = proxy.inject(END_TXN, side, "drop")
    reason = commit(session)

    assert fault.bites == 1
    assert reason is not None


def test_suspicion_between_commits_falls_on_the_next_one(session: KafkaSession, proxy: Proxy) -> None:
    """The client suppresses repeated log lines, so trouble before a commit must count for it."""
    session._watch.log(30, "%s [%s] %s", "FAIL", "x", "[thrd:TxnCoordinator]: TxnCoordinator: Disconnected")

    assert commit(session) is not None


def test_statistics_alone_show_a_repeated_end(session: KafkaSession, proxy: Proxy) -> None:
    """With the log lines lost, the count of EndTxn requests in the statistics still gives it away."""
    fault = proxy.inject(END_TXN, "response", "cut")
    commit(session)
    session._watch.suspicions.clear()
    deadline = time.monotonic() + 12
    while not session._watch.suspicions and time.monotonic() < deadline:
        session._client().poll(0.2)

    assert fault.bites == 1
    [suspicion] = session._watch.suspicions
    told = re.fullmatch(r"statistics: (\d+) EndTxn requests for 2 calls", suspicion)
    assert told, suspicion
    assert int(told.group(1)) > 2, "on a busy machine the client repeats it more than once"
    assert commit(session) is not None


@pytest.mark.parametrize(("api_key", "deed"), [(PRODUCE, "cut"), (PRODUCE, "hold")])
def test_trouble_elsewhere_is_not_suspect(session: KafkaSession, proxy: Proxy, api_key: int, deed: Deed) -> None:
    """A broken connection to a partition's leader is repaired by idempotence, and the commit is clean."""
    fault = proxy.inject(api_key, "request", deed, hold_s=0.2)

    assert commit(session) is None
    assert fault.bites == 1


def test_after_a_suspect_commit_a_new_session_goes_on(session: KafkaSession, broker: KafkaBroker, proxy: Proxy) -> None:
    """The old session is thrown away, a new one of the same id fences what is still on its way."""
    proxy.inject(END_TXN, "response", "hold", hold_s=2.5 * SOCKET_TIMEOUT_S)
    assert commit(session, b"before") is not None
    session.abandon()
    successor = broker.session(session._id)
    successor.init(timeout_s=20)

    assert commit(successor, b"after") is None
    assert [values(broker).count(v) for v in (b"before", b"after")] == [1, 1]
    successor.close()
