"""A user's module for tests on clusters: copied to where no executor can import it, so that it must be shipped."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cues_kafka import DataFrameProcessor, Graph, Json, Processor, Source, Topic

NAME = os.environ.get("CLUSTER_GRAPH", "cluster")
WIDTH = 2


@dataclass(frozen=True)
class Order:
    """What comes in."""

    id: str
    customer: str
    total: int


@dataclass(frozen=True)
class Checked:
    """What the plain processor makes of it."""

    id: str
    total: int
    executor: str


@dataclass(frozen=True)
class Sum:
    """What the aggregate makes of all orders of a customer."""

    customer: str
    orders: int
    total: int
    executor: str


def executor(work: str) -> str:
    """
    Which executor this is: each has its working directory, `<work>/<application>/<executor>`.

    Waits until the other one does this work too: it gets the next Spark task.
    """
    here, deadline = Path.cwd(), time.monotonic() + 20
    (here / work).touch()
    while len(list(here.parent.glob(f"*/{work}"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    return here.name


def check(orders: list[Order]) -> list[Checked | None]:
    """Those of nothing are left out."""
    here = executor("checks")
    return [Checked(order.id, order.total, here) if order.total else None for order in orders]


def sums(orders: Any) -> Any:
    """What each customer ordered, and which executor computed (and so staged) it."""
    from pyspark.sql import functions as f

    counted = orders.groupBy("customer").agg(f.count("*").alias("orders"), f.sum("total").alias("total"))
    return counted.withColumn("executor", f.udf(executor)(f.lit("sums")))


graph = Graph(
    NAME,
    Source(f"{NAME}.orders"),
    Processor(check, inputs=f"{NAME}.orders", outputs=f"{NAME}.checked", batch=True),
    DataFrameProcessor(sums, inputs=f"{NAME}.orders", outputs=f"{NAME}.sums", output_mode="update"),
    topics={
        f"{NAME}.orders": Topic(value=Json(Order), key="id", partitions=WIDTH),
        f"{NAME}.checked": Topic(value=Json(Checked), key="id", partitions=WIDTH),
        f"{NAME}.sums": Topic(value=Json(Sum), key="customer", partitions=WIDTH),
    },
)
