"""Where scenarios run: on the memory broker, and on a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cues_kafka import Kafka, Memory, connect
from cues_kafka.client.client import Client
from cues_kafka.task import lane
from cues_kafka.testing.fixtures import KafkaFixture
from tests.scenarios.world import Stage


@pytest.fixture(scope="session")
def kafka_client(kafka_cluster: str) -> Iterator[Client]:
    """A client of the real broker, for all scenarios."""
    with connect(Kafka(kafka_cluster)) as client:
        yield client


@pytest.fixture(params=["memory", "kafka"])
def where(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A cluster, and names that no other scenario has."""
    if request.param == "kafka":
        kafka: KafkaFixture = request.getfixturevalue("kafka")
        yield Stage(Kafka(kafka.bootstrap), request.getfixturevalue("kafka_client"), kafka.prefix)
        return
    memory = Memory()
    with connect(memory) as client:
        yield Stage(memory, client, "graph")


@pytest.fixture
def stage(where: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """The same. A task that stops is not tried again, and what processes that died have left ends with the scenario."""
    monkeypatch.setattr(lane, "RESTART_FIRST_S", 3600.0)
    try:
        yield where
    finally:
        where.close()
