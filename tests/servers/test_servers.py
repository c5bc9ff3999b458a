"""The servers of the tests: what is committed outlives SIGKILL, and no server outlives its tests."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
import pymysql
import pytest
import s3fs
from botocore.exceptions import EndpointConnectionError

from tests.servers import postgres as postgres_module
from tests.servers.fixtures import MariaDbDatabase, PostgresDatabase, S3Bucket
from tests.servers.mariadb import MariaDb
from tests.servers.postgres import Postgres

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys
from tests.servers.mariadb import MariaDb
server = MariaDb().start()
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


@pytest.mark.full
def test_postgres_runs_from_packages_that_are_unpacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With an empty cache, as on a machine that has no PostgreSQL."""
    monkeypatch.setenv("CUES_KAFKA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(postgres_module, "_programs", postgres_module.unpacked_programs)

    with Postgres(place=tmp_path) as server, psycopg.connect(server.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_mariadb_keeps_committed_rows_after_sigkill(mariadb: MariaDbDatabase) -> None:
    connection = mariadb.server.connect(mariadb.name)
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE t (i int)")
    cursor.execute("INSERT INTO t VALUES (1)")
    connection.commit()
    cursor.execute("INSERT INTO t VALUES (2)")
    mariadb.server.kill()
    with pytest.raises(pymysql.OperationalError):
        connection.commit()

    mariadb.server.start()

    assert mariadb.server.execute(f"SELECT i FROM `{mariadb.name}`.t") == ((1,),)


def test_mariadb_is_set_back_to_a_backup(mariadb: MariaDbDatabase, tmp_path: Path) -> None:
    """The backup may be that of a server that was killed."""
    mariadb.server.execute(f"CREATE TABLE `{mariadb.name}`.t (i int)")
    mariadb.server.kill()
    mariadb.server.backup(tmp_path / "backup")
    mariadb.server.start()
    with mariadb.server.connect(mariadb.name) as connection:
        connection.cursor().execute("INSERT INTO t VALUES (1)")
        connection.commit()

    mariadb.server.restore(tmp_path / "backup")

    assert mariadb.server.execute(f"SELECT i FROM `{mariadb.name}`.t") == ()


def test_a_mariadb_of_one_test_has_its_own_settings(mariadb_servers: Callable[..., MariaDb]) -> None:
    server = mariadb_servers(settings={"max-connections": "11"}, durable=True)

    assert server.execute("SELECT @@max_connections, @@innodb_flush_log_at_trx_commit") == ((11, 1),)


def test_s3_puts_gets_lists_and_deletes(s3: S3Bucket) -> None:
    files = s3fs.S3FileSystem(**s3.options, skip_instance_cache=True)
    large = os.urandom(11 * 2**20)
    files.pipe_file(f"{s3.url}/a/small", b"1")
    with files.open(f"{s3.url}/a/large", "wb", block_size=5 * 2**20) as file:  # three parts
        file.write(large)

    assert files.cat_file(f"{s3.url}/a/small") == b"1"
    assert files.cat_file(f"{s3.url}/a/large") == large
    assert sorted(files.ls(f"{s3.url}/a", detail=False)) == [f"{s3.name}/a/large", f"{s3.name}/a/small"]
    files.rm_file(f"{s3.url}/a/small")
    assert not files.exists(f"{s3.url}/a/small")


def test_s3_refuses_to_create_what_exists(s3: S3Bucket) -> None:
    """`If-None-Match: *`, for one request and for an upload in parts."""
    files = s3fs.S3FileSystem(**s3.options, skip_instance_cache=True)
    files.pipe_file(f"{s3.url}/once", b"first", mode="create")

    with pytest.raises(FileExistsError):
        files.pipe_file(f"{s3.url}/once", b"second", mode="create")
    with pytest.raises(FileExistsError), files.open(f"{s3.url}/once", "xb", block_size=5 * 2**20) as file:
        file.write(bytes(6 * 2**20))
    assert files.cat_file(f"{s3.url}/once") == b"first"


def test_s3_comes_back_with_its_data(s3: S3Bucket) -> None:
    """While it is away, s3fs raises an error of botocore, which is no `OSError`."""
    files = s3fs.S3FileSystem(
        **s3.options, skip_instance_cache=True, config_kwargs={"retries": {"total_max_attempts": 1}}
    )
    files.retries = 1
    files.pipe_file(f"{s3.url}/kept", b"1")
    s3.server.refuse()
    with pytest.raises(EndpointConnectionError):
        files.cat_file(f"{s3.url}/kept")

    s3.server.accept()

    assert files.cat_file(f"{s3.url}/kept") == b"1"


def test_a_server_dies_with_the_program_that_started_it(tmp_path: Path) -> None:
    """The program ends by SIGKILL, so it is the keeper who ends the server."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdout is not None
    with watched(int(program.stdout.readline())):
        program.kill()
        program.communicate()


def test_a_server_dies_with_its_keeper(postgres_servers: Callable[..., Postgres]) -> None:
    keeper = postgres_servers().keeper_pid
    with watched(keeper):
        os.kill(keeper, signal.SIGKILL)


@contextmanager
def watched(keeper: int) -> Iterator[None]:
    """All processes of a server end by what the block does; a zombie that its new parent has not seen yet has ended."""
    descriptors = [os.pidfd_open(keeper)]
    for child in psutil.Process(keeper).children(recursive=True):
        with suppress(ProcessLookupError):  # that of a connection which was closed has ended by itself
            descriptors.append(os.pidfd_open(child.pid))
    assert len(descriptors) > 1
    yield
    for descriptor in descriptors:
        assert select.select([descriptor], [], [], 10)[0]
        os.close(descriptor)
