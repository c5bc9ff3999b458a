"""PostgreSQL for tests."""

from __future__ import annotations

import contextlib
import ctypes
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import psycopg
from psycopg import sql

from tests.servers.packages import Programs, ServerError, unpacked
from tests.servers.server import Server, prepared, run

BIN = "usr/lib/postgresql/*/bin"
USER = "cues"
PASSWORD_FILE = "cues-password"

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # paths of temporary directories are too long for sockets
    "shared_buffers": "32MB",
    "max_wal_size": "64MB",
    "dynamic_shared_memory_type": "mmap",  # below the data, so that a killed server leaves nothing elsewhere
    "autovacuum_naptime": "1h",  # its processes cost a small machine more than tables that live for seconds
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "jit": "off",  # its library is not unpacked
}
QUICK = {"fsync": "off"}
IPC_RMID = 0


class Postgres(Server):
    """A PostgreSQL server; the system's, else the one of Debian's package."""

    kind = "postgres"
    end_signal = "SIGQUIT"  # at once, without a checkpoint; after SIGKILL a segment of shared memory is left
    clean_signal = "SIGINT"  # it ends sessions and writes all; SIGTERM would wait for the sessions

    def command(self) -> list[str]:
        settings = {**SETTINGS, **({} if self.durable else QUICK), **self.settings, "port": str(self.port)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(_programs()[1] / "postgres"), "-D", str(self.data), *options]

    def environment(self) -> Mapping[str, str]:
        return _programs()[0].environment

    def template(self) -> Path:
        programs, bin_ = _programs()
        version = run([str(bin_ / "postgres"), "--version"], programs.environment).split(") ")[1].split()[0]
        return prepared(f"postgres-data-{programs.name}-{version}", _init)

    def try_it(self) -> None:
        self.execute("SELECT 1")

    def refusals(self) -> tuple[type[Exception], ...]:
        return (psycopg.OperationalError,)

    def url(self, database: str = "postgres") -> str:
        """The address of a database, with user and password."""
        password = (self.data / PASSWORD_FILE).read_text("utf-8")
        return f"postgresql://{USER}:{password}@127.0.0.1:{self.port}/{database}"

    def discard_data(self) -> None:
        """Remove its data, and the shared memory that a killed server leaves until its data are used again."""
        with contextlib.suppress(FileNotFoundError, IndexError):  # it was stopped cleanly, or has not begun
            _key, segment = (self.data / "postmaster.pid").read_text("utf-8").splitlines()[6].split()
            ctypes.CDLL(None).shmctl(int(segment), IPC_RMID, None)
        super().discard_data()

    def create_database(self, name: str) -> str:
        """Create an empty database, and return its address."""
        self.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, if there is one, also if sessions are connected to it."""
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def execute(self, statement: str | sql.Composed) -> None:
        """Run one statement as the super user, outside of a transaction."""
        with psycopg.connect(self.url(), autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement)


@cache
def _programs() -> tuple[Programs, Path]:
    """The programs and the directory that holds them: newest on the system, else PATH, else unpacked."""
    system = Programs(Path("/"), "system")
    found = system.newest(f"{BIN}/initdb") or shutil.which("initdb")
    if found is not None:
        return system, Path(found).resolve().parent
    return unpacked_programs()


def unpacked_programs() -> tuple[Programs, Path]:
    """The programs of Debian's package, also where the system has others."""
    programs = unpacked("postgresql", f"{BIN}/initdb")
    initdb = programs.newest(f"{BIN}/initdb")
    if initdb is None:
        raise ServerError(f"{programs.root} holds no {BIN}/initdb. Remove it; the next run unpacks it again.")
    return programs, initdb.parent


def _init(data: Path) -> None:
    programs, bin_ = _programs()
    password = secrets.token_hex(16)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(password)
        file.flush()
        run(
            [
                str(bin_ / "initdb"), "--no-sync", "--wal-segsize=1", "--encoding=UTF8", "--locale=C",
                f"--username={USER}", "--auth=scram-sha-256", f"--pwfile={file.name}", str(data),
            ],
            programs.environment,
        )  # fmt: skip
    (data / PASSWORD_FILE).write_text(password, "utf-8")
