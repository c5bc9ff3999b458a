"""docs/targets.md: the target that the page builds, on a real Redis."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.servers.fixtures import started
from tests.servers.redis import Redis

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "targets.md"

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    """A server that keeps what it commits."""
    with ExitStack() as running:
        yield started(running, Redis())


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """The programs of the page, each in its file."""
    for text in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        name = text.split("\n", 1)[0].removeprefix("# ")
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def run(redis: Redis, folder: Path, *command: str) -> str:
    """Run Python on what the page shows."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{folder}", "REDIS_ADDRESS": redis.url()}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_the_page_builds_a_target_in_eighty_lines(shown: Path) -> None:
    """As it promises; blank lines apart."""
    lines = [line for line in (shown / "redis_target.py").read_text(encoding="utf-8").splitlines() if line.strip()]

    assert len(lines) <= 80


def test_the_program_of_the_page_has_each_outcome_once(redis: Redis, shown: Path) -> None:
    """Its process dies behind the commit of Redis."""
    run(redis, shown, "shop.py")


def test_the_target_of_the_page_passes_the_contract(redis: Redis, shown: Path) -> None:
    """On a real server, as a user runs it."""
    said = run(redis, shown, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=120", "test_redis_target.py")

    assert re.search(r"\d+ passed, 1 skipped", said), said
