"""Requests that come late, or twice. KAFKA-17754: a late commit ends the next transaction of the same epoch.

The proxy holds the first EndTxn of a commit. The client gives it up after `socket.timeout.ms`, repeats it on another
connection, and reports success. The first request is let go in the middle of the next transaction, and the broker
commits what is there of it. A loop after the client's documentation doubles a message; a task recovers first (P8), so
the late request is of an older epoch and is refused.

`docs/faults.md` tells which broker and which protocol of transactions this needs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from cues_kafka import Graph
from cues_kafka.brokers.kafka.session import KafkaSession
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.brokers.local.ports import free_ports
from tests.fault.proxy import ANY, API_VERSIONS, END_TXN, PRODUCE, TXN_OFFSET_COMMIT, Fault, Proxy, Side
from tests.fault.support import Child, Record, Setup, committed, create, produce, until

pytestmark = [pytest.mark.fault, pytest.mark.full]

SOCKET_TIMEOUT_S = 1.0
OPTIONS: dict[str, Any] = {
    "socket_timeout_s": SOCKET_TIMEOUT_S,
    "transaction_timeout_s": 20,
    "session_timeout_s": 1.5,
    "heartbeat_s": 0.3,
}
WAIT_S = 20.0
NO_ERROR, INVALID_PRODUCER_EPOCH = 0, 47


@pytest.fixture(scope="module")
def broker() -> Iterator[Proxy]:
    """A broker that advertises the proxy in front of it."""
    front, back = free_ports(2)
    overrides = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{front}", "group.min.session.timeout.ms": "500"}
    with Proxy(front, back) as proxy, LocalBroker(port=back, overrides=overrides):
        proxy.keep_answers = frozenset([API_VERSIONS])
        yield proxy


@pytest.fixture
def proxy(broker: Proxy) -> Iterator[Proxy]:
    """Without faults of another test."""
    yield broker
    broker.heal()


def address(proxy: Proxy) -> str:
    """``bootstrap.servers``."""
    return f"127.0.0.1:{proxy.port}"


def error_code(answer: bytes) -> int:
    """The error code in an answer to EndTxn v1: behind size, correlation id and throttle time."""
    return int(struct.unpack_from(">h", answer, 12)[0])


def level_of_transactions(proxy: Proxy) -> int:
    """The cluster's feature level `transaction.version`, from an answer to ApiVersions, which ends with it."""
    answer = next(request.answer for request in proxy.of(API_VERSIONS) if request.answer)
    _, _, level = answer.rpartition(b"transaction.version")
    return int(struct.unpack_from(">h", level)[0])


class CrashedError(Exception):
    """The process of the naive loop ends in user code."""


