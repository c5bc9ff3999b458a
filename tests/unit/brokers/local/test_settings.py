"""Settings, ports and the wire questions of the local broker."""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

import pytest

from cues_kafka.brokers.local import LocalBroker, ports, probe
from cues_kafka.brokers.local.properties import node_properties, write_properties
from cues_kafka.errors import BrokerError, ConfigError

PORTS = {"PLAINTEXT": 1, "CONTROLLER": 2}


def test_everything_listens_on_the_loopback_address_only() -> None:
    """Of one node and of each of three."""
    three = [{"PLAINTEXT": 1000 + i, "CONTROLLER": 2000 + i} for i in (1, 2, 3)]

    settings = node_properties(2, ports=three, data=Path("/d"))

    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1002,CONTROLLER://127.0.0.1:2002"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:2001,2@127.0.0.1:2002,3@127.0.0.1:2003"
    assert settings["node.id"] == "2"


def test_one_node_and_three_nodes_replicate_as_they_can() -> None:
    """Also of internal topics: otherwise the first transaction never ends."""
    one = node_properties(1, ports=[PORTS], data=Path("/d"))
    three = node_properties(1, ports=[PORTS] * 3, data=Path("/d"))

    keys = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
    assert [one[key] for key in keys] == ["1", "1"]
    assert [three[key] for key in keys] == ["3", "3"]
    assert three["min.insync.replicas"] == "2"


def test_overrides_win(tmp_path: Path) -> None:
    """And backslashes survive Java's properties format."""
    settings = node_properties(
        1, ports=[PORTS], data=Path("/d"), overrides={"auto.create.topics.enable": "true", "x": "a\\b"}
    )
    write_properties(tmp_path / "p", settings)

    lines = (tmp_path / "p").read_text().splitlines()
    assert "auto.create.topics.enable=true" in lines
    assert "x=a\\\\b" in lines


@pytest.mark.parametrize("wrong", [{"nodes": 2}, {"nodes": 0}, {"port": 80}, {"port": 65_535}])
def test_wrong_options_are_refused_at_construction(wrong: dict[str, int]) -> None:
    """Nothing is started for them."""
    with pytest.raises(ConfigError):
        LocalBroker(**wrong)  # type: ignore[arg-type]


def test_a_broker_that_does_not_run_says_so() -> None:
    """Instead of an empty address."""
    with pytest.raises(BrokerError, match="does not run"):
        _ = LocalBroker().bootstrap


def test_free_ports_differ_and_lie_below_those_of_outgoing_connections() -> None:
    """A killed node's port must not become some client's source port."""
    found = ports.free_ports(6)

    assert len(set(found)) == 6
    assert all(ports.FIRST <= port < ports.LAST for port in found)


def test_no_two_processes_get_the_same_free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wants the same ones, as servers that start side by side may. A process that has ended keeps none."""
    wished = random.sample(range(ports.FIRST, ports.LAST), 40)
    program = (
        "import random, sys; from cues_kafka.brokers.local.ports import free_ports\n"
        f"random.sample = lambda *_: {wished}\n"
        "print(*free_ports(3), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        theirs = [int(port) for port in other.stdout.readline().split()]
        monkeypatch.setattr(random, "sample", lambda *_: wished)
        ours = ports.free_ports(3) + ports.free_ports(3)
        other.stdin.close()
        other.wait()

    assert len({*theirs, *ours}) == 9
    assert set(theirs) <= set(ports.free_ports(34 - 6))


def test_a_process_keeps_the_newest_ports_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one costs it a file descriptor."""
    monkeypatch.setattr(ports, "MOST_RESERVED", 2)
    monkeypatch.setattr(ports, "_reserved", held := deque())  # type: ignore[var-annotated]
    first, *_ = ports.free_ports(3)

    assert len(held) == 2
    monkeypatch.setattr(random, "sample", lambda *_: [first])
    assert ports.free_ports(1) == [first]
    for mark in held:
        mark.close()


def test_a_port_in_use_is_not_free() -> None:
    """Also for a caller that may reuse lingering ones."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        assert [ports.is_free(port), ports.is_free(port, reuse=True)] == [False, False]


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">ii", 8, 1) + b"abcd"])
def test_what_is_not_kafka_has_no_view(answer: bytes) -> None:
    """It may answer anything."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        view = probe.look(server.getsockname()[1])
        thread.join()

    assert view is None
