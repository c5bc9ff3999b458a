"""Fixtures of servers. A server starts when a test first asks for it; without one the tests *fail* with the reason."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres
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


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """The PostgreSQL of this run, or of this tester where several run side by side."""
    from tests.servers.postgres import Postgres

    with ExitStack() as running:
        yield started(running, Postgres())


@pytest.fixture
def postgres(postgres_server: Postgres) -> Iterator[PostgresDatabase]:
    """An empty database of this test, in the server of this run."""
    name = _ready(postgres_server)
    yield PostgresDatabase(name, postgres_server.create_database(name), postgres_server)
    _ready(postgres_server)
    postgres_server.drop_database(name)


@pytest.fixture
def postgres_servers() -> Iterator[Callable[..., Postgres]]:
    """Starts PostgreSQL servers for one test: `durable`, `settings` and `place` are those of `Server`."""
    from tests.servers.postgres import Postgres

    with ExitStack() as running:
        yield lambda **options: started(running, Postgres(**options))


def started(running: ExitStack, server: S) -> S:
    """Start a server, which ends with the stack; the test fails with the reason if it cannot."""
    from tests.servers.packages import ServerError

    running.callback(server.close)
    try:
        return server.start()
    except ServerError as error:
        pytest.fail(f"This test needs a server of {server.kind}, and none could be started.\n{error}", pytrace=False)


def _ready(server: Server, **_: Any) -> str:
    """Undo what a test did to the server of the run; a new name."""
    if server.running:
        server.resume()
    else:
        server.start()
    return f"test_{uuid.uuid4().hex[:12]}"
