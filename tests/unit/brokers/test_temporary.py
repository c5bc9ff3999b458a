"""Temporary directories: the end of their owner removes them, or after a kill the next start."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cues_kafka import ConfigError
from cues_kafka.brokers.temporary import has_owner, locked_directory, temporary_directory

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


def test_a_directory_of_the_user_is_kept(tmp_path: Path) -> None:
    """Although its name begins in the same way and no process holds a lock on it."""
    mine = tmp_path / "spark-backup"
    mine.mkdir()
    (mine / "precious.txt").write_text("mine")

    _, lock = locked_directory("spark-", tmp_path)
    os.close(lock)

    assert (mine / "precious.txt").read_text() == "mine"


def test_a_place_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS answers so for a directory. Nothing is left behind."""

    def flock(*_: object) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(fcntl, "flock", flock)

    with pytest.raises(ConfigError, match="TMPDIR"):
        locked_directory("spark-", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_that_exits_leaves_the_directory_to_its_parent(tmp_path: Path) -> None:
    """`sys.exit` in the child unwinds the parent's `with`, too."""
    code = (
        "import os, sys\n"
        "from cues_kafka.brokers.temporary import temporary_directory\n"
        "with temporary_directory('spark-') as directory:\n"
        "    if not (child := os.fork()):\n"
        "        sys.exit()\n"
        "    os.waitpid(child, 0)\n"
        "    print(directory.exists())\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, check=True
    )
    assert found.stdout == b"True\n"
    assert list(tmp_path.iterdir()) == []
