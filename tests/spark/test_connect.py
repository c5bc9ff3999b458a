"""With Spark Connect: the client has no JVM, and what is called for a micro-batch runs on the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import committed_all, outcomes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]


def test_graphs_and_frames_run_exactly_once_through_a_server(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Status comes from the records, why a task stopped through the query's exception, refusals from `explain`."""
    name = kafka.unique("connect")
    command = [sys.executable, "-m", "tests.spark.connect_program", kafka.bootstrap, name, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=360, check=False)
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)

    assert done.returncode == 0, done.stderr[-4_000:]
    assert said["plain"] == str([2 * n for n in range(40)])
    assert said["status"] == "40"
    assert "no double" in said["stopped"]
    assert "double/" in said["stopped"]
    assert said["refused"].startswith("staged writing (shuffles, aggregations, state, files) needs Spark's Java")
    assert said["rows"] == "True None"
    [source, copied] = committed_all(kafka.bootstrap, [f"{name}.in", f"{name}.copy"]).values()
    assert {place[1:]: count for place, count in outcomes(copied).items()} == {
        (message.partition(), message.offset()): 1 for message in source if (message.offset() or 0) >= 5
    }
