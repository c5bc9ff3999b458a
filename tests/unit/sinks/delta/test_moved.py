"""E6: the page that moves a store of Parquet files to a table of Delta Lake, as its reader follows it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import polars as pl

from cues_kafka import Blobs, Delta, Graph, Json, Sink, Source, Topic
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from cues_kafka.testing.tester import Tester

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
PAGE = Path(__file__).parents[4] / "docs" / "delta.md"


@dataclass(frozen=True)
class Order:
    """What comes in."""

    id: int
    at: datetime


def graph(into: Any) -> Graph:
    """The sink, before and after."""
    return Graph(
        "shop", Source("orders"), Sink("archive", inputs="orders", into=into), defaults=Topic(value=Json(Order))
    )


def shown() -> Callable[[str, str, str], None]:
    """The function that the page shows."""
    [block] = re.findall(r"```python\n((?:(?!```).)*?def move_files.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    found: Callable[[str, str, str], None] = names["move_files"]
    return found


def test_rows_of_files_and_new_rows_are_in_the_table_once(tmp_path: Path) -> None:
    """Also if the copy is made twice. A file that no entry names is not copied."""
    old = Blobs(f"file://{tmp_path}/old")
    before = Tester(graph(old.parquet("orders")))
    for first in (0, 3):
        before.send_many("orders", [Order(n, NOON) for n in range(first, first + 3)])
        before.run()
    before.stop()
    [one, _] = sorted((tmp_path / "old").rglob("*.parquet"))
    (one.parent / "orders-0-9.parquet").write_bytes(one.read_bytes())

    table = Delta(f"file://{tmp_path}/new").table("orders")
    table.typed({"id": "long", "at": "timestamp"}).make(first=True)  # plan --apply
    for _ in range(2):
        shown()(old.url, "orders", table.url())
    before.broker.expire("shop.archive")
    tool = Maintenance(graph(table), before.broker, "archive", who="test", clock=before.clock)
    tool.carry_out(reset(tool, to="here"))

    after = Tester(graph(table), broker=before.broker)
    after.send_many("orders", [Order(n, NOON) for n in range(6, 9)])
    after.run()
    after.stop()
    rows = pl.read_delta(table.url()).sort("id")
    assert rows.rows() == [(n, NOON) for n in range(9)]
    assert deltalake.DeltaTable(table.url()).transaction_version("shop.archive.0") == 9
