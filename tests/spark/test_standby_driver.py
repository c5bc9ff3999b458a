"""``cues-kafka run --engine spark --standby`` as a program, on a real broker: drivers, standbys and supervisors die."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from cues_kafka.cli.loading import load_graph
from cues_kafka.testing.fixtures import KafkaFixture
from tests.integration.test_run_command import arrived, running, send
from tests.integration.test_supervisor import wait_for
from tests.spark.archive import jvm_options
from tests.spark.test_run_command import SPARK, START_S, WORK_S, alive, family, is_spark

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


@pytest.fixture
def target(kafka: KafkaFixture, tmp_path: Path) -> str:
    """One processor."""
    name = kafka.unique("standby")
    file = tmp_path / f"graph_{name.replace('-', '_')}.py"
    file.write_text(
        dedent(
            f"""
            from cues_kafka import Graph, Json, Processor, Source, Topic

            def double(number: int) -> int:
                return 2 * number

            graph = Graph("{name}", Source("{name}.in"), Processor(double, inputs="{name}.in", outputs="{name}.out"),
                          defaults=Topic(value=Json(int), partitions=2))
            """
        )
    )
    return f"{file}:graph"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory of the program."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", jvm_options())  # what it has else names a directory for the tests
    return directory


def started(log: Path, what: str) -> list[int]:
    """Process ids of the drivers or standbys that were started, in order."""
    return [int(pid) for pid in re.findall(rf"{what} started (?:worker=1 )?pid=(\d+)", log.read_text())]


def await_standby(log: Path, number: int) -> int:
    """Wait until this number of standbys have become ready; the newest one."""
    wait_for(lambda: log.read_text().count("standby ready") >= number, timeout_s=START_S)
    return started(log, "standby")[-1]


def jvm_below(pid: int) -> psutil.Process:
    """Spark's JVM of a driver or standby."""
    [found] = [one for one in psutil.Process(pid).children(recursive=True) if is_spark(one)]
    return found


def test_standby_takes_over_from_killed_drivers_and_no_message_is_lost_or_doubled(
    kafka: KafkaFixture, target: str, tmp_path: Path, temporary: Path
) -> None:
    """A standby whose JVM is killed is replaced, and the driver goes on; SIGTERM leaves no process and no file."""
    graph, log = load_graph(target), tmp_path / "log"
    with running(kafka, log, target, *SPARK, "--checkpoint", str(tmp_path / "checkpoint"), "--standby") as process:
        standby = await_standby(log, 1)
        send(kafka, graph, *range(10))
        wait_for(lambda: len(arrived(kafka, graph)) >= 10, timeout_s=WORK_S)
        jvm_below(standby).kill()
        standby = await_standby(log, 2)
        assert started(log, "worker")[1:] == [], "the driver goes on"

        for kill in range(2):
            [driver] = [one for one in started(log, "worker") if psutil.pid_exists(one)]
            below = [psutil.Process(driver), *psutil.Process(driver).children(recursive=True)]
            os.kill(driver, signal.SIGKILL)  # its JVM is left to the command
            send(kafka, graph, *range(10 * (kill + 1), 10 * (kill + 2)))  # into the outage
            wait_for(lambda n=kill: len(arrived(kafka, graph)) >= 10 * (n + 2), timeout_s=WORK_S)  # type: ignore[misc]
            assert started(log, "worker")[-1] == standby
            wait_for(lambda gone=below: alive(gone) == [])  # type: ignore[misc]
            standby = await_standby(log, 3 + kill)

        below = family(process)
        assert sum(map(is_spark, below)) == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0

    assert alive(below) == []
    assert list(temporary.glob("*")) == []
    assert arrived(kafka, graph) == [2 * n for n in range(30)]
    assert log.read_text().splitlines()[-1] == f"stopped: {graph.name}: Spark's driver"


def test_supervisor_that_is_killed_leaves_neither_driver_nor_standby(
    kafka: KafkaFixture, target: str, tmp_path: Path, temporary: Path
) -> None:
    """Nor a JVM or a Python process of either."""
    log = tmp_path / "log"
    with running(kafka, log, target, *SPARK, "--checkpoint", str(tmp_path / "checkpoint"), "--standby") as process:
        await_standby(log, 1)
        below = family(process)
        assert sum(map(is_spark, below)) == 2
        process.kill()
        process.wait()

        wait_for(lambda: alive(below) == [], timeout_s=WORK_S)
