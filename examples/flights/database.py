"""The database of the ledger: a PostgreSQL that the demo starts and may kill, or a file of SQLite."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cues_kafka import Sql
from cues_kafka.sinks.dialect import TASKS
from examples.flights.ledger import ADDRESS, create_tables
from examples.flights.progress import Seen
from examples.flights.sides import SERVER, Victim

if TYPE_CHECKING:
    import psycopg

    from tests.servers.postgres import Postgres

POSTGRES, SQLITE, NONE = "postgres", "sqlite", "none"
"""The databases to choose from; `NONE`: the ledger does not run."""

NAMES: Final = {POSTGRES: "PostgreSQL", SQLITE: "SQLite", NONE: "no database"}
"""Their names in texts."""

DOWN_S: Final = (0.2, 2.0)
"""How long a killed server is down: between these, in seconds."""

LEDGER: Final = "ledger"
"""The processor that writes to it."""

OPEN: Final = f"""
    SELECT processor, part FROM {TASKS} JOIN pg_stat_activity
    ON backend = pid || ' ' || extract(epoch FROM backend_start) WHERE xact_start IS NOT NULL
    """  # noqa: S608
"""Asks for the tasks whose transaction is open: the row of a task names its connection."""


class NotStarted(Exception):
    """No PostgreSQL can be started here; the text says why."""


class LedgerDatabase:
    """
    Where the ledger is.

    Attributes:
        kind: `POSTGRES`, `SQLITE` or `NONE`.
        url: the address; empty for `NONE`.
        why: why it is not PostgreSQL, if none could be started.
        error: why a killed server could not be started again; None: it could.
    """

    def __init__(self, kind: str, url: str = "", *, server: Postgres | None = None, why: str = "") -> None:
        self.kind, self.url, self.why = kind, url, why
        self.error: BaseException | None = None
        self._server = server
        self._answers_s = 0.0  # since when the server answers, monotonic
        self._starting: threading.Thread | None = None
        self._asking: psycopg.Connection[Any] | None = None

    def victims(self, kind: str, draw: random.Random) -> list[Victim]:
        """The server, if it can be killed now: it is down for a while after each kill."""
        server = self._server
        if kind != SERVER or server is None or (self._starting and self._starting.is_alive()):
            return []

        def kill() -> bool:
            if self._asking is not None:
                self._asking.close()
                self._asking = None
            server.kill()
            self._starting = threading.Thread(
                target=self._start, args=(server, draw.uniform(*DOWN_S)), name="database", daemon=True
            )
            self._starting.start()
            return True

        return [Victim(kill, wrote=lambda _: True, follows=self._committed_since, opened=self._open_tasks)]

    def settle(self) -> None:
        """Wait until a killed server answers again."""
        if self._starting is not None:
            self._starting.join()

    def log_tail(self) -> str:
        """The last lines of the server's log; empty: there is no server."""
        return f"--- {self._server.log_file.name}\n{self._server.log_tail()}" if self._server else ""

    def _open_tasks(self) -> frozenset[tuple[str, int]]:
        """The tasks that have a transaction open in the database."""
        import psycopg  # noqa: PLC0415 - SQLite needs no driver

        if self._asking is None:
            self._asking = psycopg.connect(self.url, autocommit=True)
        return frozenset(self._asking.execute(OPEN))

    def _committed_since(self, seen: Seen) -> bool:
        """Whether the ledger has committed this in Kafka after the server's last start."""
        down = self._starting is not None and self._starting.is_alive()
        return seen.processor == LEDGER and not down and seen.at_s > self._answers_s

    def _start(self, server: Postgres, after_s: float) -> None:
        time.sleep(after_s)
        try:
            server.start()
        except BaseException as error:
            self.error = error
            raise
        self._answers_s = time.monotonic()


@contextmanager
def opened(kind: str | None, directory: Path) -> Iterator[LedgerDatabase]:
    """
    The database, with the ledger's empty tables; its address is in the environment, for all processes of the run.

    Args:
        kind: which one; None: PostgreSQL where one can be started, else SQLite.
        directory: for its files.

    Raises:
        NotStarted: a PostgreSQL is asked for and cannot be started.
    """
    if kind == NONE:
        yield LedgerDatabase(NONE)
        return
    why = ""
    with ExitStack() as running:
        if kind != SQLITE:
            try:
                server = _started(directory, running)
            except NotStarted as error:
                if kind == POSTGRES:
                    raise
                why = str(error)
            else:
                found = LedgerDatabase(POSTGRES, server.url(), server=server)
                running.callback(found.settle)  # before the server is closed
                with _named(found.url):
                    yield found
                return
        url = f"sqlite:///{directory / 'ledger.db'}"
        with _named(url):
            yield LedgerDatabase(SQLITE, url, why=why)


@contextmanager
def _named(url: str) -> Iterator[None]:
    """Make the tables, and name the database to this process and those that it starts."""
    before = os.environ.get(ADDRESS)
    os.environ[ADDRESS] = url
    try:
        create_tables(Sql(env=ADDRESS))
        yield
    finally:
        del os.environ[ADDRESS]
        if before is not None:
            os.environ[ADDRESS] = before


def _started(directory: Path, running: ExitStack) -> Postgres:
    """A PostgreSQL of the system, or of Debian's package, which is unpacked without root; it waits for the disk."""
    try:
        # The tests start the same servers, and a checkout has both.
        from tests.servers.packages import ServerError  # noqa: PLC0415
        from tests.servers.postgres import Postgres  # noqa: PLC0415
    except ImportError as error:
        raise NotStarted(f"{error.name} is not there. Run the demo in a checkout, by `make demo`") from error
    server = Postgres(durable=True, place=directory)
    running.callback(server.close)
    try:
        return server.start()
    except (ServerError, OSError) as error:  # OSError: a program is missing
        raise NotStarted(str(error)) from error
