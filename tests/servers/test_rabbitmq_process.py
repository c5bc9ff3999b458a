"""From a real RabbitMQ into a real Kafka, by processes that are killed around Kafka's commit."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Feed, Graph, Kafka, Processor, RabbitMq, Raw, Source, Topic, connect
from cues_kafka.brokers.open import open_broker
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import committed
from tests.servers.bridge_world import payloads
from tests.servers.fixtures import RabbitMqQueues
from tests.servers.rabbitmq_world import Shop, read_all

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from threading import Event
from cues_kafka import CommitPolicy, Kafka, start
from tests.fault.killing import Killing
from tests.servers.test_rabbitmq_process import graph_of
bootstrap, name, url, kind, moment = sys.argv[1:]
point = (moment, "Commit", 2) if moment else None
kafka = Kafka(bootstrap, session_timeout_s=6)
with start(graph_of(name, url, kind), kafka, policy=CommitPolicy(max_messages=5), hook=Killing(point)) as running:
    while len(running.messages(f"{name}.ingress")) < 80:
        Event().wait(0.1)
    running.wait_idle(timeout_s=60)
"""


OUT = """
import sys
from threading import Event
from cues_kafka import CommitPolicy, Kafka, start
from tests.fault.killing import Killing
from tests.servers.test_rabbitmq_process import graph_out
bootstrap, name, url, port, effect, moment = sys.argv[1:]
point = (moment, effect, 2) if moment else None
kafka = Kafka(bootstrap, session_timeout_s=6)
policy = CommitPolicy(max_messages=5)
with start(graph_out(name, url, int(port)), kafka, policy=policy, hook=Killing(point)) as running:
    while len(running.messages(f"{name}.told")) < 80:
        Event().wait(0.1)
    running.wait_idle(timeout_s=60)
"""


def graph_out(name: str, url: str, port: int) -> Graph:
    """A function that publishes to a stream, and never says the same twice."""

    def tell(number: bytes, out: Any) -> bytes:
        said = number + b"-" + secrets.token_hex(4).encode()
        out.publish(said)
        return said

    effects = {"out": RabbitMq(url).to_stream(name, port=port, logs=name)}
    told = Processor(tell, inputs=f"{name}.numbers", outputs=f"{name}.told", effects=effects)
    return Graph(name, Source(f"{name}.numbers"), told, defaults=Topic(value=Raw(), partitions=1))


def graph_of(name: str, url: str, kind: str) -> Graph:
    """A feed of a queue or of a stream."""
    broker = RabbitMq(url)
    source = broker.stream(name) if kind == "stream" else broker.queue(name, prefetch=20)
    feed = Feed(source, into=f"{name}.ingress", name="feed", poll_seconds=1)
    return Graph(name, feed, defaults=Topic(value=Raw(), partitions=1))


@pytest.mark.bridge
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_processes_that_are_killed_around_commits_leave_each_message_once(
    kafka: KafkaFixture, rabbitmq: RabbitMqQueues, kind: str
) -> None:
    """Before, in and after the commit, with more messages before each; the system closes a process's connections."""
    name = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("rabbit"))
    graph = graph_of(name, rabbitmq.url, kind)
    with closing(open_broker(Kafka(kafka.bootstrap))) as broker:
        prepare(graph, broker)
        with Shop(rabbitmq.server) as shop:
            shop.declare(name, kind)
        codes = []
        for turn, moment in enumerate(("before", "inside", "after", "")):
            with Shop(rabbitmq.server) as shop:
                shop.publish_many(name, payloads(20, 20 * turn))
            command = [sys.executable, "-c", PROGRAM, kafka.bootstrap, name, rabbitmq.url, kind, moment]
            codes.append(subprocess.run(command, cwd=ROOT, timeout=180, check=False).returncode)

        assert codes == [-9, -9, -9, 0]
        found = Counter(message.value() for message in committed(kafka.bootstrap, f"{name}.ingress"))
        assert found == dict.fromkeys(payloads(80), 1)
        assert verify(graph, broker).ok
    if kind != "stream":
        with Shop(rabbitmq.server) as shop:
            assert shop.left(name) == 0


@pytest.mark.bridge
@pytest.mark.timeout(400)
def test_processes_that_are_killed_publish_each_message_once(kafka: KafkaFixture, rabbitmq: RabbitMqQueues) -> None:
    """Around the entry in the log of the task, and around Kafka's commit. The stream has what Kafka has, in order."""
    name = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("rabbit"))
    port = rabbitmq.server.stream_port
    graph = graph_out(name, rabbitmq.url, port)
    points = [(e, m) for e in ("CommitTarget", "Commit") for m in ("before", "after")]
    with closing(open_broker(Kafka(kafka.bootstrap))) as broker:
        prepare(graph, broker)
        with Shop(rabbitmq.server) as shop:
            shop.declare(name, "stream")
        sent, codes = payloads(80), []
        for turn, (effect, moment) in enumerate((*points, ("", ""))):
            with connect(Kafka(kafka.bootstrap), graph) as client:
                client.send_many(f"{name}.numbers", sent[16 * turn : 16 * turn + 16])
            command = [sys.executable, "-c", OUT, kafka.bootstrap, name, rabbitmq.url, str(port), effect, moment]
            codes.append(subprocess.run(command, cwd=ROOT, timeout=180, check=False).returncode)

        assert codes == [-9] * len(points) + [0]
        told = [message.value() or b"" for message in committed(kafka.bootstrap, f"{name}.told")]
        assert [one.partition(b"-")[0] for one in told] == sent
        assert [body for _, body in read_all(rabbitmq, name)] == told
        assert verify(graph, broker).ok