def naive(bootstrap: str, name: str, until_n: int, between: Callable[[int], None]) -> None:
    """
    Two outputs for each input in one transaction, as the client's documentation has it, up to an input.

    Args:
        bootstrap: where.
        name: its transactional id, client id and group, and the prefix of its topics.
        until_n: the last input.
        between: user code between the two outputs.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 1500,
            "heartbeat.interval.ms": 300,
        }
    )
    consumer.subscribe([f"{name}.in"])
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "transactional.id": name, "client.id": name}
    producer = Producer(settings | {"socket.timeout.ms": int(1000 * SOCKET_TIMEOUT_S), "linger.ms": 0})
    producer.init_transactions(WAIT_S)
    n = -1
    try:
        while n < until_n:
            message = consumer.poll(WAIT_S)
            assert message is not None, "nothing came"
            assert message.error() is None, message.error()
            n = int(message.value() or b"")
            producer.begin_transaction()
            producer.produce(f"{name}.out", f"{n}a".encode())
            assert producer.flush(WAIT_S) == 0
            between(n)
            producer.produce(f"{name}.out", f"{n}b".encode())
            after = TopicPartition(f"{name}.in", message.partition() or 0, (message.offset() or 0) + 1)
            producer.send_offsets_to_transaction([after], consumer.consumer_group_metadata(), WAIT_S)
            producer.commit_transaction(WAIT_S)
    finally:
        consumer.close()


@pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])
def test_a_late_commit_doubles_what_a_naive_loop_writes(proxy: Proxy, late: bool) -> None:
    """
    Its second input fails between two outputs, and the loop is started again.

    The broker aborts what the failed run has written, so all is there once; unless the late request has committed it.
    """
    where, name = address(proxy), f"naive-{late}"
    create(where, f"{name}.in")
    create(where, f"{name}.out")
    produce(where, f"{name}.in", [b"0", b"1"])
    fault = proxy.inject(END_TXN, "request", "hold", client=name) if late else None

    def crash(n: int) -> None:
        if n == 1:
            if fault is not None:
                fault.release()
                assert fault.answered.wait(WAIT_S)
            raise CrashedError

    with pytest.raises(CrashedError):
        naive(where, name, 1, crash)
    naive(where, name, 1, lambda _: None)

    outputs = [message.value() for message in committed(where, f"{name}.out")]
    if fault is None:
        assert outputs == [b"0a", b"0b", b"1a", b"1b"]
    else:
        assert error_code(fault.answer) == NO_ERROR, "the broker takes the late request for the open transaction's"
        assert outputs == [b"0a", b"0b", b"1a", b"1a", b"1b"]
        versions = {request.version for request in proxy.of(END_TXN, client=name)}
        assert versions == {1}, "with a newer EndTxn the client speaks KIP-890, and this must be measured again"
        assert level_of_transactions(proxy) == 2, "the broker has KIP-890, which protects newer clients alone"


def same(value: Any) -> Any:
    """What the tasks run."""
    return value


def graph(bootstrap: str, name: str) -> Graph:
    """The graph of the child."""
    return Setup(bootstrap, name).graph(same)


def trusting(bootstrap: str, name: str) -> Graph:
    """The same, in a process whose commits are never suspect: a mutant of P8."""
    commit = KafkaSession.commit

    def trusted(self: KafkaSession) -> None:
        commit(self)
        self._watch.suspicions.clear()

    KafkaSession.commit = trusted  # type: ignore[method-assign]
    return graph(bootstrap, name)


def child_of(setup: Setup, kind: str) -> tuple[str, str, str, str]:
    """Arguments of `Child`."""
    return setup.bootstrap, f"tests.fault.test_delayed_commits:{kind}", setup.bootstrap, setup.name


def kill_under_late_commit(proxy: Proxy, name: str, kind: str, sessions: int = 0) -> tuple[Setup, Fault]:
    """
    The first commit of a worker is late; it comes behind the offsets of the next transaction, and the worker dies.

    No record of that transaction reaches the broker, so nothing of it but the offsets can be committed.
    """
    setup = Setup(address(proxy), name)
    options = OPTIONS | {"sessions": sessions}
    setup.start(graph(setup.bootstrap, name), options=options).stop()
    with Child(*child_of(setup, kind), options=options) as child:
        child.expect("started")
        late = proxy.inject(END_TXN, "request", "hold", client=setup.transactional_id)
        setup.send(b"0")
        until(lambda: len(committed(setup.bootstrap, setup.sink, to_stable=True)) == 1, "the repeated commit is done")
        assert late.bites == 1
        proxy.inject(PRODUCE, "request", "drop", times=float("inf"), client=setup.transactional_id)
        offsets = proxy.inject(TXN_OFFSET_COMMIT, "response", "hold", client=setup.transactional_id)
        setup.send(b"1")
        assert offsets.bit.wait(WAIT_S)
        late.release()
        assert late.answered.wait(WAIT_S)
        child.kill()
    proxy.heal()
    return setup, late


@pytest.mark.parametrize("sessions", [0, pytest.param(1, marks=pytest.mark.full, id="one session")])
def test_a_late_commit_finds_the_epoch_of_a_task_gone(proxy: Proxy, sessions: int) -> None:
    """The task has thrown its session away, because the commit was suspect; the next one has a new epoch."""
    setup, late = kill_under_late_commit(proxy, f"late-{sessions}", "graph", sessions)
    assert error_code(late.answer) == INVALID_PRODUCER_EPOCH

    with setup.start(graph(setup.bootstrap, setup.name), options=OPTIONS | {"sessions": sessions}) as running:
        running.wait_idle(timeout_s=60)
    world = setup.world()
    assert world.values == [0, 1]
    assert set(world.outcomes.values()) == {1}


@pytest.mark.full
@pytest.mark.parametrize("side", ["request", "response"])
def test_lost_commits_of_one_session_change_nothing_of_its_tasks(proxy: Proxy, side: Side) -> None:
    """J4: of four tasks together; the request or its answer is lost, and the client asks once more."""
    setup = Setup(address(proxy), f"lost-{side}")
    with setup.start(setup.graph(same, partitions=4), options=OPTIONS | {"sessions": 1}) as running:
        for nth in range(3):
            lost = proxy.inject(END_TXN, side, "drop")
            for partition in range(4):
                produce(setup.bootstrap, setup.source, [Record(b"%d" % nth, None, partition)])
            assert lost.bit.wait(WAIT_S)
            running.wait_idle(timeout_s=60)
    world = setup.world()
    assert sorted(world.values) == sorted([0, 1, 2] * 4)
    assert set(world.outcomes.values()) == {1}
    assert len(world.outcomes) == 12


def test_recovery_refuses_what_a_late_commit_has_left_of_a_task_that_trusted_it(proxy: Proxy) -> None:
    """The mutant of P8: offsets without outputs are committed. R5 sees that they are not the record's."""
    setup, late = kill_under_late_commit(proxy, "trusting", "trusting")
    assert error_code(late.answer) == NO_ERROR

    with Child(*child_of(setup, "graph"), options=OPTIONS) as child:
        child.expect("group offset 2 of 'trusting.in' is not the record's 1")
    assert [message.value() for message in committed(setup.bootstrap, setup.sink)] == [b"0"]


