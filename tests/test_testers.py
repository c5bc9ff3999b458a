"""A run of tests goes on behind a test that ends its process, and ends itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFTEST = """
from tests.testers import RoomScheduling

def pytest_xdist_make_scheduler(config, log):
    return RoomScheduling(config, log)
"""

DIES = """
import os

def test_passes():
    pass

def test_ends_its_process():
    os._exit(1)

def test_comes_behind():
    pass
"""


def test_a_test_that_always_ends_its_process_is_begun_once(tmp_path: Path) -> None:
    """As pytest-xdist's own scheduler has it, new processes begin with that test, until the run stands still."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_dies.py").write_text(DIES)
    (tmp_path / "test_other.py").write_text("def test_passes():\n    pass\n")
    run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile", "--rootdir", "."]
    path = {"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": ""}
    found = subprocess.run(run, cwd=tmp_path, env=path, capture_output=True, text=True, timeout=60, check=False)
    assert "1 failed, 3 passed" in found.stdout, found.stdout + found.stderr
