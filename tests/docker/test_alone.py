"""The tests with Docker leave nothing on the machine: `tests.docker.alone`, run inside itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.docker.alone import CGROUPS, PLACE, PREFIX
from tests.fault.support import until
from tests.servers.keeper import below
from tests.servers.packages import ServerError
from tests.test_docs import ROOT

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

PROGRAM = """
import sys
from tests.docker.engine import Engine
engine = Engine()
engine.start()
engine.docker("network", "create", "another")
print("ready", engine.place, flush=True)
sys.stdin.readline()
engine.stop()
"""
"""Starts an engine with a network of its own, and waits."""


def machine() -> dict[str, object]:
    """What an engine changes on its machine."""
    return {
        "network devices": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "forwarding": Path("/proc/sys/net/ipv4/ip_forward").read_text(),
        "rules": subprocess.run(["iptables-save"], capture_output=True, check=True).stdout.count(b"\n-"),
        "mounts": len(Path("/proc/self/mounts").read_text().splitlines()),
        "processes": len(below(1)),
        "places": sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")),
        "control groups": sorted(CGROUPS.glob(f"*/{PREFIX}*")),
        "files": sorted(str(path) for folder in ("/run", "/etc/docker") for path in Path(folder).glob("*")),
    }


def start() -> tuple[subprocess.Popen[str], Path]:
    """An engine in namespaces of its own, and its temporary directory."""
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.docker.alone", sys.executable, "-c", PROGRAM], cwd=ROOT, text=True,
        env={key: value for key, value in os.environ.items() if key != PLACE},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert program.stdout
    said = program.stdout.readline().split()
    if said[:1] != ["ready"]:
        program.kill()
        raise ServerError(f"the engine did not start: {said}")
    return program, Path(said[1])


def test_a_run_that_ends_leaves_nothing() -> None:
    """No process, mount, network device, rule, file or control group; and none is seen while it runs, but its own."""
    before = machine()
    program, place = start()
    during = machine()
    program.communicate("\n", timeout=60)

    assert program.returncode == 0
    assert not place.exists()
    assert machine() == before
    for unseen in ("network devices", "forwarding", "rules", "mounts", "files"):
        assert during[unseen] == before[unseen]


def test_the_next_run_removes_what_a_killed_one_left() -> None:
    """SIGKILL to the first process: all others die with it, only files and empty control groups stay."""
    before = machine()
    killed, left = start()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    until(lambda: machine()["processes"] == before["processes"], "all its processes are dead")
    after = machine()
    assert left.exists()
    program, place = start()

    assert not left.exists()
    assert place != left
    assert {key: value for key, value in after.items() if key not in ("places", "control groups")} == {
        key: value for key, value in before.items() if key not in ("places", "control groups")
    }
    program.communicate("\n", timeout=60)
    assert machine() == before


def test_the_exit_code_is_that_of_the_command() -> None:
    """So that `make` fails where a test fails."""
    command = [sys.executable, "-m", "tests.docker.alone", "sh", "-c"]

    assert subprocess.run([*command, "exit 7"], cwd=ROOT, check=False).returncode == 7
    assert subprocess.run([*command, "kill -TERM $$"], cwd=ROOT, check=False).returncode == 128 + signal.SIGTERM
