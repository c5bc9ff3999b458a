"""The guard of a detached broker starts children again that have ended; here they are programs that sleep."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cues_kafka.brokers.local import guard as module
from tests.fault.support import until

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


class Asked:
    """A guard and its answers."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-I", module.__file__, str(directory), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a command, and wait for its answer."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def start(self, name: str) -> int:
        """Start a child; returns its pid."""
        at = str(self.directory)
        return int(self.ask("start", name=name, argv=SLEEP, log=f"{at}/{name}.log", cwd=at)["pid"])

    def looked(self) -> dict[str, Any]:
        """Have it look for children that have ended; returns what it writes."""
        file = self.directory / module.PIDS
        before = file.read_text("utf-8") if file.exists() else ""
        self.process.send_signal(signal.SIGHUP)
        until(lambda: file.exists() and file.read_text("utf-8") != before, "the guard has looked", timeout_s=10)
        found: dict[str, Any] = json.loads(file.read_text("utf-8"))
        return found


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    """A guard; its end ends its children."""
    guard = Asked(tmp_path / "broker")
    yield guard
    guard.process.terminate()
    guard.process.wait(10)
    for pipe in (guard.process.stdin, guard.process.stdout):
        if pipe:
            pipe.close()


def test_detached_guard_starts_a_child_again_that_was_killed(asked: Asked) -> None:
    """The others go on; and again, if it is killed again."""
    first, other = asked.start("1"), asked.start("2")
    asked.ask("detach")
    assert asked.looked() == {"looks": 1, "pids": {"1": first, "2": other}}

    for looks in (2, 3):
        os.kill(first, signal.SIGKILL)
        until(lambda: psutil.Process(first).status() == psutil.STATUS_ZOMBIE, "it has ended", timeout_s=10)  # noqa: B023
        found = asked.looked()
        assert (found["looks"], found["pids"]["2"]) == (looks, other)
        assert found["pids"]["1"] != first
        first = found["pids"]["1"]
        assert psutil.Process(first).status() != psutil.STATUS_ZOMBIE


def test_guard_of_a_program_starts_nothing_again(asked: Asked) -> None:
    """Tests kill nodes on purpose; a hang-up of the terminal does not end the guard either."""
    pid = asked.start("1")
    asked.process.send_signal(signal.SIGHUP)
    asked.ask("signal", name="1", number=signal.SIGKILL)
    assert asked.ask("wait", name="1", timeout_s=10) == {"exit": -signal.SIGKILL}
    asked.process.send_signal(signal.SIGHUP)
    assert asked.ask("wait", name="1", timeout_s=0) == {"exit": -signal.SIGKILL}

    assert not psutil.pid_exists(pid)
    assert not (asked.directory / module.PIDS).exists()


BUSY = """
import hashlib, threading
data = bytes(1 << 20)
def busy():
    while True:
        hashlib.sha256(data)  # without Python's lock
for _ in range(4):
    threading.Thread(target=busy).start()
"""


def test_a_child_that_is_stopped_stands_still_when_the_guard_answers(asked: Asked) -> None:
    """Threads on other processors go on for a moment after SIGSTOP: a paused node answered a request."""
    at = str(asked.directory)
    pid = int(asked.ask("start", name="1", argv=[sys.executable, "-c", BUSY], log=f"{at}/1.log", cwd=at)["pid"])
    tasks = Path(f"/proc/{pid}/task")
    until(lambda: len([*tasks.iterdir()]) == 5, "its threads run", timeout_s=10)

    for _ in range(50):
        asked.ask("signal", name="1", number=int(signal.SIGSTOP))
        states = [(task / "stat").read_text().rpartition(") ")[2][0] for task in tasks.iterdir()]
        assert states == ["T"] * 5
        asked.ask("signal", name="1", number=int(signal.SIGSTOP))  # once more changes nothing
        asked.ask("signal", name="1", number=int(signal.SIGCONT))
