"""A server of the tests: a child of a keeper, on a port of 127.0.0.1, with its data in the temporary directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil

from cues_kafka.brokers.local.jars import cache_dir, exclusive
from cues_kafka.brokers.local.ports import free_ports
from tests.servers.packages import ServerError

KEEPER = Path(__file__).with_name("keeper.py")
ATTEMPTS = 3
"""Starts with new ports: another process may take a free port before the server binds it."""
POLL_S = 0.01
POWERLESS = 65_534
"""The user and the group that own no files, by the convention of all Linux systems."""


class Server(ABC):
    """
    A server that tests may kill, pause, start again, and set back to an older copy of its data.

    It ends with the program that started it, however that ends. Between two starts it keeps its port and its data.
    """

    kind: str
    end_signal = "SIGKILL"
    """What ends it when nothing of its data is needed any more."""
    clean_signal = "SIGTERM"
    """What makes it write all and end."""
    patience_s = 30.0
    """How long a start may take on a machine that is busy with other tests."""
    more_ports = 0
    """How many ports it needs beside `port`."""
    taken = "in use"
    """What its log holds when another process has taken a port meanwhile."""
    drops_rights = True
    """Whether it runs without the rights of root, also where root starts it."""

    def __init__(
        self, *, durable: bool = False, settings: Mapping[str, str] | None = None, place: Path | None = None
    ) -> None:
        """
        Check nothing and start nothing; `start` does.

        Args:
            durable: wait for the disk at each commit, so that a commit outlives a power cut. A killed process needs no
                such wait, and tests are quicker without.
            settings: settings of the server that win over ours.
            place: the parent of its directory, such as a small file system that a test fills. None: the temporary
                directory.
        """
        self.durable, self.settings = durable, dict(settings or {})
        self.port = 0
        self.ports: list[int] = []
        self._place = place
        self._directory: Path | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """The program with its arguments."""

    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """The environment of the program."""

    @abstractmethod
    def template(self) -> Path | None:
        """The data that a new server begins with; None if it begins without."""

    @abstractmethod
    def try_it(self) -> None:
        """Ask it something; raise an `OSError` or an error of the driver while it does not answer."""

    @abstractmethod
    def url(self, database: str) -> str:
        """The address of a database, with user and password."""

    @property
    def directory(self) -> Path:
        """The directory of its data and its log.

        Raises:
            ServerError: it was never started.
        """
        if self._directory is None:
            raise ServerError(f"{self.kind} was not started. Call start().")
        return self._directory

    @property
    def data(self) -> Path:
        """The directory of its data."""
        return self.directory / "data"

    @property
    def log_file(self) -> Path:
        """What it wrote, in all its starts."""
        return self.directory / "server.log"

    @property
    def running(self) -> bool:
        """Whether any process of it exists; they may be paused."""
        return self._keeper is not None and self._keeper.poll() is None

    @property
    def keeper_pid(self) -> int:
        """The process id of its parent."""
        assert self._keeper is not None
        return self._keeper.pid

    def start(self, *, settings: Mapping[str, str] | None = None, timeout_s: float | None = None) -> Self:
        """
        Start, and wait until it answers. After `kill` or `stop` it has the same port and data.

        Args:
            settings: settings from this start on, beside those it has.
            timeout_s: for the whole start; None: `patience_s`.

        Raises:
            ServerError: it runs already, or did not start; the text holds the end of its log.
        """
        if self.running:
            raise ServerError(f"{self.kind} runs already.")
        self.settings.update(settings or {})
        first = self._directory is None
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix=f"{self.kind}-", dir=self._place))
            self._new_data(self.template())
        for attempt in range(ATTEMPTS if first else 1):
            if first:
                self.port, *self.ports = free_ports(1 + self.more_ports)
            if self._start_once(timeout_s or self.patience_s, may_fail=first and attempt + 1 < ATTEMPTS):
                break
        return self

    def kill(self) -> None:
        """Send SIGKILL to all its processes, and wait until they are dead."""
        self._end("SIGKILL")

    def stop(self, *, timeout_s: float = 20.0) -> None:
        """
        Let it write all its data and end, if it runs.

        Raises:
            ServerError: it has not ended in this time.
        """
        self._end(self.clean_signal, timeout_s=timeout_s)

    def pause(self) -> None:
        """Send SIGSTOP to all its processes: connections stay open, and nothing answers."""
        self._signal("SIGSTOP")

    def resume(self) -> None:
        """Send SIGCONT after `pause`."""
        self._signal("SIGCONT")

    def fill_disk(self) -> None:
        """Let none of its processes write to a file any more, as on a full disk. What is started later may write."""
        for process in psutil.Process(self.keeper_pid).children(recursive=True):
            try:  # as the user whose processes they are
                run(["prlimit", "--pid", str(process.pid), "--fsize=1:"], os.environ)
            except ServerError:
                if psutil.pid_exists(process.pid):  # else its connection was closed meanwhile
                    raise

    def make_ready(self) -> None:
        """Undo what a test did: start or resume it, and wait until it answers. What `start` was given stays."""
        if not self.running:
            self.start()
        else:
            self.resume()
            self.try_it()

    def backup(self, path: Path) -> None:
        """Copy its data to a new directory; a running server is stopped for the copy and started again."""
        with self._stopped():
            copy(self.data, path)

    def restore(self, path: Path) -> None:
        """Set its data back to a `backup`; a running server is killed and started again."""
        if running := self.running:
            self.kill()
        self.discard_data()
        self._new_data(path)
        if running:
            self.start()

    def close(self) -> None:
        """End it as quickly as it can, and remove its directory."""
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            self._keeper.terminate()  # a forked sibling may keep the pipe open
            self._keeper.wait()
        if self._directory is not None:
            self.discard_data()
            shutil.rmtree(self._directory, ignore_errors=True)
        self._keeper = self._directory = None

    def discard_data(self) -> None:
        """Remove the data of a server that does not run."""
        shutil.rmtree(self.data, ignore_errors=True)

    def log_tail(self, lines: int = 20) -> str:
        """The end of the log."""
        return "\n".join(self.log_file.read_text("utf-8", "replace").splitlines()[-lines:])

    def _start_once(self, timeout_s: float, *, may_fail: bool) -> bool:
        """Start, and wait until it answers; False if it ended and may be tried again."""
        with self.log_file.open("ab") as log:
            prefix = unprivileged(self.end_signal) if self.drops_rights else dies_with_parent(self.end_signal)
            command = [*prefix, *self.command()]
            self._keeper = _keep(self.end_signal, command, self.environment(), self.directory, log)
        end = time.monotonic() + timeout_s
        while (refused := self._refusal()) is not None:
            try:
                self._keeper.wait(POLL_S)
            except subprocess.TimeoutExpired:
                if time.monotonic() < end:
                    continue
                self.kill()
                reason = f"did not answer in {timeout_s:.0f} s ({refused})"
            else:
                if may_fail and self.taken in self.log_tail(200):
                    return False
                reason = "ended"
            raise ServerError(f"{self.kind} was started and {reason}. Its log ends with:\n{self.log_tail()}")
        return True

    def _refusal(self) -> Exception | None:
        try:
            self.try_it()
        except self.refusals() as error:
            return error
        return None

    def refusals(self) -> tuple[type[Exception], ...]:
        """What `try_it` raises while the server does not answer."""
        return (OSError,)

    def _new_data(self, source: Path | None) -> None:
        if source is None:
            self.data.mkdir()
        else:
            copy(source, self.data)

    def _end(self, name: str, *, timeout_s: float = 10.0) -> None:
        if not self.running:
            return
        assert self._keeper is not None
        self._signal(name)
        try:
            self._keeper.wait(timeout_s)
        except subprocess.TimeoutExpired:
            tail = self.log_tail()
            raise ServerError(f"{self.kind} has not ended {timeout_s:.0f} s after {name}. Its log:\n{tail}") from None

    def _signal(self, name: str) -> None:
        if self._keeper is None or self._keeper.poll() is not None:
            raise ServerError(f"{self.kind} does not run.")
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(f"{name}\n".encode())
        self._keeper.stdin.flush()

    def _stopped(self) -> _Stopped:
        return _Stopped(self)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(port={self.port}, running={self.running})"


class _Stopped:
    """A server that is stopped in a `with` block, and runs behind it if it ran before."""

    def __init__(self, server: Server) -> None:
        self._server, self._ran = server, server.running

    def __enter__(self) -> None:
        self._server.stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ran:
            self._server.start()


def _keep(
    end: str, command: list[str], environment: Mapping[str, str], directory: Path, log: IO[bytes]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # Isolated and without site-packages: it needs neither, and starts in half the time.
        [sys.executable, "-I", "-S", "-B", str(KEEPER), str(os.getpid()), end, *command],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env=dict(environment),
        cwd=directory,
        start_new_session=True,  # a Ctrl-C in the terminal goes to the tests, which end the server
    )


def unprivileged(end: str = "SIGKILL") -> list[str]:
    """
    A prefix of a command, which runs it without the rights of root, to die by the signal `end` with its parent.

    PostgreSQL refuses to run as root. So root runs it as `POWERLESS`, which keeps one right of root, to pass over the
    modes of files: the cache is often below root's home, and temporary directories are open to their owner alone.
    Without `no_setuid_fixup`, access(2) would not know of this right.
    """
    prefix = dies_with_parent(end)
    if os.geteuid() == 0:
        user, group = owner()
        prefix += [
            "--reuid", str(user), "--regid", str(group), "--clear-groups",
            "--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override", "--securebits=+no_setuid_fixup",
        ]  # fmt: skip
    return prefix


def dies_with_parent(end: str) -> list[str]:
    """A prefix of a command, to die by the signal `end` with its parent."""
    return ["setpriv", "--pdeathsig", end.removeprefix("SIG")]


def owner() -> tuple[int, int]:
    """The user and the group that servers run as."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    return POWERLESS, POWERLESS


