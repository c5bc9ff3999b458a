"""What a driver reads and keeps open: files of checkpoints, and connections."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cues_kafka import Kafka
from cues_kafka.runtime.spark import places
from cues_kafka.runtime.spark.files import read_text


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
