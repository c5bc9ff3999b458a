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
from tests.servers.bridge_world import payloads as numbered
from tests.servers.other_broker import LAST, QUEUES, OtherBroker, other_broker

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


@pytest.fixture(params=[one for one in QUEUES if one != "rabbitmq"])
def other(request: pytest.FixtureRequest) -> OtherBroker:
    """Each broker, and the address of the protocol by which it is read; test_rabbitmq_process.py has that one."""
    return other_broker(request, request.param)


@pytest.mark.parametrize("broker_dies", [False, True], ids=["lives", "dies"])
def test_processes_that_are_killed_around_commits_leave_each_message_once(
    kafka: KafkaFixture, other: OtherBroker, broker_dies: bool
) -> None:
    """The other broker gets SIGKILL behind each death, or not. The system closes a process's connections."""
    name = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("bridge"))
    other, graph = replace(other, name=name), graph_of(name, other.url)
    with closing(open_broker(Kafka(kafka.bootstrap))) as broker:
        prepare(graph, broker)
        if other.url.startswith("mqtt"):  # the broker keeps messages from the subscription on
            assert run(kafka, name, other.url, "", "0") == 0
        codes = []
        for turn, moment in enumerate((*MOMENTS, "")):
            other.send(*numbered(EACH, EACH * turn))
            codes.append(run(kafka, name, other.url, moment, str(EACH * (len(MOMENTS) + 1))))
            if broker_dies and moment:
                other.server.kill()
                other.server.start()

        assert codes == [-9, -9, -9, 0]
        found = Counter(message.value() for message in committed(kafka.bootstrap, f"{name}.ingress"))
        assert found == dict.fromkeys(numbered(EACH * (len(MOMENTS) + 1)), 1)
        assert verify(graph, broker).ok
    assert other.left() == [LAST]


def run(kafka: KafkaFixture, name: str, url: str, *arguments: str, program: str = PROGRAM) -> int:
    """Run a program in a process, which kills itself, or ends when the topic has enough messages."""
    command = [sys.executable, "-c", program, kafka.bootstrap, name, url, *arguments]
    return subprocess.run(command, cwd=ROOT, timeout=240, check=False).returncode
