"""Spans on a real broker: the trace of another program's message goes through a graph and out of it."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cues_kafka import Graph, Kafka, Processor, Raw, Source, Spans, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.ports.log import Headers, Outgoing
from cues_kafka.testing.fixtures import KafkaFixture

TRACE = "0af7651916cd43dd8448eb211c80319c"


def same(value: bytes) -> bytes:
    return value


def test_every_other_message_of_a_foreign_producer_is_traced_through_two_hops(kafka: KafkaFixture) -> None:
    """The client's messages are objects of C; all others of the chunk are called in the hot loop, in order."""
    name = kafka.unique("spans")
    source, middle, out = (f"{name}.{word}" for word in ("in", "middle", "out"))
    graph = Graph(
        name,
        Source(source),
        Processor(same, name="first", inputs=source, outputs=middle),
        Processor(same, name="second", inputs=middle, outputs=out),
        defaults=Topic(value=Raw()),
    )
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traced: Headers = [("traceparent", f"00-{TRACE}-b7ad6b7169203331-01".encode())]
    with start(graph, Kafka(kafka.bootstrap), observers=[Spans(0, provider=provider)]) as running:
        broker = open_broker(Kafka(kafka.bootstrap))
        sender = broker.sender("foreign")
        sender.send([Outgoing(source, 0, None, b"%d" % n, [] if n % 2 else traced, 0) for n in range(20)])
        sender.close()
        broker.close()
        running.wait_idle(timeout_s=60)
        messages = list(running.messages(out))

    assert [one.value for one in messages] == [b"%d" % n for n in range(20)]
    spans = exporter.get_finished_spans()
    assert {f"{span.context.trace_id:032x}" for span in spans if span.context} == {TRACE}
    assert [span.name for span in spans].count(f"process {source}") == 10
    last = [f"00-{TRACE}-{span.context.span_id:016x}-01" for span in spans if span.context and middle in span.name]
    carried = [dict(one.headers).get("traceparent") for one in messages]
    assert [None if one is None else one.decode() for one in carried] == [
        None if n % 2 else last[n // 2] for n in range(20)
    ]
