"""How the tests of a run are shared out among testers (processes of pytest-xdist), and what ends one that hangs."""

from __future__ import annotations

import faulthandler
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

ROOMS = ("tests/spark/", "tests/servers/test_amqp")
"""
What begins with the same of them stays with one tester.

The first test of a Spark session costs it 11 s of processor time and more, and each start of Artemis starts a JVM.
"""

HEAVY = (
    *ROOMS,
    "tests/test_demo.py",
    "tests/fault/test_three_nodes.py",
    "tests/integration/test_secure.py",
    "tests/registries/",
)
"""Files whose tests start JVMs beside the broker of all tests: of Spark, or of several brokers at once."""

HEAVY_TESTERS = 2
"""How many testers may run them: with three side by side, brokers did not answer in ten seconds."""

SPARE_S = 120.0
"""What a test that has timed out has for its fixtures to clean up."""


class HeavyScheduling(LoadFileScheduling):  # type: ignore[misc]
    """
    Where files are shared out: each of `ROOMS` counts as one file, `HEAVY_TESTERS` testers take the heavy ones, and no
    test that ends its tester is begun again.

    As pytest-xdist has it (3.8.0), the next tester begins with the test that ended the last one: one that always does
    ends twelve testers, and then the run stands still.
    """

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._heavy: set[Any] = set()
        """Testers that have had a heavy file, also those that have ended."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((room for room in ROOMS if nodeid.startswith(room)), file)

    def _assign_work_unit(self, node: Any) -> None:
        """Give a tester the first file that it may have; it ends where all files that are left are heavy."""
        may = node in self._heavy or len(self._heavy & self.assigned_work.keys()) < HEAVY_TESTERS
        scope = next((one for one in self.workqueue if may or not one.startswith(HEAVY)), None)
        if scope is None:
            node.shutdown()
            return
        if scope.startswith(HEAVY):
            self._heavy.add(node)
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        """Give a tester its next file as late as it can take it: with one test left, so that no other one waits."""
        if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)

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
