"""What a driver reads and keeps open: files of checkpoints, and connections."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cues_kafka import ConfigError, Kafka
from cues_kafka.on_spark import connections as places
from cues_kafka.on_spark.query.files import delete, lengths, names, read_text, size, write_bytes


def session(scheme: str) -> Any:
    """One whose paths are on a file system of this kind; there is nothing on it."""

    def place(path: str) -> Any:
        uri = SimpleNamespace(getScheme=lambda: scheme, getPath=lambda: path)
        qualified = SimpleNamespace(toUri=lambda: uri)
        system = SimpleNamespace(makeQualified=lambda _: qualified, exists=lambda _: False)
        return SimpleNamespace(getFileSystem=lambda _: system)

    jvm = SimpleNamespace(**{"org.apache.hadoop.fs.Path": place})
    return SimpleNamespace(_jvm=jvm, _jsc=SimpleNamespace(hadoopConfiguration=lambda: None))


def test_a_path_of_another_file_system_is_not_looked_for_on_the_local_disk(tmp_path: Path) -> None:
    """A file of the same name may be there, of another query or of a time before."""
    file = tmp_path / "metadata"
    file.write_text("local")
    assert read_text(session("file"), str(file)) == "local"
    assert read_text(SimpleNamespace(), f"file:{file}") == "local"
    with pytest.raises(FileNotFoundError):
        read_text(session("hdfs"), str(file))


def test_files_on_this_machine_are_written_listed_measured_and_deleted(tmp_path: Path) -> None:
    """Without a question to Java; what is not there is nothing, and a file is not written twice."""
    stage, here = f"{tmp_path}/stage", session("file")
    assert (names(here, stage), lengths(here, stage), size(here, stage)) == ([], {}, 0)
    write_bytes(here, f"{stage}/7/rows", b"abc")
    write_bytes(here, f"{stage}/loose", memoryview(b"ab"))
    assert (names(here, stage), lengths(here, f"{stage}/7"), size(here, stage)) == (["7", "loose"], {"rows": 3}, 5)
    with pytest.raises(ConfigError, match=r"stage/loose cannot be written: File exists\. Make room"):
        write_bytes(here, f"{stage}/loose", b"")
    for gone in ("7", "loose", "loose"):
        delete(here, f"{stage}/{gone}")
    assert names(here, stage) == []


def test_a_process_keeps_the_connections_of_a_number_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was not asked for the longest is closed; one that is asked for is the same as before."""
    closed: list[str] = []
    made = iter(range(100))

    def opened(_: Kafka) -> Any:
        name = f"broker {next(made)}"
        return SimpleNamespace(name=name, close=lambda: closed.append(name))

    monkeypatch.setattr(places, "open_broker", opened)
    monkeypatch.setattr(places, "_brokers", {})
    options = Kafka("localhost:9092")
    first = places.shared_broker(options, "run 0")
    for run in range(places.MOST):
        places.shared_broker(options, f"run {run}")
        assert places.shared_broker(options, "run 0") is first
    places.shared_broker(options, "one more")
    assert closed == ["broker 1"]
