"""SIGKILL of workers whose functions get columns, on a real broker: rows, sums and errors are exact."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from cues_kafka import Kafka, Message, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.client.client import Client
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault import arrow_world
from tests.fault.arrow_world import BAD, PARTITIONS, Number
from tests.fault.killing import Point, forked
from tests.fault.support import backing, check_chain, committed

POINTS: list[Point] = [
    *((moment, "Call", nth) for moment in ("before", "after") for nth in (1, 3)),
    *((moment, "Commit", nth) for moment in ("before", "inside", "after") for nth in (2, 5)),
    *((moment, "Produce", 2) for moment in ("before", "after")),
]


def numbers_of(count: int) -> list[Number]:
    """Numbers of three groups."""
    return [Number(n, "abc"[n % 3]) for n in range(count)]


def check(bootstrap: str, prefix: str, count: int) -> None:
    """Compare all that is there with what a loop over the numbers gives."""
    kept = [one for one in numbers_of(count) if one.n % 10 != BAD]
    even = [json.loads(one.value() or b"") for one in committed(bootstrap, f"{prefix}.even")]
    assert sorted(one["n"] for one in even) == [one.n for one in kept if one.n % 2 == 0]
    assert all(one["group"] == "abc"[one["n"] % 3] for one in even)
    sums: Counter[str] = Counter()
    for one in committed(bootstrap, f"{prefix}.sums"):
        value = json.loads(one.value() or b"")
        assert one.key() == value["group"].encode()
        sums[value["group"]] += value["n"]
    expected: Counter[str] = Counter()
    for each in kept:
        expected[each.group] += each.n
    assert sums == expected
    assert len(committed(bootstrap, f"{prefix}.failed")) == count - len(kept)


def test_columns_on_a_broker_give_each_message_one_outcome(kafka: KafkaFixture) -> None:
    """With errors, sums and a store; `verify` finds nothing wrong."""
    prefix = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("columns"))
    graph = arrow_world.graph(prefix)
    with start(graph, Kafka(kafka.bootstrap)) as running:
        running.send_many(f"{prefix}.numbers", [Message(one, key=f"{one.n}") for one in numbers_of(200)])
        running.wait_idle(timeout_s=60)

    check(kafka.bootstrap, prefix, 200)
    broker = open_broker(Kafka(kafka.bootstrap))
    report = verify(graph, broker)
    broker.close()
    assert report.ok, str(report)


@pytest.mark.full
@pytest.mark.timeout(400)
def test_kills_leave_one_outcome_of_each_message(kafka: KafkaFixture) -> None:
    """One process after the other dies at its point, with new messages before each. All that is there is exact."""
    context = forked()
    prefix = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("columns"))
    graph = arrow_world.graph(prefix)
    broker = open_broker(Kafka(kafka.bootstrap))
    client = Client(broker, graph)
    prepare(graph, broker)
    sent = 0

    def run(point: Point | None) -> int | None:
        process = context.Process(target=arrow_world.run, args=(kafka.bootstrap, prefix, point))
        process.start()
        process.join(120)
        assert process.exitcode is not None, f"the process of {point} hangs"
        return process.exitcode

    unkilled = []
    for point in POINTS:
        for one in numbers_of(sent + 40)[sent:]:
            client.send(f"{prefix}.numbers", Message(one, partition=one.n // 2 % PARTITIONS))
        sent += 40
        if run(point) != -9:
            unkilled.append(point)
    assert run(None) == 0
    assert unkilled == [], "a point that no run passes proves nothing"

    check(kafka.bootstrap, prefix, sent)
    check_chain(backing(kafka.bootstrap, f"{prefix}.work.backing"))
    report = verify(graph, broker)
    assert report.ok, str(report)
    client.close()
    broker.close()
