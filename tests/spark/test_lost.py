"""A program whose JVM is killed, as the kernel does for its memory: what it hears, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cues_kafka.testing.fixtures import KafkaFixture
from tests.test_docs import ROOT

pytestmark = [pytest.mark.full, pytest.mark.fault, pytest.mark.timeout(400)]


def test_program_that_waits_hears_that_the_jvm_has_ended(kafka: KafkaFixture, tmp_path: Path) -> None:
    """By `wait_idle`, with what to look at and to do; the program ends with 1."""
    command = [sys.executable, "-m", "tests.spark.lost_program", kafka.unique("lost"), kafka.bootstrap, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=380)

    assert done.returncode == 1, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "cues_kafka.errors.TaskStopped: the worker of 'same' failed: SparkLost: Spark's JVM has ended"
    )
    assert "Start any other program again: it goes on at the newest records." in last
