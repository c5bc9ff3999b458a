"""The image of native workers: small, without root, read-only, healthy by /readyz, drained by SIGTERM."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest

from cues_kafka import Kafka, connect
from cues_kafka.brokers.kafka.compiled.loaded import CHOICE
from cues_kafka.brokers.open import open_broker
from cues_kafka.client.client import Client
from cues_kafka.testing.containers import KafkaContainer
from cues_kafka.verify.scan import verify
from tests.docker.engine import Engine
from tests.docker.numbers_graph import graph
from tests.docker.parts import PYTHON
from tests.fault.support import until
from tests.test_docs import ROOT

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1_200)]

IMAGE = "cues-kafka-native:0.1.0"
LIMIT_MB = 250
COUNT = 8_000
RUN = (
    "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
    "--mount", f"type=bind,source={ROOT / 'tests/docker'},target=/app,readonly",
)  # fmt: skip


@pytest.fixture(scope="module")
def image(engine: Engine) -> str:
    """Built with the command at the head of the Dockerfile."""
    engine.docker("build", "--file", "docker/Dockerfile", "--target", "native", "--tag", IMAGE, ".")
    return IMAGE


@pytest.fixture
def broker(engine: Engine, kafka_image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaContainer]:
    """One that the worker reaches by loopback, in the network of these tests."""
    monkeypatch.setenv("DOCKER_HOST", engine.environment["DOCKER_HOST"])
    with KafkaContainer() as broker:
        yield broker


def megabytes(engine: Engine, image: str) -> float:
    """The size of an image."""
    return int(engine.docker("image", "inspect", "--format", "{{.Size}}", image)) / 1e6


def test_the_image_is_small_and_has_neither_spark_nor_java(engine: Engine, image: str) -> None:
    """With the base image of these tests, a Debian with its Python; and a worker is not root."""
    whole, base = megabytes(engine, image), megabytes(engine, PYTHON)
    print(f"\n{image}: {whole:.0f} MB, of them {base:.0f} MB of the base image")

    assert whole < LIMIT_MB
    assert engine.try_docker("run", "--rm", image, "sh", "-c", "command -v java").returncode != 0
    absent = "import importlib.util as u; assert not any(map(u.find_spec, ('pyspark', 'pandas', 'pip')))"
    engine.docker("run", "--rm", image, "python", "-c", absent)
    assert engine.docker("run", "--rm", image, "id", "-u").strip() == "10001"


def test_the_image_has_the_compiled_module(engine: Engine, image: str) -> None:
    """Without it a worker would run, and take half as much again for each message."""
    asked = "from cues_kafka.brokers.kafka.compiled.loaded import loaded; assert loaded().module, loaded()"
    engine.docker("run", "--rm", "--env", f"{CHOICE}=1", image, "python", "-c", asked)


def test_the_image_runs_every_command_without_a_writable_file(engine: Engine, image: str) -> None:
    """Also those that run before a worker does."""
    said = engine.docker("run", "--rm", *RUN, image, "cues-kafka", "plan", "/app/numbers_graph.py:graph", "--offline")

    assert "double" in said
    assert engine.try_docker("run", "--rm", *RUN, image, "touch", "/opt/venv/file").returncode != 0


def ends(bootstrap: str, topic: str, isolation: str) -> list[int]:
    """The ends of the partitions as readers see them who read so."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": isolation}
    )
    try:
        places = [confluent_kafka.TopicPartition(topic, partition) for partition in range(2)]
        return [consumer.get_watermark_offsets(place, timeout=10)[1] for place in places]
    finally:
        consumer.close()


def outputs(client: Client) -> list[int]:
    """What readers of committed messages see."""
    return [message.value for message in client.messages("numbers.out", limit=COUNT * 2)]


def test_sigterm_drains_the_worker_and_a_second_container_continues(
    engine: Engine, image: str, broker: KafkaContainer
) -> None:
    """In the midst of the messages it ends with 0, has left no transaction open, and each output is there once."""
    options = ["--workers", "1", "--bootstrap", broker.bootstrap, "--http", "9100"]
    command = ["cues-kafka", "run", "/app/numbers_graph.py:graph", *options]
    cluster = Kafka(broker.bootstrap)

    def healthy(container: str) -> bool:
        return bool(engine.inspect(container)["State"]["Health"]["Status"] == "healthy")

    with connect(cluster, graph) as client:
        first = engine.docker("run", "--detach", "--network", "host", *RUN, image, *command).strip()
        until(lambda: healthy(first), "the worker is healthy by /readyz", 60)
        client.send_many("numbers.in", list(range(COUNT)))
        until(lambda: outputs(client), "the first outputs are committed", 60)
        engine.docker("stop", "--time", "60", first)
        assert engine.inspect(first)["State"]["ExitCode"] == 0, engine.logs(first)[-4000:]
        done = outputs(client)
        assert 0 < len(done) < COUNT, "SIGTERM came in the midst of the messages"
        assert len(set(done)) == len(done)
        assert set(done) < {number * 2 for number in range(COUNT)}
        for topic in ("numbers.in", "numbers.out"):
            committed = ends(broker.bootstrap, topic, "read_committed")
            assert committed == ends(broker.bootstrap, topic, "read_uncommitted"), "no transaction is open"

        second = engine.docker("run", "--detach", "--network", "host", *RUN, image, *command).strip()
        until(lambda: len(outputs(client)) >= COUNT, "the rest of the outputs is committed", 120)
        assert sorted(outputs(client)) == [number * 2 for number in range(COUNT)]
        engine.docker("stop", "--time", "60", second)
        assert engine.inspect(second)["State"]["ExitCode"] == 0
        engine.docker("rm", first, second)
    opened = open_broker(cluster)
    try:
        report = verify(graph, opened)
    finally:
        opened.close()
    assert report.ok, list(report.lines)
    assert report.complete


def test_a_worker_whose_cluster_is_gone_is_not_healthy(engine: Engine, image: str, broker: KafkaContainer) -> None:
    """The health check asks /readyz, which says so after ten seconds."""
    options = ["--workers", "1", "--bootstrap", broker.bootstrap, "--http", "9100"]
    worker = engine.docker(
        "run", "--detach", "--network", "host", "--health-interval", "1s", *RUN, image,
        "cues-kafka", "run", "/app/numbers_graph.py:graph", *options,
    ).strip()  # fmt: skip

    def status() -> str:
        return str(engine.inspect(worker)["State"]["Health"]["Status"])

    until(lambda: status() == "healthy", "the worker is healthy", 60)
    broker.stop()
    until(lambda: status() == "unhealthy", "the worker is not healthy", 90)
    engine.docker("rm", "--force", worker)
