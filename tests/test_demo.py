"""The demo, small: real data, real kills, and both opinions equal."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.flights import independent
from examples.flights.independent import Difference

ROOT = Path(__file__).parents[1]


@pytest.mark.timeout(240)
def test_the_flights_of_the_first_weeks_pass_two_kills_exactly_once() -> None:
    """On a broker of its own, because the graph's names are fixed."""
    command = [sys.executable, "-m", "examples.flights", "--limit", "20000", "--kills", "2", "--seed", "1"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=220, check=False)

    assert result.returncode == 0, result.stdout + result.stderr
    assert "every flight exactly once" in result.stdout
    assert re.search(r"kills +2 by SIGKILL", result.stdout)
    assert result.stdout.count("20,000") >= 3, "the tasks' count, the tables' count, and the head line"


STREAMS = {"N1": [b'{"a":1}', b'{"a":2}'], "N2": [b'{"a":3}']}


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        (STREAMS, (0, 0, 0)),
        ({"N1": [b'{"a": 1}', b'{"a": 2}'], "N2": [b'{"a":3}']}, (0, 0, 0)),
        ({"N1": [b'{"a":1}'], "N2": [b'{"a":3}']}, (1, 0, 0)),
        ({"N1": [b'{"a":1}', b'{"a":2}', b'{"a":2}'], "N2": [b'{"a":3}']}, (0, 1, 0)),
        ({"N1": [b'{"a":2}', b'{"a":1}'], "N2": [b'{"a":3}']}, (0, 0, 1)),
        ({"N1": [b'{"a":1}', b'{"a":9}'], "N2": [b'{"a":3}']}, (1, 1, 0)),
        ({"N1": [b'{"a":1}', b'{"a":2}']}, (1, 0, 0)),
        ({**STREAMS, "N3": [b'{"a":4}']}, (0, 1, 0)),
    ],
)
def test_the_comparison_finds_each_kind_of_defect(
    found: dict[str, list[bytes]], difference: tuple[int, int, int]
) -> None:
    """Equal, written otherwise, lost, doubled, swapped, changed, a stream missing, a stream too many."""
    got = independent.compare(STREAMS, found)

    assert (got.lost, got.added, got.reordered) == difference
    assert bool(got) is any(difference)


def test_the_other_opinion_imports_nothing_of_ours() -> None:
    """Else it would not be another one."""
    program = "import sys, examples.flights.independent; print([m for m in sys.modules if m.startswith('cues_kafka')])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)

    assert result.stdout.strip() == "[]"
    assert Difference() == Difference(0, 0, 0)
