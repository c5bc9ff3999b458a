"""A sink whose broker is away at the start: it waits, commits nothing, and delivers when the broker is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from cues_kafka import Memory, start
from tests.servers.bridge_world import payloads, until
from tests.servers.outgoing import ONCE, Outgoing, outgoing, telling

pytestmark = [pytest.mark.bridge, pytest.mark.timeout(300)]

WAIT_S = 120.0
"""A restart of RabbitMQ takes three seconds, and twenty on a machine that is busy; streams come later."""

COUNT = 20


@pytest.fixture(params=[*ONCE, "rabbitmq"])
def into(request: pytest.FixtureRequest) -> Iterator[Outgoing]:
    """What is written to, in each broker but mosquitto: test_mqtt.py has that one."""
    with ExitStack() as opened:
        yield outgoing(request, opened)


def test_sink_waits_for_a_broker_that_is_away_at_the_start_and_then_delivers(into: Outgoing) -> None:
    """Each message once: nothing was sent before."""
    into.found.server.kill()
    with start(telling(into.target(), into.found.name), Memory(), timeout_s=None) as running:
        for payload in payloads(COUNT):
            running.send("numbers", payload)
        with pytest.raises(Exception, match=r"does not answer|refused"):
            running.wait_idle(timeout_s=20)
        assert running.messages("told") == []
        into.found.server.start(timeout_s=WAIT_S)
        until(lambda: len(running.messages("told")) >= COUNT, running.status)  # tasks are tried again after a pause
        running.wait_idle(timeout_s=WAIT_S)
        told = [bytes(one.value) for one in running.messages("told")]
    assert [int(one.partition(b"-")[0]) for one in told] == list(range(COUNT))
    assert [body for _, body in into.came(COUNT)] == told
