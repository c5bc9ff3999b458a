"""MariaDB for tests."""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pymysql

from tests.servers.packages import Programs, ServerError, unpacked
from tests.servers.server import Server, prepared, run

PROGRAM = "usr/sbin/mariadbd"
USER = "cues"
PASSWORD_FILE = "cues-password"
CONNECT_S = 10

SETTINGS = {
    "bind-address": "127.0.0.1",
    "socket": "server.sock",  # below the data: a whole path would be too long for a socket
    "pid-file": "server.pid",
    "skip-name-resolve": "1",
    "character-set-server": "utf8mb4",
    "performance-schema": "off",
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "16M",
    "innodb-use-native-aio": "0",  # containers often forbid io_uring
    "table-open-cache": "200",
}
QUICK = {"innodb-flush-log-at-trx-commit": "2"}
"""Each commit is handed to the system, which outlives the server; the disk follows once a second."""


class MariaDb(Server):
    """A MariaDB server; the system's, else the one of Debian's package."""

    kind = "mariadb"

    def command(self) -> list[str]:
        # At its start a server deletes all temporary tables in its directory for them, also those of another server.
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        temporary.chmod(0o777)  # it runs as another user
        own = {"port": str(self.port), "tmpdir": str(temporary)}
        settings = {**SETTINGS, **({} if self.durable else QUICK), **self.settings, **own}
        return [*_program(self.data), *(f"--{name}={value}" for name, value in settings.items())]

    def environment(self) -> Mapping[str, str]:
        return _files().programs.environment

    def template(self) -> Path:
        files = _files()
        said = run([str(files.program), "--no-defaults", "--version"], files.programs.environment)
        version = re.search(r"Ver (\S+)", said)
        if version is None:
            raise ServerError(f"{files.program} does not say its version: {said}")
        return prepared(f"mariadb-data-{files.programs.name}-{version[1]}", _init)

    def try_it(self) -> None:
        self.execute("SELECT 1")

    def refusals(self) -> tuple[type[Exception], ...]:
        return (pymysql.OperationalError,)

    def url(self, database: str = "mysql") -> str:
        """The address of a database, with user and password."""
        return f"mysql://{USER}:{self._password}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "mysql") -> pymysql.Connection:
        """A new connection to a database, by the driver itself; close it."""
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=USER, password=self._password, database=database,
            connect_timeout=CONNECT_S, read_timeout=CONNECT_S,
        )  # fmt: skip

    def create_database(self, name: str) -> str:
        """Create an empty database, and return its address."""
        self.execute(f"CREATE DATABASE `{name}`")
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, if there is one. Sessions in it are ended first: an open transaction would block it."""
        for (session,) in self.execute("SELECT id FROM information_schema.processlist WHERE db = %s", name):
            with contextlib.suppress(pymysql.OperationalError):  # it has ended by itself
                self.execute("KILL %s", session)
        self.execute(f"DROP DATABASE IF EXISTS `{name}`")

    def execute(self, statement: str, *values: object) -> tuple[tuple[Any, ...], ...]:
        """Run one statement as the super user, and return its rows."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            rows: tuple[tuple[Any, ...], ...] = cursor.fetchall()
            return rows

    @property
    def _password(self) -> str:
        return (self.data / PASSWORD_FILE).read_text("utf-8")


class _Files(NamedTuple):
    """The program, the directory of messages and of the scripts that make a new server, and where both come from."""

    programs: Programs
    program: Path
    share: Path


@cache
def _files() -> _Files:
    """The system's files, else unpacked ones."""
    if found := shutil.which("mariadbd", path="/usr/sbin:/usr/local/sbin:/usr/libexec:/usr/bin:/usr/local/bin"):
        programs, program = Programs(Path("/"), "system"), Path(found).resolve()
    else:
        programs = unpacked("mariadb-server-core", PROGRAM)
        program = programs.root / PROGRAM
    scripts = program.parents[1].glob("share/*/*_system_tables.sql")
    if (script := next(scripts, None)) is None:
        raise ServerError(f"{program.parents[1]}/share lacks the script *_system_tables.sql. Install MariaDB again.")
    return _Files(programs, program, script.parent)


def _program(data: Path) -> list[str]:
    files = _files()
    return [
        str(files.program), "--no-defaults", f"--datadir={data}", f"--lc-messages-dir={files.share}",
        f"--character-sets-dir={files.share}/charsets",
    ]  # fmt: skip


def _init(data: Path) -> None:
    """Make MariaDB's own tables, as `mariadb-install-db` does, and a user who may do everything."""
    files = _files()
    scripts = [next(files.share.glob(f"*_{name}.sql")) for name in ("system_tables", "system_tables_data")]
    password = secrets.token_hex(16)
    statements = [
        "CREATE DATABASE mysql;",
        "USE mysql;",
        *(script.read_text("utf-8") for script in scripts),
        "DELETE FROM global_priv WHERE User IN ('', 'root');",  # they need no password
        "FLUSH PRIVILEGES;",
        f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{password}';",
        f"GRANT ALL ON *.* TO {USER}@'127.0.0.1' WITH GRANT OPTION;",
        "",
    ]
    options = ["--bootstrap", "--innodb-log-file-size=16M", "--innodb-use-native-aio=0", "--skip-log-bin"]
    run([*_program(data), *options], files.programs.environment, given="\n".join(statements))
    (data / PASSWORD_FILE).write_text(password, "utf-8")
