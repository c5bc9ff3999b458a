"""Temporary directories: the end of their owner removes them, or after a kill the next start."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cues_kafka.brokers.temporary import has_owner, temporary_directory

OWNER = """
import sys
from cues_kafka.brokers.temporary import temporary_directory
with temporary_directory("spark-") as directory:
    (directory / "blockmgr-1").mkdir()
    print(directory, flush=True)
    sys.stdin.read()
"""


def test_the_directory_of_a_killed_process_is_removed_and_that_of_a_live_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next start; and each process removes its own at its end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command, env = [sys.executable, "-c", OWNER], {**os.environ, "TMPDIR": str(tmp_path)}
    owners = [
        subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    try:
        killed, alive = owners
        left, kept = (Path(str(owner.stdout and owner.stdout.readline()).strip()) for owner in owners)
        killed.kill()
        killed.wait()
        assert (left / "blockmgr-1").exists()

        with temporary_directory("spark-") as own:
            assert [has_owner(path) for path in (left, kept, own)] == [False, True, True]
            assert set(tmp_path.iterdir()) == {kept, own}

        alive.communicate("")
        assert list(tmp_path.iterdir()) == []
    finally:
        for owner in owners:
            owner.kill()
            owner.communicate()
