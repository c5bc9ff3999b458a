"""``cues-kafka run --engine spark`` as a program, on a real broker, with sessions of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import psutil
import pytest
from typer.testing import CliRunner

from cues_kafka import Kafka
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.loading import load_graph
from cues_kafka.cli.main import app
from cues_kafka.on_spark import daemon
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.fixtures import KafkaFixture
from tests.integration.test_run_command import PROGRAM, ROOT, answer, arrived, numbers, running, send
from tests.integration.test_supervisor import wait_for
from tests.spark.archive import jvm_options

SPARK = ["--engine", "spark", "--master", "local[2]"]

pytestmark = pytest.mark.timeout(600)  # each program starts a JVM, and the machine may be busy

START_S, WORK_S = 200, 120


@pytest.fixture
def target(kafka: KafkaFixture, tmp_path: Path) -> str:
    """Two processors in a row, the first of which stops at 13 until a file says that it is fixed; and a store."""
    name = kafka.unique("spark")
    file = tmp_path / f"graph_{name.replace('-', '_')}.py"
    file.write_text(
        dedent(
            f"""
            from pathlib import Path

            from cues_kafka import Graph, Json, Processor, Source, Store, Topic

            def double(number: int) -> int:
                if number == 13 and not Path({str(tmp_path / "fixed")!r}).exists():
                    raise ValueError("thirteen")
                return 2 * number

            def again(number: int) -> int:
                return number

            def total(number: int, sums: dict) -> int:
                sums["all"] = sums.get("all", 0) + number
                return sums["all"]

            graph = Graph("{name}", Source("{name}.in"),
                          Processor(double, inputs="{name}.in", outputs="{name}.out"),
                          Processor(again, inputs="{name}.out", outputs="{name}.again"),
                          Processor(total, inputs="{name}.again", outputs="{name}.sum",
                                    state={{"sums": Store(Json(int))}}),
                          defaults=Topic(value=Json(int), partitions=2))
            """
        )
    )
    return f"{file}:graph"


def family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """All processes below the program: the JVM, Spark's Python daemons, their workers."""
    found: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
    return found


def is_spark(process: psutil.Process) -> bool:
    """Whether it is Spark's JVM, and not one that was asked for its version."""
    try:
        return any("SparkSubmit" in word for word in process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def assert_quick(below: list[psutil.Process]) -> None:
    """Whether Python processes import compiled modules, tasks have our daemon, and no process looks for sources."""
    pythons = [one for one in below if "python" in Path(one.name()).name and "--parent" not in one.cmdline()]
    programs = {one.cmdline()[-1] for one in pythons}
    assert {"pyspark.worker", "pyspark.sql.worker.create_data_source"} <= programs
    assert not any("lookup_data_sources" in program for program in programs)
    assert all(Path(one.environ()["PYTHONPATH"].partition(":")[0]).is_dir() for one in pythons)
    assert any(one.cmdline()[-2:] == [daemon.__name__, "pyspark.worker"] for one in pythons)


def alive(processes: list[psutil.Process]) -> list[str]:
    """Those that still run; one that is dead and not collected yet by its present parent counts as gone."""
    gone = (psutil.NoSuchProcess, psutil.ZombieProcess)
    found = []
    for one in processes:
        try:
            if one.is_running() and one.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(one.cmdline()))
        except gone:
            continue
    return found


