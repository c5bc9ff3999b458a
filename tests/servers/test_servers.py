"""The servers of the tests: what is committed outlives SIGKILL, and no server outlives its tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.servers.fixtures import PostgresDatabase
from tests.servers.postgres import Postgres

ROOT = Path(__file__).parents[2]

CHILD = """
import sys
from {module} import {name}
server = {name}().start()
print(server.keeper_pid, flush=True)
sys.stdin.read()
"""


def test_postgres_keeps_committed_rows_after_sigkill(postgres: PostgresDatabase) -> None:
    with psycopg.connect(postgres.url) as connection:
        connection.execute("CREATE TABLE t (i int)")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.commit()
        connection.execute("INSERT INTO t VALUES (2)")
        postgres.server.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.commit()

    postgres.server.start()

    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("SELECT i FROM t").fetchall() == [(1,)]


def test_postgres_is_set_back_to_a_backup(postgres: PostgresDatabase, tmp_path: Path) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (i int)")
    postgres.server.backup(tmp_path / "backup")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("INSERT INTO t VALUES (1)")

    postgres.server.restore(tmp_path / "backup")

    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("SELECT i FROM t").fetchall() == []


def test_a_postgres_of_one_test_has_its_own_settings(postgres_servers: Callable[..., Postgres]) -> None:
    server = postgres_servers(settings={"max_connections": "7"}, durable=True)
    with psycopg.connect(server.url()) as connection:
        shown = [connection.execute(f"SHOW {name}").fetchone() for name in ("max_connections", "fsync")]

    assert shown == [("7",), ("on",)]


@pytest.mark.parametrize(("module", "name"), [("tests.servers.postgres", "Postgres")])
def test_a_server_dies_with_the_program_that_started_it(module: str, name: str, tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(module=module, name=name)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdout is not None
    keeper = psutil.Process(int(program.stdout.readline()))
    processes = [keeper, *keeper.children(recursive=True)]
    assert len(processes) > 1

    program.kill()
    program.communicate()

    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive
