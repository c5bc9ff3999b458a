"""Where the broker of a run comes from, and whose containers are removed. `make test-docker` starts real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self

import pytest

from cues_kafka.errors import BrokerError, ConfigError, CuesError, MissingExtra
from cues_kafka.testing import fixtures
from cues_kafka.testing.containers import KafkaContainer, identity, left_behind

pytest_plugins = ["pytester"]


class Fake:
    """Stands for a broker; it starts, or refuses."""

    def __init__(self, bootstrap: str, refusal: CuesError | None = None) -> None:
        self.bootstrap, self.refusal = bootstrap, refusal

    def start(self) -> Self:
        if self.refusal:
            raise self.refusal
        return self

    def stop(self) -> None:
        """Nothing has started."""


LOCAL, CONTAINER = Fake("local"), Fake("container")
NO_JAVA = Fake("", ConfigError("there is no Java; install it"))
NO_ENGINE = Fake("", BrokerError("no Docker engine answers; start one"))


def configured(monkeypatch: pytest.MonkeyPatch, choice: str, local: Fake, container: Fake) -> Any:
    """The configuration of a run, in which these brokers are to be had."""
    monkeypatch.setattr(fixtures, "_local_broker", lambda: local)
    monkeypatch.setattr(fixtures, "_container_broker", lambda config: container)
    monkeypatch.setattr(fixtures, "chosen", lambda config, name: choice)
    return None


@pytest.mark.parametrize(
    ("choice", "local", "expected"),
    [
        ("auto", LOCAL, "local"),
        ("auto", NO_JAVA, "container"),
        ("local", LOCAL, "local"),
        ("container", LOCAL, "container"),
    ],
)
def test_the_first_broker_that_can_be_had_is_that_of_the_run(
    monkeypatch: pytest.MonkeyPatch, choice: str, local: Fake, expected: str
) -> None:
    """A local one comes first, unless a container is chosen."""
    broker = fixtures._broker(configured(monkeypatch, choice, local, CONTAINER))

    assert broker.bootstrap == expected


@pytest.mark.parametrize(
    ("choice", "container", "reasons"),
    [
        ("auto", NO_ENGINE, ["no Java", "no Docker"]),
        ("local", CONTAINER, ["no Java"]),
        ("container", NO_ENGINE, ["no Docker"]),
    ],
)
def test_a_run_without_a_broker_has_all_reasons(
    monkeypatch: pytest.MonkeyPatch, choice: str, container: Fake, reasons: list[str]
) -> None:
    """One that is chosen has no other in its place."""
    with pytest.raises(CuesError) as refused:
        fixtures._broker(configured(monkeypatch, choice, NO_JAVA, container))

    assert all(reason in str(refused.value) for reason in reasons)


def run(pytester: pytest.Pytester, *options: str, settings: str = "") -> str:
    """A test that asks for the broker, in a run of its own."""
    pytester.makeini(f"[pytest]\n{settings}")
    pytester.makepyfile("def test_it(kafka_cluster): pass")
    return str(pytester.runpytest_subprocess(*options).stdout) + str(pytester.runpytest_subprocess(*options).stderr)


def test_the_environment_can_be_demanded(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that must use a given cluster starts no other one."""
    monkeypatch.delenv("CUES_KAFKA_BOOTSTRAP", raising=False)

    said = run(pytester, "--cues-kafka-broker=environment")

    assert "The broker is to be that of CUES_KAFKA_BOOTSTRAP, which is not set." in said


def test_a_broker_that_does_not_exist_is_refused_with_those_that_do(pytester: pytest.Pytester) -> None:
    """In the file as on the command line."""
    assert "Write one of auto, environment, local, container." in run(pytester, settings="cues_kafka_broker = docker")
    assert "invalid choice: 'docker'" in run(pytester, "--cues-kafka-broker=docker")


def test_containers_without_their_extra_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without testcontainers, which brings Docker's client."""
    for module in ("docker", "docker.errors", "testcontainers.core.container"):
        monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingExtra, match=r"A server .* needs testcontainers, .*'cues-kafka\[testing-containers\]'"):
        KafkaContainer().start()


def test_containers_without_an_engine_name_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Nothing listens at the socket."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")

    with pytest.raises(ConfigError, match=r"No Docker engine answers: .*set DOCKER_HOST to its socket"):
        KafkaContainer().start()


class Elsewhere(BaseHTTPRequestHandler):
    """An engine that is reached by TCP."""

    def do_GET(self) -> None:
        body = b'{"ApiVersion": "1.41"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def test_an_engine_of_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loopback is not the one that the tests connect to."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
        with pytest.raises(ConfigError, match="may be on another machine"):
            KafkaContainer().start()
        server.shutdown()


def test_a_container_is_left_behind_when_its_process_has_ended() -> None:
    """Not while it lives, and not if it is a process of another machine or of another namespace."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        owner = identity(program.pid)
        assert not left_behind(owner)
    assert left_behind(owner)
    boot, *rest = owner.split("/")
    assert not left_behind("/".join([boot[::-1], *rest]))


def test_a_process_with_the_same_number_is_another_one() -> None:
    """Numbers of processes come again; when they began does not."""
    assert not left_behind(identity(os.getpid()))
    assert left_behind(f"{identity(os.getpid())}0")
