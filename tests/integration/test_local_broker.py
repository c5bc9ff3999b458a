"""The local broker, for real: starts, deaths of nodes and of its parent, and what they leave behind (nothing)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from cues_kafka import Kafka, Topic, connect
from cues_kafka.brokers.local import LocalBroker, probe
from cues_kafka.brokers.local.jars import VERSION, find_jars, lock_of, read_lock
from cues_kafka.brokers.local.java import FROM_PACKAGE, NO_PERF_DATA, find_java
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.cli.main import app
from cues_kafka.errors import BrokerError
from cues_kafka.testing.fixtures import FaultClusters, KafkaFixture
from tests.fault.support import until

PARENT = """
import os, sys, time
from cues_kafka.brokers.local import LocalBroker

broker = LocalBroker(int(sys.argv[1])).start()
me = os.getpid()
if os.fork() == 0:  # It inherits the pipe to the guard, and outlives its parent a little.
    while os.getppid() == me:
        time.sleep(0.1)
    time.sleep(3)
    os._exit(0)
print(broker.guard_pid, *(node.pid for node in broker.nodes), broker.directory, flush=True)
time.sleep(600)
"""


def eventually(condition: Callable[[], bool], timeout_s: float = 15.0) -> bool:
    """Whether the condition holds within the time."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def is_gone(pid: int) -> bool:
    """Whether the process has ended; one that is not reaped yet counts as ended."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def run_cli(*arguments: str, state: Path) -> subprocess.CompletedProcess[str]:
    """``cues-kafka broker ...`` with a state directory of its own."""
    return subprocess.run(
        [sys.executable, "-c", "from cues_kafka.cli.main import main; main()", "broker", *arguments],
        env={**os.environ, "CUES_KAFKA_STATE": str(state), "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture
def parent() -> Iterator[Callable[[int], tuple[subprocess.Popen[str], list[int], Path]]]:
    """Start a program that holds a broker; returns the program, the pids of guard and nodes, and the directory."""
    programs: list[subprocess.Popen[str]] = []

    def make(nodes: int) -> tuple[subprocess.Popen[str], list[int], Path]:
        program = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(nodes)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        programs.append(program)
        assert program.stdout is not None
        *pids, directory = program.stdout.readline().split()
        return program, [int(pid) for pid in pids], Path(directory)

    yield make
    for program in programs:
        program.kill()
        program.wait()
        assert program.stdout is not None
        program.stdout.close()


def test_it_serves_and_leaves_no_process_and_no_directory() -> None:
    """One node; the second start is the quick one, and its seconds are printed."""
    with LocalBroker():
        pass
    began = time.monotonic()
    with LocalBroker() as broker:
        print(f"second start: {time.monotonic() - began:.2f} s")
        (node,) = broker.nodes
        pid, directory, guard = node.pid, broker.directory, broker.guard_pid
        assert pid is not None
        assert NO_PERF_DATA in psutil.Process(pid).cmdline()
        view = probe.look(node.port)
        assert broker.bootstrap == f"127.0.0.1:{node.port}"
        assert view == probe.View(frozenset({1}), 1)
        addresses = {c.laddr.ip for c in psutil.Process(pid).net_connections() if c.status == psutil.CONN_LISTEN}
        assert {ip.removeprefix("::ffff:") for ip in addresses} == {"127.0.0.1"}

    assert is_gone(pid)
    assert is_gone(guard)
    assert not directory.exists()


def test_a_killed_node_comes_back_with_its_data_on_the_same_port(kafka_fault_cluster: FaultClusters) -> None:
    """After SIGKILL and after SIGTERM; a running node cannot be started."""
    broker = kafka_fault_cluster()
    (node,) = broker.nodes
    first, port = node.pid, node.port
    data = node.directory / "data" / "__transaction_state-0"
    assert data.is_dir()

    node.kill()
    assert not node.is_alive()
    assert probe.look(port) is None
    began = time.monotonic()
    node.start()
    print(f"restart after SIGKILL: {time.monotonic() - began:.2f} s")

    assert node.pid != first
    assert node.port == port
    assert data.is_dir()
    with pytest.raises(BrokerError, match="runs already"):
        node.start()
    node.terminate()
    assert "KafkaRaftServer" in node.log_tail()
    node.start()
    assert probe.look(port) is not None


@pytest.mark.full
def test_a_paused_node_answers_after_it_is_resumed(kafka_fault_cluster: FaultClusters) -> None:
    """SIGSTOP keeps the port open and the process alive."""
    (node,) = kafka_fault_cluster().nodes

    node.pause()
    assert probe.look(node.port, timeout_s=0.3) is None
    assert node.is_alive()
    node.resume()

    assert eventually(lambda: probe.look(node.port) is not None)


@pytest.mark.full
@pytest.mark.timeout(180)
def test_three_nodes_see_each_other_and_outlive_one_of_them(kafka_fault_cluster: FaultClusters) -> None:
    """The killed node returns to the cluster."""
    began = time.monotonic()
    broker = kafka_fault_cluster(3)
    print(f"three nodes: {time.monotonic() - began:.2f} s")
    one, two, three = broker.nodes
    assert len({node.port for node in broker.nodes}) == 3
    for node in broker.nodes:
        view = probe.look(node.port)
        assert view is not None
        assert view.nodes == {1, 2, 3}

    two.kill()
    assert eventually(lambda: (v := probe.look(one.port)) is not None and v.nodes == {1, 3} and v.controller in v.nodes)
    two.start()

    two.wait_ready(all_of=3)
    three.wait_ready(all_of=3)


def test_a_wrong_setting_is_told_with_the_end_of_the_log(tmp_path: Path) -> None:
    """The failed broker leaves no files."""
    broker = LocalBroker(overrides={"log.retention.hours": "many"}, directory=tmp_path)

    with pytest.raises(BrokerError, match=r"Node 1 .* ended with code [\s\S]*log\.retention\.hours"):
        broker.start()

    assert list(tmp_path.iterdir()) == []


def test_a_start_whose_port_is_taken_is_repeated_with_other_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may take a free port before the JVM binds it. A port that the user names is not replaced."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        client, controller = free_ports(2)
        choices = iter([[port, controller], [client, controller]])
        monkeypatch.setattr("cues_kafka.brokers.local.broker.free_ports", lambda _: next(choices))

        with LocalBroker(directory=tmp_path) as broker:
            assert broker.bootstrap == f"127.0.0.1:{client}"
            assert list(tmp_path.iterdir()) == [broker.directory]  # nothing is left of the first try

        choices = iter([[client, controller]])
        with pytest.raises(BrokerError, match="Address already in use"):
            LocalBroker(port=port, directory=tmp_path).start()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("nodes", [1, pytest.param(3, marks=pytest.mark.full)])
def test_everything_dies_with_a_parent_that_is_killed(
    parent: Callable[[int], tuple[subprocess.Popen[str], list[int], Path]], nodes: int
) -> None:
    """After a SIGKILL the guard cleans up, even while a fork of the parent lives."""
    program, pids, directory = parent(nodes)
    assert len(pids) == nodes + 1
    assert directory.is_dir()

    program.send_signal(signal.SIGKILL)
    program.wait()

    # Before the fork of the parent ends, which still holds the pipe to the guard open.
    assert eventually(lambda: all(is_gone(pid) for pid in pids), timeout_s=2.5)
    assert eventually(lambda: not directory.exists(), timeout_s=2.5)


def test_the_nodes_die_with_a_guard_that_is_killed_and_the_parent_is_told(kafka_fault_cluster: FaultClusters) -> None:
    """The kernel kills the nodes; the next stop or start removes the directory."""
    broker = kafka_fault_cluster()
    (node,) = broker.nodes
    pid, directory = node.pid, broker.directory
    assert pid is not None

    os.kill(broker.guard_pid, signal.SIGKILL)

    assert eventually(lambda: is_gone(pid))
    with pytest.raises(BrokerError, match="guard process has ended"):
        node.start() if node.pid is None else node.kill()
    broker.stop()
    assert not directory.exists()


def test_a_detached_broker_is_started_once_found_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    `up` twice, `status`, `down` twice; nothing is left. The program that starts it has ended when it is looked for; the
    other commands run in this process, which costs a quarter of a second less for each.
    """
    name = "of-the-test"
    monkeypatch.setenv("CUES_KAFKA_STATE", str(tmp_path / "s"))
    monkeypatch.setenv("NO_COLOR", "1")

    def said(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["broker", *arguments])

    try:
        first = run_cli("up", "--name", name, "--port", "0", state=tmp_path / "s")
        assert first.returncode == 0, first.stderr
        assert "starting broker 'of-the-test' with 1 node: seconds" in first.stderr
        second = said("up", "--name", name, "--kafka-version", "3.9.2")
        assert "is already running" in second.stdout
        assert (second.exit_code, "It is not Kafka 3.9.2. End it first" in second.stderr) == (2, True)
        record: dict[str, Any] = json.loads(said("status", "--name", name, "--json").stdout)
        assert record["bootstrap"] in first.stdout
        assert record["serving"] == [1]
        assert "node 1" in said("status", "--name", name).stdout
        other = said("status")
        assert (other.exit_code, "these are: of-the-test" in other.stdout) == (1, True)
        unnamed = said("env")
        assert "these are: of-the-test. Name one of them with --name, or start it:" in unnamed.stderr
    finally:
        down = run_cli("down", "--name", name, state=tmp_path / "s")

    assert "is stopped" in down.stdout
    until(lambda: is_gone(record["guard"]), "the guard has ended")
    assert is_gone(record["nodes"][0]["pid"])
    assert list(tmp_path.iterdir()) == []
    assert "is not running" in said("down", "--name", name).stdout
    assert said("status", "--name", name).exit_code == 1


