"""Examples that need one broker and nothing else run in memory, as they stand, and print what they are about."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES = 60

PRINTED = {
    "broadcast": [f"prices.{region} [Price(article='nut', cents=120)]" for region in ("eu", "us", "asia")],
    "regions": [
        "eu.billed {'id': 'a1', 'gross': 119}",
        "us.billed {'id': 'b1', 'gross': 107}",
        "bill-eu, bill-us, audit",
    ],
}
"""By example, the lines that it prints."""


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_is_about(name: str, tmp_path: Path) -> None:
    """On the memory broker, in a process of its own."""
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    program = tmp_path / f"{name}.py"
    program.write_text(text.replace('Kafka("localhost:9092")', "Memory()").replace(" Kafka,", " Memory,"))

    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.splitlines() == PRINTED[name]
    assert text.count("\n") < MOST_LINES
