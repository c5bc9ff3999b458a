"""Two graphs whose bridges have one name, on one real broker: they are kept apart, or the second one is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from cues_kafka import Memory, RabbitMq, TaskStopped, start
from tests.servers.bridge_world import fed, numbers, payloads, until
from tests.servers.fixtures import RabbitMqQueues
from tests.servers.other_broker import QUEUES, OtherBroker, other_broker
from tests.servers.outgoing import ONCE, REPEATED, Outgoing, outgoing, telling
from tests.servers.rabbitmq_world import Shop, new_stream

pytestmark = [pytest.mark.bridge, pytest.mark.timeout(300)]

WAIT_S = 60.0
COUNT = 20


@pytest.fixture(params=[*ONCE, *REPEATED])
def into(request: pytest.FixtureRequest) -> Iterator[Outgoing]:
    """What is written to, in each broker."""
    with ExitStack() as opened:
        yield outgoing(request, opened)


def told(running: Any) -> list[bytes]:
    """What the function has given."""
    return [bytes(one.value) for one in running.messages("told")]


def test_sinks_of_one_name_in_two_graphs_are_kept_apart(into: Outgoing) -> None:
    """A marker, a log and a client id have the name of the graph, so neither graph stops the other one."""
    name = into.found.name
    with (
        start(telling(into.target(), f"{name}-a"), Memory()) as first,
        start(telling(into.target(), f"{name}-b"), Memory()) as second,
    ):
        for payload in payloads(COUNT):
            first.send("numbers", payload)
            second.send("numbers", payload)
        for running in (first, second):
            running.wait_idle(timeout_s=WAIT_S)
            assert [int(one.partition(b"-")[0]) for one in told(running)] == list(range(COUNT))
        both = told(first) + told(second)
    assert sorted(body for _, body in into.came(len(both))) == sorted(both)


@pytest.mark.parametrize("into", ONCE, indirect=True)
def test_graph_of_the_same_name_on_another_cluster_is_refused_until_it_has_names_of_its_own(into: Outgoing) -> None:
    """While the first one runs, and behind its end. It has sent nothing, and says what is wrong."""
    name = into.found.name
    with start(telling(into.target(), name), Memory()) as first:
        for payload in payloads(COUNT):
            first.send("numbers", payload)
        first.wait_idle(timeout_s=WAIT_S)
        expected = told(first)
        second = start(telling(into.target(), name), Memory(), timeout_s=None)
        try:
            second.send("numbers", b"1")
            with pytest.raises(TaskStopped, match=r"Another process has the queue|another application uses this name"):
                second.wait_idle(timeout_s=WAIT_S)
            first.send("numbers", b"%d" % COUNT)
            first.wait_idle(timeout_s=WAIT_S)
            expected += told(first)[COUNT:]
            first.stop()
            until(lambda: "another application uses this name" in str(second.status()), second.status)
            assert told(second) == []
        finally:
            second.stop()
    own: dict[str, Any] = {"logs": f"{name}-2"} if into.kind == "rabbitmq-stream" else {"markers": f"cues.{name}"}
    with start(telling(into.target(**own), name), Memory()) as third:
        for payload in payloads(COUNT):
            third.send("numbers", payload)
        third.wait_idle(timeout_s=WAIT_S)
        expected += told(third)
    assert len(expected) == 2 * COUNT + 1
    assert [body for _, body in into.came(len(expected))] == expected


@pytest.mark.parametrize("kind", QUEUES)
def test_feeds_of_one_name_in_two_graphs_read_queues_of_their_own(request: pytest.FixtureRequest, kind: str) -> None:
    """On two clusters, the graphs have one name, too."""
    first: OtherBroker = other_broker(request, kind)
    second = replace(first, name=f"{first.name}-2")
    second.declare()
    with start(fed(first.source()), Memory()) as one, start(fed(second.source()), Memory()) as two:
        one.wait_idle(timeout_s=WAIT_S)  # a session of MQTT begins
        two.wait_idle(timeout_s=WAIT_S)
        first.send(*payloads(COUNT))
        second.send(*payloads(COUNT, COUNT))
        until(lambda: len(one.messages("ingress")) >= COUNT and len(two.messages("ingress")) >= COUNT)
        one.wait_idle(timeout_s=WAIT_S)
        two.wait_idle(timeout_s=WAIT_S)
        assert numbers(one.messages("ingress")) == list(range(COUNT))
        assert numbers(two.messages("ingress")) == list(range(COUNT, 2 * COUNT))


def test_feeds_of_one_name_in_two_graphs_each_read_a_whole_stream(rabbitmq: RabbitMqQueues) -> None:
    """Their places are in Kafka. A queue is read by one of them: test_rabbitmq.py, test_stomp.py and test_mqtt.py."""
    stream = new_stream(rabbitmq)
    source = RabbitMq(rabbitmq.url).stream(stream)
    with start(fed(source), Memory()) as one, start(fed(source), Memory()) as two:
        with Shop(rabbitmq.server) as shop:
            shop.publish_many(stream, payloads(COUNT))
        for running in (one, two):
            until(lambda: len(running.messages("ingress")) >= COUNT)  # noqa: B023  it is done at once
            running.wait_idle(timeout_s=WAIT_S)
            assert [one.value for one in running.messages("ingress")] == payloads(COUNT)
