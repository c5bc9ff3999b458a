"""The totals of each customer: the graph that compose.yaml runs on its Spark, and a program that checks it.

::

    cues-kafka run totals.py:graph --engine spark --master spark://spark-master:7077 --checkpoint file:///data/checkpoints
    python totals.py --bootstrap kafka-1:9092
"""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cues_kafka import DataFrameProcessor, Graph, Json, Kafka, Processor, RetriableError, Source, Topic, connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cues_kafka.client.client import Client

CUSTOMERS = 20


@dataclass(frozen=True)
class Order:
    """An input message."""

    id: str
    customer: str
    total: int


@dataclass(frozen=True)
class Total:
    """An output message: the newest numbers of one customer."""

    customer: str
    orders: int
    total: int


def check(order: Order) -> Order | None:
    """Drop empty orders; in a plain processor each Kafka partition is one Spark task."""
    return order if order.total else None


def totals(orders: DataFrame) -> DataFrame:
    """Sum up with a shuffle and state, so that each micro-batch is staged in files before it is published."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - the checking program needs no Spark

    return orders.groupBy("customer").agg(f.count("*").alias("orders"), f.sum("total").alias("total"))


graph = Graph(
    "totals",
    Source("totals.orders"),
    Processor(check, inputs="totals.orders", outputs="totals.checked"),
    DataFrameProcessor(totals, inputs="totals.checked", outputs="totals.out", output_mode="update"),
    errors="totals.errors",
    defaults=Topic(partitions=4),
    topics={
        "totals.orders": Topic(value=Json(Order), key="id"),
        "totals.checked": Topic(value=Json(Order), key="id"),
        "totals.out": Topic(value=Json(Total), key="customer"),
    },
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Send orders, wait for their totals, and compare; returns the exit code."""
    parser = argparse.ArgumentParser(prog="totals.py", description=main.__doc__)
    parser.add_argument("--bootstrap", required=True, help="the cluster")
    parser.add_argument("--orders", type=int, default=2_000, help="number of orders to send (2000)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds to wait for the totals (600)")
    args = parser.parse_args(arguments)
    run = uuid.uuid4().hex[:8]
    orders = [Order(f"{run}-{n}", f"{run}-{n % CUSTOMERS}", n % 7) for n in range(args.orders)]
    # The network of compose.yaml is private to its containers. Do not copy this setting to another network.
    with connect(Kafka(args.bootstrap, allow_plaintext=True), graph) as client:
        client.send_many("totals.orders", orders)
        print(f"run {run}: {len(orders)} orders sent", flush=True)
        wrong = compared(client, run, orders, args.timeout)
    print(f"run {run}: " + (wrong or "each customer's totals are exact, and none was published twice"))
    return 1 if wrong else 0


def compared(client: Client, run: str, orders: Sequence[Order], timeout_s: float) -> str:
    """The differences; empty: all totals are right."""
    expected: dict[str, tuple[int, int]] = {}
    for order in orders:
        if order.total:
            count, total = expected.get(order.customer, (0, 0))
            expected[order.customer] = count + 1, total + order.total
    deadline = time.monotonic() + timeout_s
    while True:
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        # While a broker is dead and its partitions have no leader, there is no answer: the next look may get one.
        with suppress(RetriableError):
            for message in client.messages("totals.out", limit=sys.maxsize):
                if message.value.customer.startswith(f"{run}-"):
                    found[message.value.customer].append((message.value.orders, message.value.total))
        for customer, rows in found.items():
            # Each micro-batch counts more orders than the one before, so no number may come twice.
            if len(set(rows)) < len(rows) or max(rows) > expected.get(customer, (0, 0)):
                return f"customer {customer} has {rows}, expected at last {expected.get(customer)}"
        if {customer: max(rows) for customer, rows in found.items()} == expected:
            return ""
        if time.monotonic() > deadline:
            return f"after {timeout_s:g} s {len(found)} of {len(expected)} customers have totals, not all of them whole"
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
