"""Local brokers that outlive the program that starts them: one per user and name (``cues-kafka broker up``).

A record in the user's state directory says where a broker is. The lock that its guard holds says whether it runs, so a
record that a reboot left behind does no harm.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import platformdirs

from cues_kafka.brokers.local import probe
from cues_kafka.brokers.local.broker import IDENTITIES, LocalBroker
from cues_kafka.brokers.local.guard import PIDS
from cues_kafka.brokers.local.identities import Identities
from cues_kafka.brokers.local.jars import VERSION, Say, cache_dir, exclusive
from cues_kafka.brokers.local.ports import is_free
from cues_kafka.brokers.local.properties import MUTUAL
from cues_kafka.brokers.temporary import has_owner
from cues_kafka.errors import BrokerError, ConfigError
from cues_kafka.words import count

DOWN_TIMEOUT_S = 20.0

ANSWER_TIMEOUT_S = 5.0

AGAIN_TIMEOUT_S = 60.0
"""How long a node may take that is started again: it reads its log first."""


@dataclass(frozen=True, slots=True)
class RecordedNode:
    """One node, as it was started."""

    id: int
    port: int
    pid: int


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """
    A detached broker, as it was started.

    Attributes:
        name: its name on this machine.
        bootstrap: the addresses for clients.
        guard: the guard's pid.
        directory: of logs and data.
        nodes: by their ids.
        listeners: of a secured broker, the addresses of each listener by name; of another one, none.
        version: of Apache Kafka; empty: that of a distribution of the user.
    """

    name: str
    bootstrap: str
    guard: int
    directory: str
    nodes: tuple[RecordedNode, ...]
    listeners: Mapping[str, str] = field(default_factory=dict)
    version: str = ""

    @property
    def identities(self) -> Identities | None:
        """The users of a secured broker; None: everybody may do everything there."""
        return Identities(Path(self.directory) / IDENTITIES) if self.listeners else None

    def serving(self) -> tuple[int, ...]:
        """Ids of the nodes that answer now."""
        tls = self.identities.context() if self.identities else None
        doors = self.listeners.get(MUTUAL, self.bootstrap).split(",")
        doors_of = zip(self.nodes, (probe.Door(int(door.rpartition(":")[2]), tls) for door in doors), strict=True)
        return tuple(node.id for node, door in doors_of if probe.answers(door))


def up(
    name: str,
    *,
    nodes: int,
    port: int | None,
    overrides: Mapping[str, str],
    benchmark: bool,
    say: Say,
    secure: bool = False,
    version: str | None = None,
) -> tuple[RunningBroker, bool]:
    """
    Start a broker of this name with options of `LocalBroker`, unless it runs.

    Returns:
        Its record, and whether this call started it.

    Raises:
        ConfigError: the port is taken, or something that `LocalBroker.start` needs is missing.
        BrokerError: it did not start.
    """
    with _one_at_a_time(say):
        if (record := status(name)) is not None:
            return record, False
        home = _home(name)
        broker = LocalBroker(
            nodes, port=port, overrides=overrides, benchmark=benchmark, directory=home, say=say, secure=secure,
            version=version,
        )  # fmt: skip
        if port is not None:
            _check_ports(range(port, port + nodes))
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        say(f"starting broker {name!r} with {count(nodes, 'node')}: seconds, on a busy machine up to a minute")
        try:
            broker.start()
            started = tuple(RecordedNode(node.id, node.port, node.pid or 0) for node in broker.nodes)
            # The record comes first: a detached broker without a record could not be found, and would run on.
            listeners = broker.listeners if secure else {}
            known = version or ("" if os.environ.get("CUES_KAFKA_HOME") else VERSION)
            record = RunningBroker(
                name, broker.bootstrap, broker.guard_pid, str(broker.directory), started, listeners, known
            )
            (home / "record.json").write_text(json.dumps(asdict(record), indent=1) + "\n", "utf-8")
            broker.detach()
        except BaseException:
            broker.stop()
            _forget(name)
            raise
        return record, True


def start_again(name: str, *, say: Say) -> tuple[RecordedNode, ...]:
    """
    Start the nodes of a running broker again that have ended, with their data; returns these, once they serve.

    Raises:
        BrokerError: the guard does not answer, or a node does not serve in time.
    """
    with _one_at_a_time(say):
        before = status(name)
        if before is None or len(before.serving()) == len(before.nodes):
            return ()
        directory = Path(before.directory)
        looks = _pids(directory)[0]
        os.kill(before.guard, signal.SIGHUP)
        end = time.monotonic() + ANSWER_TIMEOUT_S
        while _pids(directory)[0] == looks:
            if time.monotonic() > end:
                raise BrokerError(
                    f"The guard of broker {name!r} (pid {before.guard}) does not answer. Run `cues-kafka broker down "
                    f"--name {name}`, which deletes its data, then start it again."
                )
            time.sleep(0.02)  # the guard is not a child of this process, and answers by the file
        end = time.monotonic() + AGAIN_TIMEOUT_S
        after = _with_pids(before)
        again = tuple(new for old, new in zip(before.nodes, after.nodes, strict=True) if new.pid != old.pid)
        for node in again:
            say(f"starting node {node.id} again: it reads its log first")
        while left := {node.id for node in again} - set(after.serving()):
            if time.monotonic() > end:
                raise BrokerError(
                    f"Node {min(left)} was started again and does not serve after {AGAIN_TIMEOUT_S:.0f} s. "
                    f"See {directory}/node-{min(left)}/broker.log"
                )
            time.sleep(0.1)
        return again


def _with_pids(record: RunningBroker) -> RunningBroker:
    """The record with the pids of nodes that were started again."""
    _, pids = _pids(Path(record.directory))
    return replace(record, nodes=tuple(replace(node, pid=pids.get(str(node.id), node.pid)) for node in record.nodes))


def _pids(directory: Path) -> tuple[int, dict[str, int]]:
    """How often the guard has looked for nodes that ended, and the pids then."""
    try:
        found = json.loads((directory / PIDS).read_text("utf-8"))
    except FileNotFoundError:
        return 0, {}
    return found["looks"], found["pids"]


def status(name: str) -> RunningBroker | None:
    """The broker of this name, if it runs."""
    try:
        data = json.loads((_home(name) / "record.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    record = RunningBroker(**{**data, "nodes": tuple(RecordedNode(**node) for node in data["nodes"])})
    return _with_pids(record) if has_owner(Path(record.directory)) else None


def names() -> list[str]:
    """Names of this user's running brokers."""
    home = _home("any").parent
    found = sorted(file.parent.name for file in home.glob("*/record.json")) if home.is_dir() else []
    return [name for name in found if status(name) is not None]