def copy(source: Path, target: Path) -> None:
    """Copy a directory of data to a new place, for the user that servers run as. A killed server leaves its socket."""
    shutil.copytree(source, target, ignore=lambda folder, names: {n for n in names if Path(folder, n).is_socket()})
    user, group = owner()
    if os.geteuid() == 0:
        for folder, _, files in os.walk(target):
            for path in (folder, *(f"{folder}/{name}" for name in files)):
                os.chown(path, user, group)
    target.chmod(0o700)  # PostgreSQL wants it so


def prepared(name: str, make: Callable[[Path], None]) -> Path:
    """
    A directory in the cache that `make` fills the first time, one process at a time.

    `make` gets a new directory that belongs to the user that servers run as.
    """
    target = cache_dir() / "servers" / f"{name}-{owner()[0]}"
    if not target.is_dir():
        with exclusive(target.with_name(f"{target.name}.lock")):
            if not target.is_dir():
                with tempfile.TemporaryDirectory(prefix="make-", dir=target.parent) as work:
                    data = Path(work) / "data"
                    data.mkdir(mode=0o700)
                    os.chown(data, *owner())
                    make(data)
                    data.rename(target)
    return target


def run(command: list[str], environment: Mapping[str, str], *, given: str = "") -> str:
    """
    Run a program as the user that servers run as, and return its output.

    Raises:
        ServerError: it failed; the text holds the end of its output.
    """
    done = subprocess.run(
        [*unprivileged(), *command], env=dict(environment), cwd="/", input=given, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", timeout=120, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise ServerError(f"{Path(command[0]).name} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout
