"""docs/containers.md as it is shown: a graph of a user who has the wheel, the page and an engine, and no clone."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docker.engine import Engine
from tests.test_docs import QUICK_START, ROOT, blocks
from tests.test_wheel import EXPECTED, build, install, quick_start

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1_200)]

PAGE = ROOT / "docs" / "containers.md"
COMMANDS = [block.text for block in blocks("", PAGE)]
ADDRESS = "localhost:9092"


class User(NamedTuple):
    """An empty directory with the wheel, and an environment with the wheel and what the tests of users need."""

    place: Path
    environment: dict[str, str]

    def types(self, commands: str) -> str:
        """What these commands print, each of which must end with 0."""
        done = subprocess.run(
            ["bash", "-euc", commands], cwd=self.place, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, f"{commands}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def user(engine: Engine, kafka_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Nothing of the checkout is in the environment; what the page starts ends with it."""
    place = tmp_path_factory.mktemp("user")
    wheel = build(tmp_path_factory.mktemp("built")).wheel
    python = install(f"{wheel}[testing,testing-containers]", tmp_path_factory.mktemp("environment"))
    shutil.copy(wheel, place)
    names = {name for name in os.environ if name.startswith(("PYTHON", "CUES_KAFKA", "VIRTUAL_ENV"))}
    environment = {name: value for name, value in engine.environment.items() if name not in names}
    environment["PATH"] = os.pathsep.join([str(python.parent), str(Path(engine.client).parent), environment["PATH"]])
    yield User(place, environment)
    for container in engine.docker("ps", "--all", "--quiet").split():
        engine.docker("rm", "--force", "--volumes", container)


def test_a_graph_of_ones_own_runs_in_containers_as_the_page_shows(user: User) -> None:
    """Its files and its commands, in its order, and what it says that they print."""
    [graph], [image], [services] = blocks("python", PAGE), blocks("dockerfile", PAGE), blocks("yaml", PAGE)
    for name, block in (("doubled.py", graph), ("Dockerfile", image), ("compose.yaml", services)):
        (user.place / name).write_text(block.text, encoding="utf-8")
    plan, up, use, check, down, _ = COMMANDS

    assert user.types(plan).startswith("Graph doubled, planned offline: 1 processor")
    user.types(up)
    assert sorted(user.types(use).split()[-3:]) == ["2", "4", "6"]
    assert "nothing is wrong" in user.types(check)
    assert '"healthy"' in user.types(
        "docker inspect --format '{{json .State.Health.Status}}' $(docker compose ps -q worker)"
    )
    assert user.types("docker compose exec worker id -u").strip() == "10001"
    user.types("docker compose stop worker")
    assert user.types("docker inspect --format '{{.State.ExitCode}}' $(docker compose ps --all -q worker)") == "0\n"
    user.types(down)
    assert user.types("docker ps --all --quiet") == ""


def test_the_quick_start_runs_on_a_broker_in_a_container(user: User) -> None:
    """With the commands that the page gives in place of `broker up` and `broker down`."""
    [services] = blocks("yaml", PAGE)
    (user.place / "compose.yaml").write_text(services.text, encoding="utf-8")
    program = user.place / "examples" / "shop.py"
    program.parent.mkdir()
    program.write_text(quick_start(ADDRESS), encoding="utf-8")
    *_, down, up = COMMANDS

    user.types(up)
    assert EXPECTED in user.types(f"python {program.relative_to(user.place)}")
    user.types(down)
    assert "containers.md#use-only-a-broker-in-a-container" in QUICK_START.read_text(encoding="utf-8")


def test_a_users_test_runs_on_a_broker_in_a_container(user: User) -> None:
    """That of docs/testing.md, with its command: pytest has the fixtures from the wheel."""
    page = ROOT / "docs" / "testing.md"
    test = blocks("python", page)[0]
    [command] = [block.text for block in blocks("", page) if block.text.startswith("pytest ")]
    place = user.place / "tests"
    place.mkdir()
    (place / "test_numbers.py").write_text(test.text, encoding="utf-8")

    assert "1 passed" in user.types(f"cd tests; {command}")
    assert user.types("docker ps --all --quiet") == ""
