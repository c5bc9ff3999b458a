"""The page about operating a graph is a session of commands: it is run as it stands, on a real broker."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cues_kafka.testing.fixtures import KafkaFixture

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
PROGRAM = [sys.executable, "-m", "cues_kafka.cli.main"]
PATIENCE_S = 60.0


def blocks(language: str) -> list[str]:
    """The fenced blocks of the page in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


class Session:
    """A terminal in which the commands of the page are typed, and the workers that one of them starts."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.program, self.fixed, self.renamed = blocks("python")
        self.directory = directory
        self.graph, self.log = directory / "desk.py", directory / "log"
        self.graph.write_text(self.program, encoding="utf-8")
        self.environment = os.environ | {"PYTHONPATH": str(ROOT), "CUES_KAFKA_BOOTSTRAP": bootstrap}
        self._workers: subprocess.Popen[bytes] | None = None

    @property
    def workers(self) -> subprocess.Popen[bytes]:
        """The supervisor, whose pid the page calls PID."""
        assert self._workers is not None
        return self._workers

    def type(self, line: str, expected: list[str]) -> None:
        """Do what one line says; `expected` is printed."""
        match shlex.split(line):
            case ["cues-kafka", "run", *arguments]:
                with self.log.open("wb") as out:
                    self._workers = subprocess.Popen(
                        [*PROGRAM, "run", *arguments], cwd=self.directory, env=self.environment, stdout=out, stderr=out
                    )
                self.logged("ready after", 2)
            case ["kill", "-HUP", "PID"]:
                self.workers.send_signal(signal.SIGHUP)
                self.logged("^replaced", 1)
            case ["kill", "-TERM", "PID"]:
                self.workers.send_signal(signal.SIGTERM)
                assert self.workers.wait(PATIENCE_S) == 0
            case ["cues-kafka", *arguments]:
                if "--records" in arguments:
                    self.fix()
                if arguments[0] == "rename":
                    self.rename()
                self.do(arguments, expected)
            case _:
                pytest.fail(f"the page shows {line!r}, which this test does not know")

    def fix(self) -> None:
        """Put the new function in the place of the former one."""
        function = self.fixed.split("\n", 1)[1] + "\n\n"
        self.graph.write_text(re.sub(r"def price.*?\n\n\n", function, self.program, flags=re.DOTALL), encoding="utf-8")

    def rename(self) -> None:
        """Declare the processor under its new name."""
        declared = self.renamed.split("\n", 1)[1].strip()
        program = self.graph.read_text(encoding="utf-8")
        self.graph.write_text(re.sub(r"Processor\(price, .*\)", declared, program), encoding="utf-8")

    def do(self, arguments: list[str], expected: list[str]) -> None:
        """Run a command; one that looks is repeated until what was sent has been delivered."""
        code = int(any("Add --yes" in line for line in expected))
        deadline = time.monotonic() + PATIENCE_S
        while True:
            done = subprocess.run(
                [*PROGRAM, *arguments],
                cwd=self.directory,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode == code and all(line.strip() in done.stdout for line in expected):
                return
            assert arguments[0] in ("verify", "status") or arguments[:2] == ["errors", "list"], done.stdout
            assert time.monotonic() < deadline, done.stdout

    def logged(self, pattern: str, times: int) -> None:
        """Wait until the workers have said something so often."""
        deadline = time.monotonic() + PATIENCE_S
        while len(re.findall(pattern, self.log.read_text(), re.MULTILINE)) < times:
            assert self.workers.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def close(self) -> None:
        """End the workers, wherever the session stands."""
        if self._workers is not None:
            self._workers.kill()
            self._workers.wait()
            print(self.log.read_text())


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_graph_is_operated_as_it_is_shown(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Every command of the page, in its order; each line under a command is part of what it prints."""
    session = Session(tmp_path, kafka.bootstrap)
    try:
        for block in blocks("console"):
            for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                line, *expected = command.splitlines()
                session.type(line, expected)
    finally:
        session.close()
