"""User code with effects: what a function gets has a type that a strict type checker knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from cues_kafka import Blobs, Graph, Http, Mqtt, Once, Processor, Sink, Source, Sql, Step, Stomp
from cues_kafka.effects import (
    AsyncHttpServer,
    AsyncKeptOnce,
    Destination,
    Destinations,
    HttpServer,
    KeptOnce,
    KeyedRows,
    MessagePublisher,
    Objects,
    Response,
    RowWriter,
    SqlSession,
)


@dataclass(frozen=True)
class Order:
    """An order."""

    id: str
    total: int


def transfer(order: Order, db: SqlSession) -> Order:
    [row] = db.execute("SELECT total FROM orders WHERE id = ?", (order.id,)).fetchall()
    with db.savepoint():
        db.executemany("UPDATE orders SET total = ?", [(row[0] + order.total,)])
    db.insert("log", ["id"], [(order.id,)])
    return order


def listed(order: Order, rows: RowWriter) -> Order:
    rows.insert(order)
    return order


def newest(order: Order, table: KeyedRows) -> Order:
    if order.total:
        table.put(order)
    else:
        table.delete(order.id)
    return order


def stored(order: Order, files: Objects) -> dict[str, str]:
    return {"bytes": files.put("a.txt", b"x"), "file": files.put("b.txt", Path("b.txt"))}


def paid(order: Order, http: HttpServer) -> dict[str, object]:
    answer: Response = http.post("/pay", json={"id": order.id}).raise_for_status()
    return {"status": answer.status, "text": answer.text, "kept": answer.kept, "body": answer.json()}


async def asked(order: Order, http: AsyncHttpServer) -> int:
    answer = await http.get(f"/orders/{order.id}", params={"fields": "total"})
    return answer.status


def invited(order: Order, once: KeptOnce) -> str:
    token: str = once("token", lambda: token_hex(8))
    return token


async def fetched() -> int:
    return 1


async def invited_later(order: Order, once: AsyncKeptOnce) -> int:
    number: int = await once("number", fetched)
    return number


def alarmed(order: Order, mqtt: MessagePublisher, step: Step) -> None:
    mqtt.publish(order, step, topic=f"alarms/{order.id}")


def shipped(order: Order, jms: Destinations, audit: Destination) -> None:
    jms.send("queue://orders", {"id": order.id}, {"total": order.total})
    audit.send("shipped")


database = Sql("sqlite:////tmp/typed.db")
broker = Stomp("stomp://localhost")
graph = Graph(
    "effects",
    Source("orders"),
    Processor(transfer, inputs="orders", outputs="a", effects={"db": database}),
    Processor(listed, inputs="orders", outputs="b", effects={"rows": database.table("t", columns=["id", "total"])}),
    Processor(
        newest, inputs="orders", outputs="c", effects={"table": database.upsert("u", key="id", columns=["total"])}
    ),
    Processor(stored, inputs="orders", outputs="d", effects={"files": Blobs("file:///tmp/typed")}),
    Processor(paid, inputs="orders", outputs="e", effects={"http": Http("http://localhost:1")}),
    Processor(asked, inputs="orders", outputs="f", concurrency=2, effects={"http": Http("http://localhost:1")}),
    Processor(invited, inputs="orders", outputs="g", effects={"once": Once()}),
    Processor(invited_later, inputs="orders", outputs="h", concurrency=2, effects={"once": Once()}),
    Processor(alarmed, inputs="orders", effects={"mqtt": Mqtt("mqtt://localhost").topic("alarms")}),
    Processor(shipped, inputs="orders", effects={"jms": broker.target(), "audit": broker.to_queue("audit")}),
    Sink("archive", inputs="orders", into=Blobs("file:///tmp/typed").json_lines("orders")),
    errors="errors",
)
