"""What unit tests share."""

from __future__ import annotations

import pytest

from cues_kafka.runtime.task.gate import Gate


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task goes on at once where it would wait before it recovers: in a `Tester` time passes by itself."""
    monkeypatch.setattr(Gate, "wait", lambda _, seconds: None)
