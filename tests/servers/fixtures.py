"""Fixtures of servers. A server starts when a test first asks for it; without one the tests *fail* with the reason."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from tests.servers.activemq import ActiveMq
    from tests.servers.artemis import Artemis
    from tests.servers.mariadb import MariaDb
    from tests.servers.mosquitto import Mosquitto
    from tests.servers.postgres import Postgres
    from tests.servers.rabbitmq import RabbitMq
    from tests.servers.s3 import S3
    from tests.servers.server import Server

    S = TypeVar("S", bound=Server)


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """
    An empty database of one test.

    Attributes:
        url: its address, with user and password.
        server: the server, which the test may kill, pause, stop and restore; the next test starts it again if need be.
    """

    name: str
    url: str
    server: Postgres


@dataclass(frozen=True, slots=True)
class MariaDbDatabase:
    """
    An empty database of one test; see `PostgresDatabase`.

    Attributes:
        url: its address, with user and password.
        server: the server.
    """

    name: str
    url: str
    server: MariaDb


@dataclass(frozen=True, slots=True)
class S3Bucket:
    """
    An empty bucket of one test.

    Attributes:
        url: its address, ``s3://name``.
        options: what `fsspec.filesystem("s3", **options)` needs to reach it.
        storage_options: what deltalake needs to reach it.
        server: the server, which keeps its buckets in memory: `refuse` and `pause` keep them, `kill` loses them.
    """

    name: str
    url: str
    options: dict[str, Any]
    storage_options: dict[str, str]
    server: S3


@dataclass(frozen=True, slots=True)
class MosquittoTopics:
    """
    A name of one test, for its topics, sessions and clients in a broker that tests share.

    Attributes:
        name: no topic and no session begins with it.
        url: the address of the broker.
        server: the broker, which the test may kill, pause and stop; the next test starts it again if need be.
    """

    name: str
    url: str
    server: Mosquitto


@dataclass(frozen=True, slots=True)
class RabbitMqQueues:
    """
    A name of one test, for its queues, exchanges and streams in a broker that tests share.

    Attributes:
        name: no queue begins with it.
        url: the address of the broker by AMQP, with user and password.
        server: the broker, which the test may kill, pause and stop; the next test starts it again if need be.
    """

    name: str
    url: str
    server: RabbitMq


@dataclass(frozen=True, slots=True)
class JmsQueues:
    """
    A name of one test, for its queues in a JMS broker that tests share.

    Attributes:
        name: no queue begins with it.
        url: the address of the broker by STOMP.
        server: the broker, which the test may kill, pause and stop; the next test starts it again if need be.
    """

    name: str
    url: str
    server: ActiveMq | Artemis


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """The PostgreSQL of this run, or of this tester where several run side by side."""
    from tests.servers.postgres import Postgres

    with ExitStack() as running:
        yield started(running, Postgres())


@pytest.fixture
def postgres(postgres_server: Postgres) -> Iterator[PostgresDatabase]:
    """An empty database of this test, in the server of this run."""
    name = _name()
    yield PostgresDatabase(name, postgres_server.create_database(name), postgres_server)
    postgres_server.make_ready()
    postgres_server.drop_database(name)


@pytest.fixture
def postgres_servers() -> Iterator[Callable[..., Postgres]]:
    """Starts PostgreSQL servers for one test: `durable`, `settings` and `place` are those of `Server`."""
    from tests.servers.postgres import Postgres

    with ExitStack() as running:
        yield lambda **options: started(running, Postgres(**options))


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDb]:
    """The MariaDB of this run, or of this tester where several run side by side."""
    from tests.servers.mariadb import MariaDb

    with ExitStack() as running:
        yield started(running, MariaDb())


@pytest.fixture
def mariadb(mariadb_server: MariaDb) -> Iterator[MariaDbDatabase]:
    """An empty database of this test, in the server of this run."""
    name = _name()
    yield MariaDbDatabase(name, mariadb_server.create_database(name), mariadb_server)
    mariadb_server.make_ready()
    mariadb_server.drop_database(name)


@pytest.fixture
def mariadb_servers() -> Iterator[Callable[..., MariaDb]]:
    """Starts MariaDB servers for one test: `durable`, `settings` and `place` are those of `Server`."""
    from tests.servers.mariadb import MariaDb

    with ExitStack() as running:
        yield lambda **options: started(running, MariaDb(**options))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    """The S3 server of this run, or of this tester where several run side by side."""
    from tests.servers.s3 import S3

    with ExitStack() as running:
        yield started(running, S3())


@pytest.fixture
def s3(s3_server: S3) -> Iterator[S3Bucket]:
    """An empty bucket of this test, in the server of this run."""
    name = _name().replace("_", "-")
    url = s3_server.create_bucket(name)
    yield S3Bucket(name, url, s3_server.options, s3_server.storage_options, s3_server)
    s3_server.make_ready()


@pytest.fixture(scope="session")
def mosquitto_server() -> Iterator[Mosquitto]:
    """The MQTT broker of this run, or of this tester where several run side by side."""
    from tests.servers.mosquitto import Mosquitto

    with ExitStack() as running:
        yield started(running, Mosquitto())


@pytest.fixture
def mosquitto(mosquitto_server: Mosquitto) -> Iterator[MosquittoTopics]:
    """A name of this test, in the MQTT broker of this run."""
    yield MosquittoTopics(_name(), mosquitto_server.url(), mosquitto_server)
    mosquitto_server.make_ready()


@pytest.fixture
def mosquitto_servers() -> Iterator[Callable[..., Mosquitto]]:
    """Starts MQTT brokers for one test: `settings` are lines of mosquitto's configuration."""
    from tests.servers.mosquitto import Mosquitto

    with ExitStack() as running:
        yield lambda **options: started(running, Mosquitto(**options))


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitMq]:
    """The RabbitMQ of this run, or of this tester where several run side by side."""
    from tests.servers.rabbitmq import RabbitMq

    with ExitStack() as running:
        yield started(running, RabbitMq())


