"""A pytest plugin: a real broker for tests. It does nothing until a test asks for one of its fixtures.

=======================  ==========================================================================================
`kafka_cluster`          one broker for the whole run, which all testers of pytest-xdist share: the one that
                         ``CUES_KAFKA_BOOTSTRAP`` names, else a local one, else one in a container
`kafka`                  that broker for one test, with names that no other test has
`kafka_fault_cluster`    makes brokers for one test, with 1 or 3 nodes that the test may kill, pause and restart
`schema_registry`        the address of a schema registry: one in this process, or in a container
=======================  ==========================================================================================

``--cues-kafka-broker`` and ``--cues-kafka-registry`` choose one of them, on the command line or, with underscores and
without dashes in front, in pytest's configuration file.

If no broker can be started the tests *fail* with the reason. A skip would hide that they showed nothing.
"""

from __future__ import annotations

import logging
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
    raise missing("cues_kafka.testing.fixtures", PYTEST, error=error) from None

from cues_kafka.errors import ConfigError, CuesError
from cues_kafka.testing.sharing import BrokerOwner, OwnBroker, SharedBroker

if TYPE_CHECKING:
    from cues_kafka.brokers.local import LocalBroker

OWNER = "cues_kafka_broker_owner"
"""Under this name pytest-xdist hands each tester the port and the key of the run's broker."""
BOOTSTRAP = "CUES_KAFKA_BOOTSTRAP"
BROKERS = ("auto", "environment", "local", "container")
REGISTRIES = ("local", "container")
CHOICES = {
    "broker": (
        "auto",
        BROKERS,
        (
            "where the tests' broker comes from: environment (CUES_KAFKA_BOOTSTRAP), local (a process of this "
            "machine), container (Docker; extra testing-containers), or auto: the first of these that can be had"
        ),
    ),
    "registry": (
        "local",
        REGISTRIES,
        "where the tests' schema registry comes from: local (within the tests), or container (Docker)",
    ),
    "broker-image": ("", None, "image of the broker in a container; default: that of Apache Kafka"),
    "registry-image": ("", None, "image of the registry in a container; default: that of Apicurio Registry"),
}
"""By option, its default, its values, and what ``pytest --help`` says of it."""
log = logging.getLogger("cues_kafka.testing")
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


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's options; see `CHOICES`."""
    group = parser.getgroup("cues-kafka", "cues-kafka: servers for tests")
    for name, (default, choices, said) in CHOICES.items():
        group.addoption(
            f"--cues-kafka-{name}", choices=choices, default=None, help=f"{said} [{default}]" if default else said
        )
        parser.addini(f"cues_kafka_{name.replace('-', '_')}", f"as --cues-kafka-{name}", default=default)


def chosen(config: pytest.Config, name: str) -> str:
    """
    The value of an option, from the command line or the configuration file.

    Raises:
        UsageError: the file has another value than those that there are.
    """
    setting = f"cues_kafka_{name.replace('-', '_')}"
    value = str(config.getoption(setting) or config.getini(setting))
    _, choices, _ = CHOICES[name]
    if choices and value not in choices:
        raise pytest.UsageError(f"{setting} is {value!r}. Write one of {', '.join(choices)}.")
    return value


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist starts a tester: tell it where to ask for the broker that all testers share."""
    if not node.gateway.spec.popen:
        return  # a tester on another machine has a broker of its own
    stash = node.config.stash
    if SHARED not in stash:
        stash[SHARED] = SharedBroker(lambda: _broker(node.config))
    node.workerinput[OWNER] = tuple(stash[SHARED].owner)


def pytest_unconfigure(config: pytest.Config) -> None:
    """All testers have ended."""
    if shared := config.stash.get(SHARED, None):
        shared.close()


def _broker(config: pytest.Config) -> OwnBroker:
    """
    A broker that has started: a local one, or one in a container where that is chosen or no local one can be had.

    Raises:
        CuesError: neither starts; the text has the reasons.
    """
    choice = chosen(config, "broker")
    if choice == "container":
        return _container_broker(config).start()
    try:
        return _local_broker().start()
    except CuesError as error:
        if choice == "local":
            raise
        local = error
    log.info("broker_in_container reason=%r", str(local))
    try:
        return _container_broker(config).start()
    except CuesError as error:
        raise ConfigError(f"{local}\nNor does one start in a container. {error}") from error


def _local_broker() -> OwnBroker:
    from cues_kafka.brokers.local import LocalBroker  # noqa: PLC0415 - tests without a broker do not pay for it

    return LocalBroker()


def _container_broker(config: pytest.Config) -> OwnBroker:
    from cues_kafka.testing.containers import KAFKA_IMAGE, KafkaContainer  # noqa: PLC0415 - as above

    return KafkaContainer(chosen(config, "broker-image") or KAFKA_IMAGE)


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[str]:
    """``bootstrap.servers`` of the broker of this run; tests fail without one."""
    choice = chosen(request.config, "broker")
    given = os.environ.get(BOOTSTRAP)
    if choice == "environment" and not given:
        pytest.fail(f"The broker is to be that of {BOOTSTRAP}, which is not set.", pytrace=False)
    if given and choice in ("auto", "environment"):
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
    broker = _broker(config)
    running.callback(broker.stop)
    return broker.bootstrap


@pytest.fixture(scope="session")
def schema_registry(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a schema registry, for `Registry(url)`; tests fail without one."""
    from cues_kafka.testing.registry import TestRegistry  # noqa: PLC0415 - tests without a registry do not pay for it

    if chosen(request.config, "registry") == "local":
        with TestRegistry() as local:
            yield local.url
        return
    from cues_kafka.testing.containers import REGISTRY_IMAGE, RegistryContainer  # noqa: PLC0415 - as above

    with ExitStack() as running:
        try:
            image = chosen(request.config, "registry-image") or REGISTRY_IMAGE
            registry = running.enter_context(RegistryContainer(image))
        except CuesError as error:
            pytest.fail(f"These tests need a schema registry, and none could be started.\n{error}", pytrace=False)
        yield registry.url


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
