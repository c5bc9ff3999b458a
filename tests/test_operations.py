"""The page about operating a graph is a session of commands: it is run as it stands, on a real broker."""

from __future__ import annotations

import ast
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cues_kafka.cli.main import app
from cues_kafka.testing.fixtures import KafkaFixture

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
PROGRAM = [sys.executable, "-m", "cues_kafka.cli.main"]
PATIENCE_S = 60.0

LOOKS = ("verify", "status", "tail", "errors list")
"""Commands that are repeated until they see what was done before."""

CODES = {"Add --yes": 1, " stopped since ": 1, "Remedy:": 1, "WRONG": 3}
"""Exit codes other than 0, by what the command prints then."""

NAMES = {"--workers": "PID", "blue": "BLUE", "green": "GREEN"}
"""What the page calls the pid of a `run`, by a word of its command."""


def blocks() -> Iterator[tuple[str, str]]:
    """The fenced blocks of the page that the session has, in its order: language and text."""
    return iter(re.findall(r"^```(python|console)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))


def prints(printed: str, expected: list[str]) -> bool:
    """Whether each of these lines is there, or a part of one; `...` stands for anything."""
    patterns = (".*".join(map(re.escape, line.strip().split("..."))) for line in expected)
    return all(re.search(pattern, printed) for pattern in patterns)


def exit_code(expected: list[str]) -> int:
    """What a command that prints these lines ends with."""
    return next((code for words, code in CODES.items() if any(words in line for line in expected)), 0)


class Session:
    """A terminal in which the commands of the page are typed, and the workers that some of them start."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.directory = directory
        self.environment = os.environ | {"PYTHONPATH": str(ROOT), "CUES_KAFKA_BOOTSTRAP": bootstrap}
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    def write(self, text: str) -> None:
        """Write a file that the page shows, or change the part of it that the page shows."""
        title, _, rest = text.partition("\n")
        name, _, change = title.removeprefix("# ").partition(", ")
        file = self.directory / name
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        file.write_text(changed(before, rest) if change and before else rest, encoding="utf-8")

    def type(self, line: str, expected: list[str]) -> None:
        """Do what one line says; `expected` is printed."""
        match shlex.split(line):
            case ["cues-kafka", "run", *arguments]:
                [name] = {name for word, name in NAMES.items() if word in arguments}
                with self.log(name).open("wb") as out:
                    self._workers[name] = subprocess.Popen(
                        [*PROGRAM, "run", *arguments], cwd=self.directory, env=self.environment, stdout=out, stderr=out
                    )
                self.logged(name, "ready after", 2 if "--workers" in arguments else 1)
            case ["kill", "-HUP", name]:
                before = len(re.findall("^replaced", self.log(name).read_text(), re.MULTILINE))
                self._workers[name].send_signal(signal.SIGHUP)
                self.logged(name, "^replaced", before + 1)
            case ["kill", "-TERM", name]:
                self._workers[name].send_signal(signal.SIGTERM)
                assert self._workers[name].wait(PATIENCE_S) == 0
            case ["python", program]:
                command = [sys.executable, program]
                printed = subprocess.check_output(command, cwd=self.directory, env=self.environment, text=True)
                assert prints(printed, expected), printed
            case ["cues-kafka", *arguments]:
                self.do(arguments, expected)
            case _:
                pytest.fail(f"the page shows {line!r}, which this test does not know")

    def do(self, arguments: list[str], expected: list[str]) -> None:
        """Run a command in this process, which is quicker; one that looks is repeated until it sees what is to come."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            done = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
            if done.exit_code == exit_code(expected) and prints(done.output, expected):
                return
            shown = f"{arguments} ended with {done.exit_code}, and printed\n{done.output}"
            assert " ".join(arguments).startswith(LOOKS), shown
            assert time.monotonic() < deadline, shown

    def log(self, name: str) -> Path:
        """What the workers print whose pid the page calls so."""
        return self.directory / f"{name}.log"

    def logged(self, name: str, pattern: str, times: int) -> None:
        """Wait until workers have said something so often."""
        deadline = time.monotonic() + PATIENCE_S
        while len(re.findall(pattern, self.log(name).read_text(), re.MULTILINE)) < times:
            assert self._workers[name].poll() is None, self.log(name).read_text()
            assert time.monotonic() < deadline, self.log(name).read_text()
            time.sleep(0.05)

    def close(self) -> None:
        """End the workers, wherever the session stands."""
        for name, workers in self._workers.items():
            workers.kill()
            workers.wait()
            print(name, self.log(name).read_text())


def changed(program: str, shown: str) -> str:
    """
    The program with functions and parts of its graph as they are shown.

    A function or processor that is there is replaced; what is new comes before the graph, or before its errors.
    """
    for statement in ast.parse(shown).body:
        text = ast.unparse(statement)
        if isinstance(statement, ast.FunctionDef):
            there = rf"^def {statement.name}\(.*?(?=^\S)"
            text, before = f"{text}\n\n\n", r"^graph = "
        else:
            [_, first] = re.findall(r"[\w.]+", text)[:2]
            there = rf"^    \w+\(\W?{re.escape(first)}\b.*?,\n"
            text, before = f"    {text},\n", r"^    errors="
        found = re.search(there, program, re.DOTALL | re.MULTILINE) or re.search(f"(?={before})", program, re.MULTILINE)
        assert found, f"there is no place for {text!r} in\n{program}"
        program = program[: found.start()] + text + program[found.end() :]
    return program


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_graph_is_operated_as_it_is_shown(
    kafka: KafkaFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command of the page, in its order; each line under a command is part of what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUES_KAFKA_BOOTSTRAP", kafka.bootstrap)
    monkeypatch.setattr(sys, "path", [*sys.path])
    session = Session(tmp_path, kafka.bootstrap)
    try:
        for language, block in blocks():
            if language == "python":
                session.write(block)
                continue
            for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                line, *expected = command.splitlines()
                session.type(line, expected)
    finally:
        session.close()
