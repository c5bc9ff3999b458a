"""Follow one order through two processors, with spans of OpenTelemetry.

The shop sends the order within a span of its own. Each step continues that trace. Spans are printed by their starts.
Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/traces.py``.
"""

from collections.abc import Iterator, Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cues_kafka import Graph, Kafka, Processor, Source, Spans, start


def price(order: dict[str, int]) -> dict[str, int]:
    """Add what the order costs."""
    return {**order, "cents": 250 * order["count"]}


def bill(order: dict[str, int]) -> str:
    """Write the bill."""
    return f"{order['count']} for {order['cents'] / 100:.2f}"


graph = Graph(
    "traces",
    Source("traces.orders"),
    Processor(price, inputs="traces.orders", outputs="traces.priced"),
    Processor(bill, inputs="traces.priced", outputs="traces.bills"),
)


def lines(spans: Sequence[ReadableSpan]) -> Iterator[str]:
    """Each span with its parent."""
    names = {span.context.span_id: span.name for span in spans if span.context}
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        yield f"{span.name} <- {names[span.parent.span_id] if span.parent else 'nothing'}"


if __name__ == "__main__":
    provider, ended = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(ended))
    with start(graph, Kafka("localhost:9092"), observers=[Spans(sample=0, provider=provider)]) as running:
        with provider.get_tracer("shop").start_as_current_span("take the order"):
            running.send("traces.orders", {"count": 2})
        running.send("traces.orders", {"count": 3})  # in no span: with sample=0, its steps have none either
        running.wait_idle()
        print(*lines(ended.get_finished_spans()), sep="\n")
        for message in running.messages("traces.bills"):
            print(message.value)
