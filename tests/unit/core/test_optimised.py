"""The rules of the core and of tasks hold under `python -O`, which drops assertions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.full
@pytest.mark.timeout(600)
def test_units_of_core_and_tasks_pass_without_assertions() -> None:
    """Where an assertion stood for a rule, one of them would fail; pytest keeps the assertions of the tests."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    ignored = ["-W", "ignore::pytest.PytestConfigWarning"]
    folders = ["tests/unit/core", "tests/unit/task"]
    done = subprocess.run(
        [sys.executable, "-O", "-B", "-m", "pytest", *options, *ignored, "-m", "not full and not slow", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
