"""The class archive of the tests' JVMs, where none is made; and the modules of Spark's Python processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.spark import archive

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("late", "left"), [(True, False), (False, True)])
def test_only_a_java_that_makes_no_archive_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool, left: bool
) -> None:
    """One that had too little time is: an empty file says that it cannot."""
    monkeypatch.setattr(archive, "ARCHIVE", tmp_path / "spark.jsa")

    def run(command: list[str], **options: Any) -> None:
        if late:
            raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", run)

    archive.main()

    assert archive.ARCHIVE.exists() == left
    assert archive.jvm_options() == archive.QUICK


def test_environment_can_name_the_file_of_another_java(tmp_path: Path) -> None:
    """As the matrix does for each Java."""
    code = "from tests.spark.archive import ARCHIVE; print(ARCHIVE)"
    env = {**os.environ, "CUES_KAFKA_TEST_ARCHIVE": str(tmp_path / "own.jsa")}
    found = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, check=True)

    assert found.stdout.strip() == str(tmp_path / "own.jsa")


def test_modules_of_sparks_python_processes_are_compiled_once(tmp_path: Path) -> None:
    """Beside their sources, in a file of its own: a linked one is that of other environments too."""
    path, linked = tmp_path / "some.zip", tmp_path / "linked.zip"
    with ZipFile(path, "w") as made:
        made.writestr("some/__init__.py", "from some.more import NAME")
        made.writestr("some/more.py", "NAME = __spec__.cached or __file__")
        made.writestr("some/tests/test_more.py", "print('')")
    linked.hardlink_to(path)

    archive.with_compiled(path)
    again = path.stat()
    archive.with_compiled(path)

    assert path.stat() == again
    assert len(ZipFile(linked).namelist()) == 3
    sources, compiled = {*ZipFile(linked).namelist()}, {"some/__init__.pyc", "some/more.pyc"}
    assert {*ZipFile(path).namelist()} == sources | compiled
    code = "import some; print(some.NAME)"
    found = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(path)}, capture_output=True, check=True)
    assert found.stdout.decode().strip() == str(path / "some" / "more.pyc")
    assert [one.name for one in tmp_path.iterdir() if one not in (path, linked)] == []
