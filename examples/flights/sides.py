"""
The processes that run the graph, and those of them that a SIGKILL can hit.

They are native workers, and Spark's driver with the processes that it starts. A process that dies is restarted. Sides
watch which process writes the records of their tasks: a kill hits only a process that has committed since its start.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from cues_kafka.cli.supervise import worker_command
from cues_kafka.core.records import Writer
from cues_kafka.on_spark.java import find_java
from cues_kafka.workers.supervisor import Supervisor
from examples.flights.progress import Seen

ROOT = Path(__file__).parents[2]

NATIVE, DRIVER, PYTHON, SERVER = "native worker", "Spark driver", "Python worker of Spark", "PostgreSQL server"
"""Kinds of victims."""

HEALTHY_AFTER_S = 1.0
"""Short, so that a process that we kill does not wait longer before each restart, as after crashes of its own."""

SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For a JVM that is killed soon: with one compiler and a simple collector its start is half the work."""

GONE_S = 10.0
"""How long a killed process may take to end."""


@dataclass(frozen=True)
class Victim:
    """
    A process that can be killed.

    Attributes:
        kill: sends SIGKILL, and returns whether there was a process to hit.
        wrote: whether this writer is the victim, or may be.
        follows: whether the victim's successor has committed this; None: records do not tell.
        opened: tells which tasks have a transaction open in the victim, by (processor, partition); None: the brokers
            tell it.
    """

    kill: Callable[[], bool]
    wrote: Callable[[Writer], bool]
    follows: Callable[[Seen], bool] | None = None
    opened: Callable[[], frozenset[tuple[str, int]]] | None = None


class Side:
    """
    Processes that run some processors, and are restarted when they die.

    Attributes:
        log: the file with their output.
        spread_s: a due kill comes within this time, so that it can hit any moment of a round of work.
    """

    spread_s = 0.0

    def __init__(self, directory: Path, *, name: str, processes: int) -> None:
        self.log = directory / f"{name}.log"
        self._output = self.log.open("ab")
        self._supervisor = Supervisor(
            self.command,
            workers=processes,
            env=_environment(directory) | self.environment(directory),
            cwd=ROOT,
            output=self._output,
            healthy_after_s=HEALTHY_AFTER_S,
        )

    def command(self, k: int) -> Sequence[str]:
        """The program of its k-th process."""
        raise NotImplementedError

    def environment(self, directory: Path) -> dict[str, str]:
        """More variables of its processes' environment."""
        return {}

    def note(self, writer: Writer) -> None:
        """Take note of a writer that has committed deliveries."""
        raise NotImplementedError

    def victims(self, kind: str) -> list[Victim]:
        """The processes of this kind that can be killed now."""
        raise NotImplementedError

    @property
    def gave_up(self) -> int | None:
        """The exit code of a process that the supervisor gave up; None: it gave up none."""
        return self._supervisor.gave_up

    @property
    def restarts(self) -> int:
        """The number of restarts of all its processes."""
        return sum(self._supervisor.restarts.values())

    def printed(self) -> str:
        """The output of its processes."""
        return self.log.read_text("utf-8", errors="replace")

    def __enter__(self) -> Self:
        self._supervisor.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._supervisor.stop()
        self._output.close()


class NativeWorkers(Side):
    """Worker processes, as `cues-kafka run --workers N` starts them."""

    def __init__(self, bootstrap: str, directory: Path, *, processors: Sequence[str], workers: int) -> None:
        self._options = ["--bootstrap", bootstrap, *(f"--only={name}" for name in processors)]
        self._live: dict[str, str] = {}
        """For each worker, the incarnation that committed last since the worker's last kill."""
        self._dead: set[str] = set()
        super().__init__(directory, name="workers", processes=workers)

    def command(self, k: int) -> Sequence[str]:
        return worker_command("examples.flights.graph:graph", instance=f"flights.{k}", options=self._options)

    def note(self, writer: Writer) -> None:
        if writer.runtime == "native" and writer.incarnation not in self._dead:
            self._live[writer.name] = writer.incarnation

    def victims(self, kind: str) -> list[Victim]:
        return [self._victim(k) for k in self._supervisor.pids if kind == NATIVE and f"flights.{k}" in self._live]

    def _victim(self, k: int) -> Victim:
        name = f"flights.{k}"
        incarnation = self._live[name]

        def kill() -> bool:
            if self._supervisor.signal(k, signal.SIGKILL) is None:
                return False
            self._dead.add(self._live.pop(name))
            return True

        return Victim(
            kill,
            wrote=lambda writer: writer.name == name,
            follows=lambda seen: seen.record.writer.name == name and seen.record.writer.incarnation != incarnation,
        )


