"""How a start waits for a database or a store that does not answer: longer and longer, and not without end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cues_kafka import ConfigError, RetriableError
from cues_kafka.sinks.patience import PATIENCE_S, asking


class Away:
    """Something that does not answer the first questions."""

    def __init__(self, answers_at: int = 1_000) -> None:
        self.answers_at = answers_at
        self.asked = 0

    def ask(self) -> str:
        """One question."""
        self.asked += 1
        if self.asked < self.answers_at:
            raise RetriableError(f"no answer to question {self.asked}")
        return "here"


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was waited for between two questions, in seconds; no time passes but this."""
    waited: list[float] = []
    monkeypatch.setattr("tenacity.time", SimpleNamespace(monotonic=lambda: sum(waited)))
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=waited.append))
    return waited


def test_waits_double_up_to_two_seconds(waits: list[float], caplog: pytest.LogCaptureFixture) -> None:
    """The log has each of them, with what did not answer and why."""
    away = Away(answers_at=9)

    assert asking("database", "effects['db']", PATIENCE_S)(away.ask) == "here"

    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0])
    said = [line for line in caplog.messages if "database not there" in line]
    assert len(said) == len(waits)
    for number, (line, wait) in enumerate(zip(said, waits, strict=True), 1):
        assert f"database=\"effects['db']\" why='no answer to question {number}' again_in_s={wait:g}" in line


def test_start_gives_up_when_its_patience_ends(waits: list[float]) -> None:
    """With the last answer; what refuses is not asked again."""
    away = Away()
    with pytest.raises(RetriableError) as last:
        asking("store", "book, effects['files']", PATIENCE_S)(away.ask)

    assert str(last.value) == (
        f"book, effects['files']: no answer to question {away.asked}. Bring the store back and start again; or start "
        "the other processors meanwhile, with --except book"
    )
    assert PATIENCE_S <= sum(waits) < PATIENCE_S + 2.0
    assert away.asked == len(waits) + 1 < 40

    def refuse() -> None:
        raise ConfigError("wrong password")

    waits.clear()
    with pytest.raises(ConfigError):
        asking("store", "files", PATIENCE_S)(refuse)
    assert waits == []
