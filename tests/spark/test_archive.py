"""The class archive of the tests' JVMs, where none is made."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.spark import archive


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