class SparkDriver(Side):
    """The driver's program `on_spark`, its JVM, and the Python workers in which Spark runs its tasks."""

    spread_s = 2.0

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._live = ""
        """The name in records of the driver that committed last; empty after its kill."""
        self._dead: set[str] = set()
        self._bootstrap = bootstrap
        self._checkpoint = directory / "checkpoint"
        super().__init__(directory, name="spark", processes=1)

    def command(self, k: int) -> Sequence[str]:
        options = ["--bootstrap", self._bootstrap, "--checkpoint", str(self._checkpoint), "--parent", str(os.getpid())]
        return [sys.executable, "-m", "examples.flights.on_spark", *options]

    def environment(self, directory: Path) -> dict[str, str]:
        """
        Spark's Java, how it is compiled, and the folder of its files.

        Raises:
            ConfigError: there is no Java for Spark; the text names the command that installs one.
        """
        return {
            "JAVA_HOME": str(find_java().home),
            "SPARK_LOCAL_DIRS": str(directory),
            "SPARK_SUBMIT_OPTS": SHORT_LIVED,
        }

    def note(self, writer: Writer) -> None:
        if _on_spark(writer) and writer.name not in self._dead:
            self._live = writer.name

    def victims(self, kind: str) -> list[Victim]:
        pid = self._supervisor.pids.get(1)
        if pid is None or not self._live:
            return []
        victims = {DRIVER: self._driver(pid), PYTHON: Victim(lambda: kill_python_worker(pid), wrote=_on_spark)}
        return [victims[kind]] if kind in victims else []

    def _driver(self, pid: int) -> Victim:
        name = self._live

        def kill() -> bool:
            self._dead.add(name)
            self._live = ""
            return kill_group(pid)

        return Victim(
            kill,
            wrote=_on_spark,  # any driver: the newest record of a task may be by its predecessor
            follows=lambda seen: _on_spark(seen.record.writer) and seen.record.writer.name != name,
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Kill Spark's processes with their driver, which they would outlive a little."""
        left = [process for pid in self._supervisor.pids.values() for process in family(pid)]
        super().__exit__(kind, error, None)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=GONE_S)


def kill_group(pid: int) -> bool:
    """Send SIGKILL to a driver and its JVM, which are a process group; whether it was there."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
        return True
    return False


def kill_python_worker(driver: int) -> bool:
    """Send SIGKILL to a process that seems to deliver a range; whether there was one."""
    with suppress(psutil.NoSuchProcess, ValueError):
        # A process that delivers has a producer and a consumer with threads; one that waits for a Spark task has not.
        max(python_workers(driver), key=psutil.Process.num_threads).kill()
        return True
    return False


def family(driver: int) -> list[psutil.Process]:
    """The processes below a driver: the JVM, and Python processes."""
    found: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        found += psutil.Process(driver).children(recursive=True)
    return found


def python_workers(driver: int) -> list[psutil.Process]:
    """The processes in which Spark runs Python: forks of a daemon that the JVM starts."""
    named = {process.pid: process for process in family(driver) if _is_python_worker(process)}
    return [process for process in named.values() if _parent(process) in named]


def _is_python_worker(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.cmdline()[-1:] == ["pyspark.worker"])
    return False


def _parent(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):
        return int(process.ppid())
    return 0


def _on_spark(writer: Writer) -> bool:
    return writer.runtime == "spark"


def _environment(directory: Path) -> dict[str, str]:
    """The environment of all processes, which makes them write to the run's directory."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # Restarted processes load what the first ones compiled, instead of compiling it again.
    inherited.setdefault("PYTHONPYCACHEPREFIX", str(directory / "pycache"))
    return inherited | {"TMPDIR": str(directory)}
