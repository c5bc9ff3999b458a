"""A Spark session leaves nothing in the temporary directory, and the next one removes what a killed driver left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.archive import jvm_options

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

DRIVER = """
import os, signal, sys
import psutil
from cues_kafka.on_spark.session import opened_session

with opened_session("local[2]", name="leftovers") as session:
    session.range(1000).repartition(3).cache().count()
    if sys.argv[1] == "kill":
        for process in psutil.Process().children(recursive=True):  # a JVM that is left alone would clean up
            process.kill()
        os.kill(os.getpid(), signal.SIGKILL)
"""


def run_driver(ending: str, temporary: Path) -> int:
    """Run a job that shuffles and caches, in a session of its own, and return how the driver ended."""
    # Other tests' options name the directory of the run, which would win.
    env = os.environ | {"TMPDIR": str(temporary), "SPARK_SUBMIT_OPTS": jvm_options()}
    command = [sys.executable, "-c", DRIVER, ending]
    return subprocess.run(command, env=env, capture_output=True, check=False, timeout=240).returncode


def test_a_session_that_is_closed_leaves_the_temporary_directory_empty(tmp_path: Path) -> None:
    """Shuffle files, blocks, artifacts and native libraries are all in the session's own directory."""
    assert (run_driver("close", tmp_path), list(tmp_path.iterdir())) == (0, [])


def test_the_next_session_removes_the_files_of_a_killed_driver(tmp_path: Path) -> None:
    """SIGKILL of the driver and its JVM leaves the session's directory, and nothing beside it."""
    assert run_driver("kill", tmp_path) == -9
    [left] = tmp_path.iterdir()
    assert left.name.startswith("cues-kafka-spark-")
    assert {file.name.partition("-")[0] for file in left.iterdir()} >= {"artifacts", "blockmgr", "spark"}

    assert (run_driver("close", tmp_path), list(tmp_path.iterdir())) == (0, [])
