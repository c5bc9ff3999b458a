"""SIGKILL of workers whose function reads and appends by itself, on a real broker (S5, L1, L2)."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Kafka, Message
from cues_kafka.brokers.open import open_broker
from cues_kafka.client.client import Client
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault import tail_world
from tests.fault.killing import forked
from tests.fault.support import committed

POINTS = [
    ("after", "Call", 2),
    ("before", "Commit", 3),
    ("after", "Flush", 4),
    ("after", "Commit", 3),
    ("after", "Produce", 2),
]


@pytest.mark.full
@pytest.mark.timeout(120)
def test_a_killed_batch_finds_its_tailer_where_the_last_commit_left_it(kafka: KafkaFixture, tmp_path: Path) -> None:
    """
    Each old message is archived once, in order, by the step that says so.

    A step sees the same at each call, although the tailed topic grows all the time.
    """
    context = forked()
    prefix = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("tails"))
    graph, calls = tail_world.graph(prefix), tmp_path / "calls"
    broker = open_broker(Kafka(kafka.bootstrap))
    client = Client(broker, graph)
    prepare(graph, broker)
    sent, unkilled = 0, []

    def run(point: tuple[str, str, int] | None) -> int | None:
        process = context.Process(target=tail_world.run, args=(kafka.bootstrap, prefix, str(calls), point))
        process.start()
        grown = 0
        while process.is_alive() and grown < 400:
            client.send(f"{prefix}.old", Message(f"late {grown}", partition=grown % tail_world.PARTITIONS))
            grown += 1
            process.join(0.05)
        process.join(60)
        assert process.exitcode is not None, f"the process of {point} hangs"
        return process.exitcode

    for point in [*POINTS, None]:
        for n in range(sent, sent + 20):
            client.send(f"{prefix}.numbers", Message(n, partition=n % tail_world.PARTITIONS))
        sent += 20
        if run(point) != (-9 if point else 0):
            unkilled.append(point)
    assert unkilled == [], "a point that no run passes proves nothing"

    def found(topic: str) -> list[tuple[int, Any]]:
        came = committed(kafka.bootstrap, f"{prefix}.{topic}")
        return [(int(one.partition() or 0), json.loads(one.value() or b"")) for one in came]

    done = {n: taken for _, (n, taken) in found("done")}
    bad = [n for n in range(sent) if n % 10 == tail_world.BAD]
    assert sorted([*done, *bad]) == list(range(sent))
    assert len(committed(kafka.bootstrap, f"{prefix}.failed")) == len(bad)
    archived = [one for _, one in found("archive")]
    assert {one["n"]: one["taken"] for one in archived} == done
    assert len(archived) == len(done), "what a step appended is there once, and nothing of one that failed"
    for p in range(tail_world.PARTITIONS):
        old = [value for partition, value in found("old") if partition == p]
        taken = [value for n in sorted(done) if n % tail_world.PARTITIONS == p for value in done[n]]
        assert taken
        assert taken == old[: len(taken)], "each old message was taken once, in order"
    seen = defaultdict[str, set[str]](set)
    for line in calls.read_text(encoding="utf-8").splitlines():
        step, _, view = line.partition(" ")
        seen[step].add(view)
    assert all(len(views) == 1 for views in seen.values()), "a call saw something else than the first one of its step"
    report = verify(graph, broker)
    assert report.ok, str(report)
    client.close()
    broker.close()
