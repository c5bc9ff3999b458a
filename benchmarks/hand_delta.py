"""
The other side with a table of Delta Lake: the loop of `hand`, which writes the rows of each batch with deltalake.

It appends the rows of all messages that came, with an application transaction as an idempotent writer has it, and then
commits the positions in Kafka. It is not exactly-once: a death between the two commits doubles rows.
"""

from __future__ import annotations

import os
from typing import Any

import deltalake
import msgspec
import pyarrow as pa

from benchmarks.graphs import DELTA, ENV
from benchmarks.hand import main
from benchmarks.hand_sql import Rows

SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("id", "account", "currency")),
        pa.field("cents", pa.int64()),
        pa.field("settled", pa.bool_()),
    ]
)
read = msgspec.json.Decoder().decode


class Appended(Rows):
    """Appends rows, and produces no messages."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super(Rows, self).__init__(*args, **options)
        place = f"{os.environ[f'{ENV}LAKE'].removeprefix('file://')}/{os.environ[f'{ENV}NAME']}"
        self.table = deltalake.DeltaTable.create(place, SCHEMA)
        self.number = 0

    def transact(self, batch: list[Any]) -> None:
        rows = pa.Table.from_pylist([read(message.value()) for message in batch], SCHEMA)
        self.number += 1
        done = deltalake.Transaction("by-hand", self.number)
        properties = deltalake.CommitProperties(app_transactions=[done])
        deltalake.write_deltalake(self.table, rows, mode="append", commit_properties=properties)
        self.publish(batch)


if __name__ == "__main__":
    main({DELTA: Appended})
