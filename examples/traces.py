"""Follow one order through two processors, with spans of OpenTelemetry.

The shop sends the order within a span of its own. Each step continues that trace, and the SDK prints the spans.
Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/traces.py``.
"""

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

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

names: dict[int, str] = {}


def line(span: ReadableSpan) -> str:
    """A span with its parent."""
    assert span.context
    names[span.context.span_id] = span.name
    return f"{span.name} <- {names[span.parent.span_id] if span.parent else 'nothing'}\n"


if __name__ == "__main__":
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line)))
    with start(graph, Kafka("localhost:9092"), observers=[Spans(sample=0, provider=provider)]) as running:
        with provider.get_tracer("shop").start_as_current_span("take the order") as span:
            names[span.get_span_context().span_id] = "take the order"
            running.send("traces.orders", {"count": 2})
        running.send("traces.orders", {"count": 3})  # in no span: with sample=0, its steps have none either
        running.wait_idle()
        for message in running.messages("traces.bills"):
            print(message.value)
