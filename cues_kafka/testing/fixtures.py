"""A pytest plugin: a real broker for tests. It does nothing until a test asks for one of its fixtures.

=======================  ==========================================================================================
`kafka_cluster`          one broker for the whole run: the one that ``CUES_KAFKA_BOOTSTRAP`` names, else a local one,
                         which all testers of pytest-xdist share
`kafka`                  that broker for one test, with names that no other test has
`kafka_fault_cluster`    makes brokers for one test, with 1 or 3 nodes that the test may kill, pause and restart
=======================  ==========================================================================================

If no broker can be started the tests *fail* with the reason. A skip would hide that they showed nothing.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cues_kafka.extras import PYTEST, missing

try:
    import pytest
except ImportError as error:
    raise missing("cues_kafka.testing.fixtures", PYTEST) from error

from cues_kafka.errors import CuesError
from cues_kafka.testing.sharing import BrokerOwner, SharedBroker

if TYPE_CHECKING:
    from cues_kafka.brokers.local import LocalBroker

OWNER = "cues_kafka_broker"
"""Under this name pytest-xdist hands each tester the port and the key of the run's broker."""
SHARED = pytest.StashKey[SharedBroker]()
"""The broker of the process that started the testers."""


@dataclass(frozen=True, slots=True)
class KafkaFixture:
    """A broker for one test.

    Attributes:
        bootstrap: ``bootstrap.servers``.
        prefix: the beginning of all names of `unique`; no other test has it.
    """

    bootstrap: str
    prefix: str

    @classmethod
    def of_test(cls, bootstrap: str, test: str) -> KafkaFixture:
        """A broker for the test of this name."""
        words = re.sub(r"[^A-Za-z0-9]+", "-", test).strip("-")[:30].rstrip("-")
        return cls(bootstrap, f"{words}-{uuid.uuid4().hex[:8]}")

    def unique(self, name: str) -> str:
        """The name with the test's prefix, for graphs, topics, groups and transactional ids."""
        return f"{self.prefix}-{name}"


class FaultClusters(Protocol):
    """Starts a broker that ends with the test."""

    def __call__(self, nodes: int = 1, **options: Any) -> LocalBroker:
        """`options` go to `LocalBroker`."""
        ...


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist starts a tester: tell it where to ask for the broker that all testers share."""
    if not node.gateway.spec.popen:
        return  # a tester on another machine has a broker of its own
    stash = node.config.stash
    if SHARED not in stash:
        stash[SHARED] = SharedBroker(_local_broker)
    node.workerinput[OWNER] = tuple(stash[SHARED].owner)


def pytest_unconfigure(config: pytest.Config) -> None:
    """All testers have ended."""
    if shared := config.stash.get(SHARED, None):
        shared.close()


def _local_broker() -> LocalBroker:
    from cues_kafka.brokers.local import LocalBroker  # noqa: PLC0415 - tests without a broker do not pay for it

    return LocalBroker()


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[str]:
    """``bootstrap.servers`` of the broker of this run; tests fail without one."""
    given = os.environ.get("CUES_KAFKA_BOOTSTRAP")
    if given:
        _must_answer(given)
        yield given
        return
    with ExitStack() as running:
        try:
            bootstrap = _broker_of_run(request.config, running)
        except CuesError as error:
            pytest.fail(f"These tests need a broker, and none could be started.\n{error}", pytrace=False)
        yield bootstrap


def _broker_of_run(config: pytest.Config, running: ExitStack) -> str:
    """Address of the broker that all testers share, or of one of this process, which ends with the stack."""
    if owner := getattr(config, "workerinput", {}).get(OWNER):
        return BrokerOwner(*owner).ask()
    broker = _local_broker()
    running.callback(broker.stop)
    return broker.start().bootstrap


@pytest.fixture
def kafka(kafka_cluster: str, request: pytest.FixtureRequest) -> KafkaFixture:
    """The broker of this run, with a prefix for names of this test."""
    return KafkaFixture.of_test(kafka_cluster, request.node.name)


@pytest.fixture
def kafka_fault_cluster() -> Iterator[FaultClusters]:
    """Starts local brokers for one test, which may kill them."""
    from cues_kafka.brokers.local import LocalBroker  # noqa: PLC0415 - tests without a broker do not pay for it

    with ExitStack() as running:

        def make(nodes: int = 1, **options: Any) -> LocalBroker:
            broker = LocalBroker(nodes, **options)
            try:
                broker.start()
            except CuesError as error:
                pytest.fail(f"This test needs a broker of its own.\n{error}", pytrace=False)
            running.callback(broker.stop)
            return broker

        yield make


def _must_answer(bootstrap: str) -> None:
    """Fail at once if nothing answers at the address, instead of at the time-out of each test."""
    reasons = []
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except (OSError, ValueError) as error:
            reasons.append(f"{address}: {error}")
        else:
            return
    pytest.fail(f"CUES_KAFKA_BOOTSTRAP={bootstrap} does not answer: {'; '.join(reasons)}", pytrace=False)
