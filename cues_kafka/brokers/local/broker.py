"""A running local broker, and its nodes, which tests may kill."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from cues_kafka.brokers.local import probe
from cues_kafka.brokers.local.identities import Identities, Login
from cues_kafka.brokers.local.jars import Jars, Say, find_jars
from cues_kafka.brokers.local.java import Java, find_java
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.brokers.local.prepare import (
    MOST_NODES,
    QUICK,
    STRONG,
    archive_options,
    command,
    node_directory,
    prepare,
)
from cues_kafka.brokers.local.progress import progress
from cues_kafka.brokers.local.properties import (
    CONTROLLER,
    LOGIN,
    MUTUAL,
    PLAINTEXT,
    TLS,
    node_properties,
    write_properties,
)
from cues_kafka.brokers.options import Kafka
from cues_kafka.brokers.temporary import locked_directory
from cues_kafka.errors import BrokerError, ConfigError
from cues_kafka.words import count

IDENTITIES = "identities"
"""The directory of users below that of a secured broker."""
GUARD = Path(__file__).with_name("guard.py")
PREFIX = "cues-kafka-broker-"
ATTEMPTS = 3
"""Starts with new ports: another process may take a free port before the JVM binds it."""
POLL_S = 0.02
log = logging.getLogger("cues_kafka.brokers.local")


class LocalBroker:
    """
    A real Apache Kafka, run by a guard process that ends with this program.

    ::

        with LocalBroker(3) as broker:
            use(broker.bootstrap)
            broker.nodes[0].kill()
            broker.nodes[0].start()

    `stop` removes its data; it may be started again, empty. Only calls on its nodes are safe from several threads.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        port: int | None = None,
        overrides: Mapping[str, str] | None = None,
        benchmark: bool = False,
        start_timeout_s: float = 60.0,
        directory: Path | None = None,
        secure: bool = False,
        listeners: Sequence[str] = (),
        version: str | None = None,
        advertised: Mapping[str, Sequence[int]] | None = None,
        env: Mapping[str, str] | None = None,
        say: Say = log.info,
    ) -> None:
        """
        Check the options; `start` starts.

        Args:
            nodes: 1 or 3.
            port: the first node's port; the others have the next ones. None: free ones.
            overrides: Kafka's settings that win over ours.
            benchmark: use both compilers and a heap of 1 GiB; the start is slower.
            start_timeout_s: from the start of the JVMs until all nodes serve.
            directory: the parent of the broker's directory; None: the system's temporary directory.
            secure: open no listener without encryption and login, and make users: see `kafka`.
            listeners: names of more listeners, which `overrides` define in Kafka's settings.
            version: of Apache Kafka, such as "3.9.2"; None: see `find_jars`.
            advertised: by listener, the port that each node tells clients instead of its own: of a proxy before it.
            env: the environment that names Java, jars and cache; None: the process's own.
            say: is called with a sentence before each step that takes long.

        Raises:
            ConfigError: an option is out of range.
        """
        if nodes not in (1, MOST_NODES):
            raise ConfigError(f"A local broker has 1 or {MOST_NODES} nodes, not {nodes}. Give one of these numbers.")
        if port is not None and not 1024 <= port <= 65_535 - nodes:
            raise ConfigError(f"port={port} cannot be used. Give a port from 1024 up, or none.")
        self._size, self._port, self._overrides = nodes, port, dict(overrides or {})
        self._benchmark, self._start_timeout_s = benchmark, start_timeout_s
        self._place = directory
        self._secure = secure
        self._version = version
        own = [LOGIN, TLS, MUTUAL] if secure else [PLAINTEXT]
        self._listeners = [*own, *listeners, CONTROLLER]
        self._advertised = dict(advertised or {})
        self._env = os.environ if env is None else env
        self._say = say
        self._guard: _Guard | None = None
        self._nodes: tuple[Node, ...] = ()
        self._ports: Sequence[dict[str, int]] = ()

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers``: the addresses of all nodes."""
        return _addresses(node.port for node in self.nodes)

    def listener(self, name: str) -> str:
        """``bootstrap.servers`` of one of its `listeners`."""
        return _addresses(ports[name] for ports in self._ports)

    @property
    def listeners(self) -> dict[str, str]:
        """``bootstrap.servers`` of each listener for clients, by name."""
        return {name: self.listener(name) for name in self._listeners if name != CONTROLLER}

    @property
    def identities(self) -> Identities:
        """
        The users of a secured broker, with their passwords, certificates and tokens.

        Raises:
            BrokerError: it was not started with `secure=True`.
        """
        if not self._secure:
            raise BrokerError("This local broker has no users. Start it with secure=True.")
        return Identities(self.directory / IDENTITIES)

    def kafka(self, user: str = "admin", login: Login = "scram", **options: Any) -> Kafka:
        """
        The cluster for a user of a secured broker: admin, or one of the name of a role.

        Args:
            user: the administrator has all rights, the others those that ACLs give them.
            login: scram, plain, oauthbearer or tls.
            options: more arguments of `Kafka`.
        """
        return self.identities.kafka(self.listeners, user, login, **options)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in order of their ids, which begin with 1.

        Raises:
            BrokerError: it is not started.
        """
        if not self._nodes:
            raise BrokerError("This local broker does not run. Use it in a `with` block, or call start().")
        return self._nodes

    @property
    def directory(self) -> Path:
        """The directory of logs, settings and data, which the end of the broker removes."""
        return self.nodes[0].directory.parent

    def start(self) -> Self:
        """
        Start, and wait until every node sees every other.

        Raises:
            ConfigError: there is no Java, or no jars, or they do not match the lock file.
            BrokerError: it did not start; the text holds the end of the nodes' log.
        """
        if self._guard is not None:
            raise BrokerError("This local broker runs already.")
        java = find_java(self._env)
        jars = find_jars(java, self._env, version=self._version, say=self._say)
        prepared = prepare(java, jars, self._env, say=self._say)
        attempts = ATTEMPTS if self._port is None else 1
        again = Retrying(retry=retry_if_exception_type(_PortTaken), stop=stop_after_attempt(attempts), reraise=True)
        try:
            with progress(self._say, lambda seconds: f"still starting the local broker: {seconds:.0f} s"):
                again(self._start_once, java, jars, prepared)
        except BaseException:
            self.stop()
            raise
        return self

    def _start_once(self, java: Java, jars: Jars, prepared: Path) -> None:
        """Start once, with a new directory, new ports and a new guard; stop what a former try has left."""
        self.stop()
        began = time.monotonic()
        end = began + self._start_timeout_s
        self._guard = guard = _Guard(self._place or Path(tempfile.gettempdir()))
        self._ports = self._choose_ports()
        options = list(STRONG if self._benchmark else QUICK)
        if not self._benchmark:
            options += archive_options(prepared)
        users = Identities.make(guard.directory / IDENTITIES) if self._secure else None
        overrides = {**(users.broker_settings() if users else {}), **self._overrides}
        options += users.java_options() if users else []
        tls = users.context() if users else None
        nodes = []
        for node_id, own in enumerate(self._ports, start=1):
            home = guard.directory / f"node-{node_id}"
            shutil.copytree(node_directory(prepared, node_id), home / "data")
            file = home / "server.properties"
            told = own | {name: ports[node_id - 1] for name, ports in self._advertised.items()}
            settings = node_properties(
                node_id, ports=self._ports, data=home / "data", overrides=overrides, advertised=told
            )
            write_properties(file, settings)
            argv = command(java, jars, home, "kafka.Kafka", str(file), options=options)
            door = probe.Door(own[MUTUAL if users else PLAINTEXT], tls)
            nodes.append(Node(node_id, home, argv, port=own[self._listeners[0]], guard=guard, door=door))
        for node in nodes:
            node.spawn()
        self._nodes = tuple(nodes)
        for node in nodes:
            node.wait_ready(all_of=len(nodes), timeout_s=end - time.monotonic())
        for kind in (probe.TRANSACTION, probe.GROUP):
            nodes[0].wait_coordinator(kind, timeout_s=end - time.monotonic())
        if users:
            self._make_users(users)
        log.info("broker_ready bootstrap=%s seconds=%.2f", self.bootstrap, time.monotonic() - began)

    def _make_users(self, users: Identities) -> None:
        """Tell the cluster the passwords for SCRAM, and write the settings of all users."""
        from cues_kafka.brokers.kafka.users import UserAdmin  # noqa: PLC0415 - loads the client library

        UserAdmin(self.kafka("admin", "tls")).set_passwords(users.passwords())
        users.write_profiles(self.listeners)

    def _choose_ports(self) -> list[dict[str, int]]:
        free = iter(free_ports(len(self._listeners) * self._size))
        ports = [{name: next(free) for name in self._listeners} for _ in range(self._size)]
        if self._port is not None:
            for place, own in enumerate(ports):
                own[self._listeners[0]] = self._port + place
        return ports

    def stop(self) -> None:
        """Kill the nodes and remove their directory, if it runs."""
        guard, self._guard, self._nodes = self._guard, None, ()
        if guard is not None:
            guard.close()

    @property
    def guard_pid(self) -> int:
        """Process id of the guard, the parent of the JVMs; SIGTERM to it ends everything."""
        return self._running_guard().process.pid

    def detach(self) -> None:
        """Let the broker outlive this program; from now on only a signal to the guard ends it."""
        self._running_guard().ask("detach")

    def _running_guard(self) -> _Guard:
        if self._guard is None:
            raise BrokerError("This local broker does not run. Call start() first.")
        return self._guard

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"LocalBroker({self.bootstrap!r})" if self._nodes else "LocalBroker(stopped)"


