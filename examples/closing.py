"""Close a day: when a message says so, read the day's orders, archive each of them, and send their sum.

The function reads and writes by itself, with a tailer and an appender. If it raises, the orders are there for the next
closing, and nothing of it is archived. Run it with ``python examples/closing.py``; it needs no broker.
"""

from __future__ import annotations

from typing import Any

from cues_kafka import Appender, Graph, Json, Kafka, Memory, Message, Processor, Source, Tailer, Topic, start


def close(closing: dict[str, str], orders: Tailer, archive: Appender) -> dict[str, Any]:
    """Sum up what has come since the last closing."""
    total, count = 0, 0
    for order in orders.messages():
        if order.value["sum"] < 0:
            raise ValueError(f"order at {order.offset} has a sum below zero")
        archive.append(Message({"day": closing["day"], **order.value}, key=order.key))
        total, count = total + order.value["sum"], count + 1
    return {"day": closing["day"], "total": total, "orders": count}


graph = Graph(
    "closing",
    Source("closing.orders"),
    Source("closing.closings"),
    Processor(
        close,
        inputs="closing.closings",
        outputs="closing.days",
        tailers={"orders": "closing.orders"},
        appenders={"archive": "closing.archive"},
    ),
    defaults=Topic(value=Json(), partitions=1),
    errors="closing.errors",
)

DAYS = {"Monday": [5, 7], "Tuesday": [], "Wednesday": [3, -1]}


def main(cluster: Kafka | Memory) -> list[Any]:
    """Three days, the last of which cannot be closed."""
    with start(graph, cluster) as running:
        for day, sums in DAYS.items():
            running.send_many("closing.orders", [Message({"sum": one}, key=f"{day}-{one}") for one in sums])
            running.send("closing.closings", {"day": day})
            running.wait_idle(timeout_s=60)
        return [message.value for message in running.messages("closing.days")]


if __name__ == "__main__":
    print(*main(Memory()), sep="\n")
