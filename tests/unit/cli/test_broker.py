"""`cues-kafka broker status`: its exit codes, for scripts."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cues_kafka.brokers.local import detached
from cues_kafka.brokers.local.detached import RecordedNode, RunningBroker
from cues_kafka.cli.main import app

NODES = tuple(RecordedNode(id=n, port=9091 + n, pid=100 + n) for n in (1, 2, 3))
RECORD = RunningBroker("default", "127.0.0.1:9092", 99, "/data", NODES, version="4.3.1")


@pytest.mark.parametrize(("serving", "code"), [((1, 2, 3), 0), ((1, 3), 3), ((), 3)])
def test_broker_status_ends_with_3_if_a_node_does_not_answer(
    serving: tuple[int, ...], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with --json, where the ids of those that answer are in `serving`."""
    monkeypatch.setattr(detached, "status", lambda _: RECORD)
    monkeypatch.setattr(RunningBroker, "serving", lambda _: serving)

    shown = CliRunner().invoke(app, ["broker", "status"])
    assert shown.exit_code == code
    assert shown.stdout.count("does not answer") == 3 - len(serving)
    assert ("start nodes again that have ended: cues-kafka broker up" in shown.stdout) == bool(code)

    plain = CliRunner().invoke(app, ["broker", "status", "--json"])
    assert plain.exit_code == code
    assert json.loads(plain.stdout)["serving"] == [*serving]


def test_broker_status_ends_with_1_if_it_is_not_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a record of it there are no nodes."""
    monkeypatch.setattr(detached, "status", lambda _: None)
    for option in ([], ["--json"]):
        assert CliRunner().invoke(app, ["broker", "status", *option]).exit_code == 1
