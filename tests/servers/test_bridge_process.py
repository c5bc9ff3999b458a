"""From a real mosquitto, ActiveMQ and Artemis into a real Kafka, by processes that are killed around Kafka's commit."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Amqp, Feed, Graph, Kafka, Mqtt, Raw, Stomp, Topic
from cues_kafka.brokers.open import open_broker
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import committed
from tests.servers.amqp_world import HAS_PROTON, AmqpShop, amqp_url
from tests.servers.bridge_world import payloads as numbered
from tests.servers.jms_world import JmsClient
from tests.servers.mqtt_world import Device

pytestmark = [pytest.mark.bridge, pytest.mark.timeout(500)]

ROOT = Path(__file__).parents[2]
MOMENTS = ("before", "inside", "after")
"""Before Kafka's commit; in it, so that it is open or done; behind it, and before the acknowledgement."""

EACH = 20
PROGRAM = """
import sys
from threading import Event
from cues_kafka import CommitPolicy, Kafka, start
from tests.fault.killing import Killing
from tests.servers.test_bridge_process import graph_of
bootstrap, name, url, moment, count = sys.argv[1:]
point = (moment, "Commit", 2) if moment else None
kafka = Kafka(bootstrap, session_timeout_s=6)
with start(graph_of(name, url), kafka, policy=CommitPolicy(max_messages=5), hook=Killing(point)) as running:
    while len(running.messages(f"{name}.ingress")) < int(count):
        Event().wait(0.1)
    running.wait_idle(timeout_s=60)
"""


def graph_of(name: str, url: str) -> Graph:
    """A feed of a session or of a queue."""
    source: Any
    if url.startswith("mqtt"):
        source = Mqtt(url, topics=f"{name}/#", session=name, prefetch=20)
    elif url.startswith("amqp"):
        source = Amqp(url).queue(name, prefetch=20)
    else:
        source = Stomp(url, queue=name, prefetch=20)
    feed = Feed(source, into=f"{name}.ingress", name="feed", poll_seconds=1)
    return Graph(name, feed, defaults=Topic(value=Raw(), partitions=1))


@pytest.fixture(params=["mosquitto", "activemq", "artemis", *(["artemis-amqp"] if HAS_PROTON else [])])
def other(request: pytest.FixtureRequest) -> Any:
    """A name of this test in each broker, and the address of the protocol by which it is read."""
    kind, _, protocol = request.param.partition("-")
    found = request.getfixturevalue(kind)
    return replace(found, url=amqp_url(found)) if protocol else found


def sent(other: Any, name: str, bodies: list[bytes]) -> None:
    """Send, and wait until the broker has it."""
    if other.url.startswith("mqtt"):
        with Device(other.server.port) as device:
            device.publish_many(f"{name}/a", bodies)
    elif other.url.startswith("amqp"):
        with AmqpShop(other.url) as writer:
            writer.send(name, *bodies)
    else:
        with JmsClient(other.url) as shop:
            shop.send(name, *bodies)


def left(other: Any, name: str) -> list[bytes]:
    """What the broker has still, up to a last message that is sent now."""
    if other.url.startswith("mqtt"):
        with Device(other.server.port, name) as device:
            device.publish(f"{name}/a", b"last")
            return [bytes(one.payload) for one in device.hears(1)]
    if other.url.startswith("amqp"):
        with AmqpShop(other.url) as reader:
            reader.send(name, b"last")
            return [bytes(one.body) for one in reader.takes(name, 1)]
    with JmsClient(other.url) as shop:
        shop.send(name, b"last")
        return shop.takes(name, 1)


@pytest.mark.parametrize("broker_dies", [False, True], ids=["lives", "dies"])
def test_processes_that_are_killed_around_commits_leave_each_message_once(
    kafka: KafkaFixture, other: Any, broker_dies: bool
) -> None:
    """The other broker gets SIGKILL behind each death, or not. The system closes a process's connections."""
    name = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("bridge"))
    graph = graph_of(name, other.url)
    with closing(open_broker(Kafka(kafka.bootstrap))) as broker:
        prepare(graph, broker)
        if other.url.startswith("mqtt"):  # the broker keeps messages from the subscription on
            assert run(kafka, name, other.url, "", "0") == 0
        codes = []
        for turn, moment in enumerate((*MOMENTS, "")):
            sent(other, name, numbered(EACH, EACH * turn))
            codes.append(run(kafka, name, other.url, moment, str(EACH * (len(MOMENTS) + 1))))
            if broker_dies and moment:
                other.server.kill()
                other.server.start()

        assert codes == [-9, -9, -9, 0]
        found = Counter(message.value() for message in committed(kafka.bootstrap, f"{name}.ingress"))
        assert found == dict.fromkeys(numbered(EACH * (len(MOMENTS) + 1)), 1)
        assert verify(graph, broker).ok
    assert left(other, name) == [b"last"]


def run(kafka: KafkaFixture, name: str, url: str, *arguments: str, program: str = PROGRAM) -> int:
    """Run a program in a process, which kills itself, or ends when the topic has enough messages."""
    command = [sys.executable, "-c", program, kafka.bootstrap, name, url, *arguments]
    return subprocess.run(command, cwd=ROOT, timeout=240, check=False).returncode
