"""What the project says it runs on, and what was recorded of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).parents[2]

RAN = ROOT / "tests" / "matrix" / "ran.json"
"""The newest result of each Python and Java, as `python -m tests.matrix --write` has seen it."""

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
JAVAS: Final = ("17", "21")


def recorded() -> dict[str, dict[str, Any]]:
    """What is in the file; empty before the first run."""
    found: dict[str, dict[str, Any]] = json.loads(RAN.read_text(encoding="utf-8")) if RAN.exists() else {}
    return found


WHAT: Final = {"python": "unit tests and contract", "java": "tests of Spark"}
"""What each of them runs."""


def table() -> str:
    """The results as rows of docs/install.md."""
    rows = [
        f"| {kind.title()} {found['version']} | {WHAT[kind]} | {found['passed']:,} passed, {found['failed']} failed, "
        f"{found['skipped']} skipped |"
        for kind in ("python", "java")
        for _, found in sorted(recorded().get(kind, {}).items())
    ]
    return "| with | ran | result |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
