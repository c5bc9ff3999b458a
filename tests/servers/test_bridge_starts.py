"""
Reset to initial: a feed under another name begins at the start of its source, on real brokers.

A feed with a ledger begins with an empty one, so it takes what the broker still holds. A feed with a place begins at
`start=`.
"""

from __future__ import annotations

import pytest

from cues_kafka import CommitPolicy, RabbitMq
from cues_kafka.testing.tester import Crash, Tester
from tests.servers.bridge_world import Cut, counted, fed, payloads, run_until
from tests.servers.fixtures import RabbitMqQueues
from tests.servers.other_broker import LAST, QUEUES, OtherBroker, other_broker
from tests.servers.rabbitmq_world import Shop, new_stream

pytestmark = pytest.mark.bridge

EACH = 5
"""Messages of a batch."""


@pytest.fixture(params=QUEUES)
def other(request: pytest.FixtureRequest) -> OtherBroker:
    """A queue or a session of this test in each broker."""
    return other_broker(request, request.param)


def test_feed_of_another_name_takes_what_the_broker_holds(other: OtherBroker) -> None:
    """
    What was acknowledged never comes again. A batch that was committed, and not acknowledged, comes twice: nothing of
    the former ledger is left.
    """
    policy = CommitPolicy(max_messages=EACH)
    with Cut(other.port) as cut:
        source = other.source(other.through(cut.port), prefetch=2 * EACH)
        first = Tester(fed(source), policy=policy)
        first.run()  # a session of MQTT begins
        other.send(*payloads(4 * EACH))
        run_until(first, 4 * EACH)
        first.stop()  # it waits for acknowledgements
        first.run()
        other.send(*payloads(2 * EACH, 4 * EACH))
        run_until(first, 4 * EACH + 1, Crash("after", "Commit"), cut=cut)
        committed = {bytes(one.value) for one in first.messages("ingress")[4 * EACH :]}
        again = Tester(fed(source, name="again"), policy=policy, broker=first.broker)
        run_until(again, 6 * EACH + len(committed))
        again.run()
        again.stop()

    assert 0 < len(committed) <= EACH
    assert counted(again) == {one: 2 if one in committed else 1 for one in payloads(6 * EACH)}
    assert other.left() == [LAST]


def test_feed_of_another_name_reads_a_stream_from_its_start(rabbitmq: RabbitMqQueues) -> None:
    """From the oldest message, or from the offset of `start=`; the place of the former feed means nothing to it."""
    stream = new_stream(rabbitmq)
    with Shop(rabbitmq.server) as shop:
        shop.publish_many(stream, payloads(30))
    broker, read = None, list[bytes]()
    for name, start, expected in (
        ("feed", 0, payloads(30)),
        ("again", 0, payloads(30)),
        ("late", 20, payloads(10, 20)),
    ):
        source = RabbitMq(rabbitmq.url).stream(stream, start=start)
        tester = Tester(fed(source, name=name), broker=broker)
        read += expected
        run_until(tester, len(read))
        tester.stop()
        broker = tester.broker
        assert [one.value for one in tester.messages("ingress")] == read
