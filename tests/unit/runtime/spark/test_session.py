"""What a command does around its Spark session: temporary files, and settings that the user did not give."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cues_kafka.runtime.spark.session import SHUFFLES, choose_shuffle_partitions, temporary_directory

OWNER = """
import sys
from cues_kafka.runtime.spark.session import temporary_directory
with temporary_directory() as directory:
    (directory / "blockmgr-1").mkdir()
    print(directory, flush=True)
    sys.stdin.read()
"""


def session(*, cores: int, given: bool = False) -> Any:
    """One with so many cores, whose user has set the number of shuffle partitions or not."""
    conf = SimpleNamespace(contains=lambda name: given and name == SHUFFLES)
    chosen: dict[str, str] = {}
    return SimpleNamespace(
        sparkContext=SimpleNamespace(getConf=lambda: conf, defaultParallelism=cores),
        conf=SimpleNamespace(set=chosen.__setitem__),
        chosen=chosen,
    )


@pytest.mark.parametrize(("cores", "slots", "number"), [(2, 4, "4"), (16, 4, "16"), (1000, 4, "200"), (8, 300, "300")])
def test_shuffle_partitions_are_as_many_as_slots_or_cores(cores: int, slots: int, number: str) -> None:
    """Each micro-batch pays for each of them, so 200 on two cores make a small batch ten times slower."""
    one = session(cores=cores)

    assert f"is {number};" in choose_shuffle_partitions(one, slots)
    assert one.chosen == {SHUFFLES: number}


def test_the_users_own_number_of_shuffle_partitions_is_kept() -> None:
    """In spark-defaults.conf, for example."""
    one = session(cores=2, given=True)

    assert choose_shuffle_partitions(one, 4) == ""
    assert one.chosen == {}


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

        with temporary_directory() as own:
            assert set(tmp_path.iterdir()) == {kept, own}

        alive.communicate("")
        assert list(tmp_path.iterdir()) == []
    finally:
        for owner in owners:
            owner.kill()
            owner.communicate()
