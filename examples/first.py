# first.py
from cues_kafka import Graph, Kafka, Processor, Source, start

def check(order: dict[str, int]) -> dict[str, int] | None:
    if order["total"] < 0:
        raise ValueError("a negative total")    # one error message, and no output
    return order if order["total"] else None    # None: nothing is sent

checker = Processor(check, inputs="first.orders", outputs="first.checked")
graph = Graph("first", Source("first.orders"), checker, errors="first.errors")

if __name__ == "__main__":
    with start(graph, Kafka("localhost:9092")) as running:    # or Memory(): no broker
        for total in (250, 0, -1):
            running.send("first.orders", {"total": total})
        running.wait_idle()
        [checked] = running.messages("first.checked", last=1)
        [failed] = running.messages("first.errors", last=1)
        print(checked.value, "and", failed.value.text)
