"""The browser view beside the demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from cues_kafka.testing.fixtures import KafkaFixture
from examples.flights.view import NoView, watched
from tests.integration.test_ui import Browser


def test_the_demo_shows_its_view_while_it_runs(
    kafka: KafkaFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says why where it cannot start; without a screen no browser is opened."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    said: list[str] = []
    with watched("examples.flights.graph:plain", kafka.bootstrap, said.append) as address:
        nodes = Browser(address).data("/api/graph")["nodes"]
        assert "processor clean" in {node["id"] for node in nodes}
    assert said == [f"Watch it: {address}"]
    with pytest.raises(ConnectionRefusedError):
        Browser(address)
    with pytest.raises(NoView, match="no_such_module"), watched("no_such_module:graph", kafka.bootstrap, said.append):
        pass
