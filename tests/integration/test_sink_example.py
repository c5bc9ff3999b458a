"""The example of sinks without a function, as it stands, on a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cues_kafka.testing.fixtures import KafkaFixture

ROOT = Path(__file__).parents[2]


def test_the_example_of_sinks_writes_both_tables(kafka: KafkaFixture, tmp_path: Path) -> None:
    """All reports in one, the newest of the flight that has not landed in the other."""
    text = (ROOT / "examples" / "latest.py").read_text(encoding="utf-8")
    program = tmp_path / "latest.py"
    program.write_text(
        text.replace('"radar', f'"{kafka.unique("radar")}').replace("localhost:9092", kafka.bootstrap), encoding="utf-8"
    )

    done = subprocess.run(
        [sys.executable, program],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["(3,)", "[('UA1', 1, 1500)]"]
