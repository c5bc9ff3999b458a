"""The graph: orders from a JMS queue are booked in PostgreSQL, and booked ones go to the queue of the warehouse."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cues_kafka import Feed, Graph, Json, Processor, Sink, Sql, Stomp, Topic

if TYPE_CHECKING:
    from cues_kafka.sinks.connection import Database

BROKER, DATABASE = "ORDERS_BROKER", "ORDERS_DATABASE"
"""The environment variables with the addresses."""

ORDERS, WAREHOUSE = "orders", "warehouse"
"""The JMS queues that orders come from, and that booked ones go to."""

TABLES = """
CREATE TABLE article (name text PRIMARY KEY, stock bigint NOT NULL);
CREATE TABLE sale (id text PRIMARY KEY, article text NOT NULL REFERENCES article, pieces bigint NOT NULL);
"""


@dataclass(frozen=True)
class Order:
    """What a customer orders; the shop sends an order again if the broker did not confirm it."""

    id: str
    article: str
    pieces: int


def book(order: Order, db: Database) -> dict[str, Any] | None:
    """Book an order once, and take its pieces from the stock. PostgreSQL refuses an article that does not exist."""
    sale = "INSERT INTO sale (id, article, pieces) VALUES (%s, %s, %s) ON CONFLICT (id) DO NOTHING"
    if not db.execute(sale, (order.id, order.article, order.pieces)).rowcount:
        return None  # the shop has sent it twice
    db.execute("UPDATE article SET stock = stock - %s WHERE name = %s", (order.pieces, order.article))
    return asdict(order)


broker = Stomp(env=BROKER, queue=ORDERS, key="article")

# `make demo-orders` kills the processes, so no message is to blame for a death: quarantine_after=None.
graph = Graph(
    "jms-orders",
    Feed(broker, into="orders", name="shop"),
    Processor(book, inputs="orders", outputs="booked", effects={"db": Sql(env=DATABASE)}, quarantine_after=None),
    Sink("ship", inputs="booked", into=broker.to_queue(WAREHOUSE), quarantine_after=None),
    errors="orders.errors",
    topics={"orders": Topic(value=Json(Order), key="article"), "booked": Topic(value=Json(), key="article")},
    defaults=Topic(partitions=2),
)
