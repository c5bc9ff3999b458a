"""`cues_kafka.testing.containers` on an engine: the fixtures for users, with the project's own contract suite."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from cues_kafka.errors import BrokerError
from cues_kafka.testing.containers import KafkaContainer, RegistryContainer
from tests.docker.engine import Engine
from tests.docker.parts import PYTHON
from tests.fault.support import until
from tests.test_docs import ROOT, blocks

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _environment(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clients find the engine; nothing is left at the end of a test."""
    monkeypatch.setenv("DOCKER_HOST", engine.environment["DOCKER_HOST"])
    monkeypatch.delenv("CUES_KAFKA_BOOTSTRAP", raising=False)
    yield
    assert not engine.docker("ps", "--all", "--quiet")


def pytest_run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Tests of this project in a run of their own."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--timeout=300", *words],
        cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_the_contract_holds_on_a_broker_in_a_container(kafka_image: str) -> None:
    """Every case, shared by two testers; the run removes the container."""
    done = pytest_run("tests/contract/test_contract.py", "-k", "kafka", "--cues-kafka-broker=container", "-n", "2")

    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout.splitlines()[-1]


def test_the_test_of_the_page_passes_on_a_broker_in_a_container(kafka_image: str, tmp_path: Path) -> None:
    """As docs/testing.md shows it."""
    block = blocks("python", ROOT / "docs" / "testing.md")[0]
    (tmp_path / "test_numbers.py").write_text(block.text)
    done = pytest_run(str(tmp_path), "--cues-kafka-broker=container")

    assert done.returncode == 0, done.stdout[-6000:]
    assert "1 passed" in done.stdout


def test_a_container_takes_the_place_of_a_local_broker_that_cannot_start(kafka_image: str, tmp_path: Path) -> None:
    """Without a word of the user, here where the place of the local broker's jars has none."""
    case = "tests/contract/test_contract.py::test_a_second_init_fences_the_first[kafka]"
    done = pytest_run(case, CUES_KAFKA_HOME=str(tmp_path))
    refused = pytest_run(case, "--cues-kafka-broker=local", CUES_KAFKA_HOME=str(tmp_path))

    assert done.returncode == 0, done.stdout[-6000:]
    assert refused.returncode != 0
    assert "is not an unpacked Apache Kafka distribution" in refused.stdout


def test_the_ports_of_both_servers_are_on_loopback_alone(engine: Engine, kafka_image: str, registry_image: str) -> None:
    """And no other container is started beside them."""
    with KafkaContainer(), RegistryContainer():
        running = engine.docker("ps", "--quiet").split()
        ports = [engine.inspect(container)["NetworkSettings"]["Ports"] for container in running]

    assert len(running) == 2
    hosts = {address["HostIp"] for each in ports for addresses in each.values() for address in addresses or ()}
    assert hosts == {"127.0.0.1"}


def test_schemas_are_registered_in_the_container_that_the_fixture_starts(registry_image: str, tmp_path: Path) -> None:
    """As a user's test asks for it."""
    with RegistryContainer() as registry:
        client = SchemaRegistryClient({"url": registry.url})
        number = client.register_schema("orders-value", Schema('"string"'))
        assert client.get_schema(number).schema_str == '"string"'
    file = tmp_path / "test_registry.py"
    file.write_text(
        "from urllib.request import urlopen\n"
        "def test_registry(schema_registry):\n"
        "    assert schema_registry.endswith('/apis/ccompat/v7')\n"
        "    assert urlopen(f'{schema_registry}/subjects').read() == b'[]'\n"
    )
    done = pytest_run(str(file), "--cues-kafka-registry=container")
    assert done.returncode == 0, done.stdout[-6000:]


PROGRAM = """
from cues_kafka.testing.containers import KafkaContainer
print(KafkaContainer().start().bootstrap, flush=True)
input()
"""


def test_containers_of_a_killed_run_are_removed_by_the_next(engine: Engine, kafka_image: str) -> None:
    """Those of a living one stay."""
    with ExitStack() as ends:
        killed, living = (
            ends.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", PROGRAM], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            )
            for _ in range(2)
        )
        for program in (killed, living):
            assert program.stdout
            assert program.stdout.readline().startswith(b"127.0.0.1:")
        assert len(engine.docker("ps", "--quiet").split()) == 2
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        with KafkaContainer():
            assert len(engine.docker("ps", "--quiet").split()) == 2
        assert len(engine.docker("ps", "--quiet").split()) == 1
        living.send_signal(signal.SIGKILL)
        living.wait()
    with KafkaContainer():
        until(lambda: len(engine.docker("ps", "--quiet").split()) == 1, "both are removed")


def test_an_image_that_cannot_be_pulled_is_named(engine: Engine) -> None:
    """With what the engine says of it."""
    with pytest.raises(BrokerError, match="did not start from the image cues-kafka/none:1"):
        KafkaContainer("cues-kafka/none:1").start()


def test_a_server_that_ends_shows_its_log(engine: Engine) -> None:
    """An image without a broker: its program ends at once."""
    with pytest.raises(BrokerError, match=f"in a container of {PYTHON} ended"):
        KafkaContainer(PYTHON).start()
