"""E1: from a real Kafka into a real Artemis by AMQP 1.0, by processes that are killed around the commits of both."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer

from cues_kafka import Amqp, Graph, Kafka, Processor, Raw, Source, Topic
from cues_kafka.brokers.open import open_broker
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import committed
from tests.servers.amqp_world import AmqpShop, amqp_url
from tests.servers.bridge_world import payloads as numbered
from tests.servers.fixtures import JmsQueues
from tests.servers.test_bridge_process import EACH, run

pytestmark = [pytest.mark.bridge, pytest.mark.timeout(500)]

QUIET_S = 1.0
MOMENTS = (
    ("before", "CommitTarget"),
    ("after", "CommitTarget"),
    ("before", "Commit"),
    ("inside", "Commit"),
    ("after", "Commit"),
)
"""Before Artemis' commit; behind it, which is before Kafka's; in Kafka's, so that it is open or done; and behind it."""

PROGRAM = """
import sys
from threading import Event
from cues_kafka import CommitPolicy, Kafka, start
from tests.fault.killing import Killing
from tests.servers.test_amqp_process import graph_of
bootstrap, name, url, moment, effect, count = sys.argv[1:]
point = (moment, effect, 3) if moment else None
kafka = Kafka(bootstrap, session_timeout_s=6)
with start(graph_of(name, url), kafka, policy=CommitPolicy(max_messages=5), hook=Killing(point)) as running:
    while len(running.messages(f"{name}.told")) < int(count):
        Event().wait(0.1)
    running.wait_idle(timeout_s=60)
"""


def tell(body: bytes, jms: Any) -> bytes:
    """Send a message, and return its text."""
    jms.send(body)
    return body


def graph_of(name: str, url: str) -> Graph:
    """A processor that sends to a queue."""
    queue = Amqp(url, timeout_s=5.0).to_queue(name)
    out = Processor(tell, inputs=f"{name}.given", outputs=f"{name}.told", effects={"jms": queue})
    return Graph(name, Source(f"{name}.given"), out, defaults=Topic(value=Raw(), partitions=1), errors=f"{name}.errors")


@pytest.mark.parametrize("broker_dies", [False, True], ids=["lives", "dies"])
def test_processes_that_are_killed_around_both_commits_send_each_message_once(
    kafka: KafkaFixture, artemis: JmsQueues, broker_dies: bool
) -> None:
    """Artemis gets SIGKILL behind each death, or not."""
    name, url = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("out")), amqp_url(artemis)
    graph = graph_of(name, url)
    numbers = numbered(EACH * (len(MOMENTS) + 1))
    with closing(open_broker(Kafka(kafka.bootstrap))) as broker:
        prepare(graph, broker)
        codes = []
        for turn, (moment, effect) in enumerate((*MOMENTS, ("", ""))):
            given(kafka, f"{name}.given", numbers[EACH * turn : EACH * (turn + 1)])
            codes.append(run(kafka, name, url, moment, effect, str(len(numbers)), program=PROGRAM))
            if broker_dies and moment:
                artemis.server.kill()
                artemis.server.start()

        assert codes == [-9] * len(MOMENTS) + [0]
        told = Counter(message.value() for message in committed(kafka.bootstrap, f"{name}.told"))
        assert told == dict.fromkeys(numbers, 1)
        assert verify(graph, broker).ok
    with AmqpShop(url) as shop:
        assert [bytes(one.body) for one in shop.takes(name, len(numbers), quiet_s=QUIET_S)] == numbers


def given(kafka: KafkaFixture, topic: str, bodies: list[bytes]) -> None:
    """Write messages to a topic of Kafka, and wait until it has them."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    for body in bodies:
        producer.produce(topic, body)
    assert producer.flush(60) == 0
