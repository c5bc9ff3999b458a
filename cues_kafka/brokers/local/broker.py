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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cues_kafka.brokers.local import probe
from cues_kafka.brokers.local.jars import Say, find_jars
from cues_kafka.brokers.local.java import find_java
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.brokers.local.prepare import MOST_NODES, QUICK, STRONG, Prepared, java_options, prepare
from cues_kafka.brokers.local.properties import Ports, node_properties, write_properties
from cues_kafka.brokers.temporary import locked_directory
from cues_kafka.errors import BrokerError, ConfigError
from cues_kafka.words import count

GUARD = Path(__file__).with_name("guard.py")
PREFIX = "cues-kafka-broker-"
ATTEMPTS = 3
"""Starts with fresh ports: between the moment a free port is found and the JVM binds it, somebody else may take it."""
POLL_S = 0.02
log = logging.getLogger("cues_kafka.brokers.local")


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """
    What a local broker is started with.

    Attributes:
        nodes: 1 or 3.
        port: the first node's port; the others have the next ones. None: free ones.
        overrides: Kafka's settings that win over ours.
        benchmark: both compilers and a heap of 1 GiB; starts slower.
        start_timeout_s: from the start of the JVMs until all nodes serve.
        directory: where the broker's directory is made; None: the system's temporary directory.
        secured: with one more listener, `LocalBroker.secured`, for users who log in by SCRAM-SHA-512 and may do what
            ACLs allow. The listener without a login is the super user's, who makes the users and the ACLs.
        listeners: names of more listeners; `overrides` say in Kafka's settings what they are.
    """

    nodes: int = 1
    port: int | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    benchmark: bool = False
    start_timeout_s: float = 60.0
    directory: Path | None = None
    secured: bool = False
    listeners: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.nodes not in (1, MOST_NODES):
            raise ConfigError(f"A local broker has 1 or {MOST_NODES} nodes, not {self.nodes}.")
        if self.port is not None and not 1024 <= self.port <= 65_535 - self.nodes:
            raise ConfigError(f"port={self.port} cannot be used. Give one from 1024 up, or none.")


