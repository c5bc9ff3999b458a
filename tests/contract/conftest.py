"""The brokers under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from cues_kafka.brokers.local import LocalBroker
from cues_kafka.testing.fixtures import KafkaFixture
from tests.contract.backends import KafkaBackend, MemoryBackend
from tests.contract.world import Backend, World

OLDEST, NEWEST = "3.7.2", "4.4.0"
OTHERS = (OLDEST, "3.9.2", "4.0.2", NEWEST)
"""Versions of Kafka beside the one of all other tests; docs/connect.md names them."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """
    Each case meets the memory broker and the Kafka of all other tests.

    `make test-full` adds the oldest and the newest version for the cases with the marker `versions`; all cases meet all
    versions with ``-m slow``.
    """
    if "world" not in metafunc.fixturenames:
        return
    telling = metafunc.definition.get_closest_marker("versions") is not None
    others = (
        pytest.param(one, marks=pytest.mark.full if telling and one in (OLDEST, NEWEST) else pytest.mark.slow)
        for one in OTHERS
    )
    metafunc.parametrize("world", ["memory", "kafka", *others], indirect=True)


@pytest.fixture(scope="session")
def other_cluster() -> Iterator[Callable[[str], str]]:
    """``bootstrap.servers`` of a broker of a version, which runs until the tests are over."""
    with ExitStack() as running:
        yield cache(lambda version: running.enter_context(LocalBroker(version=version)).bootstrap)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """One broker after the other."""
    if request.param == "memory":
        backend: Backend = MemoryBackend()
    elif request.param == "kafka":
        backend = KafkaBackend(request.getfixturevalue("kafka"))
    else:
        bootstrap = request.getfixturevalue("other_cluster")(request.param)
        backend = KafkaBackend(KafkaFixture.of_test(bootstrap, request.node.name))
    opened = World(backend)
    yield opened
    opened.close()
