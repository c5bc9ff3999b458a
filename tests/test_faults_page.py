"""The catalogue of faults in docs/faults.md: each row names tests that exist, or says why it has no test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "faults.md"
ROWS = re.findall(r"^\| fault-([TOGDB]\d+) \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
COUNTS = {"T": 17, "O": 10, "G": 10, "D": 8, "B": 10}


def lacking(tests: str) -> list[str]:
    """Files and tests of a cell that are not there."""
    found = []
    for file, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", tests):
        path = ROOT / file
        if not path.exists() or (test and f"\ndef {test}(" not in path.read_text(encoding="utf-8")):
            found.append(f"{file}::{test}")
    return found


def test_every_fault_of_the_catalogue_has_a_row() -> None:
    """In order, without a gap."""
    assert [number for number, _, _ in ROWS] == [
        f"{kind}{n}" for kind, count in COUNTS.items() for n in range(1, count + 1)
    ]


@pytest.mark.parametrize(("number", "tests"), [(number, tests) for number, _, tests in ROWS])
def test_a_fault_has_a_test_or_a_reason(number: str, tests: str) -> None:
    """A renamed test must be renamed there, too."""
    assert lacking(tests) == []
    assert "`tests/" in tests or re.match(r"Not tested here\. \w.{20,}", tests), number


def test_a_test_that_is_not_there_is_found() -> None:
    """The checker itself is checked."""
    assert lacking("`tests/test_faults_page.py::lacking`, `tests/gone.py`, `tests/test_faults_page.py::gone`") == [
        "tests/gone.py::",
        "tests/test_faults_page.py::gone",
    ]
