"""Local brokers that outlive the program that starts them: one per user and name (``cues-kafka broker up``).

A record in the user's state directory says where a broker is. Whether it runs is not a matter of the record: its
guard holds a lock as long as it lives, and only that is believed. So a record that a reboot left behind does no harm.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs

from cues_kafka.brokers.local import probe
from cues_kafka.brokers.local.broker import LocalBroker, LocalOptions
from cues_kafka.brokers.local.jars import Say, cache_dir, exclusive
from cues_kafka.brokers.local.ports import is_free
from cues_kafka.brokers.temporary import has_owner
from cues_kafka.errors import BrokerError, ConfigError

DOWN_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class RecordedNode:
    """One node, as it was started."""

    id: int
    port: int
    pid: int


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A detached broker, as it was started.

    Attributes:
        name: the user's name for it.
        bootstrap: ``bootstrap.servers``.
        guard: pid of the guard; SIGTERM ends everything.
        directory: logs and data.
        nodes: the nodes, in order of their ids.
    """

    name: str
    bootstrap: str
    guard: int
    directory: str
    nodes: tuple[RecordedNode, ...]

    def serving(self) -> tuple[int, ...]:
        """Ids of the nodes that answer now."""
        return tuple(node.id for node in self.nodes if probe.look(node.port) is not None)


def up(name: str, options: LocalOptions, *, say: Say) -> tuple[RunningBroker, bool]:
    """
    Start a broker of this name, unless it runs.

    Returns:
        Its record, and whether it was started by this call.

    Raises:
        ConfigError: the port is taken, or what `LocalBroker.start` needs is not there.
        BrokerError: it did not start.
    """
    with _one_at_a_time():
        if (record := status(name)) is not None:
            return record, False
        _check_ports(options)
        home = _home(name)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        broker = LocalBroker(
            options.nodes,
            port=options.port,
            overrides=options.overrides,
            benchmark=options.benchmark,
            start_timeout_s=options.start_timeout_s,
            directory=home,
            say=say,
        )
        try:
            broker.start()
            nodes = tuple(RecordedNode(node.id, node.port, node.pid or 0) for node in broker.nodes)
            directory, bootstrap = str(broker.directory), broker.bootstrap
            # The record comes before the detachment: a broker that nobody could find would run for ever.
            record = RunningBroker(name, bootstrap, broker.guard_pid, directory, nodes)
            (home / "record.json").write_text(json.dumps(asdict(record), indent=1) + "\n", "utf-8")
            broker.detach()
        except BaseException:
            broker.stop()
            _forget(name)
            raise
        return record, True


def status(name: str) -> RunningBroker | None:
    """The broker of this name if it runs."""
    try:
        data = json.loads((_home(name) / "record.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    record = RunningBroker(**{**data, "nodes": tuple(RecordedNode(**node) for node in data["nodes"])})
    return record if has_owner(Path(record.directory)) else None


def names() -> list[str]:
    """Names of all brokers of this user that run."""
    home = _home("any").parent
    found = sorted(file.parent.name for file in home.glob("*/record.json")) if home.is_dir() else []
    return [name for name in found if status(name) is not None]


def down(name: str) -> bool:
    """
    Stop the broker of this name and remove its data; whether there was one.

    Raises:
        BrokerError: it did not end; its pid is in the text.
    """
    with _one_at_a_time():
        record = status(name)
        if record is not None:
            # The lock is held, so this pid is the guard's and nobody else's.
            os.kill(record.guard, signal.SIGTERM)
            end = time.monotonic() + DOWN_TIMEOUT_S
            while Path(record.directory).exists():  # Removed last of all.
                if time.monotonic() > end:
                    raise BrokerError(f"The broker {name!r} (guard {record.guard}) has not ended on SIGTERM.")
                time.sleep(0.02)  # It is no child of this process: nothing to wait on.
        _forget(name)
        return record is not None


def _check_ports(options: LocalOptions) -> None:
    if options.port is None:
        return
    for port in range(options.port, options.port + options.nodes):
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
        except OSError:  # Other brokers, or other things of the user, are in it.
            return


def _home(name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", name):
        raise ConfigError(f"{name!r} is no name for a broker. Use letters, digits, _ and -, at most 80.")
    return _state_dir(os.environ) / "brokers" / name


def _state_dir(env: Mapping[str, str]) -> Path:
    given = env.get("CUES_KAFKA_STATE")
    return Path(given) if given else platformdirs.user_state_path("cues_kafka")


def _one_at_a_time() -> AbstractContextManager[None]:
    """In the cache, as lock files cannot be removed safely and the state directory shall be left empty."""
    return exclusive(cache_dir() / "broker-up.lock")
