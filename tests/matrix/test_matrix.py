"""The runner of the matrix: what it finds here, and how it counts."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.install.extras import PAGE, project
from tests.matrix import __main__ as matrix
from tests.matrix import fetched
from tests.matrix.__main__ import counted, java_of, python_of
from tests.matrix.claims import PYTHONS, recorded, table
from tests.servers.packages import Release, ServerError

REPORT = """
<testsuites><testsuite tests="5" failures="1" errors="1" skipped="1">
<testcase classname="tests.unit.a" name="passes"/><testcase classname="tests.unit.a" name="passes_too"/>
<testcase classname="tests.unit.a" name="fails"><failure/></testcase>
<testcase classname="tests.unit.a" name="breaks"><error/></testcase>
<testcase classname="tests.unit.a" name="is_left_out"><skipped/></testcase>
</testsuite></testsuites>
"""


def test_a_report_is_counted() -> None:
    """A test whose fixture breaks has failed."""
    assert counted(ET.fromstring(REPORT)) == {
        "passed": 2,
        "failed": 2,
        "skipped": 1,
        "failures": ["tests.unit.a::fails", "tests.unit.a::breaks"],
    }


def test_a_python_is_found_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On PATH or where pyenv keeps it; a program of that name that is another version is left alone."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    there = tmp_path / "versions" / f"{version}.0" / "bin"
    there.mkdir(parents=True)
    (there / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    (tmp_path / f"python{version}").write_text("#!/bin/sh\necho another 2.7\n")
    (tmp_path / f"python{version}").chmod(0o755)

    assert python_of(version) == there / "python"
    assert python_of("3.99") is None


class Fetching:
    """A program that is fetched, or cannot be."""

    is_here = False
    release = Release("some")

    def __init__(self, program: Path | None) -> None:
        self.program, self.asked = program, 0

    def get(self) -> Path:
        """The program."""
        self.asked += 1
        if self.program is None:
            raise ServerError("the mirror does not answer")
        return self.program


def test_only_what_the_machine_lacks_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one line that says so."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = tmp_path / "versions" / f"{version}.0" / "bin" / "python"
    found.parent.mkdir(parents=True)
    fetching = Fetching(Path(sys.executable))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setitem(fetched.FETCHED, f"Python {version}", fetching)

    assert python_of(version) == Path(sys.executable)
    said = capsys.readouterr().out
    found.symlink_to(sys.executable)
    assert python_of(version) == found

    assert said == f"matrix: Python {version} is not on this machine; fetching it from Debian some\n"
    assert fetching.asked == 1


def test_java_that_is_fetched_is_found_by_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is its `bin/java`."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"99.0.1\" 2030-01-01' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setitem(fetched.FETCHED, "Java 99", Fetching(program))

    assert java_of("99") == tmp_path
    assert java_of("98") is None


def test_what_cannot_be_fetched_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The others run; where nothing ran, the matrix has failed."""
    monkeypatch.setattr(matrix, "PLACE", tmp_path)
    monkeypatch.setattr(matrix, "JAVAS", ("99",))
    monkeypatch.setattr(sys, "argv", ["matrix", "--java", "99"])
    monkeypatch.setitem(fetched.FETCHED, "Java 99", Fetching(None))

    assert matrix.main() == 1
    assert "matrix: Java 99 is not here, so it was left out: the mirror does not answer" in capsys.readouterr().out


def test_the_page_has_the_newest_results() -> None:
    """`python -m tests.matrix --write` records them; put the table into the page when this fails."""
    assert f"\n{table()}\n" in PAGE.read_text(encoding="utf-8")


def test_the_versions_of_the_classifiers_are_those_of_the_matrix() -> None:
    """A result of another version is no longer one of ours."""
    classified = [one.rpartition(" ")[2] for one in project()["classifiers"] if "Python :: 3." in one]

    assert classified == [*PYTHONS]
    assert {*recorded()["python"]} <= {*PYTHONS}
