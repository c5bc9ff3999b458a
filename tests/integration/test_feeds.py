"""Feeds on a real broker: workers that come and go, one that wakes up late, the example, the commands."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Feed, Files, Graph, Json, Kafka, Processor, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import Program, committed, until

ROOT = Path(__file__).parents[2]


def double(n: int) -> int:
    """What is behind the feed."""
    return 2 * n


def graph_of(name: str, directory: Path, tasks: int) -> Graph:
    """A feed of several tasks, and a processor."""
    return Graph(
        name,
        Feed(Files(directory / "*.jsonl", tasks=tasks), into=f"{name}.ingress", name="feed", poll_seconds=0.02),
        Processor(double, inputs=f"{name}.ingress", outputs=f"{name}.doubles"),
        defaults=Topic(value=Json(int), partitions=2),
    )


def values(bootstrap: str, topic: str) -> list[Any]:
    """What a plain reader sees."""
    return [json.loads(message.value() or b"") for message in committed(bootstrap, topic)]


@pytest.mark.full
def test_workers_that_come_and_go_share_the_parts_of_a_feed(kafka: KafkaFixture, tmp_path: Path) -> None:
    """While lines are added to all files: a second worker joins, the first one drops everything, a third one joins."""
    name = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("share"))
    graph, cluster = graph_of(name, tmp_path, 4), Kafka(kafka.bootstrap)
    policy = CommitPolicy(max_messages=20)
    count, stop = 0, threading.Event()

    def write() -> None:
        nonlocal count
        while not stop.is_set():
            for number in range(6):
                with (tmp_path / f"{number}.jsonl").open("a") as opened:
                    opened.writelines(f"{n}\n" for n in range(count, count + 10))
                count += 10
            stop.wait(0.02)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        first = start(graph, cluster, policy=policy)
        until(lambda: len(values(kafka.bootstrap, f"{name}.ingress")) > 100, "the first one works")
        second = start(graph, cluster, policy=policy)
        until(lambda: 0 < len(owned(second)) < 4, "the second one has a share")
        parts = [f"feed/{n}" for n in range(4)]  # one that moves is in neither process for a moment
        until(lambda: sorted(owned(first) + owned(second)) == parts, "each part is in one process")
        first.abandon()
        third = start(graph, cluster, policy=policy)
        until(lambda: len(owned(second)) + len(owned(third)) == 4, "two share again")
    finally:
        stop.set()
        writer.join()
    second.wait_idle(timeout_s=60)
    third.wait_idle(timeout_s=60)
    second.wait_idle(timeout_s=60)
    second.stop()
    third.stop()

    assert Counter(values(kafka.bootstrap, f"{name}.ingress")) == Counter(range(count))
    assert Counter(values(kafka.bootstrap, f"{name}.doubles")) == Counter(2 * n for n in range(count))
    with closing(open_broker(cluster)) as broker:
        report = verify(graph, broker)
        assert report.ok, "\n".join(report.lines)


def owned(running: Any) -> list[str]:
    """The tasks of the feed in a process."""
    return [task.task for task in running.status().tasks if task.task.startswith("feed/")]


PROGRAM = """
import sys
from pathlib import Path
from cues_kafka import Kafka, start
from cues_kafka.graph.declare import CommitPolicy
from tests.integration.test_feeds import graph_of
bootstrap, name, directory, stops = sys.argv[1:]
commits = 0
def hook(moment, effect):
    global commits
    if (moment, effect) == ("before", "Commit") and stops == "stops":
        commits += 1
        if commits == 4:
            print("in a transaction", flush=True)
            import os, signal
            os.kill(os.getpid(), signal.SIGSTOP)
with start(graph_of(name, Path(directory), 1), Kafka(bootstrap, session_timeout_s=6), hook=hook,
           only=["feed"], policy=CommitPolicy(max_messages=10)) as running:
    print("ready", flush=True)
    running.wait()