@pytest.mark.full
def test_up_starts_a_node_again_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its data; `status` names the command and, afterwards, the new process."""
    monkeypatch.setenv("CUES_KAFKA_STATE", str(tmp_path / "s"))
    named = ["--name", "of-the-test"]

    def said(command: str, *more: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, ["broker", command, *named, *more])
        assert done.exit_code == code, done.output
        assert ("starting node 1 again" in done.stderr) == ("started again" in done.stdout)
        return done.stdout

    try:
        said("up", "--port", "0")
        before = json.loads(said("status", "--json"))
        with connect(Kafka(before["bootstrap"])) as client:
            client.topic("kept", Topic(partitions=1), create=True)
            client.send("kept", "a")
        pid = before["nodes"][0]["pid"]
        os.kill(pid, signal.SIGKILL)
        until(lambda: is_gone(pid), "the node has ended")
        assert "start nodes again that have ended: cues-kafka broker up --name of-the-test" in said("status", code=3)

        again = said("up")
        after = json.loads(said("status", "--json"))
        new = after["nodes"][0]["pid"]
        assert f"node 1 had ended and is started again, with its data: pid {new}" in again
        assert (after["serving"], new != pid) == ([1], True)
        with connect(Kafka(after["bootstrap"])) as client:
            assert [message.value for message in client.messages("kept")] == ["a"]
    finally:
        said("down")

    assert is_gone(new)


def test_a_taken_port_is_named(tmp_path: Path, kafka: KafkaFixture) -> None:
    """Before any JVM is started; another local broker holds it."""
    port = kafka.bootstrap.rpartition(":")[2]

    done = run_cli("up", "--port", port, state=tmp_path / "s")

    assert done.returncode == 2
    assert f"Port {port} of 127.0.0.1 is taken" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_each_test_has_names_of_its_own(kafka: KafkaFixture) -> None:
    """The names tell the test, and fit Kafka's rules."""
    assert kafka.unique("orders") == f"{kafka.prefix}-orders"
    assert kafka.prefix.startswith("test-each-test-has-names")
    assert probe.look(int(kafka.bootstrap.rpartition(":")[2])) is not None


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", ["3.9.2", VERSION])
def test_without_maven_and_java_the_ivy_of_pyspark_brings_the_same_jars(tmp_path: Path, version: str) -> None:
    """A PATH with neither; the Java from PyPI runs Ivy and then the broker; every jar is the one of the lock file."""
    env = {key: value for key, value in os.environ.items() if key not in {"JAVA_HOME", "CUES_KAFKA_HOME"}}
    env |= {"PATH": str(tmp_path), "CUES_KAFKA_CACHE": str(tmp_path / "cache")}
    java = find_java(env)
    assert java.origin == FROM_PACKAGE

    jars = find_jars(java, env, version=version)

    assert {file.name for file in jars.files} == read_lock(lock_of(version)).keys()
    assert all(file.is_relative_to(tmp_path / "cache" / "jars" / f"broker-{version}") for file in jars.files)
    with LocalBroker(env=env, version=version):
        pass
    began = time.monotonic()
    with LocalBroker(env=env, version=version) as broker:
        print(f"second start on {java.version.splitlines()[0]}: {time.monotonic() - began:.2f} s")
        assert probe.look(broker.nodes[0].port) is not None
