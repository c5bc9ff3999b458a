"""`docker/compose.yaml` as docs/deploy.md says: its commands start all services, which survive kills exactly."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.docker.engine import Engine
from tests.fault.support import until
from tests.test_docs import ROOT

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2_400)]

FILE = "docker/compose.yaml"
COMPOSE = ("compose", "--file", FILE)
EXACT = "each customer's totals are exact, and none was published twice"
ORDERS = 20_000


@pytest.fixture(scope="module")
def up(engine: Engine, kafka_image: str, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """All services, built and started with the command of the page; their logs are shown where a test fails."""
    failed = request.session.testsfailed
    try:
        engine.docker(*COMPOSE, "up", "--build", "--detach")
        yield engine
    finally:
        if request.session.testsfailed > failed:
            print(engine.try_docker(*COMPOSE, "ps", "--all").stdout)
            print(engine.try_docker(*COMPOSE, "logs", "--no-color", "--tail", "60").stdout)
        engine.try_docker(*COMPOSE, "down", "--volumes")


def ids(engine: Engine, service: str) -> list[str]:
    """The containers of a service, which may have ended."""
    return engine.docker(*COMPOSE, "ps", "--all", "--quiet", service).split()


def kill(engine: Engine, container: str) -> None:
    """
    Send SIGKILL to all processes of a container, and wait until its engine has started it again.

    `docker kill` would tell the engine not to start it again.
    """
    before = engine.inspect(container)
    assert before["State"]["Running"]
    os.kill(before["State"]["Pid"], signal.SIGKILL)

    def again() -> bool:
        now = engine.inspect(container)
        return bool(now["RestartCount"] > before["RestartCount"] and now["State"]["Running"])

    until(again, f"{before['Name']} was started again", 60)


@contextmanager
def demo(engine: Engine, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The demo, which has sent its orders, and waits for their totals."""
    command = ["python", "/app/totals.py", "--bootstrap", "kafka-1:9092,kafka-2:9092,kafka-3:9092", *options]
    with subprocess.Popen(
        [engine.client, *COMPOSE, "run", "--rm", "--no-TTY", "demo", *command],
        cwd=ROOT, env=engine.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        try:
            assert program.stdout
            said = program.stdout.readline()
            assert said.endswith(" orders sent\n"), said
            yield program
        finally:
            program.kill()


def test_the_commands_of_the_page_start_all_services_and_the_demo_is_exact(up: Engine) -> None:
    """Images, three brokers, Spark with two workers, topics, driver, demo."""
    said = up.docker(*COMPOSE, "run", "--rm", "demo")

    assert EXACT in said
    assert {name: len(ids(up, name)) for name in ("kafka-1", "kafka-2", "kafka-3", "spark-worker", "totals")} == {
        "kafka-1": 1, "kafka-2": 1, "kafka-3": 1, "spark-worker": 2, "totals": 1
    }  # fmt: skip
    [topics] = ids(up, "topics")
    assert up.inspect(topics)["State"]["ExitCode"] == 0


def test_ports_of_the_machine_are_on_loopback_alone(up: Engine) -> None:
    """Spark's page answers there."""
    bound = [
        address["HostIp"]
        for container in up.docker("ps", "--quiet").split()
        for addresses in up.inspect(container)["NetworkSettings"]["Ports"].values()
        for address in addresses or ()
    ]

    assert bound == ["127.0.0.1"]


@pytest.mark.parametrize("victim", ["kafka-2", "spark-worker", "totals"])
def test_totals_are_exact_though_a_container_is_killed(up: Engine, victim: str) -> None:
    """A broker, an executor with its worker, the driver: each dies while totals are under way, and starts again."""
    with demo(up, "--orders", str(ORDERS), "--timeout", "400") as program:
        container = ids(up, victim)[0]
        assert program.poll() is None, "the demo has seen all totals, so nothing was under way"
        kill(up, container)
        said, _ = program.communicate(timeout=600)

    assert program.returncode == 0, said
    assert EXACT in said
    if victim.startswith("kafka"):
        until(lambda: up.inspect(container)["State"]["Health"]["Status"] == "healthy", "the broker is healthy", 120)


def test_every_message_of_all_runs_has_one_outcome(up: Engine) -> None:
    """As `cues-kafka verify` reads the cluster, after all kills."""
    done = up.try_docker(*COMPOSE, "run", "--rm", "demo", "cues-kafka", "verify", "/app/totals.py:graph")

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_driver_shuts_down_gracefully_and_down_removes_everything(up: Engine) -> None:
    """SIGTERM ends it before Compose kills it; no container, volume or network is left."""
    [driver] = ids(up, "totals")
    up.docker(*COMPOSE, "stop", "totals")
    assert up.inspect(driver)["State"]["ExitCode"] == 0
    up.docker(*COMPOSE, "down", "--volumes")

    assert not up.docker("ps", "--all", "--quiet")
    assert not up.docker("volume", "ls", "--quiet")
    networks = up.docker("network", "ls", "--format", "{{.Name}}").split()
    assert sorted(networks) == ["bridge", "host", "none"]


def test_the_page_shows_the_commands_that_run_here() -> None:
    """They stand at the head of the file, too."""
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    shown = re.findall(rf"docker compose --file {re.escape(FILE)} (.*)", page)

    assert shown == ["up --build --detach", "run --rm demo", "down --volumes"]
