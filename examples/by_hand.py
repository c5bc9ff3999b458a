"""A loop of your own, exactly once, without a graph: bill each order, and keep a list of what is due.

Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/by_hand.py``. Kill it at any
moment and run it again: each order is sent once and billed once. Watch with ``cues-kafka tail by-hand.bills --follow``.
"""

from dataclasses import dataclass

from cues_kafka import Client, ClientTailer, Json, Kafka, Topic, connect

ORDERS, BILLS, TOTALS = "by-hand.orders", "by-hand.bills", "by-hand.totals"


@dataclass(frozen=True)
class Order:
    """What a customer wants."""

    id: str
    customer: str
    cents: int


def send(client: Client, orders: list[Order]) -> None:
    """Send orders that an earlier run may have sent already: the log knows. Their ids are in the header `cues-id`."""
    topic = client.topic(ORDERS, Topic(value=Json(Order), key="customer"), create=True)
    known = topic.sent_many(order.id for order in orders)
    for order in orders:
        if order.id not in known:
            topic.append(order, id=order.id)


def bill(client: Client, tailer: ClientTailer) -> None:
    """Bill what is there; the bill, the total and the place in the orders are committed together."""
    while (found := tailer.read_blocking(timeout_s=1)) is not None:
        order: Order = found.value
        with client.transaction() as tx:
            tx.advance(tailer)
            tx.append(BILLS, {"order": order.id, "due": order.cents}, key=order.customer)
            tx.append(TOTALS, order.cents, key=order.customer)


if __name__ == "__main__":
    with connect(Kafka("localhost:9092"), name="by-hand") as client:
        for name in (BILLS, TOTALS):
            client.topic(name, create=True)
        send(client, [Order(f"o-{number}", "ann", 100 + number) for number in range(5)])
        with client.topic(ORDERS, Topic(value=Json(Order))).tailer(name="bills") as tailer:
            bill(client, tailer)
        for message in client.messages(BILLS):
            print(message.key, message.value)
