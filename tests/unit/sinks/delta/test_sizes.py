"""E6: how many rows the commits of a table have, behind a start and later."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cues_kafka import CommitPolicy, Delta, Graph, Json, Sink, Source, Topic
from cues_kafka.testing.tester import Tester


@dataclass(frozen=True)
class Order:
    """A message."""

    id: int


def rows(log: Path) -> list[int]:
    """Of each commit that has some."""
    added = [
        json.loads(action["add"]["stats"])["numRecords"]
        for entry in sorted(log.glob("*.json"))
        for action in map(json.loads, entry.read_text().splitlines())
        if "add" in action
    ]
    return [int(number) for number in added]


def test_commits_grow_with_each_part_up_to_the_policy(tmp_path: Path) -> None:
    """Not only with each transaction of Kafka, which comes behind several: each version of a table costs later ones."""
    table = Delta(f"file://{tmp_path}").table("orders")
    archive = Sink("archive", inputs="orders", into=table, commit=CommitPolicy(max_messages=4_000))
    tester = Tester(Graph("shop", Source("orders"), archive, defaults=Topic(value=Json(Order), partitions=1)))
    tester.send_many("orders", [Order(n) for n in range(12_000)])
    tester.run()
    tester.stop()

    assert rows(tmp_path / "orders" / "_delta_log") == [500, 1_000, 2_000, 4_000, 4_000, 500]
