"""``cues-kafka run`` and ``plan`` as programs, on a real broker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import psutil
import pytest
from typer.testing import CliRunner

from cues_kafka import Kafka, connect, start
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.loading import load_graph
from cues_kafka.cli.main import app
from cues_kafka.graph.definition import Graph
from cues_kafka.ports.facts import NewTopic
from cues_kafka.testing.fixtures import KafkaFixture
from tests.integration.test_supervisor import wait_for

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "cues_kafka.cli.main"]


@pytest.fixture
def target(kafka: KafkaFixture, tmp_path: Path) -> str:
    """A graph in a file of its own, with names of its own: doubles numbers, and stops at 13."""
    name = kafka.unique("run")
    file = tmp_path / f"graph_{name.replace('-', '_')}.py"
    file.write_text(
        dedent(
            f"""
            from cues_kafka import Graph, Json, Processor, Source, Topic

            def double(number: int) -> int:
                if number == 13:
                    raise ValueError("thirteen")
                return 2 * number

            def again(number: int) -> int:
                return number

            graph = Graph("{name}", Source("{name}.in"), Processor(double, inputs="{name}.in", outputs="{name}.out"),
                          Processor(again, inputs="{name}.in", outputs="{name}.again"),
                          defaults=Topic(value=Json(int), partitions=2))
            """
        )
    )
    return f"{file}:graph"


@contextmanager
def running(
    kafka: KafkaFixture, log: Path, *arguments: str, before: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """The program in the background, its output in a file; killed at the end if it still runs."""
    with log.open("wb") as out:
        command = [*before, *PROGRAM, "run", *arguments, "--bootstrap", kafka.bootstrap]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            print(log.read_text())  # pytest shows it if the test fails


def send(kafka: KafkaFixture, graph: Graph, *numbers: int) -> None:
    """Numbers to its source."""
    with connect(Kafka(kafka.bootstrap), graph) as client:
        client.send_many(f"{graph.name}.in", numbers)


def arrived(kafka: KafkaFixture, graph: Graph, topic: str = "out") -> list[int]:
    """What its output holds."""
    with connect(Kafka(kafka.bootstrap), graph) as client:
        return sorted(message.value for message in client.messages(f"{graph.name}.{topic}"))


def answer(port: int, page: str) -> tuple[int, str]:
    """Status and text of a page of --http."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=10) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def numbers(text: str, metric: str) -> list[float]:
    """The values of a metric, for all labels."""
    return [float(value) for value in re.findall(rf"^{metric}{{.*}} (\S+)$", text, re.MULTILINE)]


def test_one_worker_says_that_it_is_ready_works_and_leaves_in_order(
    kafka: KafkaFixture, target: str, tmp_path: Path
) -> None:
    """From the first line to exit code 0."""
    graph, log = load_graph(target), tmp_path / "log"
    with running(kafka, log, target) as process:
        wait_for(lambda: b"ready after" in log.read_bytes(), timeout_s=30)
        send(kafka, graph, 1, 2, 3)
        wait_for(lambda: arrived(kafka, graph) == [2, 4, 6], timeout_s=30)
        process.send_signal(signal.SIGTERM)

        assert process.wait(20) == 0

    told = log.read_text()
    assert told.count("ready after") == 1
    assert "4 tasks here" in told
    assert f"{graph.name}: 4 tasks on {kafka.bootstrap} (--bootstrap)\n" in told
    assert "warning: The cluster has 1 broker" in told


