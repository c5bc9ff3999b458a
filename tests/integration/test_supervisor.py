"""The supervisor: dead workers come back, stopped ones do not, and none outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from cues_kafka.errors import ConfigError
from cues_kafka.runtime.native import supervisor as module
from cues_kafka.runtime.native.supervisor import KEEP_PLACE, Supervisor

ROOT = Path(__file__).parents[2]

WORKER = """
import signal, sys
name, log = sys.argv[1:]
def leave(number, frame):
    open(log, "a").write(f"{name} got {signal.Signals(number).name}\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGHUP, leave)
open(log, "a").write(f"{name} runs\\n")
while True:
    signal.pause()
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where workers write what happens to them."""
    return tmp_path / "log"


@pytest.fixture
def supervisor(log: Path) -> Iterator[Supervisor]:
    """Two workers that wait for signals."""
    with Supervisor(lambda k: [sys.executable, "-c", WORKER, f"w{k}", str(log)], workers=2) as running:
        wait_for(lambda: count(log, "runs") == 2)
        yield running


def wait_for(condition: Callable[[], object], timeout_s: float = 15.0) -> None:
    """Until it holds; what other processes do cannot be awaited otherwise."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def count(log: Path, word: str) -> int:
    """Lines of the log with this word."""
    return log.read_text().count(word) if log.exists() else 0


def test_a_killed_worker_comes_back_and_the_other_one_is_left_alone(supervisor: Supervisor, log: Path) -> None:
    """The same place, another process."""
    before = supervisor.pids

    assert supervisor.signal(1, signal.SIGKILL) == before[1]
    wait_for(lambda: count(log, "w1 runs") == 2)

    assert supervisor.restarts == {1: 1, 2: 0}
    assert supervisor.pids[1] != before[1]
    assert supervisor.pids[2] == before[2]


def test_a_worker_that_dies_again_and_again_waits_longer_each_time(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.1 s, doubling, up to the limit."""
    monkeypatch.setattr(module, "MAX_BACKOFF_S", 0.4)
    starts: list[float] = []

    def command(k: int) -> list[str]:
        starts.append(time.monotonic())
        return [sys.executable, "-I", "-S", "-c", "raise SystemExit(1)"]

    with Supervisor(command, workers=1):
        wait_for(lambda: len(starts) >= 6)

    gaps = [after - before for before, after in pairwise(starts)]
    assert [gap >= least for gap, least in zip(gaps, (0.1, 0.2, 0.4, 0.4, 0.4), strict=False)] == [True] * 5


def test_a_worker_that_lived_long_enough_comes_back_at_once_again() -> None:
    """Its back-off begins anew."""
    starts: list[float] = []

    def command(k: int) -> list[str]:
        starts.append(time.monotonic())
        return [sys.executable, "-I", "-S", "-c", "raise SystemExit(1)"]

    with Supervisor(command, workers=1, healthy_after_s=0.0):
        wait_for(lambda: len(starts) >= 8, timeout_s=10.0)  # doubling, it would take 12.7 s


def test_stopping_asks_every_worker_to_leave(supervisor: Supervisor, log: Path) -> None:
    """SIGTERM, and none comes back."""
    pids = supervisor.pids.values()

    supervisor.stop()

    assert count(log, "got SIGTERM") == 2
    assert count(log, "runs") == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_worker_that_does_not_leave_in_time_is_killed() -> None:
    """After the stated time."""
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    with Supervisor(lambda k: [sys.executable, "-c", program], workers=1, output=subprocess.DEVNULL) as running:
        [pid] = running.pids.values()
        time.sleep(0.5)
        began = time.monotonic()
        running.stop(timeout_s=0.5)

    assert time.monotonic() - began < 5.0
    assert not psutil.pid_exists(pid)


def test_a_restart_keeps_the_place_and_comes_back_without_back_off(supervisor: Supervisor, log: Path) -> None:
    """The worker is told by another signal than for leaving."""
    supervisor.restart(2)
    wait_for(lambda: count(log, "w2 runs") == 2)

    assert count(log, f"w2 got {KEEP_PLACE.name}") == 1


@pytest.mark.parametrize("code", [2, 3])
def test_a_worker_that_no_restart_helps_is_not_restarted(code: int) -> None:
    """The supervisor says with which code it gave up."""
    with Supervisor(lambda k: [sys.executable, "-I", "-S", "-c", f"raise SystemExit({code})"], workers=1) as running:
        assert running.wait(10.0) == code

    assert running.restarts == {1: 0}


def test_a_program_that_is_not_there_is_given_up() -> None:
    """Nobody waits for ever."""
    with Supervisor(lambda k: ["/nowhere/at-all"], workers=2) as running:
        assert running.wait(10.0) == 2


def test_no_workers_are_refused() -> None:
    """At construction."""
    with pytest.raises(ConfigError, match="from 1 on"):
        Supervisor(lambda k: [], workers=0)


def test_workers_die_with_their_supervisor_even_when_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL cleans nothing up, so the kernel does."""
    worker = "import sys; from cues_kafka.runtime.native.supervisor import die_with; die_with(int(sys.argv[1]))"
    worker += "; print(flush=True); import signal; signal.pause()"
    program = dedent(
        f"""
        import os, sys, time
        from cues_kafka.runtime.native.supervisor import Supervisor
        command = lambda k: [sys.executable, "-c", {worker!r}, str(os.getpid())]
        with Supervisor(command, workers=2, output=open({str(tmp_path / "out")!r}, "wb")) as running:
            print(*running.pids.values(), flush=True)
            time.sleep(60)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout
    pids = [int(pid) for pid in process.stdout.readline().split()]
    wait_for(lambda: (tmp_path / "out").read_bytes().count(b"\n") == 2)

    process.kill()
    process.wait()

    wait_for(lambda: not any(alive(pid) for pid in pids))


def test_a_worker_whose_supervisor_died_before_it_could_ask_ends_at_once() -> None:
    """Its parent is somebody else by then."""
    program = f"from cues_kafka.runtime.native.supervisor import die_with; die_with({os.getpid()} + 1)"

    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == -signal.SIGKILL


def alive(pid: int) -> bool:
    """Whether it runs; a zombie whose new parent has not looked yet does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
