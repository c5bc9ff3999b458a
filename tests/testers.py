"""How the tests of a run are shared out among testers (processes of pytest-xdist), and what ends one that hangs."""

from __future__ import annotations

import faulthandler
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

ROOMS = ("tests/spark/test_staged", "tests/spark/")
"""Each of them stays with one tester: the first test of a Spark session costs it 30 s of processor time."""

SPARE_S = 120.0
"""What a test that has timed out has for its fixtures to clean up."""


class RoomScheduling(LoadFileScheduling):  # type: ignore[misc]
    """
    Where files are shared out: each of `ROOMS` counts as one file, and no test that ends its tester is begun again.

    As pytest-xdist has it (3.8.0), the next tester begins with the test that ended the last one: one that always does
    ends twelve testers, and then the run stands still.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((room for room in ROOMS if nodeid.startswith(room)), file)

    def remove_node(self, node: Any) -> str | None:
        """Take back what a tester has not done; return the test that it died of, if it did."""
        units: dict[str, dict[str, bool]] = self.assigned_work[node]
        for scope, unit in units.items():
            for nodeid, done in unit.items():
                if not done:
                    unit[nodeid] = True
                    if all(unit.values()):
                        del units[scope]
                    super().remove_node(node)
                    return nodeid
        super().remove_node(node)
        return None


def limit_s(item: pytest.Item) -> float:
    """What pytest-timeout gives a test; 0 is no limit."""
    mark, option = item.get_closest_marker("timeout"), item.config.getoption("timeout")
    return float(mark.args[0] if mark else item.config.getini("timeout") or 0 if option is None else option)


def end_after(seconds: float, stderr: int) -> None:
    """End this process then, and print what its threads do, also where one of them holds Python's lock."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=stderr)
