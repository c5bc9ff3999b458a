"""What the first start of a local broker makes for all later ones, and what it does where time runs out."""

from __future__ import annotations

from pathlib import Path

import pytest

from cues_kafka.brokers.local import prepare as module
from cues_kafka.brokers.local.jars import Jars, Say
from cues_kafka.brokers.local.java import Java
from cues_kafka.brokers.local.prepare import ARCHIVE, archive_options, node_directory, prepare
from cues_kafka.errors import BrokerError

JAVA = """#!/bin/sh
for word; do case "$word" in
  -XX:SharedArchiveFile=*) archive="${word#*=}" ;;
  *.properties) file="$word" ;;
esac; done
case "$*" in
  *StorageTool*) FORMAT; mkdir -p "$(sed -n 's/^log.dirs=//p' "$file")" ;;
  *-Xshare:dump*) DUMP ;;
esac
"""
MAKES, MAKES_NONE, HANGS = 'echo classes > "$archive"', "echo not here", "exec sleep 100"


class Machine:
    """A cache, and a `java` whose commands do what they are given."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.said: list[str] = []
        self.say: Say = self.said.append

    def prepare(self, *, dump: str, formatting: str = ":") -> Path:
        """Prepare with this `java`: it is one file, so it is one Java."""
        program = self._directory / "java"
        program.write_text(JAVA.replace("FORMAT", formatting).replace("DUMP", dump))
        program.chmod(0o755)
        environment = {"CUES_KAFKA_CACHE": str(self._directory / "cache")}
        return prepare(Java(program, "17", 17, "test"), Jars(()), environment, say=self.say)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """An empty cache."""
    return Machine(tmp_path)


def test_second_start_uses_the_archive_of_the_first(machine: Machine) -> None:
    """Both get one directory, with formatted nodes; only the first one makes it."""
    first = machine.prepare(dump=MAKES)
    again = machine.prepare(dump=HANGS, formatting=HANGS)

    assert again == first
    assert all(node_directory(first, node).is_dir() for node in (1, 2, 3))
    assert archive_options(first) == [f"-XX:SharedArchiveFile={first / ARCHIVE}"]
    assert machine.said == ["preparing the local broker (once per Java version)"]


def test_java_that_makes_no_archive_is_asked_once(machine: Machine) -> None:
    """The broker starts without one."""
    first = machine.prepare(dump=MAKES_NONE)
    again = machine.prepare(dump=MAKES)

    assert again == first
    assert archive_options(again) == []


def test_archive_for_which_time_ran_out_is_made_by_a_later_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is too busy once does not have slow starts for good."""
    with monkeypatch.context() as busy:
        busy.setattr(module, "DUMP_S", 0.2)
        first = machine.prepare(dump=HANGS)
    assert archive_options(first) == []
    assert machine.said[1:] == [
        "the broker's class archive was not made in time; the next start tries again, and this one is slower"
    ]

    again = machine.prepare(dump=MAKES, formatting=HANGS)

    assert again == first
    assert archive_options(again) == [f"-XX:SharedArchiveFile={first / ARCHIVE}"]
    assert [path.name for path in first.parent.iterdir() if path.is_dir()] == [first.name]


def test_formatting_that_takes_too_long_is_said_and_done_by_the_next_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing half made is left."""
    with monkeypatch.context() as busy:
        busy.setattr(module, "FORMAT_S", 0.2)
        with pytest.raises(BrokerError, match=r"did not format .* within 0\.2 s\. Start again"):
            machine.prepare(dump=MAKES, formatting=HANGS)

    assert node_directory(machine.prepare(dump=MAKES), 1).is_dir()


def test_preparing_tells_that_it_goes_on(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake Java formats until a line was said."""
    monkeypatch.setattr("cues_kafka.brokers.local.progress.EVERY_S", 0.02)
    go = tmp_path / "go"

    def say(line: str) -> None:
        machine.said.append(line)
        if line.startswith("still"):
            go.touch()

    monkeypatch.setattr(machine, "say", say)

    machine.prepare(dump=MAKES, formatting=f"until [ -e {go} ]; do sleep 0.02; done")

    assert machine.said[:2] == [
        "preparing the local broker (once per Java version)",
        "still preparing the local broker: 0 s",
    ]