def test_a_killed_worker_comes_back_and_goes_on_where_the_dead_one_stood(
    kafka: KafkaFixture, target: str, tmp_path: Path
) -> None:
    """
    Two workers, one SIGKILL, nothing lost and nothing twice.

    The dead one tells a catalog no end of its run. The supervisor's metrics count the restart.
    """
    [port] = free_ports(1)
    graph, log, lineage = load_graph(target), tmp_path / "log", tmp_path / "lineage.jsonl"
    options = ["--workers", "2", "--instance", "blue", "--openlineage", str(lineage), "--http", f"127.0.0.1:{port}"]
    with running(kafka, log, target, *options) as process:
        wait_for(lambda: log.read_bytes().count(b"ready after") == 2, timeout_s=40)
        send(kafka, graph, 1, 2)
        wait_for(lambda: arrived(kafka, graph) == [2, 4], timeout_s=30)
        wait_for(lambda: answer(port, "readyz") == (200, "ok\n"))
        assert answer(port, "healthz") == (200, "ok\n")
        assert "there are /healthz, /readyz and /metrics" in answer(port, "told")[1]

        [victim, _] = [int(pid) for pid in re.findall(r"ready after .* pid (\d+)$", log.read_text(), re.MULTILINE)][-2:]
        os.kill(victim, signal.SIGKILL)
        send(kafka, graph, 3, 4, 5, 6)
        wait_for(lambda: arrived(kafka, graph) == [2, 4, 6, 8, 10, 12], timeout_s=40)
        wait_for(lambda: log.read_bytes().count(b"ready after") == 3, timeout_s=30)
        wait_for(lambda: answer(port, "readyz")[0] == 200)
        # A worker is ready with its first tasks. Here each processor's group moves one task to it, at its own time.
        wait_for(lambda: len(numbers(answer(port, "metrics")[1], "cues_kafka_deliveries_total")) == 4, timeout_s=30)
        told_metrics = answer(port, "metrics")[1]
        assert sum(numbers(told_metrics, "cues_kafka_worker_restarts_total")) == 1
        assert numbers(told_metrics, "cues_kafka_worker_up") == [1, 1]
        assert len(numbers(told_metrics, "cues_kafka_deliveries_total")) == 4
        assert sum(numbers(told_metrics, "cues_kafka_task_state")) == 4
        process.send_signal(signal.SIGINT)

        assert process.wait(30) == 0
    assert f"{graph.name}: 2 workers on {kafka.bootstrap} (--bootstrap)\n" in log.read_text()
    assert log.read_text().count("The cluster has 1 broker") == 1
    assert {*re.findall(r" assigned .* worker=(\d)$", log.read_text(), re.MULTILINE)} == {"1", "2"}
    told = [json.loads(line) for line in lineage.read_text().splitlines()]
    ends = [one["eventType"] for one in told if one["job"]["name"] == graph.name]
    assert sorted(ends) == ["COMPLETE", "COMPLETE", "START", "START", "START"]
    assert {topic["namespace"] for one in told for topic in one["inputs"]} == {f"kafka://{kafka.bootstrap}"}
    assert {one["job"]["name"] for one in told if one["eventType"] == "RUNNING"} == {
        f"{graph.name}.double",
        f"{graph.name}.again",
    }


@pytest.mark.full
def test_process_1_of_a_container_reaps_orphans_and_leaves_no_children(kafka: KafkaFixture, tmp_path: Path) -> None:
    """In a PID namespace: what a function started and left is collected, and SIGTERM ends all in order."""
    name, spawned = kafka.unique("init"), tmp_path / "spawned"
    file = tmp_path / f"graph_{name.replace('-', '_')}.py"
    file.write_text(
        dedent(
            f"""
            import subprocess
            from cues_kafka import Graph, Json, Processor, Source, Topic

            def leave(number: int) -> int:
                subprocess.run(["sh", "-c", "sleep 0.1 & sleep 60 & touch {spawned}"], stdout=subprocess.DEVNULL)
                return number

            graph = Graph("{name}", Source("{name}.in"), Processor(leave, inputs="{name}.in", outputs="{name}.out"),
                          defaults=Topic(value=Json(int), partitions=1))
            """
        )
    )
    graph, log = load_graph(f"{file}:graph"), tmp_path / "log"
    namespace = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    with running(kafka, log, f"{file}:graph", "--workers", "1", before=namespace) as process:
        wait_for(lambda: b"ready after" in log.read_bytes(), timeout_s=40)
        [init] = psutil.Process(process.pid).children()
        send(kafka, graph, 7)
        wait_for(spawned.exists, timeout_s=30)
        wait_for(lambda: sorted(names(init)) == ["python", "sleep"], timeout_s=20)
        started = init.children()
        init.send_signal(signal.SIGTERM)

        assert process.wait(20) == 0
    assert "supervised by pid 1\n" in log.read_text()
    assert not psutil.wait_procs(started, timeout=5)[1]


def names(parent: psutil.Process) -> list[str]:
    """Names of the children of a process, zombies included."""
    return [child.name().rstrip("0123456789.") for child in parent.children()]


