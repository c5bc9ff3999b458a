"""A run of the tests leaves nothing in the temporary directory, and the next run removes what a killed one left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from tests.integration.test_local_broker import eventually

ROOT = Path(__file__).parents[2]
LOCAL_BROKER = "tests/integration/test_local_broker.py"


def start(*arguments: str, temporary: Path) -> subprocess.Popen[str]:
    """Start pytest as a run of its own, not as a worker of this one."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        cwd=ROOT,
        env=env | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_run_with_a_broker_leaves_the_temporary_directory_empty(tmp_path: Path) -> None:
    """The broker's files, pytest's own, and those of the commands that tests start."""
    run = start(f"{LOCAL_BROKER}::test_a_taken_port_is_named", temporary=tmp_path)
    output, _ = run.communicate(timeout=100)

    assert (run.returncode, list(tmp_path.iterdir())) == (0, []), output


def test_the_next_run_removes_the_files_of_a_killed_one(tmp_path: Path) -> None:
    """SIGKILL while its broker runs: the guard removes the broker's files, the next run all others."""
    killed = start(f"{LOCAL_BROKER}::test_a_taken_port_is_named", temporary=tmp_path)
    try:
        assert eventually(lambda: bool(list(tmp_path.rglob("broker.log"))), timeout_s=60)
    finally:
        below = psutil.Process(killed.pid).children(recursive=True)
        killed.kill()
        killed.communicate()
    gone, alive = psutil.wait_procs(below, timeout=15)
    assert gone
    assert not alive
    assert list(tmp_path.iterdir()), "it was killed before it could clean up"

    following = start("--collect-only", "tests/test_layers.py", temporary=tmp_path)
    output, _ = following.communicate(timeout=100)

    assert (following.returncode, list(tmp_path.iterdir())) == (0, []), output
