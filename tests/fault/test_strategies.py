"""SIGKILL of tasks at-most-once and at-least-once on a real broker: what each allows, what it does not (W1 to W6)."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from cues_kafka import CommitPolicy, Kafka, Message, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.client.client import Client
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault import strategy_world
from tests.fault.killing import forked
from tests.fault.support import PATIENCE_S, ROOT, committed, until

POINTS = {
    "at-most-once": [
        ("before", "SendOffsets", 2),
        ("before", "Commit", 3),
        ("after", "Commit", 3),
        ("before", "Call", 2),
        ("after", "Call", 2),
    ],
    "at-least-once": [
        ("before", "SendOffsets", 1),
        ("before", "Emit", 2),
        ("after", "Emit", 2),
        ("after", "Flush", 2),
        ("after", "Call", 2),
    ],
}
pytestmark = [pytest.mark.full, pytest.mark.timeout(200)]


def prefix_of(kafka: KafkaFixture) -> str:
    """A name for a graph."""
    return re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("level"))


def caller(called: Counter[int], pause_s: float = 0.0) -> type:
    """What the function calls: it counts who it is called for, and takes its time."""
    lock = threading.Lock()

    class Caller:
        def call(self, n: int) -> None:
            with lock:
                called[n] += 1
            threading.Event().wait(pause_s)

    return Caller


@pytest.mark.parametrize("strategy", POINTS)
def test_a_killed_process_repeats_or_drops_as_its_strategy_says(
    kafka: KafkaFixture, tmp_path: Path, strategy: str
) -> None:
    """At-most-once nothing is called twice, and the totals have what is missing; at-least-once nothing is missing."""
    context = forked()
    prefix, log = prefix_of(kafka), tmp_path / "calls"
    graph = strategy_world.graph(prefix, strategy)
    broker = open_broker(Kafka(kafka.bootstrap))
    client = Client(broker, graph)
    prepare(graph, broker)
    sent, unkilled = 0, []
    for point in [*POINTS[strategy], None]:
        for n in range(sent, sent + 20):
            client.send(f"{prefix}.numbers", Message(n, partition=n % strategy_world.PARTITIONS))
        sent += 20
        args = (kafka.bootstrap, prefix, strategy, str(log), point)
        process = context.Process(target=strategy_world.run, args=args)
        process.start()
        process.join(60)
        if process.exitcode != (-9 if point else 0):
            unkilled.append((point, process.exitcode))
    assert unkilled == [], "a point that no run passes proves nothing"

    called = Counter(strategy_world.calls(log))
    told = [json.loads(m.value() or b"") for m in committed(kafka.bootstrap, f"{prefix}.told")]
    failed = len(committed(kafka.bootstrap, f"{prefix}.failed"))
    report = verify(graph, broker)
    assert report.ok, "\n".join(report.lines)
    totals = report["tell"].totals
    if strategy == "at-most-once":
        assert max(called.values()) == 1
        assert len(set(told)) == len(told)
        assert totals.taken == sent == len(told) + failed + totals.dropped
        assert report["tell"].dropped == totals.dropped > 0
    else:
        assert set(called) == set(range(sent))
        assert set(told) == {n for n in range(sent) if n % 10 != strategy_world.BAD}
        assert failed >= sent // 10
        assert report["tell"].duplicated > 0
    client.close()
    broker.close()


def test_a_revocation_in_mid_call_repeats_nothing_and_drops_at_most_that_call(kafka: KafkaFixture) -> None:
    """W2: two workers of one process share two partitions, and one of them comes while the other one is calling."""
    prefix, called = prefix_of(kafka), Counter[int]()
    graph, cluster = strategy_world.graph(prefix, "at-most-once", caller(called, 0.01)), Kafka(kafka.bootstrap)
    policy = CommitPolicy(max_messages=200)
    with start(graph, cluster, instance="one", policy=policy) as first:
        for n in range(300):
            first.send(f"{prefix}.numbers", Message(n, partition=n % strategy_world.PARTITIONS))
        until(lambda: len(called) > 30, "some are called")
        with start(graph, cluster, instance="two", policy=policy) as second:
            until(lambda: len(second.status().tasks) == 1, "a task has moved")
            first.wait_idle(timeout_s=PATIENCE_S)
            second.wait_idle(timeout_s=PATIENCE_S)
    broker = open_broker(cluster)
    report = verify(graph, broker)
    broker.close()

    assert report.ok, "\n".join(report.lines)
    assert max(called.values()) == 1
    assert len(called) == 300
    assert report["tell"].totals.dropped <= 1
    assert len(committed(kafka.bootstrap, f"{prefix}.told")) == 270 - report["tell"].totals.dropped


def test_rebalances_drop_no_more_than_the_calls_under_way(kafka: KafkaFixture) -> None:
    """W2: small batches, so rebalances refuse commits again and again; each revocation may drop the call under way."""
    prefix, called = prefix_of(kafka), Counter[int]()
    graph, cluster = strategy_world.graph(prefix, "at-most-once", caller(called, 0.002)), Kafka(kafka.bootstrap)
    policy, count, moves = CommitPolicy(max_messages=5), 5000, 4
    with start(graph, cluster, instance="one", policy=policy) as first:
        first.send_many(f"{prefix}.numbers", [Message(n, partition=n % 2) for n in range(count)])
        for _ in range(moves):
            before = len(called)
            with start(graph, cluster, instance="two", policy=policy) as second:
                until(lambda: len(second.status().tasks) == 1, "a task has moved")
                until(lambda n=before: len(called) > min(n + 50, count - 1), "both work")  # type: ignore[misc]
            until(lambda: len(first.status().tasks) == 2, "the first one has both again")
        first.wait_idle(timeout_s=PATIENCE_S)
    broker = open_broker(cluster)
    report = verify(graph, broker)
    broker.close()

    assert report.ok, "\n".join(report.lines)
    assert max(called.values()) == 1
    assert len(called) == count
    assert report["tell"].totals.dropped <= 2 * moves


def test_at_least_once_a_task_that_moves_loses_nothing(kafka: KafkaFixture) -> None:
    """W5: a second worker comes while the first one works, and both go on."""
    prefix, called = prefix_of(kafka), Counter[int]()
    graph, cluster = strategy_world.graph(prefix, "at-least-once", caller(called)), Kafka(kafka.bootstrap)
    with start(graph, cluster, instance="one", policy=CommitPolicy(max_messages=20)) as first:
        first.send_many(f"{prefix}.numbers", [Message(n, partition=n % 2) for n in range(4000)])
        with start(graph, cluster, instance="two", policy=CommitPolicy(max_messages=20)) as second:
            until(lambda: len(second.status().tasks) == 1, "a task has moved")
            first.send_many(f"{prefix}.numbers", [Message(n, partition=n % 2) for n in range(4000, 5000)])
            second.wait_idle(timeout_s=PATIENCE_S)
            first.wait_idle(timeout_s=PATIENCE_S)
    broker = open_broker(cluster)
    report = verify(graph, broker)
    broker.close()

    assert report.ok, "\n".join(report.lines)
    assert set(called) == set(range(5000))
    assert report["tell"].outputs + report["tell"].errors == 5000


def test_the_command_changes_a_strategy_and_counts_what_a_killed_worker_left(
    kafka: KafkaFixture, tmp_path: Path
) -> None:
    """W7: said first; then the same processor goes on exactly-once, and nothing that was taken is called again."""
    prefix, log, words = prefix_of(kafka), tmp_path / "calls", {"PYTHONPATH": str(ROOT)}
    for n, strategy in enumerate(("at-most-once", "exactly-once")):
        text = f"from tests.fault import strategy_world\ngraph = strategy_world.graph({prefix!r}, {strategy!r})\n"
        (tmp_path / f"g{n}.py").write_text(text)
    broker = open_broker(Kafka(kafka.bootstrap))
    prepare(strategy_world.graph(prefix, "at-most-once"), broker)
    args = (kafka.bootstrap, prefix, "at-most-once", str(log), ("before", "Flush", 6))
    process = multiprocessing.get_context("spawn").Process(target=strategy_world.run, args=args, kwargs={"sent": 20})
    process.start()
    process.join(60)
    assert process.exitcode == -9

    def command(*more: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "cues_kafka.cli.main", "strategy", f"{tmp_path}/g1.py:graph", "tell"]
        return subprocess.run(
            [*program, "--bootstrap", kafka.bootstrap, *more],
            capture_output=True, text=True, check=False, timeout=60, env=os.environ | words,
        )  # fmt: skip

    until(lambda: not broker.members(f"{prefix}.tell"), "the killed worker's session has ended")
    said = command()
    assert (said.returncode, "at-most-once becomes exactly-once" in said.stdout) == (1, True), said.stdout + said.stderr
    done = command("--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tell: 2 tasks moved" in done.stdout
    dropped = verify(strategy_world.graph(prefix, "exactly-once"), broker)["tell"].dropped
    strategy_world.run(kafka.bootstrap, prefix, "exactly-once", str(log), None)
    report = verify(strategy_world.graph(prefix, "exactly-once"), broker)
    broker.close()

    assert report.ok, "\n".join(report.lines)
    assert 0 < dropped == report["tell"].dropped
    assert max(Counter(strategy_world.calls(log)).values()) == 1
    assert report["tell"].outputs + report["tell"].errors == 20 - dropped
