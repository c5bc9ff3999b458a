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


def test_file_that_is_removed_or_changed_behind_its_put_is_stored_as_it_was(tmp_path: Path) -> None:
    """A thread read it later: a removed one stopped the task, and a changed one did not fit its committed size."""
    given = tmp_path / "given"

    def store(number: int, files: Any) -> str:
        given.write_bytes(b"one")
        url = str(files.put(f"{number}", given))
        if number == 0:
            given.unlink()
        else:
            given.write_bytes(b"one more")
        return url

    address = f"file://{tmp_path / 'store'}"
    processor = Processor(store, inputs="numbers", outputs="stored", effects={"files": Blobs(address)})
    tester = Tester(Graph("g", Source("numbers"), processor, errors="errors", defaults=Topic(partitions=1)))
    tester.send_many("numbers", list(range(40)))
    tester.run()

    assert tester.errors() == []
    assert [Path(url.removeprefix("file://")).read_bytes() for url in tester.values("stored")] == [b"one"] * 40


def test_file_that_cannot_be_read_is_an_error_of_its_message(tmp_path: Path) -> None:
    """It was taken for a store that is away."""

    def store(number: int, files: Any) -> str:
        return str(files.put("memory", Path("/proc/self/mem") if number == 1 else b"x"))

    processor = Processor(store, inputs="numbers", outputs="stored", effects={"files": Blobs(f"file://{tmp_path}")})
    tester = Tester(Graph("g", Source("numbers"), processor, errors="errors", defaults=Topic(partitions=1)))
    tester.send_many("numbers", [0, 1, 2])
    tester.run()

    assert len(tester.values("stored")) == 2
    assert ["cannot be read" in one.text for one in tester.errors()] == [True]
