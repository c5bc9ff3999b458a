"""The contract of targets on a table of Delta Lake in a directory (E6)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Delta
from cues_kafka.sinks.delta import commit_turns
from cues_kafka.sinks.delta.declare import DeltaTarget
from cues_kafka.testing.targets import TargetContract
from tests.delta_reading import values


class TestDirectory(TargetContract):
    """A table in a directory."""

    most_lines = 10

    @pytest.fixture
    def target(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaTarget:
        monkeypatch.setattr(commit_turns, "HELD_S", 0.1)  # a thread that is killed here keeps its turn
        return Delta(f"file://{tmp_path}").table("numbers", columns={"number": "long"})

    def prepare(self, target: DeltaTarget) -> None:
        target.make(first=True)

    def write(self, into: Any, number: int) -> None:
        into.write({"number": number})

    def write_refused(self, into: Any) -> bool:
        into.write({"number": "three"})
        return True

    def read(self, target: DeltaTarget) -> Iterable[int]:
        return values(target.url(), "number")


@pytest.mark.full
class TestDirectoryAtMoreLines(TestDirectory):
    """The same, with more deaths."""

    most_lines = 30
