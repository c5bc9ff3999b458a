"""Send each message to all outputs of a processor, without naming them in the function.

Prices go to every region that the graph has. A new region is a new line in `REGIONS`, and no change of a function.
Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/broadcast.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from cues_kafka import Graph, Json, Kafka, Processor, Source, Step, Topic, has_header, start

REGIONS = {"eu": "prices.eu", "us": "prices.us", "asia": "prices.asia"}


@dataclass(frozen=True)
class Price:
    """A message of all topics."""

    article: str
    cents: int


def broadcast(price: Price, step: Step) -> dict[str, Price]:
    """Take the bindings from the declaration of the processor that this function runs in."""
    return dict.fromkeys([binding for binding, _ in step.processor.outputs], price)


graph = Graph(
    "prices",
    Source("prices.changed"),
    Processor(broadcast, inputs="prices.changed", outputs=REGIONS, filter=~has_header("draft")),
    defaults=Topic(value=Json(Price), key="article", partitions=2),
)

if __name__ == "__main__":
    with start(graph, Kafka("localhost:9092")) as running:
        running.send("prices.changed", Price("nut", 120))
        running.send("prices.changed", Price("bolt", 80), headers={"draft": "yes"})
        running.wait_idle(timeout_s=30)
        for topic in REGIONS.values():
            print(topic, [message.value for message in running.messages(topic)])
