# first.py
from cues_kafka import Graph, Kafka, Processor, Source, start

def check(order: dict) -> dict | None:
    if order["total"] < 0:
        raise ValueError("a negative total")        # one error message, in place of the outputs
    return order if order["total"] else None        # None: nothing is sent

graph = Graph(
    "first", Source("first.orders"),
    Processor(check, inputs="first.orders", outputs="first.checked"), errors="first.errors",
)

if __name__ == "__main__":
    with start(graph, Kafka("localhost:9092")) as running:      # or Memory(), which needs no broker
        for total in (250, 0, -1):
            running.send("first.orders", {"total": total})
        running.wait_idle()
        [checked], [failed] = running.messages("first.checked", last=1), running.messages("first.errors", last=1)
        print(checked.value, "and", failed.value.text)
