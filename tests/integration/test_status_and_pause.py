"""Status and pause on a real broker: seen by another client, and kept over a kill."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Graph, Json, Kafka, Processor, Source, Topic, connect, start
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.cli.loading import load_graph
from cues_kafka.operate.look.status import StatusView, status
from cues_kafka.operate.pausing import Pausing
from cues_kafka.plan.topics import Sides
from cues_kafka.ports.log import Outgoing
from cues_kafka.running import status_writer
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import Program, until

PROGRAM = [sys.executable, "-m", "cues_kafka.cli.main"]

MODULE = """
from typing import Any
from cues_kafka import Graph, Json, Processor, Source, Topic

def check(order: dict[str, Any]) -> dict[str, Any]:
    return order

graph = Graph(
    {name!r},
    Source("{name}.orders"),
    Processor(check, inputs="{name}.orders", outputs="{name}.checked"),
    defaults=Topic(value=Json(), partitions=2),
)
"""


def same(order: dict[str, Any]) -> dict[str, Any]:
    """Nothing changes."""
    return order


def test_status_pause_and_resume_between_two_clients(kafka: KafkaFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits while a graph is paused, what a foreign transaction hides, and that it goes on."""
    monkeypatch.setattr(status_writer, "LOOK_S", 0.05)
    name = kafka.unique("shop")
    graph = Graph(
        name,
        Source(f"{name}.orders"),
        Processor(same, inputs=f"{name}.orders", outputs=f"{name}.checked"),
        defaults=Topic(value=Json(), partitions=1),
    )
    cluster = Kafka(kafka.bootstrap)
    broker = KafkaBroker(cluster)
    with start(graph, cluster, instance="blue.1") as running:
        tool = Pausing(graph, broker, who="amy@desk", sides=Sides.of(cluster))
        assert tool.pause(timeout_s=20.0) == {}
        running.send_many(f"{name}.orders", [{"n": 1}, {"n": 2}])
        session = broker.session(f"{name}.other")
        session.init(timeout_s=20.0)
        session.begin()
        session.produce([Outgoing(f"{name}.orders", 0, None, b'{"n": 3}')])
        session.flush()
        with StatusView(graph, broker, sides=Sides.of(cluster)) as view:
            seen = view.look()
            task = seen["same/0"]
            assert (task.state, task.deliveries, task.lag, seen.unseen) == ("paused", 0, 2 + 1, ())
            assert task.held.startswith("paused by amy@desk since ")
            assert task.owner.startswith("blue.1 (")
            assert task.waiting_s is not None
            assert task.inputs[0].open_s is not None
            session.commit()
            session.close()
            tool.resume()
            running.wait_idle()
            until(lambda: view.look()["same/0"].state != "paused", "the task tells that it works")
            seen = view.look()
        assert (seen["same/0"].deliveries, seen.lag, seen.ok) == (3, 0, True)
        tool.close()
    assert status(cluster, graph)["same/0"].state == "left"
    broker.close()


@pytest.mark.full
def test_successor_of_a_paused_worker_that_was_killed_stays_paused(kafka: KafkaFixture, tmp_path: Path) -> None:
    """With the commands, as an operator uses them."""
    name = kafka.unique("shop")
    (tmp_path / "app.py").write_text(MODULE.format(name=name))
    target = f"{tmp_path / 'app.py'}:graph"
    graph, cluster = load_graph(target), Kafka(kafka.bootstrap)

    def command(*words: str) -> tuple[int, str]:
        program = [*PROGRAM, words[0], target, *words[1:], "--bootstrap", kafka.bootstrap]
        done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout + done.stderr

    run = [*PROGRAM, "run", target, "--bootstrap", kafka.bootstrap, "--instance", "blue.1"]
    with Program(run) as first:
        first.expect("ready after")
        code, text = command("pause", "check")
        assert code == 0, text
        first.kill()
    with connect(cluster, graph) as client:
        client.send_many(f"{name}.orders", [{"n": n} for n in range(10)])
    with Program(run) as second:
        second.expect("ready after")
        code, text = command("pause", "check")  # the same pause; the successor has told that it follows it
        assert code == 0, text
        assert "already paused by " in text
        code, text = command("status", "--json")
        seen = json.loads(text)
        assert code == 0
        assert [(task["state"], task["deliveries"]) for task in seen["tasks"]] == [("paused", 0)] * 2
        assert seen["lag"] >= 10
        assert command("resume")[0] == 0
        until(lambda: sum(one.deliveries for one in status(cluster, graph).tasks) == 10, "all is delivered")
