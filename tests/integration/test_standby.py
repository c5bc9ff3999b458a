"""The standby of a supervisor: it takes the place of a dead worker, and nothing else depends on it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from cues_kafka.errors import ConfigError
from cues_kafka.task.heart import READY
from cues_kafka.workers import standby as module
from cues_kafka.workers.standby import GO
from cues_kafka.workers.supervisor import Supervisor
from tests.integration.test_supervisor import ROOT, alive, count, wait_for

WORKER = f"""
import os, signal, subprocess, sys
asked = {{signal.SIGTERM, signal.SIGHUP}}
signal.pthread_sigmask(signal.SIG_BLOCK, asked)
log, version = sys.argv[1:]
def say(text):
    with open(log, "a") as file:
        file.write(f"{{os.getpid()}} {{text}}\\n")
say(f"starts with {{open(version).read()}}")
if {GO!r} in os.environ:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, asked)
    if not os.read(int(os.environ[{GO!r}]), 1):
        sys.exit("the supervisor is gone")
    signal.pthread_sigmask(signal.SIG_BLOCK, asked)
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"])
say(f"works with {{child.pid}}")
os.write(int(os.environ[{READY!r}]), b"x")
signal.sigwait(asked)
child.kill()
"""
"""Says when it starts, and works at once, or as a standby when it is told; its work has a process of its own."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """What the processes say."""
    return tmp_path / "log"


@pytest.fixture
def version(tmp_path: Path) -> Path:
    """The code of the worker."""
    file = tmp_path / "version"
    file.write_text("old code")
    return file


@pytest.fixture
def supervisor(log: Path, version: Path) -> Iterator[Supervisor]:
    """A worker that works, and its standby."""
    with Supervisor(
        lambda _: [sys.executable, "-I", "-S", "-c", WORKER, str(log), str(version)], workers=1, standby_after_s=0.0
    ) as running:
        wait_for(lambda: count(log, "starts") == 2 and count(log, "works") == 1)
        yield running


def pids(log: Path, word: str) -> list[int]:
    """The processes that said so, in order."""
    return [int(line.partition(" ")[0]) for line in log.read_text().splitlines() if word in line]


def test_standby_takes_the_place_of_a_killed_worker_and_gets_a_standby_itself(
    supervisor: Supervisor, log: Path
) -> None:
    """The same process that stood by; what the dead worker has left of its group is killed before."""
    worker, standby = pids(log, "starts")
    [child] = [int(found) for found in re.findall("works with ([0-9]+)", log.read_text())]

    assert supervisor.signal(1, signal.SIGKILL) == worker
    wait_for(lambda: supervisor.pids == {1: standby} and count(log, "works") == 2 and count(log, "starts") == 3)

    assert pids(log, "works") == [worker, standby]
    assert supervisor.restarts == {1: 1}
    wait_for(lambda: not alive(child))
    assert psutil.pid_exists(pids(log, "starts")[-1])


def test_standby_that_is_killed_is_replaced_and_the_worker_is_left_alone(
    supervisor: Supervisor, log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a back-off, which doubles."""
    worker, standby = pids(log, "starts")
    for dead in range(1, 3):
        os.kill(standby, signal.SIGKILL)
        wait_for(lambda n=dead: count(log, "starts") == 2 + n)  # type: ignore[misc]
        standby = pids(log, "starts")[-1]

    assert supervisor.pids == {1: worker}
    assert supervisor.restarts == {1: 0}
    assert re.findall("cause=SIGKILL again_in_s=([0-9.]+)", caplog.text.replace("'", "")) == ["0.02", "0.04"]

    supervisor.signal(1, signal.SIGKILL)
    wait_for(lambda: supervisor.pids == {1: standby})


def test_worker_comes_back_without_a_standby_where_that_died_too(supervisor: Supervisor, log: Path) -> None:
    """As it does without the option."""
    worker, standby = pids(log, "starts")
    os.kill(standby, signal.SIGSTOP)  # so that it is dead, and not seen, when its place is due
    os.kill(standby, signal.SIGKILL)
    supervisor.signal(1, signal.SIGKILL)
    wait_for(lambda: count(log, "works") == 2)

    assert pids(log, "works")[-1] not in (worker, standby)


def test_stop_ends_the_standby_with_the_worker(supervisor: Supervisor, log: Path) -> None:
    """No process is left, and none is killed for it."""
    both = pids(log, "starts")

    supervisor.stop(timeout_s=30.0)

    assert not any(psutil.pid_exists(pid) for pid in both)
    assert count(log, "starts") == 2


def test_new_code_does_not_meet_a_standby_with_old_code(supervisor: Supervisor, log: Path, version: Path) -> None:
    """SIGHUP replaces the worker in order; the standby is thrown away, and the next one has the new code."""
    worker, standby = pids(log, "starts")
    version.write_text("new code")

    assert supervisor.roll(ready_s=30.0)
    wait_for(lambda: count(log, "starts with new code") >= 2)

    assert pids(log, "works")[-1] in pids(log, "starts with new code")
    wait_for(lambda: not alive(standby))
    assert not alive(worker)

    newest = pids(log, "starts")[-1]
    supervisor.signal(1, signal.SIGKILL)
    wait_for(lambda: supervisor.pids == {1: newest})


def test_standby_that_does_not_end_is_killed(log: Path, version: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the worker has no other standby until then."""
    monkeypatch.setattr(module, "END_S", 0.2)
    deaf = WORKER.replace("signal.SIG_UNBLOCK, asked", "signal.SIG_BLOCK, asked")
    with Supervisor(
        lambda _: [sys.executable, "-I", "-S", "-c", deaf, str(log), str(version)], workers=1, standby_after_s=0.0
    ) as running:
        wait_for(lambda: count(log, "starts") == 2)
        standby = pids(log, "starts")[-1]
        assert running.roll(ready_s=30.0)
        wait_for(lambda: not alive(standby))
        running.stop(timeout_s=0.2)


def test_standby_dies_with_a_supervisor_that_is_killed(tmp_path: Path, log: Path, version: Path) -> None:
    """As a worker does."""
    bound = "from cues_kafka.workers.die_with import die_with; import os; die_with(os.getppid())\n"
    program = dedent(
        f"""
        import sys, time
        from cues_kafka.workers.supervisor import Supervisor
        command = [sys.executable, "-c", {bound + WORKER!r}, {str(log)!r}, {str(version)!r}]
        with Supervisor(lambda _: command, workers=1, standby_after_s=0.0) as running:
            time.sleep(60)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    wait_for(lambda: count(log, "starts") == 2 and count(log, "works") == 1)
    both = pids(log, "starts")
    [child] = [int(found) for found in re.findall("works with ([0-9]+)", log.read_text())]

    process.kill()
    process.wait()

    wait_for(lambda: not any(map(alive, both)))
    os.kill(child, signal.SIGKILL)  # a real worker's child sees the end of a pipe


def test_standby_for_several_workers_is_refused() -> None:
    """It stands by for one."""
    with pytest.raises(ConfigError, match="leave one of them out"):
        Supervisor(lambda _: [], workers=2, standby_after_s=0.0)
