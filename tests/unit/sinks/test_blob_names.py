"""What no store takes is an error of its message, and no outage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cues_kafka import Blobs, Graph, Processor, Source, Topic
from cues_kafka.testing.tester import Tester


def test_names_and_files_that_no_store_takes_are_errors_of_their_messages(tmp_path: Path) -> None:
    """The messages behind them have their files."""
    given: list[tuple[str, Any]] = [
        ("a" * 300, b"x"),
        ("a/" * 400 + "x", b"x"),
        ("\ud800", b"x"),
        ("directory", tmp_path),
        ("missing", tmp_path / "missing"),
        ("good", b"x"),
    ]

    def store(number: int, files: Any) -> str:
        return str(files.put(*given[number]))

    effects = {"files": Blobs(f"file://{tmp_path / 'store'}")}
    processor = Processor(store, inputs="numbers", outputs="stored", effects=effects)
    tester = Tester(Graph("g", Source("numbers"), processor, errors="errors", defaults=Topic(partitions=1)))
    tester.send_many("numbers", list(range(len(given))))
    tester.run()

    assert len(tester.errors()) == 5
    assert [value.rpartition("/")[2] for value in tester.values("stored")] == ["good"]