def down(name: str, *, say: Say) -> bool:
    """
    Stop the broker of this name and remove its data; returns whether it ran. `say` takes a line while it waits.

    Raises:
        BrokerError: it did not end; the text names its pid.
    """
    with _one_at_a_time(say):
        record = status(name)
        if record is not None:
            # The lock is held, so this pid is still the guard's.
            os.kill(record.guard, signal.SIGTERM)
            end = time.monotonic() + DOWN_TIMEOUT_S
            while Path(record.directory).exists():  # the guard removes it last
                if time.monotonic() > end:
                    raise BrokerError(f"The broker {name!r} (guard {record.guard}) has not ended on SIGTERM. Kill it.")
                time.sleep(0.02)  # it is not a child of this process, so there is nothing to wait on
        _forget(name)
        return record is not None


def _check_ports(ports: Iterable[int]) -> None:
    for port in ports:
        if not is_free(port, reuse=True):
            raise ConfigError(
                f"Port {port} of 127.0.0.1 is taken by another process. "
                "Give another with --port, or --port 0 for a free one."
            )


def _forget(name: str) -> None:
    home = _home(name)
    shutil.rmtree(home, ignore_errors=True)
    for folder in (home.parent, home.parent.parent):
        try:
            folder.rmdir()
        except OSError:  # other files are in it
            return


def _home(name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", name):
        raise ConfigError(f"{name!r} is not a valid name for a broker. Use letters, digits, _ and -, at most 80.")
    given = os.environ.get("CUES_KAFKA_STATE")
    return Path(given or platformdirs.user_state_path("cues_kafka")) / "brokers" / name


def _one_at_a_time(say: Say) -> AbstractContextManager[None]:
    """A lock in the cache: a lock file cannot be removed safely, and the state directory shall be left empty."""
    return exclusive(cache_dir() / "broker-up.lock", say=say)
