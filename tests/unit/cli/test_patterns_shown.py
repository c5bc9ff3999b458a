"""Commands that describe a graph have the topics of its patterns where a cluster tells them, else they say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cues_kafka.cli.main import app
from cues_kafka.errors import RetriableError
from cues_kafka.testing.registry import TestRegistry

GRAPH = """
from dataclasses import dataclass
from cues_kafka import Avro, Graph, Processor, Source, Topic

@dataclass
class Reading:
    id: int

def tag(reading: Reading) -> None: ...

graph = Graph("plant", Source("readings", pattern="sensors[.].+"), Processor(tag, inputs="readings"),
    defaults=Topic(value=Avro(Reading, registry=True)))
"""


class Cluster:
    """A cluster with two topics of the pattern."""

    def partitions(self, topics: Any = None) -> dict[str, int]:
        """All topics."""
        return {"sensors.rome": 1, "sensors.oslo": 1, "others": 1}

    def close(self) -> None:
        """Nothing is open."""


def away(_: object) -> Cluster:
    """No cluster."""
    raise RetriableError("Kafka does not answer")


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A graph with a pattern."""
    (tmp_path / "plant.py").write_text(GRAPH)
    monkeypatch.setattr("cues_kafka.brokers.open.open_broker", lambda _: Cluster())
    return f"{tmp_path / 'plant.py'}:graph"


def test_asyncapi_has_the_topics_of_a_pattern(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a cluster it has the name of the pattern, and says what that stands for."""
    found = CliRunner().invoke(app, ["docs", "asyncapi", plant])
    assert [*json.loads(found.stdout)["channels"]] == ["sensors.oslo", "sensors.rome"]

    monkeypatch.setattr("cues_kafka.brokers.open.open_broker", away)
    found = CliRunner().invoke(app, ["docs", "asyncapi", plant])
    assert [*json.loads(found.stdout)["channels"]] == ["readings"]
    assert "Kafka does not answer" in found.stderr
    assert "stands for all that match: readings (sensors[.].+)" in found.stderr


def test_schemas_are_those_of_the_topics_of_a_pattern(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same way."""
    with TestRegistry() as registry:
        found = CliRunner().invoke(app, ["schemas", "check", plant, "--registry", registry.url])
        assert [line.partition(":")[0] for line in found.stdout.splitlines() if "-value" in line] == [
            "sensors.oslo",
            "sensors.rome",
        ]
        monkeypatch.setattr("cues_kafka.brokers.open.open_broker", away)
        found = CliRunner().invoke(app, ["schemas", "check", plant, "--registry", registry.url])
        assert "readings-value" in found.stdout
        assert "are not looked up" in found.stderr
