"""A Spark session for a command: it is quiet, uses this interpreter, and leaves nothing behind at its end.

Spark leaves processes behind for a while: its JVM ends by itself when this process has ended, and the Python workers
when the JVM has. A supervisor that starts the command again, or a test, would still see them. So closing the session
waits for all of them, and kills those that do not end.

Spark also leaves files in the temporary directory when it is killed. So each session has a temporary directory of its
own, which the end of the session removes, or the next start if the process was killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any, Final, Self

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from cues_kafka.brokers.local.java import Java
from cues_kafka.brokers.temporary import temporary_directory
from cues_kafka.errors import ConfigError
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.classes import written
from cues_kafka.on_spark.java import find_java
from cues_kafka.on_spark.lost import SparkLost, first_line, is_jvm_gone, lost_text
from cues_kafka.on_spark.quick import Quick, quick, simple, tell_of_no_sources

log = get_logger("cues_kafka.spark.session")

LOOPBACK: Final = "127.0.0.1"

END_S: Final = 15.0
"""How long Spark's processes may take to end: the Python workers check every second whether the JVM is there."""

KILLED_S: Final = 5.0
"""How long a killed process may take to disappear."""


STARTS: Final = 2
"""A wrong setting ends each JVM that is started with it; a JVM that was killed has a successor that lives."""

TEMPORARY: Final = "cues-kafka-spark-"

SHUFFLES: Final = "spark.sql.shuffle.partitions"

MOST_CORES: Final = 200
"""Spark's own number of shuffle partitions: more cores than this are no reason for more of them."""


NONE: Final[Mapping[str, str]] = {}


@contextmanager
def opened_session(
    master: str, *, name: str, quiet: bool = True, frames: bool = True, settings: Mapping[str, str] = NONE
) -> Iterator[SparkSession]:
    """
    Open a session for this process; at the end all of its Spark processes on this machine have ended.

    Args:
        master: Spark's master, such as `local[2]` or `spark://host:7077`. All other settings come from
            `SPARK_CONF_DIR`.
        name: of the application.
        quiet: log errors only.
        frames: whether DataFrames are computed in it.
        settings: of the session.

    Raises:
        ConfigError: no Java is found, or the JVM does not start with these settings.
        SparkLost: the JVM was killed.
    """
    sooner = quick(master, prepare_environment(master), frames=frames)
    before = set(_below(os.getpid()))
    session = None
    with temporary_directory(TEMPORARY) as directory:
        try:
            with _environment(directory, sooner):
                began_s = time.monotonic()
                session = _session(master, name, quiet=quiet, settings={**sooner.settings, **settings})
            log.info("session open", seconds=round(time.monotonic() - began_s, 2))
            tell_of_no_sources(session)
            with written(session, sooner.archive):
                yield session
        except (PySparkException, Py4JError, OSError) as error:
            if is_jvm_gone(error):
                raise SparkLost(lost_text(error)) from None
            raise
        finally:
            _end(session, before)


def choose_shuffle_partitions(session: SparkSession, slots: int) -> str:
    """
    Set the number of shuffle partitions, unless the user did; return the choice as a sentence, or nothing.

    Each micro-batch pays for each of them: 10,000 rows took 82 s with Spark's 200 on two cores, 8 s with 4.

    Args:
        session: of Spark, new.
        slots: partitions of the widest input.
    """
    if session.sparkContext.getConf().contains(SHUFFLES):
        return ""
    number = max(slots, min(session.sparkContext.defaultParallelism, MOST_CORES))
    session.conf.set(SHUFFLES, str(number))
    return f"{SHUFFLES} is {number}; a checkpoint with state keeps the number that it began with"


@contextmanager
def _environment(directory: Path, sooner: Quick) -> Iterator[None]:
    """While the JVM starts, point its temporary files, and those of its Python processes, to a directory."""
    own = f"-Djava.io.tmpdir={directory} -XX:-UsePerfData"
    options = {"SPARK_SUBMIT_OPTS": sooner.java_options, "SPARK_LAUNCHER_OPTS": simple(None, os.environ)}
    options = {name: f"{own} {more} {os.environ.get(name, '')}".strip() for name, more in options.items()}
    given = {"TMPDIR": str(directory), **options, **sooner.variables}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def prepare_environment(master: str) -> Java:
    """
    Set what Spark takes from the environment, and return its Java.

    That is a Java, this interpreter for its Python processes, and, for a local master, the loopback address.

    Raises:
        ConfigError: no Java is found.
    """
    java = find_java()
    if java.origin == "PATH":
        os.environ.pop("JAVA_HOME", None)  # Spark's scripts would take it, but it names no Java, or one that is too old
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    return java