def test_a_graph_runs_on_spark_until_sigterm_and_leaves_no_process_behind(
    kafka: KafkaFixture, target: str, tmp_path: Path
) -> None:
    """The first line says what runs where; a task that stops is printed with its remedy, and goes on once fixed."""
    graph, log, checkpoint = load_graph(target), tmp_path / "log", tmp_path / "checkpoint"
    with running(kafka, log, target, *SPARK, "--checkpoint", str(checkpoint)) as process:
        wait_for(lambda: b"ready after" in log.read_bytes(), timeout_s=START_S)
        send(kafka, graph, 1, 2, 3)
        wait_for(lambda: arrived(kafka, graph, "again") == [2, 4, 6], timeout_s=WORK_S)

        send(kafka, graph, 13)
        wait_for(lambda: b"ValueError: thirteen" in log.read_bytes(), timeout_s=WORK_S)
        wait_for(lambda: b"remedy: " in log.read_bytes(), timeout_s=WORK_S)
        (tmp_path / "fixed").touch()
        wait_for(lambda: arrived(kafka, graph, "again") == [2, 4, 6, 26], timeout_s=WORK_S)
        wait_for(lambda: b"is tried again" in log.read_bytes(), timeout_s=WORK_S)

        below = family(process)
        assert any(map(is_spark, below))
        assert_quick(below)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0

    assert alive(below) == []
    first, *rest = log.read_text().splitlines()
    assert first.startswith(f"{graph.name}: running double, again on Spark; not there: total (state= lives in a native")
    assert first.endswith("run it natively: --only total, or write it as a DataFrameProcessor)")
    assert any("ready after" in line and "4 tasks here" in line for line in rest)
    assert {path.name for path in checkpoint.iterdir()} == {f"{graph.name}.double", f"{graph.name}.again"}


@pytest.mark.slow
def test_available_now_delivers_what_is_there_down_the_chain_and_ends_with_0(
    kafka: KafkaFixture, target: str, tmp_path: Path
) -> None:
    """What the first processor makes of it in the same run is there for the second; then once more, after a reset."""
    graph, log = load_graph(target), tmp_path / "log"
    subprocess.run([*PROGRAM, "plan", target, "--apply", "--bootstrap", kafka.bootstrap], cwd=ROOT, check=True)
    send(kafka, graph, *range(20, 70))
    arguments = [target, *SPARK, "--checkpoint", str(tmp_path / "checkpoint"), "--trigger", "available-now"]
    with running(kafka, log, *arguments) as process:
        assert process.wait(START_S + WORK_S) == 0, log.read_text()
    assert arrived(kafka, graph, "again") == [2 * n for n in range(20, 70)]
    assert f"{graph.name}: all available messages are delivered" in log.read_text()

    command = [*PROGRAM, "reset", target, "double", "--to", "earliest", "--yes", "--bootstrap", kafka.bootstrap]
    subprocess.run(command, cwd=ROOT, check=True)
    with running(kafka, log, *arguments, "--only", "double") as process:
        assert process.wait(START_S + WORK_S) == 0, log.read_text()
    assert arrived(kafka, graph) == sorted([2 * n for n in range(20, 70)] * 2)  # behind the checkpoint, and yet there
    assert "again (not chosen here)" in log.read_text().splitlines()[0]


@pytest.mark.slow
def test_a_task_that_stops_ends_the_command_that_asks_for_it(kafka: KafkaFixture, target: str, tmp_path: Path) -> None:
    """With a code of its own, and nothing is left: no process, and no transaction that readers wait for."""
    graph, log = load_graph(target), tmp_path / "log"
    subprocess.run([*PROGRAM, "plan", target, "--apply", "--bootstrap", kafka.bootstrap], cwd=ROOT, check=True)
    send(kafka, graph, 70, 13)
    arguments = [target, *SPARK, "--checkpoint", str(tmp_path / "checkpoint"), "--only", "double", "--fail-fast"]
    with running(kafka, log, *arguments) as process:
        wait_for(lambda: any(map(is_spark, family(process))), timeout_s=START_S)
        below = family(process)
        assert process.wait(START_S + WORK_S) == 3, log.read_text()

    assert alive(below) == []
    assert "double/" in log.read_text()
    assert arrived(kafka, graph) == [140]
    assert _open_transactions(kafka, [f"{graph.name}.out", f"{graph.name}.double.backing"]) == []


