"""SIGKILL of workers that replay error messages beside live ones, on a real broker, with the commands (Y1 to Y3)."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
from typer.testing import CliRunner

from cues_kafka import Graph, Kafka, connect, start
from cues_kafka.cli import loading
from cues_kafka.cli.main import app
from cues_kafka.client.client import Client
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault import replay_world
from tests.fault.killing import forked
from tests.fault.support import committed, until

Point = tuple[str, str, int]

EFFECTS = ("Call", "Begin", "SendOffsets", "Produce", "Flush", "Commit")


class Scene:
    """A graph that has left errors, its operator, and its workers."""

    def __init__(self, kafka: KafkaFixture, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
        self.prefix = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("replays"))
        self.bootstrap = kafka.bootstrap
        self.graph: Graph = replay_world.graph(self.prefix)
        self.sent = 0
        monkeypatch.setattr(loading, "load_graph", lambda _: self.graph)
        with start(self.graph, Kafka(self.bootstrap), instance=f"{self.prefix}.1") as running:
            self.send(running, failing * replay_world.ROUND)
            running.wait_idle()

    def send(self, client: Client, count: int) -> None:
        """The next numbers."""
        client.send_many(f"{self.prefix}.in", range(self.sent, self.sent + count))
        self.sent += count

    def command(self, *words: str) -> Any:
        """What `cues-kafka` says, as data."""
        done = CliRunner().invoke(app, [*words, "--json", "--bootstrap", self.bootstrap])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    @contextmanager
    def worker(self, point: Point | None) -> Iterator[BaseProcess]:
        """A worker with the fix in a process of its own."""
        process = forked().Process(target=replay_world.run, args=(self.bootstrap, self.prefix, point))
        process.start()
        try:
            yield process
        finally:
            process.kill()
            process.join()

    def killed(self, point: Point) -> bool:
        """Whether a worker reaches the point, and dies there."""
        with self.worker(point) as process:
            process.join(20)
            return process.exitcode == -9

    def check(self, replays: int) -> None:
        """Each message has one output, and says whether a replay gave it; the source holds what was sent alone."""
        out = [json.loads(m.value() or b"") for m in committed(self.bootstrap, f"{self.prefix}.out")]
        first = {n: 1 if n % replay_world.ROUND == 0 and n < replays * replay_world.ROUND else None for n, _ in out}
        assert sorted(n for n, _ in out) == list(range(self.sent))
        assert dict(out) == first
        source = [json.loads(m.value() or b"") for m in committed(self.bootstrap, f"{self.prefix}.in")]
        assert source == list(range(self.sent))
        report = self.command("verify", "the:graph")
        assert (report["verdict"], report["anomalies"]) == ("ok", 0)
        [processor] = report["processors"]
        assert (processor["replays"], processor["behind"]) == (replays, 0)
        assert self.command("errors", "list", "the:graph")["causes"] == []


def test_errors_are_replayed_once_beside_messages_and_through_a_kill(
    kafka: KafkaFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listed, fixed, replayed; the worker dies with a replay in its transaction, and its successor goes on."""
    scene = Scene(kafka, monkeypatch, failing=8)
    [cause] = scene.command("errors", "list", "the:graph")["causes"]
    assert (cause["exception"], cause["count"]) == ("ValueError", 8)
    assert scene.command("errors", "replay", "the:graph", "--yes")["asked"] == 8
    with connect(Kafka(scene.bootstrap), scene.graph) as client:
        assert scene.killed(("before", "Commit", 8))
        with scene.worker(None):
            scene.send(client, 4)
            again = scene.command("errors", "replay", "the:graph", "--yes", "--wait", "40")
            assert (again["asked"], again["open"]) == (0, [])
            _until_delivered(scene)
            scene.check(8)


@pytest.mark.full
@pytest.mark.timeout(240)
def test_fifty_kills_leave_each_replay_once(kafka: KafkaFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after each effect of a task, with live messages at each start; the operator asks again each time."""
    scene = Scene(kafka, monkeypatch, failing=120)
    points = [(moment, effect, nth) for nth in range(1, 6) for effect in EFFECTS for moment in ("before", "after")]
    with connect(Kafka(scene.bootstrap), scene.graph) as client:
        asked = scene.command("errors", "replay", "the:graph", "--yes", "--limit", "100")["asked"]
        missed = []
        for point in itertools.islice(points, 50):
            scene.send(client, 4)
            missed += [] if scene.killed(point) else [point]
        assert not missed, "a point that no run passes proves nothing"
        with scene.worker(None):
            result = scene.command("errors", "replay", "the:graph", "--yes", "--wait", "60")
            assert (asked + result["asked"], result["open"]) == (120, [])
            _until_delivered(scene)
            scene.check(120)


def _until_delivered(scene: Scene) -> None:
    """Wait until everything that was sent has an output."""
    until(lambda: len(committed(scene.bootstrap, f"{scene.prefix}.out", to_stable=True)) == scene.sent, "all is there")
