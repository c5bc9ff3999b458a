"""RabbitMQ for tests: AMQP 0-9-1, and what its plugins speak."""

from __future__ import annotations

import re
import secrets
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.servers.packages import Programs, ServerError, unpacked
from tests.servers.server import POLL_S, Server

HOME = "usr/lib/rabbitmq/lib/rabbitmq_server-*"
ERLEXEC = "usr/lib/erlang/erts-*/bin/erlexec"
ERLANG = r"erlang-.*"
USER = "cues"
ANSWER_S = 10.0
PLUGINS = ("rabbitmq_stream",)
LISTENERS = ("stream", "stomp", "mqtt")
"""Plugins that listen on all interfaces until they are given an address."""

SETTINGS = {
    "log.file": "false",
    "log.console": "true",
    "log.console.level": "warning",
    "disk_free_limit.absolute": "10MB",  # below it publishers wait, and other tests fill the disk, too
    "raft.wal_max_size_bytes": "33554432",
}

ATOM = rb"(?:d..|w.)"
"""What comes before an atom in Erlang's external format."""
UNDECIDED = re.compile(rb"decisionh\x03%stid((?:(?!decision).){1,200}?)%spresume_abort" % (ATOM, ATOM), re.DOTALL)
"""The name of a transaction in Mnesia's log whose decision follows."""

START = """
setpriv --pdeathsig KILL "$BINDIR/epmd" &
until "$BINDIR/epmd" -names >/dev/null 2>&1; do sleep 0.01; done
exec "$@"
"""
"""RabbitMQ needs epmd, Erlang's register of ports. RabbitMQ would start one that outlives it; this one dies with it."""


class RabbitMq(Server):
    """
    A RabbitMQ of one node; the system's, else the one of Debian's package with its Erlang.

    What it has confirmed is on the disk, whatever `durable` says. `settings` are lines of its configuration.
    """

    kind = "rabbitmq"
    patience_s = 90.0
    more_ports = 5
    taken = "eaddrinuse"

    def __init__(
        self,
        *,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
        place: Path | None = None,
        plugins: Sequence[str] = PLUGINS,
    ) -> None:
        """See `Server`; `plugins` are the names of plugins that it starts, such as ``rabbitmq_amqp1_0``."""
        super().__init__(durable=durable, settings=settings, place=place)
        self._plugins = tuple(plugins)
        self.password = secrets.token_hex(16)

    def command(self) -> list[str]:
        listeners = {
            "listeners.tcp.1": f"127.0.0.1:{self.port}",
            "default_user": USER,
            "default_pass": self.password,
        }
        for plugin, port in zip(LISTENERS, self.ports, strict=False):
            if f"rabbitmq_{plugin}" in self._plugins:
                listeners[f"{plugin}.listeners.tcp.1"] = f"127.0.0.1:{port}"
        if "rabbitmq_stream" in self._plugins:  # clients go to the address that is told to them
            listeners |= {"stream.advertised_host": "127.0.0.1", "stream.advertised_port": str(self.stream_port)}
        lines = [f"{name} = {value}" for name, value in {**SETTINGS, **listeners, **self.settings}.items()]
        (self.directory / "rabbitmq.conf").write_text("\n".join([*lines, ""]), "utf-8")
        (self.directory / "enabled_plugins").write_text(f"[{','.join(self._plugins)}].\n", "utf-8")
        erlexec = _files().erlexec
        self._write_erl(erlexec)
        return [
            "/bin/sh", "-c", START, "sh", str(erlexec), "-noinput", "-s", "rabbit", "boot", "-boot", "start_sasl",
            "+W", "w", "+S", "2:2", "+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none",  # no spinning
            "-kernel", "inet_dist_use_interface", "{127,0,0,1}", "-kernel", "prevent_overlapping_partitions", "false",
            "-syslog", "logger", "[]", "-syslog", "syslog_error_logger", "false",
        ]  # fmt: skip

    def environment(self) -> Mapping[str, str]:
        files = _files()
        own = files.programs.environment
        return {
            **own,
            "PATH": f"{self.directory / 'bin'}:{own['PATH']}",
            "LC_ALL": "C.UTF-8",
            "HOME": str(self.data),  # of the cookie
            "ROOTDIR": str(files.erlang),
            "BINDIR": str(files.erlexec.parent),
            "EMU": "beam",
            "PROGNAME": "erl",
            "ERL_LIBS": str(files.home / "plugins"),
            "ERL_CRASH_DUMP_SECONDS": "0",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.ports[-1]),
            "RABBITMQ_HOME": str(files.home),
            "RABBITMQ_NODENAME": "rabbit@localhost",
            "RABBITMQ_DIST_PORT": str(self.ports[-2]),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.data / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.data / "log"),
            "RABBITMQ_PLUGINS_DIR": str(files.home / "plugins"),
            "RABBITMQ_PLUGINS_EXPAND_DIR": str(self.data / "plugins"),
            "RABBITMQ_PID_FILE": str(self.directory / "rabbitmq.pid"),
        }

    def template(self) -> None:
        return None

    def try_it(self) -> None:
        """Greet it as AMQP 0-9-1 wants it; it answers with its first frame."""
        with socket.create_connection(("127.0.0.1", self.port), ANSWER_S) as connection:
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            answer = connection.recv(8)
        if answer[:1] != b"\x01":
            raise ConnectionError(f"it answered with {answer!r}")

    def until_kept(self, queue: str, *, kind: str = "quorum") -> None:
        """
        Wait until a queue or a stream would be found again after SIGKILL.

        RabbitMQ writes to the disk some time later: that the declaration of a queue is committed, the name of a quorum
        queue, and that of the coordinator of streams. A queue whose declaration is not committed there is gone after
        SIGKILL, a quorum queue without its name begins again empty, and a stream stays away.
        """
        node = self.data / "mnesia" / "rabbit@localhost"
        names = {
            "stream": (b"rabbit_stream_coordinator", node / "coordination/rabbit@localhost/names.dets"),
            "quorum": (queue.encode(), node / "quorum/rabbit@localhost/names.dets"),
        }
        end = time.monotonic() + ANSWER_S
        while not declared(node, queue.encode()) or (kind in names and not _has(names[kind][1], names[kind][0])):
            if time.monotonic() > end:
                raise ServerError(f"{queue} is not kept in {node} after {ANSWER_S:.0f} s.")
            time.sleep(POLL_S)  # nothing tells

    def remains_of(self, queue: str) -> str:
        """Where the name of a queue is on the disk, and the end of the log; for a queue that the broker has lost."""
        files = sorted((self.data / "mnesia" / "rabbit@localhost").glob("*.[LD]*"))
        held = [file.name for file in files if _has(file, queue.encode())]
        return f"{queue} is in {held}.\n{self.log_tail(200)}"

    def url(self, database: str = "%2F") -> str:
        """The address of a virtual host by AMQP, with user and password."""
        return f"amqp://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    @property
    def stream_port(self) -> int:
        """The port of the stream protocol, if the plugin runs."""
        return self.ports[0]

    @property
    def stomp_port(self) -> int:
        """The port of STOMP, if the plugin runs."""
        return self.ports[1]

    @property
    def mqtt_port(self) -> int:
        """The port of MQTT, if the plugin runs."""
        return self.ports[2]

    def _write_erl(self, erlexec: Path) -> None:
        """The command `erl`, which RabbitMQ starts: that of an unpacked package looks below /usr."""
        erl = self.directory / "bin" / "erl"
        erl.parent.mkdir(exist_ok=True)
        erl.write_text(f'#!/bin/sh\nexec "{erlexec}" "$@"\n', "utf-8")
        erl.chmod(0o755)


