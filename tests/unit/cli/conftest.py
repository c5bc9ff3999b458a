"""Tests of commands may replace `open_broker`; no module keeps the replacement behind them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

# They keep the function under a name of their own from their import on, so it comes before any replacement.
import cues_kafka.client.connect
import cues_kafka.operate.look.status
import cues_kafka.operate.repair.ask
import cues_kafka.running.starting
import cues_kafka.task.making.patterns  # noqa: F401 - for the import alone
from cues_kafka.brokers.open import open_broker


@pytest.fixture(autouse=True)
def _no_module_keeps_another_broker() -> Iterator[None]:
    """Later tests of the same process would run on the broker of this one."""
    yield
    modules = [(name, module) for name, module in sys.modules.items() if name.startswith("cues_kafka.")]
    kept = [name for name, module in modules if vars(module).get("open_broker", open_broker) is not open_broker]
    assert kept == [], f"imported while `open_broker` was replaced: {kept}; import it in tests/unit/cli/conftest.py"