@pytest.fixture
def rabbitmq(rabbitmq_server: RabbitMq) -> Iterator[RabbitMqQueues]:
    """A name of this test, in the RabbitMQ of this run."""
    yield RabbitMqQueues(_name(), rabbitmq_server.url(), rabbitmq_server)
    rabbitmq_server.make_ready()


@pytest.fixture
def rabbitmq_servers() -> Iterator[Callable[..., RabbitMq]]:
    """Starts RabbitMQ servers for one test: `plugins`, and `settings` as lines of its configuration."""
    from tests.servers.rabbitmq import RabbitMq

    with ExitStack() as running:
        yield lambda **options: started(running, RabbitMq(**options))


@pytest.fixture(scope="session")
def activemq_server() -> Iterator[ActiveMq]:
    """The ActiveMQ Classic of this run, or of this tester where several run side by side."""
    from tests.servers.activemq import ActiveMq

    with ExitStack() as running:
        yield started(running, ActiveMq())


@pytest.fixture
def activemq(activemq_server: ActiveMq) -> Iterator[JmsQueues]:
    """A name of this test, in the ActiveMQ Classic of this run."""
    yield JmsQueues(_name(), activemq_server.url(), activemq_server)
    activemq_server.make_ready()


@pytest.fixture(scope="session")
def artemis_server() -> Iterator[Artemis]:
    """The Artemis of this run, or of this tester where several run side by side."""
    from tests.servers.artemis import Artemis

    with ExitStack() as running:
        yield started(running, Artemis())


@pytest.fixture
def artemis(artemis_server: Artemis) -> Iterator[JmsQueues]:
    """A name of this test, in the Artemis of this run."""
    yield JmsQueues(_name(), artemis_server.url(), artemis_server)
    artemis_server.make_ready()


def started(running: ExitStack, server: S) -> S:
    """Start a server, which ends with the stack; the test fails with the reason if it cannot."""
    from tests.servers.packages import ServerError

    running.callback(server.close)
    try:
        return server.start()
    except ServerError as error:
        reason = error
    pytest.fail(f"This test needs {server.kind}, and it could not be started.\n{reason}", pytrace=False)


def _name() -> str:
    return f"test_{uuid.uuid4().hex[:12]}"
