"""User code in all forms, as a strict type checker must accept it and the graph too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from cues_kafka import (
    Answer,
    DataFrameProcessor,
    ErrorMessage,
    Graph,
    Json,
    Message,
    Out,
    Processor,
    Raw,
    Received,
    Retry,
    Running,
    Source,
    Status,
    Step,
    StoreView,
    Topic,
    has_header,
    has_tag,
    has_type,
    processor,
)
from cues_kafka.graph.declare import Store
from cues_kafka.ports.log import Sent


@dataclass(frozen=True)
class Order:
    """An order."""

    id: str
    total: int


class Database:
    """Something that is opened once per process."""

    def insert(self, order: Order) -> None: ...


def is_big(received: Any) -> bool:
    return bool(received.value.total > 100)


def keyed(order: Order) -> Message[Order]:
    return Message(order, key=order.id, headers={"cues-type": "order"}, timestamp_ms=0)


def bare(order: Order) -> Message | None:
    return Message(None, key=order.id) if order.total else None


def split(order: Order) -> Iterator[Out[Literal["all", "big"]]]:
    yield Out("all", order)
    yield Out("big", Message(order, partition=1))


def split_dict(order: Order) -> dict[str, Order | Message[Order]] | None:
    return {"all": order, "big": Message(order)}


def many(order: Order) -> Iterator[Order | Message]:
    yield order
    yield Message(order)


async def fetched(order: Order, url: str) -> Order:
    return order


async def pages(order: Order) -> AsyncIterator[Out]:
    yield Out("all", order)


def zipped(flight: dict[str, Any] | None = None, weather: dict[str, Any] | None = None) -> dict[str, Any]:
    return {**(flight or {}), **(weather or {})}


def anything(**rest: object) -> None: ...


def ledger(orders: Sequence[Order], db: Database, step: Sequence[Step]) -> list[Exception | None]:
    return [None for _ in orders]


def audited(order: Order, step: Step) -> Order:
    received: Received = step.inputs[step.binding]
    step.error_context(hash=step.hash, offset=received.offset)
    return order


def watched(running: Running) -> tuple[Status, list[ErrorMessage]]:
    return running.status(), [error.value for error in running.messages("errors", last=10)]


def stored(running: Running, sent: Sent) -> dict[str, int]:
    answer: Answer = running.query("anything", "st", "a", default=0, after=sent)
    with running.table("anything", "st") as view:
        view.wait_for(sent, timeout_s=3)
        table: StoreView = view
    return {"query": answer.value, "table": table.get("a", 0), "at": sum(view.positions.values())}


def frames(left: Any, right: Any) -> Mapping[str, Any]:
    return {"joined": left.join(right)}


@processor(inputs="orders", outputs="doubled", opts={"factor": 2})
def double(order: Order, factor: int) -> Order:
    return Order(order.id, order.total * factor)


doubled: Order = double(Order("a", 1), 2)
outputs: dict[str, str] = {"all": "all", "big": "big"}

graph = Graph(
    "accepted",
    Source("orders"),
    Source("flights", default=True),
    double,
    Processor(keyed, inputs="orders", outputs="keyed", filter=has_type(Order)),
    Processor(bare, inputs="orders", outputs="bare", retry=Retry(OSError, for_s=3)),
    Processor(split, inputs="orders", outputs=outputs, errors=False),
    Processor(split_dict, inputs="orders", outputs=outputs, start="latest", quarantine_after=None),
    Processor(many, inputs="orders", outputs="many", filter=is_big),
    Processor(fetched, inputs="orders", outputs="fetched", concurrency=8, opts={"url": "x"}),
    Processor(pages, inputs="orders", outputs={"all": "pages"}),
    Processor(
        zipped,
        inputs={"flight": "flights", "weather": "weather"},
        outputs="zipped",
        filter=has_tag("eu") & is_big | ~has_header("x", b""),
    ),
    Processor(anything, alts={"a": "left", "b": "right"}, strategy="at-least-once", state={"st": Store(Json())}),
    Processor(ledger, inputs="orders", batch=True),
    Processor(audited, inputs="orders", outputs="audited"),
    DataFrameProcessor(frames, inputs={"left": "a", "right": "b"}, outputs={"joined": "c"}),
    errors="errors",
    defaults=Topic(Json(Order), key="id", partitions=4),
    topics={
        "pages": Topic(Raw(), key=None, config={"retention.ms": "1"}),
        "many": Topic(transient="7 days"),
        "keyed": Topic(transient=timedelta(days=7), compacted=True),
    },
    system={"db": Database},
)

again: Graph = Graph.from_dict(
    graph.merge(graph, override=True).bind({"orders": "orders2"}, names={"bare": "plain"}).to_dict()
)
name: str = again.processors["double"].name
topic: Topic = again.topic("orders2")
errors: str | None = again.errors_of("double")
