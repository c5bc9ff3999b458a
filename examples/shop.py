# shop.py
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from cues_kafka import Graph, Json, Kafka, Out, Processor, Source, Topic, start

@dataclass(frozen=True)
class Order:
    id: str
    total: int

def check(order: Order) -> Order | None:        # None: nothing to send; an exception: one message on shop.errors
    return order if order.total else None

def route(order: Order) -> Iterator[Out[Literal["all", "big"]]]:        # a fork: both or none are committed
    yield Out("all", order)
    if order.total > 100:
        yield Out("big", order)

graph = Graph(
    "shop",
    Source("orders"),
    Processor(check, inputs="orders", outputs="checked"),
    Processor(route, inputs="checked", outputs={"all": "shop.all", "big": "shop.big"}),
    errors="shop.errors",
    defaults=Topic(value=Json(Order), key="id", partitions=4),
)

if __name__ == "__main__":
    with start(graph, Kafka("localhost:9092")) as running:      # Memory(); or engine=Spark(session, checkpoint=...)
        running.send("orders", Order("a1", 250))
        running.wait_idle(timeout_s=30)
        print(running.messages("shop.big"))
