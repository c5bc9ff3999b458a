"""The brokers under test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.backends import KafkaBackend, MemoryBackend
from tests.contract.world import Backend, World


@pytest.fixture(params=["memory", "kafka"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """One broker after the other."""
    if request.param == "memory":
        backend: Backend = MemoryBackend()
    else:
        backend = KafkaBackend(request.getfixturevalue("kafka"))
    opened = World(backend)
    yield opened
    opened.close()
