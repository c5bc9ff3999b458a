"""Which Java Spark gets, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cues_kafka.errors import ConfigError
from cues_kafka.on_spark import java
from tests.unit.brokers.local.test_java import fake_java

BOOKWORM = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n'


def release(tmp_path: Path, text: str) -> Path:
    """An os-release file."""
    file = tmp_path / "os-release"
    file.write_text(text)
    return file


def test_a_java_home_that_is_too_old_gives_way_to_the_path(tmp_path: Path) -> None:
    """Spark's scripts would not look any further."""
    fake_java(tmp_path / "a", 'openjdk version "11.0.2"')
    program = fake_java(tmp_path / "b", 'openjdk version "17.0.15" 2025-04-15')

    found = java.find_java({"JAVA_HOME": str(tmp_path / "a"), "PATH": f"{tmp_path}/b/bin"})

    assert (program, 17, "PATH") == (found.program, found.major, found.origin)


def test_without_a_java_every_place_and_one_command_are_named(tmp_path: Path) -> None:
    """The package that runs the local broker is no answer: Spark does not start on it."""
    fake_java(tmp_path / "a", 'openjdk version "11.0.2"')

    with pytest.raises(ConfigError) as caught:
        java.find_java({"JAVA_HOME": str(tmp_path / "a"), "PATH": "/nowhere"}, os_release=release(tmp_path, BOOKWORM))

    text = str(caught.value)
    assert "needs Java 17 or later" in text
    assert f"JAVA_HOME: {tmp_path}/a/bin/java is Java 11" in text
    assert "PATH: nothing there" in text
    assert "`apt-get install -y openjdk-17-jre-headless`" in text


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (BOOKWORM, "apt-get install -y openjdk-17-jre-headless"),
        ('ID=debian\nVERSION_ID="13"\n', "apt-get install -y openjdk-21-jre-headless"),
        ("ID=debian\n", "apt-get install -y openjdk-21-jre-headless"),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n', "apt-get install -y openjdk-17-jre-headless"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install -y java-21-openjdk-headless"),
        ("ID=alpine\n", "apk add openjdk17-jre-headless"),
        ("ID=plan9\n", ""),
    ],
)
def test_the_command_is_that_of_the_system(tmp_path: Path, text: str, command: str) -> None:
    """Whatever is not known gets a sentence, and no command that cannot work."""
    file = release(tmp_path, text)

    assert java.install_command(file) == command
    assert (command or "Install a Java runtime of version 17 or later") in java.remedy(file)


def test_a_system_without_a_name_gets_a_sentence(tmp_path: Path) -> None:
    """No os-release at all."""
    assert java.install_command(tmp_path / "nothing") == ""


def test_set_up_programs_can_ask(tmp_path: Path) -> None:
    """Exit code and text, with what is installed here and with nothing."""
    command = [sys.executable, "-m", "cues_kafka.on_spark.java"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    missing = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": str(tmp_path)})

    assert (found.returncode, missing.returncode) == (0, 1)
    assert "Java" in found.stdout
    assert "needs Java 17" in missing.stderr
