"""Examples that need one broker and nothing else run in memory, as they stand, and print what they are about."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
MOST_LINES = 59

PRINTED = {
    "broadcast": [f"prices.{region} [Price(article='nut', cents=120)]" for region in ("eu", "us", "asia")],
    "regions": [
        "eu.billed {'id': 'a1', 'gross': 119}",
        "us.billed {'id': 'b1', 'gross': 107}",
        "bill-eu, bill-us, audit",
    ],
    "traces": [
        "take the order <- nothing",
        "process traces.orders <- take the order",
        "process traces.priced <- process traces.orders",
        "2 for 5.00",
        "3 for 7.50",
    ],
}
"""By example, the lines that it prints."""


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_is_about(name: str, tmp_path: Path) -> None:
    """On the memory broker, in a process of its own."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    program = tmp_path / f"{name}.py"
    program.write_text(text.replace('Kafka("localhost:9092")', "Memory()").replace(" Kafka,", " Memory,"))

    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.splitlines() == PRINTED[name]


def test_an_example_has_one_idea_and_fewer_than_sixty_lines() -> None:
    """Each of them, its docstring included."""
    lines = {path.stem: len(path.read_text(encoding="utf-8").splitlines()) for path in EXAMPLES.glob("*.py")}

    assert len(lines) > 20
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
