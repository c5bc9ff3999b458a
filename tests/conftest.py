"""Fixtures of all tests: those that are shipped to users; and the order in which files are begun."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from cues_kafka.brokers.temporary import locked_directory


def _own_temporary_directory() -> None:
    """Give the whole run one temporary directory, and remove it at the end; the next run removes it after a kill."""
    owner = os.getpid()
    directory, _ = locked_directory("cues-kafka-pytest-", Path(tempfile.gettempdir()))
    os.environ["TMPDIR"] = tempfile.tempdir = str(directory)

    @atexit.register
    def remove() -> None:
        if os.getpid() == owner:  # not in a forked child
            shutil.rmtree(directory, ignore_errors=True)


if "PYTEST_XDIST_WORKER" not in os.environ:  # the workers of a run use the directory that started them
    _own_temporary_directory()

# Each test of Spark starts a JVM for a minute: compiling it well takes longer than it saves.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    f"-Djava.io.tmpdir={tempfile.gettempdir()} -XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:-UsePerfData")

# Where the package is installed, pytest has the plugin by its entry point; from a bare checkout it is named here.
if not any(entry.value == "cues_kafka.testing.fixtures" for entry in entry_points(group="pytest11")):
    pytest_plugins = ["cues_kafka.testing.fixtures"]

LONGEST = ("tests/spark", "tests/test_demo.py", "tests/test_docs.py", "tests/proof")
"""What takes minutes begins first, so that no worker waits for another one's last file."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """See `LONGEST`."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
