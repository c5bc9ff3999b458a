"""
One process that has imported what Spark's Python processes import, and forks each of them.

A session with three queries on this machine has a dozen Python processes: daemons, processes that plan, one beside each
query, those of tasks. Each imported for 0.2 to 1.3 s of processor time. So the driver starts this process while Java
starts, and Spark gets a `launcher` in the place of Python, which has this process fork.

A forked process has the environment, the arguments and the descriptors that Spark gave to the launcher. What the user's
modules import comes later, in the forked process. The spawner ends with the driver, at the end of its standard input.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark import launcher
from cues_kafka.on_spark.daemon import imports, is_forkable, seed_apart

log = get_logger("cues_kafka.spark.spawner")

PYTHON: Final = "PYSPARK_PYTHON"

FRAMES: Final = "frames"
PANDAS: Final = "pandas"
"""What besides is imported, as arguments of the process."""

HEARD_S: Final = 5.0
"""How long a launcher may take to say what it wants."""

_PLANNING: Final = (
    "pyspark.daemon",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    launcher.RUNNER,
    "cues_kafka.on_spark.source.ranges",
)


# In the driver.


class Spawner:
    """
    The process, as the driver sees it.

    Attributes:
        variables: of the environment of the JVM.
        pid: of the process.
    """

    def __init__(self, directory: Path, *, frames: bool) -> None:
        """
        Args:
            directory: of the session's temporary files.
            frames: whether DataFrames are computed.

        Raises:
            OSError: the directory cannot hold a socket or a program.
        """
        # What the user's modules have imported, their functions may need in Spark's processes, too.
        kinds = [name for name, has in ((FRAMES, frames), (PANDAS, frames and PANDAS in sys.modules)) if has]
        place, program = directory / "spawner", directory / "python"
        words = [sys.executable, "-ISE", launcher.__file__, str(place)]
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', "utf-8")
        program.chmod(0o700)
        if not os.access(program, os.X_OK):
            raise PermissionError(f"programs in {directory} cannot be executed")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place))
            listener.listen(64)
            number = listener.fileno()
            with _no_interrupt():
                self._process = subprocess.Popen(
                    [sys.executable, "-u", "-m", __name__, str(number), *kinds],
                    stdin=subprocess.PIPE,
                    pass_fds=[number],
                    env={**os.environ, "PYTHONHASHSEED": "0"},  # that of Spark's processes
                )
        self.variables: Mapping[str, str] = {PYTHON: str(program)}
        self.pid = self._process.pid

    def close(self) -> None:
        """End the process; those that it forked end when the JVM does."""
        with suppress(BrokenPipeError):
            assert self._process.stdin
            self._process.stdin.close()
        self._process.terminate()  # it may still import
        self._process.wait()


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """What starts meanwhile hears nothing of Ctrl-C before it can say that it ignores it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def spawned(directory: Path, *, frames: bool, wanted: bool) -> Iterator[Spawner | None]:
    """
    A spawner; None: it is not wanted, or this system cannot have one.

    Args:
        directory: see `Spawner`.
        frames: see `Spawner`.
        wanted: whether the session is quick and the user has not chosen another Python.
    """
    spawner = None
    if wanted:
        try:
            spawner = Spawner(directory, frames=frames)
        except OSError as error:  # a long path of the temporary directory, or one that executes nothing
            log.debug("Spark starts its Python processes itself", error=str(error))
    try:
        yield spawner
    finally:
        if spawner is not None:
            spawner.close()


# In the process.


@dataclass(frozen=True, slots=True)
class Launch:
    """What a launcher asks for: the module with its arguments, variables, and standard input, output and error."""

    words: list[str]
    environment: Mapping[bytes, bytes]
    descriptors: list[int]


def received(connection: socket.socket) -> Launch | None:
    """A launcher's request; None if it broke off."""
    connection.settimeout(HEARD_S)
    try:
        data, descriptors, _, _ = socket.recv_fds(connection, launcher.LENGTH.size, 3)
        while len(data) < launcher.LENGTH.size:
            data += _more(connection, launcher.LENGTH.size - len(data))
        [length] = launcher.LENGTH.unpack(data)
        body = b""
        while len(body) < length:
            body += _more(connection, length - len(body))
    except OSError as error:
        log.debug("a launcher broke off", error=str(error))
        return None
    count, *parts = body.split(b"\0")
    words = [os.fsdecode(part) for part in parts[: int(count)]]
    pairs = (part.partition(b"=") for part in parts[int(count) :])
    return Launch(words, {name: value for name, _, value in pairs}, descriptors)


def _more(connection: socket.socket, most: int) -> bytes:
    if not (data := connection.recv(most)):
        raise ConnectionResetError("it has ended")
    return data


def serve(listener: socket.socket) -> Launch | None:
    """Fork a process for each request; return what it is to run in the forked one, and None at the driver's end."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(listener, select.POLLIN)
    while True:
        ready = [number for number, _ in poll.poll()]
        if 0 in ready:
            return None
        connection, _ = listener.accept()
        with connection:
            asked = received(connection)
            if asked is None:
                continue
            child = os.fork()
            if child == 0:
                return asked
            for number in asked.descriptors:
                os.close(number)
            with suppress(OSError):  # it, or its launcher, has ended
                number = os.pidfd_open(child)
                try:
                    socket.send_fds(connection, [b"+"], [number])
                finally:
                    os.close(number)


def become(asked: Launch) -> None:
    """Take the place of the launcher, and run."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for place, number in enumerate(asked.descriptors):
        os.dup2(number, place)
        os.close(number)
    os.environb.clear()
    os.environb.update(asked.environment)
    tempfile.tempdir = None  # it is named by a variable
    named = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    sys.path[1:1] = [one for one in named if one not in sys.path]
    sys.argv = list(asked.words)
    if asked.words[0] != launcher.RUNNER:
        from pyspark import daemon  # noqa: PLC0415 - the driver imports this module, too

        daemon.manager()
        return
    from pyspark.sql.streaming import python_streaming_source_runner as runner  # noqa: PLC0415 - as above
    from pyspark.worker_util import get_sock_file_to_executor  # noqa: PLC0415 - as above

    with get_sock_file_to_executor(timeout=None) as file:
        runner.main(file, file)


def main() -> None:
    """Import, then serve. If an import started a thread, nothing is served, and each launcher becomes Python."""
    number, *kinds = sys.argv[1:]
    listener = socket.socket(fileno=int(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Spark's JVM and what it starts
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forked processes are not waited for
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # else numpy starts threads
    for name in (*_PLANNING, *imports("pyspark.worker", frames=FRAMES in kinds, pandas=PANDAS in kinds)):
        importlib.import_module(name)
    if not is_forkable():
        return
    seed_apart()
    gc.freeze()
    warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)  # because of `daemon.FORKED`
    asked = serve(listener)
    listener.close()
    if asked is not None:
        become(asked)


if __name__ == "__main__":
    main()
