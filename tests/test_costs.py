"""What is counted as the cost of a test: its process, the programs below it, and those that have lost their parent."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.costs import Meter

BURN = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint('burnt', flush=True)\nsys.stdin.read()\n"

CONFTEST = """
from tests.costs import Costs

def pytest_configure(config):
    config.pluginmanager.register(Costs(9, shares_out=False))
"""

TESTS = """
import time
import pytest

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass

@pytest.fixture(scope="module")
def shared():
    burn(0.3)

def test_first(shared):
    burn(0.1)

def test_second(shared):
    pass
"""


def test_program_counts_while_it_runs_and_once_it_has_ended() -> None:
    """Once, not twice."""
    meter = Meter()
    before = meter.below()
    with subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        running = meter.below() - before
    ended = meter.below() - before

    assert 0.25 < running <= ended < running + 0.2


def test_program_whose_parent_was_killed_counts_on() -> None:
    """As the JVM of a driver that a test kills."""
    meter = Meter()
    before = meter.below()
    code = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {BURN!r}]).wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        meter.below()
        parent.kill()
        parent.wait()
        orphaned = meter.below() - before
        assert parent.stdin is not None
        parent.stdin.close()
        parent.stdout.read()  # until the orphan has ended, which reads what its parent read
        gone = meter.below() - before

    assert 0.25 < orphaned <= gone < orphaned + 0.2


def test_what_is_set_up_for_several_tests_has_a_line_of_its_own(tmp_path: Path) -> None:
    """The first test that needs it does not pay for it."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_burning.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", ".", "-q"]
    path = {"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": ""}

    out = subprocess.run(command, cwd=tmp_path, env=path, capture_output=True, text=True, timeout=60, check=True).stdout

    costs = {line.split(maxsplit=4)[4]: float(line.split()[0]) for line in out.splitlines() if " 1  " in line}
    assert 0.25 < costs["fixture shared (module)"] < 0.5
    assert 0.05 < costs["test_burning.py::test_first"] < 0.25
    assert costs["test_burning.py::test_second"] < 0.1
    assert re.search(r"costliest files.* 2  test_burning\.py\n", out, re.DOTALL)
