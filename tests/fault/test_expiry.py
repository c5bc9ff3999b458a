"""What brokers forget or end by the clock: open transactions, transactional ids, and offsets of groups."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from cues_kafka import Graph
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.loaded import ProxiedBroker
from tests.fault.proxy import INIT_PRODUCER_ID
from tests.fault.support import Child, Setup, backing, committed, end_offset, until

pytestmark = [pytest.mark.fault, pytest.mark.full]

OPTIONS: dict[str, Any] = {"socket_timeout_s": 1.0, "transaction_timeout_s": 3.0}


@pytest.fixture(scope="module")
def broker() -> Iterator[ProxiedBroker]:
    """A broker that forgets a transactional id after three seconds without a transaction."""
    overrides = {
        "transactional.id.expiration.ms": "3000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    }
    with ProxiedBroker(1, overrides=overrides) as broker:
        yield broker


def same(value: Any) -> Any:
    """What the workers run."""
    return value


def slow(value: Any) -> Any:
    """Take longer than the transaction time-out of `OPTIONS`, and than the coordinator needs to see that."""
    time.sleep(4)
    return value


def graph(bootstrap: str, name: str) -> Graph:
    """What the child runs."""
    return Setup(bootstrap, name).graph(same)


def is_forgotten(bootstrap: str, transactional_id: str) -> bool:
    """Whether the newest record of the transaction log about an id is its tombstone."""
    log = committed(bootstrap, "__transaction_state")
    about = [message for message in log if transactional_id.encode() in (message.key() or b"")]
    return bool(about) and about[-1].value() is None


def check(setup: Setup, values: list[int]) -> None:
    """Each is there once, in order."""
    world = setup.world()
    assert world.values == values
    assert world.errors == []
    assert set(world.outcomes.values()) == {1}


def test_a_worker_that_sleeps_beyond_the_transaction_timeout_delivers_once(broker: ProxiedBroker) -> None:
    """The coordinator ends its transaction and takes its epoch; it is still the owner, and begins a new session."""
    setup = Setup(broker.front, "overslept")
    setup.start(graph(setup.bootstrap, setup.name), options=OPTIONS).stop()
    with Child(
        setup.bootstrap,
        "tests.fault.test_expiry:graph",
        setup.bootstrap,
        setup.name,
        options=OPTIONS,
        point=("before Commit", 2, "SIGSTOP"),
    ) as child:
        setup.send(b"0", b"1")
        child.paused()
        # No other program writes there. What there is, however soon the broker has ended it, is of the transaction.
        until(lambda: end_offset(setup.bootstrap, setup.sink, to_stable=True) > 0, "the broker has ended it")
        child.resume()
        setup.send(b"2")
        until(lambda: backing(setup.bootstrap, setup.backing)[0][-1]["totals"]["deliveries"] == 3, "all is delivered")
        assert not any(line.startswith("stopped") for line in child.lines)
        child.stop()
    check(setup, [0, 1, 2])


def test_a_call_that_takes_longer_than_the_transaction_timeout_costs_no_session(
    kafka: KafkaFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """The transaction begins behind the call (P4, P5)."""
    setup = Setup(kafka.bootstrap, kafka.unique("long-call"))
    with setup.start(setup.graph(slow), options=OPTIONS) as running:
        setup.send(b"0")
        running.wait_idle(timeout_s=30)
    check(setup, [0])
    assert [text for text in caplog.messages if text.startswith("failed")] == []


def test_a_task_whose_transactional_id_has_expired_takes_it_again(broker: ProxiedBroker) -> None:
    """It was idle for too long: the broker does not know its producer any more."""
    setup = Setup(broker.front, "expired")
    [proxy] = broker.proxies
    with setup.start(graph(setup.bootstrap, setup.name), options=OPTIONS) as running:
        setup.send(b"0")
        running.wait_idle(timeout_s=30)
        until(lambda: is_forgotten(broker.bootstrap, setup.transactional_id), "the id has expired")
        inits = len(proxy.of(INIT_PRODUCER_ID, client=setup.transactional_id))
        setup.send(b"1")
        running.wait_idle(timeout_s=30)
        assert len(proxy.of(INIT_PRODUCER_ID, client=setup.transactional_id)) > inits, "the fault bit"
    check(setup, [0, 1])


def test_a_task_whose_offsets_are_gone_goes_on_where_its_record_says(broker: ProxiedBroker) -> None:
    """As they are when a group was empty for `offsets.retention.minutes`: the record decides (R5)."""
    setup = Setup(broker.front, "gone")
    group, admin = f"{setup.name}.work", AdminClient({"bootstrap.servers": broker.bootstrap})
    for values in ([b"0", b"1"], [b"2"]):
        with setup.start(graph(setup.bootstrap, setup.name), options=OPTIONS) as running:
            setup.send(*values)
            running.wait_idle(timeout_s=30)
        until(lambda: _deleted(admin, group), "the group is empty, and deleted with its offsets")
    check(setup, [0, 1, 2])


def _deleted(admin: AdminClient, group: str) -> bool:
    problem = admin.delete_consumer_groups([group])[group].exception()
    return problem is None
