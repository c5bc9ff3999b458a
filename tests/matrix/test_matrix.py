"""The runner of the matrix: what it finds here, and how it counts."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.install.extras import PAGE, project
from tests.matrix.__main__ import counted, python_of
from tests.matrix.claims import PYTHONS, recorded, table

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


def test_the_page_has_the_newest_results() -> None:
    """`python -m tests.matrix --write` records them; put the table into the page when this fails."""
    assert f"\n{table()}\n" in PAGE.read_text(encoding="utf-8")


def test_the_versions_of_the_classifiers_are_those_of_the_matrix() -> None:
    """A result of another version is no longer one of ours."""
    classified = [one.rpartition(" ")[2] for one in project()["classifiers"] if "Python :: 3." in one]

    assert classified == [*PYTHONS]
    assert {*recorded()["python"]} <= {*PYTHONS}