def _addresses(ports: Iterable[int]) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in ports)


class Node:
    """One node of a running local broker.

    Attributes:
        id: Kafka's ``node.id``.
        port: its port for clients; the same after every restart.
        directory: settings, data and log file.
        pid: the JVM's process id; None after `kill` or `terminate`.
    """

    def __init__(
        self, node_id: int, directory: Path, argv: Sequence[str], *, port: int, guard: _Guard, door: probe.Door
    ) -> None:
        self.id = node_id
        self.port = port
        self.directory = directory
        self.pid: int | None = None
        self._argv = list(argv)
        self._guard = guard
        self._door = door

    @property
    def log_file(self) -> Path:
        """The output of the JVM, of all its starts."""
        return self.directory / "broker.log"

    def kill(self) -> None:
        """Send SIGKILL, and wait until the node is dead."""
        self._end(signal.SIGKILL, timeout_s=10)

    def terminate(self, *, timeout_s: float = 15.0) -> None:
        """
        Send SIGTERM, and wait until Kafka has handed over its leaders, closed its logs and ended.

        Raises:
            BrokerError: it has not ended in this time.
        """
        self._end(signal.SIGTERM, timeout_s=timeout_s)

    def pause(self) -> None:
        """Send SIGSTOP: the node keeps its connections and does not answer."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT after `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        self._guard.ask("signal", name=str(self.id), number=int(number))

    def start(self, *, timeout_s: float = 60.0) -> None:
        """
        Start again after `kill` or `terminate`, on the same port and directory; wait until it serves.

        Raises:
            BrokerError: it runs already, or it does not serve in this time.
        """
        if self.pid is not None:
            raise BrokerError(f"Node {self.id} runs already (pid {self.pid}).")
        self.spawn()
        self.wait_ready(timeout_s=timeout_s)

    def is_alive(self) -> bool:
        """Whether its process exists; it may be paused."""
        return self.pid is not None and self._exit_code(0.0) is None

    def wait_ready(self, *, all_of: int = 1, timeout_s: float = 60.0) -> None:
        """
        Wait until it answers, and sees itself, at least `all_of` nodes, and a controller.

        Raises:
            BrokerError: it ended, or the time is over; the text holds the end of its log.
        """

        def ready() -> bool:
            view = probe.look(*self._door)
            return view is not None and self.id in view.nodes and len(view.nodes) >= all_of and view.controller >= 0

        self._wait(ready, f"see {count(all_of, 'node')}", timeout_s)

    def wait_coordinator(self, kind: int, *, timeout_s: float = 60.0) -> None:
        """Wait until groups or transactions have a coordinator; see `probe.has_coordinator`."""
        self._wait(
            lambda: probe.has_coordinator(self._door.port, kind, self._door.tls), "name a coordinator", timeout_s
        )

    def log_tail(self, lines: int = 30) -> str:
        """The end of the log file."""
        try:
            text = self.log_file.read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    def spawn(self) -> None:
        """Start the JVM without a wait; tests call `start`."""
        answer = self._guard.ask(
            "start", name=str(self.id), argv=self._argv, log=str(self.log_file), cwd=str(self.directory)
        )
        self.pid = int(answer["pid"])

    def _wait(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            code = self._exit_code(POLL_S)
            if code is not None:
                tail = self.log_tail()
                kind = _PortTaken if "Address already in use" in tail else BrokerError
                raise kind(f"Node {self.id} of the local broker ended with code {code}. Its log ends with:\n{tail}")
            if time.monotonic() > end:
                raise BrokerError(
                    f"Node {self.id} of the local broker runs, but after {timeout_s:.0f} s it does not {what} at "
                    f"127.0.0.1:{self.port}. Its log ends with:\n{self.log_tail()}"
                )

    def _end(self, number: signal.Signals, *, timeout_s: float) -> None:
        if self.pid is None:
            return
        self._signal(number)
        end = time.monotonic() + timeout_s
        # In slices, so that other threads can ask about other nodes, and the guard can check that its parent lives.
        while self._exit_code(0.2) is None and time.monotonic() < end:
            continue
        if self._exit_code(0.0) is None:
            raise BrokerError(f"Node {self.id} has not ended {timeout_s:.0f} s after {number.name}.")
        self.pid = None

    def _exit_code(self, timeout_s: float) -> int | None:
        code: int | None = self._guard.ask("wait", name=str(self.id), timeout_s=timeout_s)["exit"]
        return code

    def __repr__(self) -> str:
        return f"Node({self.id}, port={self.port}, pid={self.pid})"


class _PortTaken(BrokerError):
    """Another process took the port first. Start again with other ports."""


class _Guard:
    """The guard process, as its parent sees it."""

    def __init__(self, place: Path) -> None:
        self.directory, owned = locked_directory(PREFIX, place)
        self._owner = os.getpid()
        self._lock = threading.Lock()  # one command and its answer at a time: the answers have no numbers
        with (self.directory / "guard.log").open("wb") as errors:
            try:
                self.process = subprocess.Popen(
                    # Isolated and without site-packages: it needs neither, and starts in half the time.
                    [sys.executable, "-I", "-S", "-B", str(GUARD), str(self.directory), str(os.getpid())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    # A Ctrl-C in the terminal goes to the user's program, which ends the guard when it is done.
                    start_new_session=True,
                    cwd="/",
                    pass_fds=[owned],  # the guard owns the directory from now on
                )
            finally:
                os.close(owned)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._commands, self._answers = self.process.stdin, self.process.stdout

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a command, and return its answer."""
        try:
            with self._lock:
                self._commands.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
                self._commands.flush()
                line = self._answers.readline()
        except (BrokenPipeError, ValueError):
            line = b""
        if not line:
            raise BrokerError("The local broker was stopped: its guard process has ended.")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BrokerError(f"The guard of the local broker could not {do}: {answer['error']}")
        return answer

    def close(self) -> None:
        """Close its input and wait until it has removed everything. A forked child does nothing."""
        if os.getpid() != self._owner:
            return
        with contextlib.suppress(BrokenPipeError):
            self._commands.close()
        # A forked child of this program may keep the pipe open, so closing it is not enough.
        self.process.terminate()
        self.process.wait()
        self._answers.close()
        # If the guard was killed, it removed nothing.
        shutil.rmtree(self.directory, ignore_errors=True)