def test_requests_that_come_twice_double_what_a_plain_producer_writes_and_nothing_of_a_task(proxy: Proxy) -> None:
    """
    Writes, offsets and commits of a task, each of them, and their answers too.

    The broker knows writes again by their sequence numbers, and a commit by its epoch; a producer without numbers has
    its message twice.
    """
    setup = Setup(address(proxy), "twice")
    with setup.start(graph(setup.bootstrap, setup.name), options=OPTIONS) as running:
        of_task: dict[str, Any] = {"times": float("inf"), "client": setup.transactional_id}
        kinds = (PRODUCE, TXN_OFFSET_COMMIT, END_TXN)
        faults = [proxy.inject(kind, "request", "duplicate", **of_task) for kind in kinds]
        answers = proxy.inject(ANY, "response", "duplicate", **of_task)
        for value in (b"0", b"1"):
            setup.send(value)
            running.wait_idle(timeout_s=30)
        until(lambda: all(one.copies == 0 for one in proxy.of(*kinds, client=setup.transactional_id)), "all answered")
        assert [fault.bites >= 2 for fault in (*faults, answers)] == [True] * 4
    world = setup.world()
    assert world.values == [0, 1]
    assert world.errors == []
    assert set(world.outcomes.values()) == {1}

    twice = proxy.inject(PRODUCE, "request", "duplicate", client="plain")
    plain = Producer({"bootstrap.servers": address(proxy), "client.id": "plain", "linger.ms": 0})
    plain.produce(setup.source, b"2")
    assert plain.flush(WAIT_S) == 0
    assert twice.bites == 1
    until(lambda: len(committed(setup.bootstrap, setup.source)) == 4, "the copy is written")