def declared(node: Path, queue: bytes) -> bool:
    """
    Whether the declaration of a queue is committed on the disk, in Mnesia's directory of a node.

    There is a table of queues on the disk and one in memory. So Mnesia writes the transaction to its log as one that is
    aborted if nothing else follows, and another process writes the decision, as a record of its own. RabbitMQ waits for
    the disk once, perhaps between the two, and the decision is there later. A node that starts
    without it drops the queue, although its name is in the log.
    """
    if any(_has(table, queue) for table in node.glob("rabbit_durable_queue.DC[DL]")):
        return True  # the log is folded into the table, behind the decision
    log = b"".join(_bytes(node / name) for name in ("PREVIOUS.LOG", "LATEST.LOG"))
    begun = [(found.end(), found[1]) for found in UNDECIDED.finditer(log)]
    for found in re.finditer(re.escape(queue), log):
        names = [name for end, name in begun if end <= found.start()]
        if names and re.search(re.escape(names[-1]) + ATOM + b"committed", log, re.DOTALL):
            return True
    return False


def _has(file: Path, name: bytes) -> bool:
    return name in _bytes(file)


def _bytes(file: Path) -> bytes:
    """What a file holds; nothing if it is not there, as while RabbitMQ replaces it."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


class _Files(NamedTuple):
    """RabbitMQ's directory, Erlang's, Erlang's starter, and where they come from."""

    programs: Programs
    home: Path
    erlang: Path
    erlexec: Path


@cache
def _files() -> _Files:
    """The system's files, else unpacked ones."""
    system = Programs(Path("/"), "system")
    if system.newest(HOME) is not None and system.newest(ERLEXEC) is not None and shutil.which("setpriv"):
        return _found(system)
    return unpacked_files()


def unpacked_files() -> _Files:
    """The files of Debian's packages, also where the system has others."""
    return _found(unpacked("rabbitmq-server", f"{HOME}/sbin/rabbitmq-server", also=ERLANG))


def _found(programs: Programs) -> _Files:
    home = programs.newest(HOME)
    erlexec = programs.newest(ERLEXEC) or Programs(Path("/"), "system").newest(ERLEXEC)
    if home is None or erlexec is None:
        raise ServerError(f"{programs.root} holds no {HOME} or no {ERLEXEC}. Remove it; the next run unpacks it again.")
    return _Files(programs, home, erlexec.parents[2], erlexec)
