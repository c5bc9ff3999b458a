"""SIGKILL before and after every effect of an interpreter, on a real broker; the whole world is compared."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Kafka, Message
from cues_kafka.brokers.open import open_broker
from cues_kafka.client.client import Client
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault import kill_world
from tests.fault.killing import forked
from tests.fault.support import backing, check_chain, committed

MOMENTS = ("before", "after")
FIRST_START = [(moment, "FetchSibling", nth) for moment in MOMENTS for nth in (1, 3)]
"""Only a task that never ran asks for siblings, so these kills come first."""
RECOVERY = [
    (moment, effect, nth)
    for effect in ("Init", "FetchOffsets", "FetchWatermark", "ReadNewest", "FetchInputs", "AssignReader")
    for moment, nth in zip(MOMENTS, (2, 3), strict=True)
]
TRANSACTION = [
    (moment, effect, nth)
    for effect in ("Begin", "SendOffsets", "Produce", "Flush", "Commit", "Call")
    for moment in MOMENTS
    for nth in (2, 9)  # a snapshot's, and one of a later batch
]


ALL = FIRST_START + RECOVERY + TRANSACTION

FEW = [
    FIRST_START[0],
    RECOVERY[7],
    *(point for point in TRANSACTION if point[1] in ("Flush", "Commit") and point[2] == 9),
]
"""Where a task starts, where it recovers, and around what makes a transaction visible."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("points", "sessions"),
    [
        pytest.param(FEW, 0, id="few"),
        pytest.param(ALL, 0, id="all", marks=pytest.mark.full),
        pytest.param(ALL, 1, id="one session", marks=pytest.mark.full),
    ],
)
def test_kills_around_every_effect_change_nothing_that_is_committed(
    kafka: KafkaFixture, tmp_path: Path, points: list[tuple[str, str, int]], sessions: int
) -> None:
    """One process after the other dies at its point, with new messages before each; in the end nothing is missing,
    doubled, torn or out of order, and the backing topics tell an unbroken story."""
    context = forked()
    prefix, ledger = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("kp")), tmp_path / "ledger"
    graph = kill_world.graph(prefix)
    broker = open_broker(Kafka(kafka.bootstrap))
    client = Client(broker, graph)
    prepare(graph, broker)
    numbers: dict[int, int] = {}

    def run(point: tuple[str, str, int] | None) -> int | None:
        process = context.Process(target=kill_world.run, args=(kafka.bootstrap, prefix, str(ledger), point, sessions))
        process.start()
        process.join(120)
        assert process.exitcode is not None, f"the process of {point} hangs"
        return process.exitcode

    unkilled = []
    for point in points:
        for n in range(len(numbers), len(numbers) + 10):
            numbers[n] = n % kill_world.PARTITIONS
            client.send(f"{prefix}.numbers", Message(n, partition=numbers[n]))
        if run(point) != -9:
            unkilled.append(point)
    assert run(None) == 0
    assert unkilled == [], "a point that no run passes proves nothing"

    assert world(kafka.bootstrap, prefix) == kill_world.expected(numbers)
    report = verify(graph, broker)
    assert report.ok, str(report)
    stores = verify(graph, broker, state=True)
    assert stores.anomalies == stores["tally"].not_recomputed == stores["call"].not_recomputed == 0, str(stores)
    assert stores["tally"].entries
    assert stores["call"].entries
    for processor in graph.processors:
        check_chain(backing(kafka.bootstrap, f"{prefix}.{processor}.backing"))
    kept = Counter(tuple(json.loads(line)[1]) for line in ledger.read_text().splitlines())
    hashes = {json.loads(line)[0] for line in ledger.read_text().splitlines()}
    without = (kill_world.BAD, kill_world.NIL, kill_world.WORST)
    assert set(kept) == {(n, n) for n in numbers if n % 10 not in without}
    assert len(hashes) == len(kept), "a delivery has one hash, however often it was attempted (I6)"
    client.close()
    broker.close()


def world(bootstrap: str, prefix: str) -> dict[str, Any]:
    """What a plain read_committed reader sees, in the shape of `kill_world.expected`."""
    seen: dict[str, Any] = {}
    for name in kill_world.TOPICS:
        rows: list[list[Any]] = [[] for _ in range(kill_world.PARTITIONS)]
        for message in committed(bootstrap, f"{prefix}.{name}"):
            rows[message.partition() or 0].append(json.loads(message.value() or b""))
        seen[name] = rows
    told: dict[tuple[int, str], int] = {}
    for message in committed(bootstrap, f"{prefix}.kinds"):
        kind, count = json.loads(message.value() or b"")
        assert count > told.get((message.partition() or 0, kind), 0), "each commit tells what is more by now"
        told[message.partition() or 0, kind] = count
    seen["kinds"] = told
    found = [re.search(rb"bad (\d+)", m.value() or b"") for m in committed(bootstrap, f"{prefix}.failed")]
    seen["failed"] = sorted(int(one.group(1)) for one in found if one)
    return seen
