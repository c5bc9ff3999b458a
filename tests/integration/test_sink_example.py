"""Examples of sinks without a function, and of effects that must never repeat, as they stand, on a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cues_kafka.testing.fixtures import KafkaFixture

ROOT = Path(__file__).parents[2]


def lines(kafka: KafkaFixture, directory: Path, name: str) -> list[str]:
    """What an example prints; its graph and topics get names of their own."""
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    program, graph = directory / f"{name}.py", {"latest": "radar", "archive": "archive", "texts": "texts"}[name]
    text = text.replace(f'"{graph}', f'"{kafka.unique(graph)}').replace("localhost:9092", kafka.bootstrap)
    program.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_example_of_sinks_writes_both_tables(kafka: KafkaFixture, tmp_path: Path) -> None:
    """All reports in one, the newest of the flight that has not landed in the other."""
    assert lines(kafka, tmp_path, "latest") == ["(3,)", "[('UA1', 1, 1500)]"]


def test_the_example_of_files_archives_and_renders_each_flight(kafka: KafkaFixture, tmp_path: Path) -> None:
    """A row of a Parquet file and an object for each."""
    assert lines(kafka, tmp_path, "archive") == ["2 rows", "2 boarding passes"]


def test_the_example_of_text_messages_sends_each_once(kafka: KafkaFixture, tmp_path: Path) -> None:
    """At-most-once; a number that the gateway refuses is an error message."""
    words = "your order is on its way"
    assert lines(kafka, tmp_path, "texts") == [f"+49-1: {words}", f"+49-2: {words}", "0 dropped"]
