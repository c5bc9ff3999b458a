"""The settings of a node, as a properties file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

Ports: TypeAlias = Mapping[str, int]
"""The ports of one node, by the name of the listener. CONTROLLER is for the nodes, the others are for clients."""

CONTROLLER, PLAINTEXT = "CONTROLLER", "PLAINTEXT"
LOGIN, TLS, MUTUAL = "LOGIN", "TLS", "MUTUAL"
"""The listeners of a secured broker: for logins by SASL over TLS, for TLS alone, and for certificates of clients."""

COMMON = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # Members of the protocol `consumer` hear of a rebalance with their next heartbeat: after a second instead of five.
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
    # By default Kafka allocates 128 MiB at once.
    "log.cleaner.dedupe.buffer.size": "2097152",
    # Kafka notices a hanging transaction after half a second instead of ten.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # Compaction within seconds, for tests that wait for it. Each look at all topics costs an idle broker its time.
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
}

ONE_NODE = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # The controller refuses a node that returns before its old session ends: a restart takes 3 s instead of 15 s.
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    # No other node waits to hear from this one: twice a second it wrote a record that says nothing.
    "metadata.max.idle.interval.ms": "0",
}

MORE_NODES = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "replica.lag.time.max.ms": "3000",
}


def node_properties(
    node_id: int,
    *,
    ports: Sequence[Ports],
    data: Path,
    overrides: Mapping[str, str] | None = None,
    advertised: Ports | None = None,
) -> dict[str, str]:
    """
    All settings of one node.

    Args:
        node_id: its place in `ports`, from 1.
        ports: of all nodes.
        data: its directory of data.
        overrides: win over all others.
        advertised: the ports that it tells clients; None: its own.
    """
    own = ports[node_id - 1]
    return {
        **COMMON,
        **(ONE_NODE if len(ports) == 1 else MORE_NODES),
        "node.id": str(node_id),
        # With static voters a formatted directory does not depend on ports, so it can be copied.
        "controller.quorum.voters": ",".join(f"{i}@127.0.0.1:{p[CONTROLLER]}" for i, p in enumerate(ports, start=1)),
        "listeners": _listeners(own),
        "advertised.listeners": _listeners({n: port for n, port in (advertised or own).items() if n != CONTROLLER}),
        "log.dirs": str(data),
        **(overrides or {}),
    }


def _listeners(ports: Ports) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


def write_properties(file: Path, properties: Mapping[str, str]) -> None:
    """Write them in Java's format, whose escape character is the backslash."""
    lines = [f"{key}={value}".replace("\\", "\\\\") for key, value in properties.items()]
    file.touch(mode=0o600)  # those of a secured broker hold passwords
    file.write_text("\n".join(lines) + "\n", "utf-8")