def _open_transactions(kafka: KafkaFixture, topics: list[str]) -> list[TopicPartition]:
    """Partitions whose readers wait for the end of a transaction."""
    broker = open_broker(Kafka(kafka.bootstrap))
    try:
        marks = broker.watermarks([TopicPartition(topic, p) for topic in topics for p in range(2)])
        return [place for place, mark in marks.items() if mark.stable != mark.high]
    finally:
        broker.close()


@pytest.mark.full
def test_a_jvm_that_is_killed_is_started_again_by_the_same_command_and_no_message_is_lost_or_doubled(
    kafka: KafkaFixture, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    While it starts by its driver; at work by the supervisor. No page of our frames, and no file that stays.

    SIGHUP starts the driver again, in order and with new code; it is ended while its JVM starts.
    """
    graph, log, temporary = load_graph(target), tmp_path / "log", tmp_path / "tmp"
    temporary.mkdir()
    left = temporary / "cues-kafka-spark-of-a-process-that-was-killed.locked"
    left.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", jvm_options())  # what it has else names a directory for the tests
    arguments = [target, *SPARK, "--checkpoint", str(tmp_path / "checkpoint"), "--only", "double"]
    [port] = free_ports(1)
    with running(kafka, log, *arguments, "--http", str(port)) as process:
        first = killed_jvm(process)
        wait_for(lambda: b"ready after" in log.read_bytes(), timeout_s=START_S)
        assert not left.exists()
        assert list(temporary.glob("cues-kafka-spark-*/blockmgr-*")), "Spark's files go there"
        wait_for(lambda: answer(port, "readyz") == (200, "ok\n"), timeout_s=WORK_S)
        send(kafka, graph, *range(20, 40))
        wait_for(lambda: arrived(kafka, graph), timeout_s=WORK_S)

        assert not first & killed_jvm(process)
        send(kafka, graph, *range(40, 60))  # into the outage
        wait_for(lambda: answer(port, "readyz")[0] == 503, timeout_s=WORK_S)
        wait_for(lambda: len(arrived(kafka, graph)) >= 40, timeout_s=START_S)
        assert numbers(answer(port, "metrics")[1], "cues_kafka_worker_restarts_total") == [1.0]
        below = family(process)
        module = Path(target.removesuffix(":graph"))
        module.write_text(f"{module.read_text()}\nimport os\nprint('new code in', os.getpid(), flush=True)\n")
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: has_new_code(log.read_text()), timeout_s=WORK_S)
        assert alive(below) == []
        below = family(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0

    assert alive(below) == []
    assert arrived(kafka, graph) == [2 * n for n in range(20, 60)]
    text = log.read_text()
    assert "replacing Spark's driver\n" in text
    assert "worker replaced worker=1" in text
    assert "worker ended worker=1 code=1 cause='exit code 1' again_in_s=0.02" in text
    assert "this worker failed: SparkLost: Spark's JVM has ended while this process needed it" in text
    assert "failed: ConnectionRefusedError" not in text
    assert "failed: Py4J" not in text
    assert text.splitlines()[-1] == f"stopped: {graph.name}: Spark's driver"
    assert f'File "{ROOT / "cues_kafka"}' not in text  # Spark's own thread for accumulators may write a page
    assert list(temporary.iterdir()) == []


def has_new_code(text: str) -> bool:
    """Whether the newest driver, and not only its supervisor, has imported the new module."""
    return f"new code in {re.findall(r'worker started worker=1 pid=([0-9]+)', text)[-1]}\n" in text


def killed_jvm(process: subprocess.Popen[bytes]) -> set[int]:
    """Kill the JVM as soon as there is one; its process ids."""
    wait_for(lambda: any(map(is_spark, family(process))), timeout_s=START_S)
    jvms = [one for one in family(process) if is_spark(one)]
    for one in jvms:
        one.kill()
    return {one.pid for one in jvms}


def test_ctrl_c_while_spark_starts_ends_everything(kafka: KafkaFixture, target: str, tmp_path: Path) -> None:
    """As a terminal sends it: to the whole group of processes."""
    log = tmp_path / "log"
    command = [*PROGRAM, "run", target, *SPARK, "--checkpoint", str(tmp_path), "--bootstrap", kafka.bootstrap]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT, start_new_session=True)
    try:
        wait_for(lambda: any(map(is_spark, family(process))), timeout_s=START_S)
        below = family(process)
        os.killpg(process.pid, signal.SIGINT)

        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()

    assert below
    assert alive(below) == []
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--engine", "sparc"], "Choose native or spark"),
        (["--engine", "spark"], "needs --checkpoint DIR"),
        (["--checkpoint", "cp"], "--checkpoint: with --engine spark only"),
        ([*SPARK, "--checkpoint", "cp", "--workers", "2"], "--workers: with native workers only"),
        ([*SPARK, "--checkpoint", "cp", "--instance", "blue"], "--instance: with native workers only"),
        ([*SPARK, "--checkpoint", "cp", "--only", "total"], "run it natively: --only total"),
        ([*SPARK, "--checkpoint", "cp", "--only", "dubble"], "has no processor 'dubble'"),
        ([*SPARK, "--checkpoint", "cp", "--trigger", "continuous"], "calls no foreachBatch"),
    ],
)
def test_a_wrong_command_ends_with_its_reason_before_spark_starts(
    kafka: KafkaFixture, target: str, arguments: list[str], words: str
) -> None:
    """Code 2: no restart helps."""
    ended = CliRunner().invoke(app, ["run", target, *arguments, "--bootstrap", kafka.bootstrap])

    assert ended.exit_code == 2
    text = " ".join(ended.output.split())
    assert words in text
    assert "on Spark" not in text


@pytest.mark.full
def test_a_master_that_does_not_exist_is_named(kafka: KafkaFixture, target: str, tmp_path: Path) -> None:
    """Spark itself says so; the command ends, and its JVM too."""
    log = tmp_path / "log"
    with running(kafka, log, target, "--engine", "spark", "--master", "mars", "--checkpoint", "cp") as process:
        assert process.wait(START_S) == 2

    assert "Spark does not start with master 'mars'" in log.read_text()


def test_a_cluster_that_does_not_answer_is_told_before_spark_starts(target: str) -> None:
    """A JVM takes longer to start than the question does."""
    command = [*PROGRAM, "run", target, *SPARK, "--checkpoint", "cp", "--bootstrap", "127.0.0.1:1"]
    environment = {**os.environ, "CUES_KAFKA_START_TIMEOUT_S": "3"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    jvms = []
    while process.poll() is None:
        jvms += [one for one in family(process) if is_spark(one)]
        time.sleep(0.05)
    out = process.communicate()[0].decode()

    assert process.returncode == 1, out
    assert jvms == []
    assert "127.0.0.1:1" in out
    assert "Traceback" not in out


def test_without_java_the_command_that_installs_one_is_named(target: str, tmp_path: Path) -> None:
    """Before anything else is said."""
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    result = _run(target, environment, "-m", "cues_kafka.cli.main")

    assert result.returncode == 2
    assert result.stdout == ""
    assert "Spark needs Java 17 or later, and none was found" in result.stderr
    assert "Install" in result.stderr
    assert "Traceback" not in result.stderr


def test_without_pyspark_the_extra_is_named(target: str) -> None:
    """The core is installed without it."""
    program = "import sys; sys.modules['pyspark'] = None; from cues_kafka.cli.main import main; main()"
    result = _run(target, dict(os.environ), "-c", program)

    assert result.returncode == 2
    assert "needs pyspark, which is not installed here" in result.stderr
    assert "pip install 'cues-kafka[spark]'" in result.stderr
    assert "Traceback" not in result.stderr


def _run(target: str, environment: dict[str, str], *program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *program, "run", target, *SPARK, "--checkpoint", "cp"]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=90, check=False)