def test_a_renamed_processor_is_refused_until_it_is_called_new(
    kafka: KafkaFixture, target: str, tmp_path: Path
) -> None:
    """By `run` and by `plan`; with --new it runs, and once it has a record nothing is asked any more."""
    graph, log = load_graph(target), tmp_path / "log"
    with start(graph, Kafka(kafka.bootstrap)) as before:
        before.send_many(f"{graph.name}.in", [1, 2])
        before.wait_idle()
    module = Path(target.rpartition(":")[0])
    module.write_text(module.read_text().replace("Processor(double,", 'Processor(double, name="twice",'))

    for command in ("run", "plan"):
        line = [*PROGRAM, command, target, "--bootstrap", kafka.bootstrap]
        found = subprocess.run(line, check=False, cwd=ROOT, capture_output=True, timeout=60)
        told = (found.stdout + found.stderr).decode()
        assert found.returncode == {"run": 2, "plan": 1}[command]
        assert f"'{graph.name}.double.backing' holds the place of 'double'" in told
        assert "--new twice" in told
    assert arrived(kafka, graph) == [2, 4]

    for options in (["--new", "twice"], []):
        with running(kafka, log, target, *options) as process:
            wait_for(lambda: b"ready after" in log.read_bytes(), timeout_s=30)
            wait_for(lambda: arrived(kafka, graph) == [2, 2, 4, 4], timeout_s=30)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0


