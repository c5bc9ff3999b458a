"""How tests are shared out among testers, what ends a run that hangs, and which longer tests `make test-ci` runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.families import FAMILIES, mark
from tests.testers import HEAVY, ROOMS, HeavyScheduling

CONFTEST = """
from tests.testers import HeavyScheduling

def pytest_xdist_make_scheduler(config, log):
    return HeavyScheduling(config, log)
"""

DIES = """
import os

def test_passes():
    pass

def test_ends_its_process():
    os._exit(1)

def test_comes_behind():
    pass
"""


def test_a_test_that_always_ends_its_process_is_begun_once(tmp_path: Path) -> None:
    """As pytest-xdist's own scheduler has it, new processes begin with that test, until the run stands still."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_dies.py").write_text(DIES)
    (tmp_path / "test_other.py").write_text("def test_passes():\n    pass\n")
    run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile", "--rootdir", "."]
    path = {"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": ""}
    found = subprocess.run(run, cwd=tmp_path, env=path, capture_output=True, text=True, timeout=60, check=False)
    assert "1 failed, 3 passed" in found.stdout, found.stdout + found.stderr


class Worker:
    """A tester of pytest-xdist, as its scheduler sees it: which tests it was given, and whether it may end."""

    def __init__(self, name: str, tests: list[str]) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.given: list[str] = []
        self.done = 0
        self._tests = tests

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.given += [self._tests[number] for number in numbers]

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def begins(self) -> bool:
        """Whether it can begin with a test: it must know the one behind it, or that none is."""
        return self.done < len(self.given) - (not self.shutting_down)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs tests on three testers, which do one test each in turn; what each was given."""

    def shared(tests: list[str]) -> list[list[str]]:
        testers = [Worker(f"gw{number}", tests) for number in range(3)]
        monkeypatch.setattr("xdist.scheduler.loadscope.parse_tx_spec_config", lambda _: testers)
        options: Any = SimpleNamespace(option=SimpleNamespace(loadscopereorder=False))
        scheduling = HeavyScheduling(options)
        for one in testers:
            scheduling.add_node(one)
            scheduling.add_node_collection(one, tests)
        scheduling.schedule()
        while begun := [one for one in testers if one.begins]:
            for one in begun:
                number = tests.index(one.given[one.done])
                one.done += 1
                scheduling.mark_test_complete(one, number)
        assert [one.done for one in testers] == [len(one.given) for one in testers], "a tester waits"
        assert all(one.shutting_down for one in testers)
        return [one.given for one in testers]

    return shared


def of_file(name: str, count: int = 3) -> list[str]:
    return [f"{name}.py::test_{number}" for number in range(count)]


def files(tests: list[str]) -> list[str]:
    return [*dict.fromkeys(test.partition("::")[0] for test in tests)]


def test_third_tester_runs_no_heavy_file_while_the_others_run_them(run: Any) -> None:
    """It takes the light ones, all of them if need be."""
    heavy = [test for n in range(8) for test in of_file(f"{HEAVY[-1]}test_{n}")]
    light = [test for n in range(4) for test in of_file(f"tests/unit/test_{n}")]
    first, second, third = run([*heavy, *light])

    assert files(third) == files(light)
    assert files(first) + files(second) != []
    assert sorted(first + second) == sorted(heavy)


def test_testers_that_have_no_heavy_file_left_take_light_ones(run: Any) -> None:
    """So that all three end at the same time, but for a test."""
    given = run(
        [*of_file(f"{HEAVY[-1]}test_0"), *(test for n in range(9) for test in of_file(f"tests/unit/test_{n}", 1))]
    )

    assert [len(tests) for tests in given] == [4, 4, 4]


@pytest.mark.parametrize("heavy", [1, 2, 5])
def test_run_of_heavy_files_alone_ends_with_two_testers(run: Any, heavy: int) -> None:
    """The third one ends at once."""
    given = run([test for n in range(heavy) for test in of_file(f"{HEAVY[-1]}test_{n}")])

    assert sum(map(len, given)) == heavy * 3
    assert sum(tests != [] for tests in given) == min(heavy, 2)


def test_files_of_a_room_stay_together(run: Any) -> None:
    """The Spark session of all its tests is started once."""
    spark = [test for n in range(3) for test in of_file(f"{ROOMS[0]}test_{n}", 1)]
    others = [test for n in range(2) for test in of_file(f"tests/unit/test_{n}", 2)]
    first, second, third = run([*spark, *others])

    assert first == spark
    assert sorted([*second, *third]) == others


class Case:
    """A test as it was collected."""

    def __init__(self, nodeid: str, *marks: str) -> None:
        self.nodeid, self.marks = nodeid, set(marks)

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, name: str) -> None:
        self.marks.add(name)


FILE, CASE = next(iter(FAMILIES.items()))
NAME = f"tests/{FILE}::{CASE}"


def test_listed_case_alone_of_its_family_is_marked() -> None:
    """Also where only this test was asked for."""
    items: Any = [Case(NAME, "full"), Case(f"{NAME}-other", "full")]

    mark(items, whole=True)
    mark([items[0]], whole=False)
    mark([items[1]], whole=False)

    assert [item.marks for item in items] == [{"full", "family"}, {"full"}]


@pytest.mark.parametrize(
    "item",
    [Case(f"tests/{FILE}::test_renamed", "full"), Case(NAME), Case(NAME, "full", "slow")],
    ids=["renamed", "quick", "slow"],
)
def test_case_that_is_gone_or_that_is_no_longer_test_ends_the_run(item: Any) -> None:
    """Else a family would go untested without a word."""
    with pytest.raises(pytest.UsageError, match=r"names test_.*, which is no test marked `full`"):
        mark([item], whole=True)
