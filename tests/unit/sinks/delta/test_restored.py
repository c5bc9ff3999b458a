"""E6: a table that was restored from a backup stops the task until `reset --to database`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import CommitPolicy, Delta, Graph, Processor, Source, TaskStopped
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from cues_kafka.testing.tester import Tester
from tests.delta_reading import values


def book(order: dict[str, Any], table: Any) -> dict[str, Any]:
    """A row and a message for each order."""
    table.write(order)
    return order


def test_task_refuses_a_restored_table_and_goes_back_to_it(tmp_path: Path) -> None:
    """The rows are complete afterwards; the messages to Kafka of the steps between repeat, which is said."""
    table = Delta(f"file://{tmp_path}").table("booked", columns={"id": "long"})
    graph = Graph(
        "g",
        Source("orders"),
        Processor(book, inputs="orders", outputs="booked", effects={"table": table}),
    )
    tester = Tester(graph, policy=CommitPolicy(max_messages=3))
    place, backup = tmp_path / "booked", tmp_path / "backup"
    for first, last in ((0, 6), (6, 12)):
        tester.send_many("orders", [{"id": n} for n in range(first, last)])
        tester.run()
        tester.stop()
        if not backup.exists():
            shutil.copytree(place, backup)
    shutil.rmtree(place)
    backup.rename(place)

    tester.send_many("orders", [{"id": n} for n in (12, 13)])
    with pytest.raises(TaskStopped, match=r"restored from a backup.*--to database"):
        tester.run()
    assert sorted(values(str(place), "id")) == list(range(6))
    tester.stop()
    tester.broker.expire("g.book")
    tool = Maintenance(graph, tester.broker, "book", who="test", clock=tester.clock)
    moves = reset(tool, to="database")
    assert any("lacks 6 steps" in note for move in moves for note in move.notes)
    tool.carry_out(moves)
    tester.run()
    assert sorted(values(str(place), "id")) == list(range(14))
    assert sorted(one["id"] for one in tester.values("booked")) == sorted([*range(14), *range(6, 12)])
    tester.stop()
