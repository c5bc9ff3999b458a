"""A graph whose second processor handles the errors of the first: it repairs what it can, and parks the rest.

Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/repairs.py``.
"""

import json
from typing import Any

import cues_kafka as ck
from cues_kafka import ErrorMessage, ErrorMessages, Errors, Graph, Message, Processor, Source, Topic


def amount(text: str) -> float:
    """A helper that knows nothing of the step: what it adds is in the error message all the same."""
    with ck.error_context(amount=text):
        return float(text)


def bill(order: Any) -> Any:
    """Raises for amounts such as `12,50`."""
    try:
        return {"id": order["id"], "total": amount(order["amount"])}
    except ValueError as error:
        raise ValueError(f"order {order['id']} cannot be billed") from error


def repair(error: ErrorMessage) -> Any:
    """An order with a decimal comma comes again, once; everything else waits for a person."""
    order = json.loads(error.payload or b"null")
    if isinstance(order, dict) and "," in error.context.get("amount", "") and "repaired" not in order:
        fixed = {**order, "amount": order["amount"].replace(",", "."), "repaired": error.hash.hex()}
        return {"again": Message(fixed, key=error.key)}
    return {"parked": error}


OUTPUTS = {"again": "repairs.orders", "parked": "repairs.parked"}
graph = Graph(
    "repairs",
    Source("repairs.orders"),
    Processor(bill, inputs="repairs.orders", outputs="repairs.bills"),
    Processor(repair, inputs="repairs.errors", outputs=OUTPUTS, errors=False),
    errors=Errors("repairs.errors", payload=True),
    topics={"repairs.parked": Topic(value=ErrorMessages())},
)

if __name__ == "__main__":
    with ck.start(graph, ck.Kafka("localhost:9092")) as running:
        for number, text in enumerate(["10.00", "12,50", "ten"]):
            running.send("repairs.orders", {"id": number, "amount": text}, key=str(number))
        running.wait_idle(timeout_s=60)
        for received in running.messages("repairs.bills"):
            print(received.value)
        for received in running.messages("repairs.parked"):
            error = received.value
            print(f"{error.text}: {error.causes[0].text}")
