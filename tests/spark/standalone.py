"""A standalone cluster of Spark on this machine: a master, and workers that a test can kill."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from tests.fault.support import Program
from tests.spark.archive import jvm_options

LOOPBACK = "127.0.0.1"
STARTED_S, ENDED_S = 120.0, 10.0


@dataclass(frozen=True)
class Standalone:
    """
    A cluster that runs.

    Attributes:
        address: of the master.
        workers: each starts its executors, which start Python processes.
    """

    address: str
    workers: list[Program]

    def kill_worker_of(self, pid: int) -> None:
        """SIGKILL of the worker above a process, and of all that it started."""
        above = {one.pid for one in psutil.Process(pid).parents()}
        [worker] = [worker for worker in self.workers if worker.process.pid in above]
        kill_below(worker)


@contextmanager
def standalone(
    directory: Path,
    *hosts: str,
    cores: int = 1,
    memory: str = "1g",
    environment: Mapping[str, str] = os.environ,
) -> Iterator[Standalone]:
    """
    A cluster with one worker for each host, which is an address of loopback. It writes below a directory.

    Args:
        directory: of its files.
        hosts: of the workers.
        cores: of each worker.
        memory: of all executors of a worker.
        environment: of its processes.
    """
    home = environment.get("SPARK_HOME", str(Path(pyspark.__file__).parent))
    given = {
        **environment,
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(directory),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"-Djava.io.tmpdir={directory} {jvm_options()}",
    }
    with closing(socket.socket()) as free:
        free.bind((LOOPBACK, 0))
        port = free.getsockname()[1]
    address = f"spark://{LOOPBACK}:{port}"
    with ExitStack() as ends:

        def start(name: str, *args: str) -> Program:
            argv = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", "--webui-port", "0", *args]
            started = ends.enter_context(Program(argv, env=given))
            ends.callback(kill_below, started)
            return started

        master = start("master.Master", "--host", LOOPBACK, "--port", str(port))
        master.expect("I have been elected leader", STARTED_S)
        own = ["--cores", str(cores), "--memory", memory, "--work-dir", str(directory / "work"), address]
        workers = [start("worker.Worker", "--host", host, *own) for host in hosts]
        for worker in workers:
            worker.expect("Successfully registered", STARTED_S)
        yield Standalone(address, workers)


def kill_below(program: Program) -> None:
    """SIGKILL of a program, then of all that it started, so that it starts nothing in their places."""
    if program.process.poll() is not None:
        return
    below = psutil.Process(program.process.pid).children(recursive=True)
    program.process.kill()
    for one in below:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(below, timeout=ENDED_S)
