"""A graph whose processor handles the errors of another one, on a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cues_kafka.testing.fixtures import KafkaFixture

ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_the_example_repairs_what_it_can_and_nothing_is_wrong(kafka: KafkaFixture, tmp_path: Path) -> None:
    """As its text says; then looked at by `verify`, which reads the errors topic as an output and as an input."""
    name = kafka.unique("repairs")
    text = (ROOT / "examples" / "repairs.py").read_text(encoding="utf-8")
    (tmp_path / "repairs.py").write_text(
        text.replace("localhost:9092", kafka.bootstrap).replace('"repairs', f'"{name}')
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUES_KAFKA_BOOTSTRAP": kafka.bootstrap}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
            timeout=100,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert run("repairs.py").splitlines() == [
        "{'id': 0, 'total': 10.0}",
        "{'id': 1, 'total': 12.5}",
        "order 2 cannot be billed: could not convert string to float: 'ten'",
    ]
    lines = run("-m", "cues_kafka.cli.main", "lineage", f"{name}.parked/0@0").splitlines()
    assert f"by {name}.repair/0" in lines[0]
    assert "error ValueError: order 2 cannot be billed" in lines[1]
    assert lines[2].startswith(f"   └─ input: {name}.orders/0@2  ")
    assert len(lines) == 3
    assert "nothing is wrong" in run("-m", "cues_kafka.cli.main", "verify", "repairs.py:graph")
