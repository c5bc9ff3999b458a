"""Fixtures of all tests: those that are shipped to users; and the order in which files are begun."""

from __future__ import annotations

import atexit
import os
import tempfile
from importlib.metadata import entry_points

import pytest

# Each test of Spark starts a JVM for a minute: compiling it well takes longer than it saves.
# Spark leaves files in the temporary directory, above all where a test kills it.
_FILES = tempfile.TemporaryDirectory(prefix="cues-kafka-tests-", ignore_cleanup_errors=True)
atexit.register(_FILES.cleanup)
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    f"-Djava.io.tmpdir={_FILES.name} -XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
)

# Where the package is installed, pytest has the plugin by its entry point; from a bare checkout it is named here.
if not any(entry.value == "cues_kafka.testing.fixtures" for entry in entry_points(group="pytest11")):
    pytest_plugins = ["cues_kafka.testing.fixtures"]

LONGEST = ("tests/spark", "tests/test_demo.py", "tests/test_docs.py", "tests/proof")
"""What takes minutes begins first, so that no worker waits for another one's last file."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """See `LONGEST`."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
