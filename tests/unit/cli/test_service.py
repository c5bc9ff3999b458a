"""The unit of systemd that the docs show, and what a service tells systemd."""

from __future__ import annotations

import configparser
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import typer.main

from cues_kafka.cli.main import app
from cues_kafka.cli.notify import notify
from cues_kafka.cli.options import FAILED, WRONG

STOPS = """
import signal, sys, threading, time
from cues_kafka import Graph, Memory, Processor, Source, start
from cues_kafka.cli.watch import Signals, TaskWatch
from cues_kafka.workers.worker import ProcessorWorker

def hang(self):
    threading.Event().wait(60)

if sys.argv[1] == "hangs":
    ProcessorWorker.close = hang
graph = Graph("g", Source("in"), Processor(lambda value: value, inputs="in", outputs="out", name="f"))
with Signals() as signals:
    watch = TaskWatch(
        graph, start(graph, Memory()), fail_fast=False, succeeded=False, began=time.monotonic(), stop_timeout_s=1.0
    )
    threading.Timer(0.2, signal.raise_signal, [signal.SIGTERM]).start()
    sys.exit(watch.until(signals))
"""

PAGE = Path(__file__).parents[3] / "docs" / "run.md"


@pytest.fixture
def unit() -> str:
    """As the page shows it."""
    return PAGE.read_text(encoding="utf-8").split("```ini\n")[1].split("```")[0]


def test_the_unit_of_the_docs_is_one_that_systemd_takes(unit: str, tmp_path: Path) -> None:
    """Where systemd is; the fields are checked anywhere, and the command has these options."""
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit)
    service = dict(parser["Service"])
    program, command, *words = shlex.split(service["ExecStart"])

    assert (service["Type"], service["KillMode"], service["Restart"]) == ("notify", "mixed", "on-failure")
    assert service["RestartPreventExitStatus"] == f"{WRONG} {FAILED}"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert program.endswith("/cues-kafka")
    known = {one for p in typer.main.get_command(app).commands[command].params for one in p.opts}  # type: ignore[attr-defined]
    assert {word for word in words if word.startswith("--")} <= known
    assert int(service["TimeoutStopSec"]) > int(words[words.index("--stop-timeout") + 1])
    if (analyze := shutil.which("systemd-analyze")) is not None:
        file = tmp_path / "shop.service"
        file.write_text(unit.replace(program, sys.executable))
        found = subprocess.run([analyze, "verify", file], capture_output=True, text=True, check=False, timeout=30)
        assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_over_its_socket(abstract: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file or an abstract name; where it does not ask or does not listen, nothing happens."""
    directory = tempfile.mkdtemp()  # names of sockets are short
    name = f"@{directory}" if abstract else f"{directory}/notify"
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    assert not notify("READY=1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listens:
        listens.bind("\0" + name[1:] if abstract else name)
        listens.settimeout(5)

        assert notify("READY=1")
        assert listens.recv(100) == b"READY=1"
    shutil.rmtree(directory)


@pytest.mark.parametrize("how", ["hangs", "ends"])
def test_a_process_that_does_not_stop_in_time_writes_its_stacks_and_ends(how: str) -> None:
    """Without a supervisor that kills it; one that stops in time ends with 0."""
    found = subprocess.run(
        [sys.executable, "-c", STOPS, how], capture_output=True, text=True, check=False, timeout=30, cwd=PAGE.parents[1]
    )

    assert found.returncode == (1 if how == "hangs" else 0)
    assert (" in hang" in found.stderr) == (how == "hangs")
