"""`docker/`: what can be known of it without Docker. Its commands run on this machine as they stand there.

`make test-docker` builds the images and runs the containers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cues_kafka.brokers.local import probe
from cues_kafka.brokers.local.jars import VERSION, find_jars
from cues_kafka.brokers.local.java import find_java
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.cli.loading import load_graph
from tests.fault.support import Program, until
from tests.test_docs import COMMANDS, ROOT

DOCKER = ROOT / "docker"

# What compose.yaml uses of the Compose specification.
TOP = {"name", "services", "volumes"}
SERVICE = {
    "build", "command", "depends_on", "deploy", "environment", "healthcheck", "image", "init", "ports", "profiles",
    "restart", "stop_grace_period", "volumes",
}  # fmt: skip
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The file as Compose reads it, with a whole YAML parser: pyspark has one among its jars."""
    from pyspark import java_gateway

    start: Any = java_gateway.launch_gateway  # it has no types
    gateway = start()
    try:
        jvm = gateway.jvm
        read = jvm.org.yaml.snakeyaml.Yaml().load((DOCKER / "compose.yaml").read_text("utf-8"))
        found: dict[str, Any] = json.loads(jvm.com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(read))
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
    return found


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By name."""
    found: dict[str, dict[str, Any]] = compose["services"]
    return found


def instructions() -> list[list[str]]:
    """Of the Dockerfile, as words."""
    text = (DOCKER / "Dockerfile").read_text("utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines() if line.strip()]


def of(word: str) -> list[list[str]]:
    """The arguments of all instructions of one kind."""
    return [words for first, *words in instructions() if first == word]


def test_every_key_and_every_reference_is_known(compose: dict[str, Any], services: dict[str, dict[str, Any]]) -> None:
    """The shape that the Compose specification asks for, as far as the file uses it."""
    assert {key for key in compose if not key.startswith("x-")} == TOP
    used = set()
    for name, service in services.items():
        assert set(service) <= SERVICE, name
        assert service["image"], name
        for other, wanted in service.get("depends_on", {}).items():
            assert wanted["condition"] in CONDITIONS
            assert wanted["condition"] != "service_healthy" or "healthcheck" in services[other], f"{name}: {other}"
        for volume in service.get("volumes", ()):
            used.add(volume.split(":")[0])
        check = service.get("healthcheck")
        assert check is None or (check["test"][0] == "CMD" and {"interval", "timeout", "retries"} <= set(check))
        assert all(isinstance(value, str) for value in service.get("environment", {}).values()), f"{name}: quote it"
        assert all(isinstance(word, str) for word in service.get("command", ())), f"{name}: quote it"
    assert used == set(compose["volumes"])


def test_nothing_listens_for_other_machines(services: dict[str, dict[str, Any]]) -> None:
    """The brokers, and Spark, ask no user database who they are."""
    published = [port for service in services.values() for port in service.get("ports", ())]

    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_every_file_that_is_named_exists_and_reaches_the_image(services: dict[str, dict[str, Any]]) -> None:
    """From the context into the image, and from there into commands."""
    kept = [line[1:] for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"]
    in_app = set()
    for *sources, target in of("COPY"):
        if sources[0].startswith("--from="):
            continue
        for source in sources:
            assert (ROOT / source).exists(), source
            assert source in kept, f"{source} is kept out of the context"
        if target == "/app/":
            in_app |= {Path(source).name for source in sources}
    assert sorted(kept) == sorted(
        {s for *sources, _ in of("COPY") if not sources[0].startswith("--from") for s in sources}
    )
    for service in services.values():
        for word in service.get("command", ()):
            if word.startswith("/app/"):
                assert word.removeprefix("/app/").split(":")[0] in in_app
        if "build" in service:
            assert ((DOCKER / service["build"]["context"]) / service["build"]["dockerfile"]).is_file()


def test_every_command_exists_with_its_options(services: dict[str, dict[str, Any]]) -> None:
    """In the environment that the image's lock makes, which is this one."""
    for service in services.values():
        if "build" not in service:
            continue
        program, *words = service["command"]
        assert (Path(sys.executable).parent / program).exists(), program
        if program == "cues-kafka":
            assert {word for word in words if word.startswith("--")} <= COMMANDS[words[0]]


def test_everything_that_is_installed_has_one_version() -> None:
    """Images by release, Debian's packages by version, Python's by lock and hash."""
    stages = {words[2] for words in of("FROM") if len(words) > 1}
    [image] = {words[0] for words in of("FROM")} - stages
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", image)
    lines = [words for words in of("RUN") if "apt-get" in words]
    assert len(lines) == 2
    for apt in lines:
        named = apt[apt.index("--no-install-recommends") + 1 :]
        assert all("=" in word for word in named[: named.index("&&")])
    [uv] = [words for words in of("RUN") if "uv.lock" in words[-1]]
    assert {"--require-hashes", "--no-deps"} <= set(uv)
    installed = [words for words in of("RUN") if "uv" in words]
    assert len(installed) == 3
    for packages in installed:
        for option, lock in (("--constraint", "dev.lock"), ("--build-constraint", "build.lock")):
            assert packages[packages.index(option) + 1] == f".ci/requirements/{lock}"