"""


@pytest.mark.full
def test_a_worker_that_was_stopped_in_a_transaction_commits_nothing_when_it_wakes_up(
    kafka: KafkaFixture, tmp_path: Path
) -> None:
    """Its successor has taken the lock and reads on from the newest place."""
    name = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("zombie"))
    (tmp_path / "a.jsonl").write_text("".join(f"{n}\n" for n in range(500)))
    command = [sys.executable, "-c", PROGRAM, kafka.bootstrap, name, str(tmp_path)]
    with Program([*command, "stops"]) as zombie:
        zombie.expect("in a transaction")
        zombie.paused()
        graph = graph_of(name, tmp_path, 1)
        with start(graph, Kafka(kafka.bootstrap), only=["feed"], timeout_s=None) as successor:
            until(lambda: len(values(kafka.bootstrap, f"{name}.ingress")) == 500, "the successor delivered all")
            zombie.resume()
            with (tmp_path / "a.jsonl").open("a") as opened:
                opened.writelines(f"{n}\n" for n in range(500, 600))
            until(lambda: len(values(kafka.bootstrap, f"{name}.ingress")) >= 600, "the new lines")
            assert owned(successor)
        assert sorted(values(kafka.bootstrap, f"{name}.ingress")) == list(range(600))


def test_the_example_goes_on_where_it_was(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Run twice, as its text says; then looked at by the commands."""
    name = kafka.unique("mailbox")
    text = (ROOT / "examples" / "mailbox.py").read_text(encoding="utf-8")
    (tmp_path / "mailbox.py").write_text(
        text.replace("localhost:9092", kafka.bootstrap).replace('"mailbox', f'"{name}')
    )
    (tmp_path / name).mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUES_KAFKA_BOOTSTRAP": kafka.bootstrap}

    def run(*command: str) -> Any:
        settings: dict[str, Any] = {"cwd": tmp_path, "env": environment, "capture_output": True, "timeout": 100}
        done = subprocess.run([sys.executable, *command], text=True, check=False, **settings)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    for times in (1, 2):
        printed = run("mailbox.py")
        assert sorted(printed.splitlines()) == [
            f"{{'account': 'a', 'sum': {250 * times}}}", f"{{'account': 'b', 'sum': {90 * times}}}",
        ]  # fmt: skip
    report = run("-m", "cues_kafka.cli.main", "verify", "mailbox.py:graph")
    assert re.search(r"files +feed", report)
    assert "nothing is wrong" in report
    assert "Files -> " in run("-m", "cues_kafka.cli.main", "plan", "mailbox.py:graph")


@pytest.mark.full
def test_the_run_command_runs_feeds_and_takes_their_names(kafka: KafkaFixture, tmp_path: Path) -> None:
    """With a supervisor and two workers, one of which is killed."""
    name = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("run"))
    (tmp_path / "a.jsonl").write_text("".join(f"{n}\n" for n in range(100)))
    (tmp_path / "app.py").write_text(
        "from pathlib import Path\nfrom tests.integration.test_feeds import graph_of\n"
        f"graph = graph_of({name!r}, Path({str(tmp_path)!r}), 2)\n"
    )
    program = [sys.executable, "-m", "cues_kafka.cli.main", "run", f"{tmp_path}/app.py:graph"]
    program += ["--bootstrap", kafka.bootstrap, "--only", "feed", "--workers", "2", "--instance", name]
    with start(graph_of(name, tmp_path, 2), Kafka(kafka.bootstrap), only=["double"]):
        running = Program(program)
        try:
            until(lambda: len(re.findall(r"ready after .* pid \d+", "\n".join(running.lines))) >= 2, "both are ready")
            until(lambda: len(values(kafka.bootstrap, f"{name}.doubles")) == 100, "all lines came through")
            pid = int(re.findall(r"ready after .* pid (\d+)", "\n".join(running.lines))[0])
            os.kill(pid, signal.SIGKILL)
            with (tmp_path / "b.jsonl").open("a") as opened:
                opened.writelines(f"{n}\n" for n in range(100, 200))
            with (tmp_path / "a.jsonl").open("a") as opened:
                opened.writelines(f"{n}\n" for n in range(200, 300))
            until(lambda: len(values(kafka.bootstrap, f"{name}.doubles")) >= 300, "all lines came through")
        finally:
            running.process.send_signal(signal.SIGINT)
            running.process.wait(60)
    assert Counter(values(kafka.bootstrap, f"{name}.ingress")) == Counter(range(300))