class LocalBroker:
    """
    A real Apache Kafka, child of a guard process, gone when this program is gone.

    ::

        with LocalBroker(3) as broker:
            use(broker.bootstrap)
            broker.nodes[0].kill()
            broker.nodes[0].start()

    Its data lives as long as it does. May be started again after `stop`, empty. Not for two threads at once, but for
    calls on its nodes.
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
        secured: bool = False,
        listeners: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        say: Say = log.info,
    ) -> None:
        """
        Keep the options; nothing is started yet.

        Args:
            nodes: see `LocalOptions`, as for all up to `secured`.
            port: the first node's port.
            overrides: Kafka's settings that win over ours.
            benchmark: both compilers and a bigger heap.
            start_timeout_s: from the start of the JVMs until all nodes serve.
            directory: where the broker's directory is made.
            secured: with a listener for users who log in.
            listeners: names of more listeners.
            env: the environment that names Java, jars and cache; None: the process's own.
            say: is told, in words, of what takes long.

        Raises:
            ConfigError: an option is out of range.
        """
        self.options = LocalOptions(
            nodes, port, dict(overrides or {}), benchmark, start_timeout_s, directory, secured, listeners
        )
        self._env = os.environ if env is None else env
        self._say = say
        self._guard: _Guard | None = None
        self._nodes: tuple[Node, ...] = ()
        self._bound: list[Ports] = []

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers``: the addresses of all nodes."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    @property
    def secured(self) -> str:
        """
        ``bootstrap.servers`` of the listeners for users who log in.

        Raises:
            BrokerError: it was not started with `secured=True`.
        """
        if not self.options.secured or not self._nodes:
            raise BrokerError("This local broker has no listener for users. Start it with secured=True.")
        return ",".join(f"127.0.0.1:{ports.sasl}" for ports in self._bound)

    def listener(self, name: str) -> str:
        """``bootstrap.servers`` of one of its `listeners`."""
        return ",".join(f"127.0.0.1:{ports.more[name]}" for ports in self._bound)

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
        """The directory of logs, settings and data; removed with the broker."""
        return self.nodes[0].directory.parent

    def start(self) -> Self:
        """
        Start, and wait until every node sees every other.

        Raises:
            ConfigError: there is no Java, or no jars, or they do not match the lock file.
            BrokerError: it did not start; the end of the nodes' log is in the text.
        """
        if self._guard is not None:
            raise BrokerError("This local broker runs already.")
        java = find_java(self._env)
        jars = find_jars(java, self._env, say=self._say)
        prepared = prepare(java, jars, self._env, say=self._say)
        command = [str(java.program), "-cp", jars.class_path, "kafka.Kafka"]
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._start_once(command, prepared)
                return self
            except _PortTaken as error:
                self.stop()
                if self.options.port is not None or attempt == ATTEMPTS:
                    raise BrokerError(str(error)) from None
            except BaseException:
                self.stop()
                raise
        raise AssertionError("unreachable")

    def _start_once(self, command: Sequence[str], prepared: Prepared) -> None:
        """One attempt: fresh directory, fresh ports, a guard, the JVMs."""
        began = time.monotonic()
        self._guard = guard = _Guard(self.options.directory or Path(tempfile.gettempdir()))
        directory = guard.directory
        self._bound = ports = self._ports()
        nodes = []
        for node_id, own in enumerate(ports, start=1):
            home = directory / f"node-{node_id}"
            shutil.copytree(prepared.template(node_id), home / "data")
            settings = node_properties(node_id, ports=ports, data=home / "data", overrides=self.options.overrides)
            write_properties(home / "server.properties", settings)
            argv = [command[0], *self._java_options(home, prepared), *command[1:], str(home / "server.properties")]
            nodes.append(Node(node_id, own.client, home, argv, guard))
        for node in nodes:
            node.spawn()
        self._nodes = tuple(nodes)
        end = began + self.options.start_timeout_s
        for node in nodes:
            node.wait_ready(all_of=len(nodes), timeout_s=end - time.monotonic())
        for kind in (probe.TRANSACTION, probe.GROUP):
            nodes[0].wait_coordinator(kind, timeout_s=end - time.monotonic())
        log.info("broker_ready bootstrap=%s seconds=%.2f", self.bootstrap, time.monotonic() - began)

    def _ports(self) -> list[Ports]:
        count = self.options.nodes
        free = iter(free_ports((3 + len(self.options.listeners)) * count))
        first = self.options.port
        return [
            Ports(
                client=next(free) if first is None else first + place,
                controller=next(free),
                sasl=next(free) if self.options.secured else None,
                more={name: next(free) for name in self.options.listeners},
            )
            for place in range(count)
        ]

    def _java_options(self, home: Path, prepared: Prepared) -> list[str]:
        if self.options.benchmark:
            return java_options(home, STRONG)
        options = java_options(home, QUICK)
        return [*options, f"-XX:SharedArchiveFile={prepared.archive}"] if prepared.archive.is_file() else options

    def stop(self) -> None:
        """Kill the nodes and remove their directory. Nothing when it does not run."""
        guard, self._guard, self._nodes = self._guard, None, ()
        if guard is not None:
            guard.close()

    @property
    def guard_pid(self) -> int:
        """Process id of the guard, the parent of the JVMs; SIGTERM to it ends everything.

        Raises:
            BrokerError: it is not started.
        """
        if self._guard is None:
            raise BrokerError("This local broker does not run.")
        return self._guard.pid

    def detach(self) -> None:
        """Let it live on without this program; from now on only a signal to the guard ends it."""
        if self._guard is None:
            raise BrokerError("This local broker does not run.")
        self._guard.ask("detach")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"LocalBroker({self.bootstrap!r})" if self._nodes else "LocalBroker(stopped)"


class Node:
    """One node of a running local broker.

    Attributes:
        id: Kafka's ``node.id``.
        port: its port for clients; the same after every restart.
        directory: settings, data and log file.
    """

    def __init__(self, node_id: int, port: int, directory: Path, argv: Sequence[str], guard: _Guard) -> None:
        self.id = node_id
        self.port = port
        self.directory = directory
        self._argv = list(argv)
        self._guard = guard
        self._pid: int | None = None

    @property
    def pid(self) -> int | None:
        """The JVM's process id; None after `kill` or `terminate`."""
        return self._pid

    @property
    def log_file(self) -> Path:
        """What the JVM writes to stdout and stderr, of all its starts."""
        return self.directory / "broker.log"

    def kill(self) -> None:
        """SIGKILL, and wait until it is dead."""
        self._end(signal.SIGKILL, timeout_s=10)

    def terminate(self, *, timeout_s: float = 15.0) -> None:
        """
        SIGTERM: Kafka hands over its leaders and closes its logs; wait for it.

        Raises:
            BrokerError: it has not ended in this time.
        """
        self._end(signal.SIGTERM, timeout_s=timeout_s)

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and answers nothing."""
        self._guard.ask("signal", name=str(self.id), number=int(signal.SIGSTOP))

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        self._guard.ask("signal", name=str(self.id), number=int(signal.SIGCONT))

    def start(self, *, timeout_s: float = 60.0) -> None:
        """
        Start again after `kill` or `terminate`, on the same port and directory; wait until it serves.

        Raises:
            BrokerError: it runs, or it does not serve in this time.
        """
        if self._pid is not None:
            raise BrokerError(f"Node {self.id} runs already (pid {self._pid}).")
        self.spawn()
        self.wait_ready(timeout_s=timeout_s)

    def is_alive(self) -> bool:
        """Whether its process exists; it may be paused."""
        return self._pid is not None and self._exit_code(0.0) is None

    def wait_ready(self, *, all_of: int = 1, timeout_s: float = 60.0) -> None:
        """
        Wait until it answers, sees itself, at least `all_of` nodes, and a controller.

        Raises:
            BrokerError: it ended, or the time is over; the end of its log is in the text.
        """

        def ready() -> bool:
            view = probe.look(self.port)
            return view is not None and self.id in view.nodes and len(view.nodes) >= all_of and view.controller >= 0

        self._wait(ready, f"see {count(all_of, 'node')}", timeout_s)

    def wait_coordinator(self, kind: int, *, timeout_s: float = 60.0) -> None:
        """Wait until transactions (or groups) have a coordinator; see `probe.has_coordinator`."""
        self._wait(lambda: probe.has_coordinator(self.port, kind), "name a coordinator", timeout_s)

    def log_tail(self, lines: int = 30) -> str:
        """The end of the log file."""
        try:
            text = self.log_file.read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    def spawn(self) -> None:
        """Start the JVM and wait for nothing; `start` is what tests want."""
        answer = self._guard.ask(
            "start", name=str(self.id), argv=self._argv, log=str(self.log_file), cwd=str(self.directory)
        )
        self._pid = int(answer["pid"])

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
        if self._pid is None:
            return
        self._guard.ask("signal", name=str(self.id), number=int(number))
        end = time.monotonic() + timeout_s
        # In slices: other threads ask about other nodes meanwhile, and the guard looks whether its parent lives.
        while self._exit_code(0.2) is None and time.monotonic() < end:
            continue
        if self._exit_code(0.0) is None:
            raise BrokerError(f"Node {self.id} has not ended {timeout_s:.0f} s after {number.name}.")
        self._pid = None

    def _exit_code(self, timeout_s: float) -> int | None:
        code: int | None = self._guard.ask("wait", name=str(self.id), timeout_s=timeout_s)["exit"]
        return code

    def __repr__(self) -> str:
        return f"Node({self.id}, port={self.port}, pid={self._pid})"


class _PortTaken(BrokerError):
    """Another process was quicker to take the port. Start again with other ports."""


class _Guard:
    """The guard process, seen from its parent."""

    def __init__(self, place: Path) -> None:
        self.directory, owned = locked_directory(PREFIX, place)
        self._owner = os.getpid()
        self._lock = threading.Lock()
        with (self.directory / "guard.log").open("wb") as errors:
            try:
                self._process = subprocess.Popen(
                    # Isolated and without site-packages: it needs neither, and starts in half the time.
                    [sys.executable, "-I", "-S", "-B", str(GUARD), str(self.directory), str(os.getpid())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    # A Ctrl-C in the terminal is for the user's program, which ends the guard in its own time.
                    start_new_session=True,
                    cwd="/",
                    pass_fds=[owned],  # the guard owns the directory from now on
                )
            finally:
                os.close(owned)

    @property
    def pid(self) -> int:
        """The guard's process id."""
        return self._process.pid

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """One command, one answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            with self._lock:
                self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
        except (BrokenPipeError, ValueError):
            line = b""
        if not line:
            raise BrokerError("The local broker was stopped: its guard process has ended.")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BrokerError(f"The guard of the local broker could not {do}: {answer['error']}")
        return answer

    def close(self) -> None:
        """Close its input and wait until it has removed everything. Not from a forked child: it is not its parent."""
        if os.getpid() != self._owner:
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        # A forked child of this program may hold the pipe open, so the end of the input is not enough.
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()
        # The guard itself may have been killed.
        shutil.rmtree(self.directory, ignore_errors=True)