def _session(master: str, name: str, *, quiet: bool, settings: Mapping[str, str]) -> SparkSession:
    builder: Any = SparkSession.builder  # the decorated property has no types
    builder = builder.master(master).appName(name)
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    for key, value in settings.items():
        builder = builder.config(key, value)
    if quiet:
        file = Path(__file__).with_name("log4j2.properties")
        builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={file.as_uri()}")
    with _our_interrupt():
        for left in reversed(range(STARTS)):
            try:
                session: SparkSession = builder.getOrCreate()
            except (PySparkException, Py4JError, OSError) as error:
                lost = _never_answered(error) or is_jvm_gone(error)
                if lost and left:
                    log.warning("Spark's JVM ended while it started; it is started again", error=first_line(error))
                    _close_gateway()
                elif lost and not _never_answered(error):
                    raise  # twice in a row: see `opened_session`
                else:
                    text = str(error).strip().partition("\n\tat ")[0]
                    raise ConfigError(
                        f"Spark does not start with master {master!r}; see what it printed: {text}"
                    ) from error
            else:
                break
    return session


def _never_answered(error: Exception) -> bool:
    """Whether a JVM ended before this process could talk to it: a wrong option, no memory, or a kill."""
    return isinstance(error, PySparkRuntimeError) and error.getCondition() == "JAVA_GATEWAY_EXITED"


@contextmanager
def _our_interrupt() -> Iterator[None]:
    """Keep our handler of SIGINT: a new context sets its own, which raises KeyboardInterrupt in any code."""
    ours: Any = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, ours)


# The end.


def _end(session: SparkSession | None, before: set[int]) -> None:
    """Stop Spark, then wait for its processes: those that run before it stops, and those that are found then."""
    with _Processes() as held:
        held.add(set(_below(os.getpid())) - before)
        if session is not None:
            try:
                session.stop()
            except (PySparkException, Py4JError, OSError) as error:  # the JVM was ended from outside
                log.debug("session not stopped", error=str(error))
        held.add(set(_below(os.getpid())) - before)
        jvm = _close_gateway()
        held.wait(END_S if session is not None else 0.0)  # a JVM that is still starting has nothing to shut down
        if jvm is not None:
            jvm.poll()  # it was our child: without this it would stay in the process table until we end


def jvm_end() -> int:
    """Open a descriptor that becomes readable when the JVM of this process's session has ended; close it."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - Spark has no public way to its JVM
    return os.pidfd_open(gateway.proc.pid)


def _close_gateway() -> Popen[bytes] | None:
    """Close the JVM's standard input, which ends the JVM."""
    gateway = SparkContext._gateway  # noqa: SLF001 - Spark has no public way to end its JVM
    if gateway is None:
        return None
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - the next session has one of its own
    with contextlib.suppress(Py4JError, OSError):
        gateway.shutdown()
    process: Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None and process.stdin:
        with contextlib.suppress(OSError):
            process.stdin.close()
    return process


class _Processes:
    """Processes held by descriptor, so that a reused process id is never waited for or killed."""

    def __init__(self) -> None:
        self._fds: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._fds:
            os.close(self._fds.popitem()[1])

    def add(self, pids: set[int]) -> None:
        for pid in pids - self._fds.keys():
            with contextlib.suppress(ProcessLookupError):
                self._fds[pid] = os.pidfd_open(pid)

    def wait(self, timeout_s: float) -> None:
        """Wait until all of them have ended; kill those that are left."""
        left = self._left(timeout_s)
        if not left:
            return
        if timeout_s:
            log.warning("killed", pids=sorted(left), seconds=timeout_s)
        for fd in left.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        self._left(KILLED_S)

    def _left(self, timeout_s: float) -> dict[int, int]:
        deadline = time.monotonic() + timeout_s
        left = dict(self._fds)
        while left:
            poll = select.poll()
            for fd in left.values():
                poll.register(fd, select.POLLIN)
            gone = {fd for fd, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000)}
            left = {pid: fd for pid, fd in left.items() if fd not in gone}
            if not gone:
                break
        return left


def _below(pid: int) -> Iterator[int]:
    """All descendants of a process: its children, their children, and so on."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    waiting = list(children.get(pid, ()))
    while waiting:
        child = waiting.pop()
        yield child
        waiting += children.get(child, ())


def _parent(entry: Path) -> int | None:
    """The parent's id, by proc(5); the name in parentheses may hold any character."""
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
