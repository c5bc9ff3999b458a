"""The job of the pages in cues-kafka: ``cues-kafka run cues_orders.py:graph``."""

from __future__ import annotations

import os
from dataclasses import dataclass

from cues_kafka import Errors, Graph, Json, Processor, Source, State, Store, Topic

NAME = os.environ.get("NAME", "shop")


@dataclass(frozen=True)
class Order:
    """What a customer orders."""

    id: str
    customer: str
    cents: int


@dataclass(frozen=True)
class Count:
    """How many orders the customer has made, with the last of them."""

    id: str
    orders: int


def count(order: Order, counts: State[int]) -> Count:
    """Refuse an order without a price, and count the others."""
    if order.cents <= 0:
        raise ValueError("cents must be positive")
    counts[order.customer] = counts.get(order.customer, 0) + 1
    return Count(order.id, counts[order.customer])


graph = Graph(
    NAME,
    Source(f"{NAME}.orders"),
    Processor(count, inputs=f"{NAME}.orders", outputs=f"{NAME}.counts", state={"counts": Store(Json(int))}),
    topics={
        f"{NAME}.orders": Topic(value=Json(Order), key="customer", partitions=4),
        f"{NAME}.counts": Topic(value=Json(Count), partitions=4),
    },
    errors=Errors(f"{NAME}.errors", payload=True),
)
