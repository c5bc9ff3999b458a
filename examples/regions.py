"""One graph as a catalog: the same processor for each region, between topics of its own and with its own tax.

Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/regions.py``.
"""

from __future__ import annotations

from typing import Any

from cues_kafka import Graph, Kafka, Processor, Source, start

PERCENT = {"eu": 19, "us": 7}


def bill(order: dict[str, Any], percent: int) -> dict[str, Any]:
    """Add the tax."""
    return {"id": order["id"], "gross": order["net"] * (100 + percent) // 100}


def audit(eu: dict[str, Any] | None = None, us: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """Take the bills of all regions together."""
    return eu or us


catalog = Graph("catalog", Source("orders"), Processor(bill, inputs="orders", outputs="billed", opts={"percent": 0}))


def bound(region: str, percent: int) -> Graph:
    """The catalog for one region."""
    topics = {topic: f"{region}.{topic}" for topic in catalog.topics_used()}
    return catalog.bind(topics, opts={"bill": {"percent": percent}}, names={"bill": f"bill-{region}"})


everything = Graph(
    "shop", Processor(audit, alts={region: f"{region}.billed" for region in PERCENT}, outputs="all.billed")
)
eu, us = (bound(region, percent) for region, percent in PERCENT.items())
graph = eu.merge(us, everything, name="shop")

if __name__ == "__main__":
    with start(graph, Kafka("localhost:9092")) as running:
        running.send("eu.orders", {"id": "a1", "net": 100})
        running.send("us.orders", {"id": "b1", "net": 100})
        running.wait_idle(timeout_s=30)
        for region in PERCENT:
            for message in running.messages(f"{region}.billed"):
                print(f"{region}.billed", message.value)
    print(", ".join(graph.processors))