@pytest.mark.parametrize("command", [["run"], ["plan", "--apply"]], ids=" ".join)
def test_no_topic_is_created_on_a_cluster_that_was_not_named(
    kafka: KafkaFixture, target: str, command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It only happens to listen at the default address; the ways to name it are said."""
    graph = load_graph(target)
    monkeypatch.setattr("cues_kafka.cli.config.DEFAULT_BOOTSTRAP", kafka.bootstrap)
    monkeypatch.delenv("CUES_KAFKA_BOOTSTRAP", raising=False)
    monkeypatch.chdir(tmp_path)

    found = CliRunner().invoke(app, [*command, target])

    assert found.exit_code == 2
    assert f"nothing is created at {kafka.bootstrap} (default)" in found.output
    for way in ("--bootstrap", "CUES_KAFKA_BOOTSTRAP", "cues-kafka.toml"):
        assert way in found.output
    broker = open_broker(Kafka(kafka.bootstrap))
    assert not [topic for topic in broker.partitions() if topic.startswith(graph.name)]
    broker.close()


SLOW = """
import os, sys, time
from cues_kafka import Graph, Json, Processor, Source, Topic

def slow(number: int) -> int:
    first = not os.path.exists({calls!r})
    with open({calls!r}, "a") as file:
        file.write(f"{{os.getppid()}}\\n")
    time.sleep({first_call_s} if first else 0)
    return number

graph = Graph("{name}", Source("{name}.in"), Processor(slow, inputs="{name}.in", outputs="{name}.out"),
              errors="{name}.errors", defaults=Topic(value=Json(int), partitions=1))
"""


@pytest.mark.full
def test_one_of_two_supervisors_with_one_instance_name_ends_and_no_message_is_blamed(
    kafka: KafkaFixture, tmp_path: Path
) -> None:
    """
    The second one takes the name; the first one says what to do, ends, and starts nothing again.

    The first call takes longer than a second supervisor needs to start its worker on a loaded machine.
    """
    name, calls = kafka.unique("run"), tmp_path / "calls"
    file = tmp_path / f"graph_{name.replace('-', '_')}.py"
    file.write_text(dedent(SLOW.format(name=name, calls=str(calls), first_call_s=20)))
    graph, logs = load_graph(f"{file}:graph"), (tmp_path / "first", tmp_path / "second")
    arguments = [f"{file}:graph", "--workers", "1", "--instance", "blue"]
    with running(kafka, logs[0], *arguments) as first:
        wait_for(lambda: b"ready after" in logs[0].read_bytes(), timeout_s=40)
        send(kafka, graph, 7)
        wait_for(calls.exists, timeout_s=30)
        with running(kafka, logs[1], *arguments) as second:
            assert first.wait(60) == 2
            wait_for(lambda: arrived(kafka, graph) == [7], timeout_s=60)
            assert second.poll() is None

    said = logs[0].read_text()
    assert f"instance 'blue.1' in group {name}.slow: another process runs with the same instance name" in said
    assert said.count("worker started") == 1
    with connect(Kafka(kafka.bootstrap), graph) as client:
        assert list(client.messages(f"{name}.errors")) == []
    assert calls.read_text().splitlines() == [str(first.pid), str(second.pid)]


@pytest.mark.full
def test_one_of_two_supervisors_that_start_in_the_same_moment_goes_on(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Each may take some of the other one's names; the first worker's decides."""
    name, calls = kafka.unique("run"), tmp_path / "calls"
    file = tmp_path / f"graph_{name.replace('-', '_')}.py"
    file.write_text(dedent(SLOW.format(name=name, calls=str(calls), first_call_s=3)))
    graph, logs = load_graph(f"{file}:graph"), (tmp_path / "first", tmp_path / "second")
    arguments = [f"{file}:graph", "--workers", "3", "--instance", "blue"]
    with running(kafka, logs[0], *arguments) as first, running(kafka, logs[1], *arguments) as second:
        wait_for(lambda: first.poll() is not None or second.poll() is not None, timeout_s=90)
        ended, stays = (first, second) if first.poll() is not None else (second, first)
        assert ended.returncode == 2
        send(kafka, graph, 7)
        wait_for(lambda: arrived(kafka, graph) == [7], timeout_s=60)
        assert stays.poll() is None


@pytest.mark.full
def test_a_function_that_hangs_ends_its_worker_where_that_was_asked_for(kafka: KafkaFixture, tmp_path: Path) -> None:
    """The supervisor starts the worker again; in the end the message is an error message, and the next one passes."""
    name = kafka.unique("run")
    file = tmp_path / f"graph_{name.replace('-', '_')}.py"
    file.write_text(
        dedent(
            f"""
            import asyncio
            from cues_kafka import Graph, Json, Processor, Source, Topic

            async def wait(number: int) -> int:
                if number == 13:
                    await asyncio.Event().wait()
                return number

            graph = Graph(
                "{name}", Source("{name}.in"),
                Processor(wait, inputs="{name}.in", outputs="{name}.out", quarantine_after=1),
                errors="{name}.errors", defaults=Topic(value=Json(int)),
            )
            """
        )
    )
    graph, log = load_graph(f"{file}:graph"), tmp_path / "log"
    with running(kafka, log, f"{file}:graph", "--workers", "1", "--call-timeout", "1"):
        wait_for(lambda: b"ready after" in log.read_bytes(), timeout_s=40)
        send(kafka, graph, 13, 14)
        wait_for(lambda: arrived(kafka, graph) == [14], timeout_s=90)

    told = log.read_text()
    assert f"with {name}.in/0 at 0, longer than calls.end_seconds=1" in told
    assert "worker ended worker=1 code=1" in told
    with connect(Kafka(kafka.bootstrap), graph) as client:
        assert [error.value.kind for error in client.messages(f"{name}.errors")] == ["quarantine"]


def test_a_task_that_stops_is_printed_with_its_remedy_and_the_others_go_on(
    kafka: KafkaFixture, target: str, tmp_path: Path
) -> None:
    """The graph has no errors topic, so an exception stops the task."""
    graph, log = load_graph(target), tmp_path / "log"
    with running(kafka, log, target) as process:
        wait_for(lambda: b"ready after" in log.read_bytes(), timeout_s=30)
        send(kafka, graph, 13)
        wait_for(lambda: b"remedy: " in log.read_bytes(), timeout_s=30)
        wait_for(lambda: arrived(kafka, graph, "again") == [13], timeout_s=30)

        assert process.poll() is None

    [line] = {line for line in log.read_text().splitlines() if " stopped" in line}
    assert re.fullmatch(
        r"double/\d stopped: .*thirteen at \w+\.py:double:\d+ "
        r"\(message [^ ]+ at 0, hash [0-9a-f]{32}\); remedy: .+",
        line,
    )


def test_a_task_that_stops_ends_the_worker_where_that_was_asked_for(
    kafka: KafkaFixture, target: str, tmp_path: Path
) -> None:
    """With a code of its own, for the program that supervises it. A log in JSON has the stop and the warnings."""
    graph, log = load_graph(target), tmp_path / "log"
    with running(kafka, log, target, "--fail-fast", "--only", "double", "--log-format", "json") as process:
        wait_for(lambda: b"ready after" in log.read_bytes(), timeout_s=30)
        send(kafka, graph, 13)

        assert process.wait(30) == 3
    lines = log.read_text().splitlines()
    logged = [json.loads(line) for line in lines]  # also what is no event, such as that the worker is ready
    [stop] = [one for one in logged if one["event"] == "stopped"]
    assert (stop["level"], stop["task"].partition("/")[0]) == ("error", "double")
    assert "thirteen" in stop["why"]
    assert [one["event"] for one in logged if "The cluster has 1 broker" in one.get("warning", "")] == ["plan"]
    assert not [one for one in logged if "remedy: " in one["event"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no_such_module:graph"], "there is no module"),
        (["TARGET", "--only", "dubble"], "has no processor 'dubble'; its processors are 'again', 'double'"),
        (["TARGET", "--only", "double", "--except", "double"], "leave no processor to run"),
        (["TARGET", "--workers", "2", "--profile", "prod"], "needs a file"),
        (["TARGET", "--workers", "2", "--openlineage", "/nowhere/x"], "the file cannot be written"),
        (["TARGET", "--workers", "2", "--spans", "0.1"], "Set OTEL_EXPORTER_OTLP_ENDPOINT"),
        (["TARGET", "--workers", "2", "--http", "nine"], "write HOST:PORT, such as 127.0.0.1:9100"),
        (["no_such_module:graph", "--workers", "1"], "there is no module"),
    ],
)
def test_a_wrong_command_ends_with_its_reason_before_anything_runs(
    kafka: KafkaFixture, target: str, tmp_path: Path, arguments: list[str], words: str
) -> None:
    """Code 2: no restart helps."""
    given = [target if argument == "TARGET" else argument for argument in arguments]
    with running(kafka, tmp_path / "log", *given) as process:
        assert process.wait(30) == 2

    assert words in " ".join((tmp_path / "log").read_text().split())


def test_a_cluster_that_is_not_there_is_named(target: str) -> None:
    """Visible, and an error in the end."""
    environment = {**os.environ, "CUES_KAFKA_START_TIMEOUT_S": "2"}
    command = [*PROGRAM, "run", target, "--bootstrap", "127.0.0.1:9"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=60, check=False)

    assert result.returncode == 1
    assert "127.0.0.1:9" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_database_that_does_not_answer_ends_a_worker_with_a_code_that_is_started_again(
    kafka: KafkaFixture, tmp_path: Path
) -> None:
    """A service must come up once its database does, whichever of the two starts first."""
    name = kafka.unique("run")
    file = tmp_path / f"graph_{name.replace('-', '_')}.py"
    file.write_text(
        dedent(
            f"""
            from cues_kafka import Graph, Processor, Source

            def database():
                raise OSError("connection refused")

            def store(value, db):
                return value

            graph = Graph("{name}", Source("{name}.in"), Processor(store, inputs="{name}.in", outputs="{name}.out"),
                          system={{"db": database}})
            """
        )
    )
    log = tmp_path / "log"
    environment = {**os.environ, "CUES_KAFKA_START_TIMEOUT_S": "3"}
    command = [*PROGRAM, "run", f"{file}:graph", "--bootstrap", kafka.bootstrap]
    with log.open("wb") as out:
        code = subprocess.run(command, stdout=out, stderr=out, env=environment, cwd=ROOT, timeout=60, check=False)

    assert code.returncode == 1
    assert log.read_text().count("system not opened name='db' error='OSError: connection refused'") > 2
    assert "Traceback" not in log.read_text()


def test_a_plan_names_what_will_be_created(kafka: KafkaFixture, target: str) -> None:
    """On the cluster, and offline."""
    graph = load_graph(target)
    outputs = []
    for arguments in (["--bootstrap", kafka.bootstrap], ["--offline"]):
        command = [*PROGRAM, "plan", target, *arguments]
        result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
        assert result.returncode == 0, result.stderr
        outputs.append(result.stdout)

    assert all(f"{graph.name}.double.backing" in output for output in outputs)
    assert "planned offline" in outputs[1]


def test_tasks_that_are_refused_are_not_called_ready(kafka: KafkaFixture, target: str, tmp_path: Path) -> None:
    """The line that says how many tasks are here says how many of them stopped."""
    graph, log = load_graph(target), tmp_path / "log"
    start(graph, Kafka(kafka.bootstrap)).stop()
    broker, source = open_broker(Kafka(kafka.bootstrap)), next(iter(graph.sources))
    broker.delete([source])
    broker.create([NewTopic(source, graph.topic(source).partitions)])
    broker.close()
    with running(kafka, log, target):
        wait_for(lambda: b"ready after" in log.read_bytes(), timeout_s=30)

    assert re.search(r"\d+ tasks here, [1-9]\d* of them stopped", log.read_text())
