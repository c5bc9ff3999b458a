"""Fixtures of all tests: those that are shipped to users."""

from __future__ import annotations

from importlib.metadata import entry_points

# Where the package is installed, pytest has the plugin by its entry point; from a bare checkout it is named here.
if not any(entry.value == "cues_kafka.testing.fixtures" for entry in entry_points(group="pytest11")):
    pytest_plugins = ["cues_kafka.testing.fixtures"]
