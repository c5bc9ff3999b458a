"""The process that forks Spark's Python processes, asked as Spark's JVM asks Python."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cues_kafka.on_spark.spawner import PYTHON, Spawner, spawned

SECRET = b"secret"


@pytest.fixture
def directory() -> Iterator[Path]:
    """One with a short path, because a socket is in it."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def spawner(directory: Path) -> Iterator[Spawner]:
    """One without DataFrames."""
    with spawned(directory, frames=False, wanted=True) as found:
        assert found is not None
        yield found


def start(spawner: Spawner, *words: str) -> subprocess.Popen[bytes]:
    """What Spark's JVM does to start a process."""
    env = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(), "SPARK_REUSE_WORKER": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen([spawner.variables[PYTHON], *words], env=env, stdin=pipe, stdout=pipe)


def number(data: bytes) -> int:
    """One as Spark's processes write it."""
    [found] = struct.unpack("!i", data)
    return int(found)


def worker_of(daemon: subprocess.Popen[bytes]) -> tuple[socket.socket, psutil.Process]:
    """A worker that the daemon forks, and the connection to it."""
    assert daemon.stdout
    connection = socket.create_connection(("127.0.0.1", number(daemon.stdout.read(4))), timeout=30)
    pid = number(connection.recv(4, socket.MSG_WAITALL))
    connection.sendall(struct.pack("!i", len(SECRET)) + SECRET)
    assert connection.recv(6, socket.MSG_WAITALL) == b"\0\0\0\2ok"
    return connection, psutil.Process(pid)


@pytest.mark.timeout(60)
def test_daemon_is_forked_by_the_spawner_and_ends_with_its_standard_input(spawner: Spawner) -> None:
    """As Spark's own one, with the variables and descriptors that it was started with; the launcher ends with it."""
    daemon = start(spawner, "-m", "pyspark.daemon", "pyspark.worker")
    connection, worker = worker_of(daemon)
    with connection:
        parents = [one.pid for one in worker.parents()]
        assert parents[1] == spawner.pid
        assert daemon.pid not in parents
        assert worker.environ  # the process is there
        assert Path(f"/proc/{parents[0]}/fd/0").readlink() != Path(f"/proc/{spawner.pid}/fd/0").readlink()
    assert daemon.stdin
    daemon.stdin.close()

    assert daemon.wait(10) == 0
    assert psutil.wait_procs([worker], timeout=10)[1] == []


@pytest.mark.timeout(60)
def test_sigterm_reaches_the_forked_process_through_its_launcher(spawner: Spawner) -> None:
    """Spark stops a daemon so."""
    daemon = start(spawner, "-m", "pyspark.daemon", "pyspark.worker")
    connection, worker = worker_of(daemon)
    [forked, *_] = worker.parents()
    with connection:
        daemon.terminate()

        assert daemon.wait(10) == 0
        assert psutil.wait_procs([worker, forked], timeout=10)[1] == []


def test_another_program_is_run_by_python_itself(spawner: Spawner) -> None:
    """As are all programs once the spawner has ended."""
    code = "import sys; print(sys.executable, sys.argv[1:])"
    spawner.close()
    for words in (["-c", code, "a b"], ["-m", "pyspark.daemon", "pyspark.worker"]):
        process = start(spawner, *words)
        assert process.stdout
        if words[0] == "-c":
            assert process.stdout.read().decode().strip() == f"{sys.executable} ['a b']"
        else:
            connection, worker = worker_of(process)
            connection.close()
            assert worker.parents()[0].pid == process.pid
            assert process.stdin
            process.stdin.close()
        process.wait(10)


def test_spawner_ends_with_its_driver(directory: Path) -> None:
    """However that ends."""
    code = """
import os, sys
from pathlib import Path
from cues_kafka.on_spark.spawner import Spawner
print(Spawner(Path(sys.argv[1]), frames=False).pid, flush=True)
os.kill(os.getpid(), 9)
"""
    run = subprocess.run([sys.executable, "-c", code, str(directory)], capture_output=True, text=True, check=False)
    assert run.stdout, run.stderr
    left = [psutil.Process(pid) for pid in map(int, run.stdout.split()) if psutil.pid_exists(pid)]

    assert psutil.wait_procs(left, timeout=30)[1] == []


def test_no_spawner_where_its_socket_has_no_place(tmp_path: Path) -> None:
    """A path of a socket has at most 107 bytes; Spark then starts Python itself."""
    long = tmp_path / ("long" * 25)
    long.mkdir()

    with spawned(long, frames=False, wanted=True) as found:
        assert found is None


def test_forked_processes_draw_different_numbers() -> None:
    """Those of numpy begin at its import, which forked processes share."""
    code = """
import os, numpy
from cues_kafka.on_spark.daemon import seed_apart
numpy.random.random()
seed_apart()
for _ in range(2):
    if os.fork() == 0:
        os.write(1, f"{numpy.random.random()}\\n".encode())
        os._exit(0)
    os.wait()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert len(set(run.stdout.split())) == 2
