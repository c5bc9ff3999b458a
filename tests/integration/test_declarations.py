"""The language of declarations on a real broker: a graph in a file, planned, applied and run by the commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cues_kafka import Kafka, Message, connect
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.loading import load_graph
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import until

FUNCTIONS = """
def broadcast(message, step):
    return dict.fromkeys([binding for binding, _ in step.processor.outputs], message)
"""

GRAPH = """
version = 1
name = "NAME"

[[parts]]
source = "NAME.in"

[[parts]]
processor = "broadcast"
fn = "NAME_functions:broadcast"
inputs = "NAME.in"
outputs = { eu = "NAME.eu", us = "NAME.us" }
filter = { all = [{ not = { has_header = ["test"] } }, { has_tag = ["news"] }] }

[topics."NAME.in"]
transient = "7 days"

[topics."NAME.eu"]
compacted = true
transient = true
key = "id"
"""


def command(kafka: KafkaFixture, *words: str | Path) -> list[str | Path]:
    """A command of the program on this broker."""
    return [sys.executable, "-m", "cues_kafka.cli.main", *words, "--bootstrap", kafka.bootstrap]


@pytest.mark.full
def test_a_graph_in_a_file_is_applied_and_run_with_filters_and_settings_of_topics(
    kafka: KafkaFixture, tmp_path: Path
) -> None:
    """The broker takes the settings; what headers leave out is not decoded; each output gets each message."""
    name = kafka.unique("g").replace("-", "_")
    (tmp_path / f"{name}_functions.py").write_text(FUNCTIONS)
    file, log = tmp_path / "graph.toml", tmp_path / "log"
    file.write_text(GRAPH.replace("NAME", name))

    applied = subprocess.run(command(kafka, "plan", file, "--apply"), capture_output=True, text=True, check=True)
    assert f"broadcast reads '{name}.in', which is transient: Kafka deletes its messages after 7 days" in applied.stdout
    broker = open_broker(Kafka(kafka.bootstrap))
    found = broker.facts([f"{name}.in", f"{name}.eu"]).topics
    broker.close()
    settings = ("cleanup.policy", "retention.ms", "segment.ms")
    assert {topic: tuple(one.config[setting] for setting in settings) for topic, one in found.items()} == {
        f"{name}.in": ("delete", "604800000", "60480000"),
        f"{name}.eu": ("compact,delete", "864000000", "86400000"),
    }

    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for header in (("test", "1"), ("cues-tags", "sport")):
        producer.produce(f"{name}.in", b"\xff no json", headers=[header])
    assert producer.flush(10) == 0
    graph = load_graph(f"{file}:{name}")
    with log.open("wb") as out, subprocess.Popen(command(kafka, "run", file), stdout=out, stderr=out) as worker:
        try:
            with connect(Kafka(kafka.bootstrap), graph) as client:
                client.send(f"{name}.in", {"id": "a", "tags": {"news": False}})
                client.send(f"{name}.in", Message({"id": "b"}, headers={"cues-tags": "sport,news"}))
                until(lambda: worker.poll() is not None or client.messages(f"{name}.us"), "a broadcast")
                assert worker.poll() is None, log.read_text()
                got = client.messages(f"{name}.us")
                assert [(one.value, one.key) for one in got] == [({"id": "b"}, None)]
                assert [(one.value, one.key) for one in client.messages(f"{name}.eu")] == [({"id": "b"}, "b")]
        finally:
            worker.terminate()
            worker.wait(30)
    assert not re.search("Traceback", log.read_text()), log.read_text()
    verified = subprocess.run(command(kafka, "verify", file), capture_output=True, text=True, check=False)
    assert "nothing is wrong" in verified.stdout, verified.stdout + verified.stderr
