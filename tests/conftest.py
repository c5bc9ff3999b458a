"""Fixtures of all tests: those that are shipped to users."""

from __future__ import annotations

import os
from importlib.metadata import entry_points

# Each test of Spark starts a JVM for a minute: compiling it well takes longer than it saves.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Where the package is installed, pytest has the plugin by its entry point; from a bare checkout it is named here.
if not any(entry.value == "cues_kafka.testing.fixtures" for entry in entry_points(group="pytest11")):
    pytest_plugins = ["cues_kafka.testing.fixtures"]