def test_versions_are_those_of_the_package_and_of_its_broker(services: dict[str, dict[str, Any]]) -> None:
    """One Kafka everywhere; the image is named after the release that is in it."""
    released = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    for name, service in services.items():
        tag = service["image"].rpartition(":")[2]
        assert tag == (VERSION if name.startswith("kafka-") else released)


def test_each_image_runs_as_a_user_who_owns_its_data() -> None:
    """A new volume takes its owner from the directory of the image."""
    users = [user for [user] in of("USER")]
    made = [words for words in of("RUN") if words[0] == "useradd"]

    assert len(users) == len(made) == 2
    for user, words in zip(users, made, strict=True):
        name = words[words.index("--uid") + 3]
        assert words[words.index("--uid") + 1] == user
        assert int(user)
        assert words[words.index("--owner") + 1] == name
        assert "/data" in words


def test_driver_and_executors_share_checkpoints_and_staged_files(services: dict[str, dict[str, Any]]) -> None:
    """The same volume at the same path; staged files are below the checkpoint."""
    command = services["totals"]["command"]
    place = command[command.index("--checkpoint") + 1]

    assert place.startswith("file:///data/")
    for name in ("totals", "spark-worker"):
        assert "checkpoints:/data" in services[name]["volumes"]


def test_the_brokers_meet_the_conditions_of_the_promise(services: dict[str, dict[str, Any]]) -> None:
    """Three replicas, two of them in sync, no unclean leader; and for the topics that transactions live in."""
    brokers = {name: service["environment"] for name, service in services.items() if name.startswith("kafka-")}
    assert [env["KAFKA_NODE_ID"] for env in brokers.values()] == ["1", "2", "3"]
    for name, env in brokers.items():
        assert env["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{name}:9092"
        assert f"{env['KAFKA_NODE_ID']}@{name}:9093" in env["KAFKA_CONTROLLER_QUORUM_VOTERS"]
        assert env["KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE"] == "false"
        replicas = {
            env[f"KAFKA_{one}_REPLICATION_FACTOR"] for one in ("DEFAULT", "OFFSETS_TOPIC", "TRANSACTION_STATE_LOG")
        }
        assert replicas == {"3"}
        assert {env["KAFKA_MIN_INSYNC_REPLICAS"], env["KAFKA_TRANSACTION_STATE_LOG_MIN_ISR"]} == {"2"}


def test_the_graph_has_a_direct_and_a_staged_processor() -> None:
    """So the cluster shows both ways of writing."""
    from cues_kafka.spark import explain

    text = str(explain(load_graph(f"{DOCKER / 'totals.py'}:graph")))

    assert "check: pipe, on Spark, direct" in text
    assert "totals: " in text


def test_the_page_shows_the_commands_of_the_file(services: dict[str, dict[str, Any]]) -> None:
    """The three that need Docker, with the target that runs them, and the driver's."""
    page = " ".join((ROOT / "docs" / "deploy.md").read_text("utf-8").split())
    head = (DOCKER / "compose.yaml").read_text("utf-8").partition("\nname:")[0]
    shown = re.findall(r"docker compose .*?(?= +#|$)", head, re.MULTILINE)
    driver = " ".join(services["totals"]["command"]).replace("/app/", "docker/")

    assert len(shown) == 3
    assert all(command in page for command in shown)
    assert shown[1].endswith(" run --rm demo")
    assert "demo" in services
    assert driver in page
    assert "`make test-docker` runs these three commands" in page


# The cluster, on this machine


@dataclass
class Machine:
    """
    Runs services of compose.yaml as processes: names become loopback addresses, volumes become directories.

    Attributes:
        services: of the file.
        directory: for volumes and logs.
        ends: stops what runs.
    """

    services: Mapping[str, Mapping[str, Any]]
    directory: Path
    ends: ExitStack
    ports: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        places = ["kafka-1:9092", "kafka-1:9093", "kafka-2:9092", "kafka-2:9093", "kafka-3:9092", "kafka-3:9093"]
        places += ["spark-master:7077", "localhost:8080", "localhost:8081", "second localhost:8081"]
        self.ports = dict(zip(places, free_ports(len(places)), strict=True))
        (self.directory / "data").mkdir()

    def here(self, text: str, name: str, *, second: bool = False) -> str:
        """A word of the file, on this machine."""
        for place in (place for place in self.ports if not place.startswith("second")):
            text = text.replace(place, f"127.0.0.1:{self.port(place, second=second)}")
        text = text.replace("//:9092", f"//127.0.0.1:{self.ports.get(f'{name}:9092')}")
        text = text.replace("//:9093", f"//127.0.0.1:{self.ports.get(f'{name}:9093')}")
        text = re.sub(r"^(7077|8080|8081)$", lambda found: str(self._of(found[1], second=second)), text)
        text = re.sub(r"^spark-master$", "127.0.0.1", text)
        text = text.replace("file:///data", (self.directory / "data").as_uri())
        text = text.replace("/var/lib/kafka/data", str(self.directory / name))
        text = text.replace("/tmp/work", str(self.directory / "work"))
        return text.replace("/app/", f"{DOCKER}/")

    def port(self, place: str, *, second: bool = False) -> int:
        """Of a place of the file."""
        return self.ports.get(f"second {place}" if second else place, self.ports[place])

    def _of(self, port: str, *, second: bool) -> int:
        [place] = [one for one in self.ports if one.endswith(f":{port}") and not one.startswith("second")]
        return self.port(place, second=second)

    def environment(self, name: str) -> dict[str, str]:
        """Of a service; programs are looked up in this virtual environment first, as in the image's."""
        given = {key: self.here(value, name) for key, value in self.services[name].get("environment", {}).items()}
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("KAFKA_", "CUES_KAFKA_"))}
        return inherited | given | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SPARK_CONF_DIR": str(DOCKER),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.directory),
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }  # fmt: skip

    def command(self, name: str, *, second: bool = False) -> list[str]:
        """Of a service."""
        return [self.here(word, name, second=second) for word in self.services[name]["command"]]

    def start(self, name: str, command: list[str] | None = None, *, second: bool = False) -> Program:
        """A service that stays, but does not outlive this thread, however that ends."""
        command = command or self.command(name, second=second)
        argv = ["setpriv", "--pdeathsig", "KILL", *command]
        return self.ends.enter_context(Program(argv, env=self.environment(name)))

    def run(self, name: str, *more: str, timeout_s: float = 300) -> str:
        """A service that ends, and with 0."""
        done = subprocess.run(
            [*self.command(name), *more], env=self.environment(name), cwd=self.directory, capture_output=True,
            text=True, check=False, timeout=timeout_s,
        )  # fmt: skip
        assert done.returncode == 0, f"{name}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def healthy(self, name: str, *, second: bool = False, timeout_s: float = 120) -> None:
        """Wait until its health check says so."""
        _, *check = (self.here(word, name, second=second) for word in self.services[name]["healthcheck"]["test"])
        environment = self.environment(name)
        until(
            lambda: subprocess.run(check, env=environment, capture_output=True, check=False).returncode == 0,
            f"{name} is healthy: {check}",
            timeout_s,
        )

    def configured(self, name: str) -> list[str]:
        """A broker's program; configured and formatted by the class of Kafka's that does it in the image."""
        java = find_java()
        program = [str(java.program), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        program += ["-Xmx512m", "-cp", find_jars(java).class_path]
        options = []
        for kind in ("default", "mounted", "final"):
            directory = self.directory / f"{name}.{kind}"
            directory.mkdir()
            options += [f"--{kind}-configs-dir", str(directory)]
        for file in ("server.properties", "log4j2.yaml", "tools-log4j2.yaml"):
            (self.directory / f"{name}.default" / file).touch()
        environment = self.environment(name)
        setup = [*program, "kafka.docker.KafkaDockerWrapper", "setup", *options]
        subprocess.run(setup, env=environment, cwd=self.directory, check=True, capture_output=True, timeout=120)
        return [*program, "kafka.Kafka", f"{options[-1]}/server.properties"]


@contextmanager
def whole(services: Mapping[str, Mapping[str, Any]], directory: Path) -> Iterator[Machine]:
    """All services that stay, but for the driver, each after those that it depends on."""
    with ExitStack() as ends:
        machine = Machine(services, directory, ends)
        brokers = [name for name in services if name.startswith("kafka-")]
        machine.start("spark-master")
        with ThreadPoolExecutor() as pool:
            programs = list(pool.map(machine.configured, brokers))
        for name, program in zip(brokers, programs, strict=True):
            machine.start(name, program)
        machine.healthy("spark-master")
        assert services["spark-worker"]["deploy"]["replicas"] == 2
        for second in (False, True):
            machine.start("spark-worker", second=second)
        ports = [machine.port(f"{name}:9092") for name in brokers]
        until(lambda: all((view := probe.look(p)) and len(view.nodes) == 3 for p in ports), "the brokers serve", 120)
        for second in (False, True):
            machine.healthy("spark-worker", second=second)
        yield machine


@pytest.mark.slow
@pytest.mark.timeout(900)  # ten JVMs start, and the machine may be busy
def test_the_services_run_on_this_machine_and_the_demo_finds_every_total_exact(
    services: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """Three brokers, master, two workers, topics, driver, demo: with the commands and variables of compose.yaml."""
    with whole(services, tmp_path) as machine:
        machine.run("topics")
        driver = machine.start("totals")
        driver.expect("ready after", 300)

        said = machine.run("demo", "--timeout", "300", timeout_s=400)

        assert "each customer's totals are exact" in said
        staged = list((tmp_path / "data" / "checkpoints" / "totals.totals" / "stage").iterdir())
        assert staged, "the aggregate is written staged"
        began = time.monotonic()
        driver.process.terminate()
        assert driver.process.wait(60) == 0
        assert time.monotonic() - began < float(services["totals"]["stop_grace_period"].removesuffix("s"))
