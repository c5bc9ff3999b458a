"""A quota of a real broker: what it holds back is logged and counted."""

from __future__ import annotations

import os
import re
import socket
import struct
import sys
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cues_kafka import Kafka, connect
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.wire import request
from cues_kafka.cli.loading import load_graph
from cues_kafka.cli.main import app
from cues_kafka.graph.names import transactional_id
from cues_kafka.observe.throttling import THROTTLING
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Outgoing
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import Program, until

ALTER_CLIENT_QUOTAS = 49


def limit(bootstrap: str, client_id: str, bytes_per_s: float) -> None:
    """Give a client id a quota for what it produces, by version 0 of the request."""

    def text(found: str) -> bytes:
        return struct.pack(f">h{len(found)}s", len(found), found.encode())

    entity = struct.pack(">i", 1) + text("client-id") + text(client_id)
    change = struct.pack(">i", 1) + text("producer_byte_rate") + struct.pack(">d?", bytes_per_s, False)
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        answer = request(connection, ALTER_CLIENT_QUOTAS, 0, struct.pack(">i", 1) + entity + change + b"\0")
    answer.int32()  # throttle time
    assert (answer.int32(), answer.int16()) == (1, 0)


def test_a_client_above_its_quota_is_throttled_and_that_is_said(
    kafka: KafkaFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker answers the first request at once, and says how long it holds back the next one."""
    name = kafka.unique("throttled")
    broker = open_broker(Kafka(kafka.bootstrap))
    limit(kafka.bootstrap, name, 2_000)
    before_s = THROTTLING.total_s
    try:
        broker.create([NewTopic(name, 1)])
        sender = broker.sender(name)
        with caplog.at_level("WARNING", "cues_kafka.broker"):
            sender.send([Outgoing(name, 0, None, os.urandom(22_000))])
            sender.send([Outgoing(name, 0, None, b"y")])
        sender.close()
    finally:
        broker.close()

    assert THROTTLING.total_s > before_s
    assert f"throttled by a quota client='sender {name}'" in caplog.text


GRAPH = """
import os
from cues_kafka import Graph, Json, Processor, Raw, Source, Topic

def grow(size: int) -> bytes:
    return os.urandom(size)

graph = Graph(
    {name!r},
    Source("{name}.sizes"),
    Processor(grow, inputs="{name}.sizes", outputs="{name}.grown"),
    topics={{"{name}.grown": Topic(value=Raw(), partitions=1)}},
    defaults=Topic(value=Json(int), partitions=1),
)
"""


@pytest.mark.full
def test_a_worker_above_its_quota_says_so_in_status_and_metrics(kafka: KafkaFixture, tmp_path: Path) -> None:
    """The quota is that of the task's producer. The worker is slow, and well."""
    name, [port] = kafka.unique("quota"), free_ports(1)
    module = tmp_path / f"graph_{name.replace('-', '_')}.py"
    module.write_text(GRAPH.format(name=name))
    target, cluster = f"{module}:graph", Kafka(kafka.bootstrap)
    limit(kafka.bootstrap, transactional_id(name, "grow", 0), 2_000)
    run = [sys.executable, "-m", "cues_kafka.cli.main", "run", target, "--instance", "blue", "--http", str(port)]
    env = os.environ | {"CUES_KAFKA_STATUS_EVERY_S": "1"}
    with Program([*run, "--bootstrap", kafka.bootstrap], env=env) as worker:
        worker.expect("ready after")
        with connect(cluster, load_graph(target)) as client:
            client.send_many(f"{name}.sizes", [22_000, 1])
        worker.expect("throttled by a quota")

        def told() -> str:
            found = CliRunner().invoke(app, ["status", target, "--bootstrap", kafka.bootstrap])
            assert found.exit_code == 0, found.output
            return found.output if "throttled by a quota: " in found.output else ""

        line = until(told, "status says it")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            metrics = page.read().decode()

    assert re.search(r"brokers held back answers to blue \(.*\(grow/0\); remedy: raise the quota", line), line
    assert f"`kafka-configs --bootstrap-server {kafka.bootstrap} --describe" in line
    assert "all is well" in line
    assert "1 process throttled by a quota" in line
    [seconds] = re.findall(r"^cues_kafka_throttled_seconds_total{.*} (\S+)$", metrics, re.MULTILINE)
    assert float(seconds) > 0
