"""The example of sensors, small: a worker is killed, the MQTT broker stops, and everything is there once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.bridge
@pytest.mark.timeout(240)
def test_readings_and_alarms_come_once_over_stops(tmp_path: Path) -> None:
    """The demo compares all, and leaves no file."""
    options = ("--readings", "1000", "--kills", "2", "--seed", "1")
    done = subprocess.run(
        [sys.executable, "-m", "examples.sensors", *options],
        capture_output=True, text=True, cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, timeout=220, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "every reading and every alarm exactly once" in done.stdout
    assert [done.stdout.count(f": {victim}") for victim in ("worker", "the MQTT broker")] == [1, 1]
    assert list(tmp_path.iterdir()) == []
