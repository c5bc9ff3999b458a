"""Spans: which steps have one, what it says, how traces go from hop to hop, and that they change no outcome."""

from __future__ import annotations

import asyncio
import gzip
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cues_kafka import (
    ConfigError,
    Graph,
    Json,
    Memory,
    Message,
    Out,
    Processor,
    Raw,
    Repairs,
    Retry,
    Source,
    Spans,
    Store,
    Timer,
    Timers,
    Topic,
    aio,
    connect,
    has_type,
    start,
)
from cues_kafka.core.delivery import HEADER
from cues_kafka.observe import tracing
from cues_kafka.observe.spans import Draw, is_sampled
from cues_kafka.ports.observer import RunFacts, RunObserver
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify

TRACE = "0af7651916cd43dd8448eb211c80319c"
OTHER = "1af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


def traceparent(trace_id: str = TRACE, *, sampled: bool = True) -> dict[str, str]:
    return {"traceparent": f"00-{trace_id}-{PARENT}-0{int(sampled)}"}


class Collected:
    """A provider that keeps its spans, and a `Spans` that gives them to it."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self, sample: float = 1) -> Spans:
        return Spans(sample, provider=self.provider)

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.all]

    def outcomes(self) -> list[Any]:
        return [(one.attributes or {})["cues_kafka.outcome"] for one in self.all]


@pytest.fixture
def collected() -> Collected:
    return Collected()


def context_of(span: trace.Span | ReadableSpan) -> trace.SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def identity(span: trace.Span | ReadableSpan) -> str:
    """The `traceparent` of a span."""
    found = context_of(span)
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


def carried(tester: Tester, topic: str) -> list[str | None]:
    """The `traceparent` of each message of a topic."""
    found = [dict(message.headers).get("traceparent") for message in tester.messages(topic)]
    return [None if one is None else one.decode() for one in found]


def double(n: int) -> int | None:
    if n < 0:
        raise ValueError("negative")
    return 2 * n if n else None


def pipe(**options: Any) -> Graph:
    return Graph(
        "demo",
        Source("in"),
        Processor(double, inputs="in", outputs="out", **options),
        errors="demo.errors",
        defaults=Topic(partitions=1),
    )


def test_span_of_a_pipe_has_the_place_of_its_message_and_names_by_the_conventions(collected: Collected) -> None:
    tester = Tester(pipe(), spans=collected.spans())
    tester.send("in", 21)
    tester.run()

    [span] = collected.all
    assert (span.name, span.kind, span.parent, span.links) == ("process in", trace.SpanKind.CONSUMER, None, ())
    attributes = dict(span.attributes or {})
    assert len(str(attributes.pop("cues_kafka.hash"))) == 32
    assert attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "in",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "messaging.consumer.group.name": "demo.double",
        "cues_kafka.graph": "demo",
        "cues_kafka.task": "double/0",
        "cues_kafka.attempt": 0,
        "cues_kafka.outcome": "outputs",
        "cues_kafka.output_messages": 1,
    }
    assert carried(tester, "out") == [identity(span)]


def test_error_has_the_exception_and_nil_its_outcome(collected: Collected) -> None:
    tester = Tester(pipe(), spans=collected.spans())
    for n in (1, 0, -1):
        tester.send("in", n)
    tester.run()

    assert collected.outcomes() == ["outputs", "nil", "error"]
    failed = collected.all[-1]
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert failed.status.description == "ValueError: negative"
    assert failed.attributes
    assert failed.attributes["error.type"] == "ValueError"
    [event] = failed.events
    assert event.name == "exception"
    assert event.attributes
    assert "double" in str(event.attributes["exception.stacktrace"])
    assert carried(tester, "demo.errors") == [identity(failed)]
    assert tester.errors()[0].hash.hex() == failed.attributes["cues_kafka.hash"]


def test_message_that_cannot_be_decoded_has_a_span(collected: Collected) -> None:
    tester = Tester(
        Graph("demo", Source("in"), Processor(double, inputs="in", outputs="out"), errors="demo.errors"),
        spans=collected.spans(),
    )
    with tester.client as client:
        client.topic("in", Topic(value=Raw())).append(b"{")
        tester.run()

        assert collected.outcomes() == ["error"]


def test_trace_of_a_producer_goes_on_from_hop_to_hop(collected: Collected) -> None:
    graph = Graph(
        "demo",
        Source("in"),
        Processor(double, inputs="in", outputs="middle"),
        Processor(double, inputs="middle", outputs="out", name="again"),
        errors="demo.errors",
    )
    tester = Tester(graph, spans=collected.spans(0))
    tester.send("in", Message(1, headers={**traceparent(), "tracestate": "a=1", "baggage": "who=me", "own": "x"}))
    tester.run()

    first, second = collected.all
    assert [one.name for one in (first, second)] == ["process in", "process middle"]
    assert {context_of(one).trace_id for one in (first, second)} == {int(TRACE, 16)}
    assert first.parent
    assert (first.parent.span_id, first.parent.is_remote) == (int(PARENT, 16), True)
    assert second.parent
    assert second.parent.span_id == context_of(first).span_id
    [out] = tester.messages("out")
    headers = dict(out.headers)
    assert headers.pop(HEADER)
    assert headers == {"traceparent": identity(second).encode(), "tracestate": b"a=1", "baggage": b"who=me"}


def test_trace_that_is_not_sampled_has_no_span_and_travels_unchanged(collected: Collected) -> None:
    tester = Tester(pipe(), spans=collected.spans(1))
    tester.send("in", Message(1, headers=traceparent(sampled=False)))
    tester.run()

    assert collected.all == ()
    assert carried(tester, "out") == [traceparent(sampled=False)["traceparent"]]


def test_only_messages_that_enter_the_graph_begin_traces(collected: Collected) -> None:
    """What comes from a step that was not chosen is not chosen by the next step either."""
    graph = Graph(
        "demo",
        Source("in"),
        Processor(double, inputs="in", outputs="middle"),
        Processor(double, inputs="middle", outputs="out", name="again"),
        errors="demo.errors",
    )
    spans = Spans(1, provider=collected.provider)
    quiet = Tester(graph, only=["double"])
    quiet.send_many("in", [1, 2, 3])
    quiet.run()
    quiet.stop()
    Tester(graph, broker=quiet.broker, only=["again"], spans=spans).run()

    assert collected.all == ()


def test_spans_that_are_off_leave_no_header() -> None:
    tester = Tester(pipe())
    tester.send("in", 1)
    tester.run()

    [out] = tester.messages("out")
    assert [name for name, _ in out.headers] == [HEADER]


def test_join_continues_the_trace_of_its_first_input_and_links_to_all(collected: Collected) -> None:
    def add(left: int, right: int) -> int:
        return left + right

    graph = Graph(
        "demo",
        Source("a"),
        Source("b"),
        Processor(add, inputs={"left": "a", "right": "b"}, outputs="out"),
        defaults=Topic(partitions=1),
    )
    tester = Tester(graph, spans=collected.spans(0))
    tester.send("a", Message(1, headers=traceparent()))
    tester.send("b", Message(2, headers=traceparent(OTHER)))
    tester.send("a", Message(1, headers=traceparent(sampled=False)))
    tester.send("b", Message(2, headers=traceparent(OTHER)))
    tester.send("a", 1)
    tester.send("b", 2)
    tester.run()

    both, right = collected.all
    places = [(one.context.trace_id, (one.attributes or {})["messaging.destination.name"]) for one in both.links]
    assert places == [(int(TRACE, 16), "a"), (int(OTHER, 16), "b")]
    assert context_of(both).trace_id == int(TRACE, 16)
    assert context_of(right).trace_id == int(OTHER, 16)
    assert len(right.links) == 2
    assert carried(tester, "out") == [identity(both), identity(right), None]


def test_alts_have_the_name_of_the_topic_that_the_message_came_from(collected: Collected) -> None:
    def either(left: int | None = None, right: int | None = None) -> int:
        return (left or 0) + (right or 0)

    graph = Graph(
        "demo",
        Source("a"),
        Source("b"),
        Processor(either, alts={"left": "a", "right": "b"}, outputs="out"),
        defaults=Topic(partitions=1),
    )
    tester = Tester(graph, spans=collected.spans())
    tester.send("b", 1)
    tester.run()

    assert collected.names == ["process b"]
    assert carried(tester, "out") == [identity(collected.all[0])]


def split(n: int) -> Iterator[Out]:
    yield Out("all", n)
    if n > 1:
        yield Out("big", n)


def test_all_messages_of_a_fork_carry_one_span(collected: Collected) -> None:
    graph = Graph("demo", Source("in"), Processor(split, inputs="in", outputs={"all": "all", "big": "big"}))
    tester = Tester(graph, spans=collected.spans())
    tester.send("in", 2)
    tester.run()

    [span] = collected.all
    assert span.attributes
    assert span.attributes["cues_kafka.output_messages"] == 2
    assert carried(tester, "all") == carried(tester, "big") == [identity(span)]


def test_filter_that_lets_nothing_pass_is_nil(collected: Collected) -> None:
    graph = Graph("demo", Source("in"), Processor(double, inputs="in", outputs="out", filter=has_type("order")))
    tester = Tester(graph, spans=collected.spans())
    tester.send("in", Message(1, headers={"type": "other"}))
    tester.run()

    assert collected.outcomes() == ["nil"]


def shifted(seen: list[int]) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Functions that give their message, and note the span that is current when they are called."""

    def note() -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    def plain(n: int) -> int:
        note()
        return n

    def stored(n: int, state: Any) -> int:
        note()
        state["n"] = n
        return n

    async def side(n: int) -> int:
        note()
        return n

    async def many(n: int) -> AsyncIterator[int]:
        note()
        yield n

    async def kept(n: int, state: Any) -> int:
        note()
        state["n"] = n
        return n

    state = {"state": {"state": Store()}}
    return {
        "plain": (plain, {}),
        "stored": (stored, state),
        "side": (side, {"concurrency": 4}),
        "many": (many, {}),
        "kept": (kept, state),
        "at most once": (plain, {"strategy": "at-most-once"}),
    }


@pytest.mark.parametrize(
    ("kind", "codec"), [*((kind, Json()) for kind in shifted([])), ("plain", Raw()), ("side", Raw()), ("many", Raw())]
)
def test_chosen_steps_are_called_in_their_span_and_order_stays(collected: Collected, kind: str, codec: Any) -> None:
    """Every third message has a trace. The others are called as ever, and carry none."""
    seen: list[int] = []
    fn, options = shifted(seen)[kind]
    fn.__annotations__.clear()
    graph = Graph(
        "demo",
        Source("in"),
        Processor(fn, inputs="in", outputs="out", name="p", **options),
        defaults=Topic(partitions=1, value=codec),
    )
    tester = Tester(graph, spans=collected.spans(0))
    values = [b"%d" % n for n in range(20)] if isinstance(codec, Raw) else list(range(20))
    for n, value in enumerate(values):
        tester.send("in", Message(value, key="k", headers={} if n % 3 else traceparent()))
    tester.run()

    assert tester.values("out") == values
    spans = {int(str((one.attributes or {})["messaging.kafka.offset"])): one for one in collected.all}
    assert sorted(spans) == list(range(0, 20, 3))
    assert carried(tester, "out") == [None if n % 3 else identity(spans[n]) for n in range(20)]
    ids = [0 if n % 3 else context_of(spans[n]).span_id for n in range(20)]
    assert sorted(seen) == sorted(ids)
    assert tester.totals("p").outputs == 20


def test_list_has_a_span_for_each_chosen_message(collected: Collected) -> None:
    def listed(ns: list[int]) -> list[int | None]:
        return [double(n) for n in ns]

    graph = Graph(
        "demo",
        Source("in"),
        Processor(listed, inputs="in", outputs="out", batch=True),
        errors="demo.errors",
        defaults=Topic(partitions=1, value=Json(int)),
    )
    tester = Tester(graph, spans=collected.spans(0))
    for n in (1, 0, 3):
        tester.send("in", Message(n, headers=traceparent()))
    tester.send("in", 4)
    tester.run()
    assert collected.outcomes() == ["outputs", "nil", "outputs"]
    assert carried(tester, "out") == [identity(collected.all[0]), identity(collected.all[2]), None]

    for n in (5, -1):
        tester.send("in", Message(n, headers=traceparent()))
    tester.run()
    assert tester.values("out") == [2, 6, 8, 10]
    assert collected.outcomes()[3:] == ["outputs", "error"]


def test_each_call_of_a_step_that_is_retried_has_a_span(collected: Collected) -> None:
    calls: list[int] = []

    def flaky(n: int) -> int:
        calls.append(n)
        if len(calls) < 3:
            raise ConnectionError("down")
        return n

    graph = Graph("demo", Source("in"), Processor(flaky, inputs="in", outputs="out", retry=Retry(ConnectionError)))
    tester = Tester(graph, spans=collected.spans())
    tester.send("in", 1)
    tester.run()

    attempts = [(one.attributes or {})["cues_kafka.attempt"] for one in collected.all]
    assert attempts == [0, 1, 2]
    assert collected.outcomes() == ["retry", "retry", "outputs"]
    assert carried(tester, "out") == [identity(collected.all[-1])]


def test_step_that_is_repeated_after_a_crash_has_another_span_and_one_outcome(collected: Collected) -> None:
    tester = Tester(pipe(), spans=collected.spans())
    tester.send("in", 1)
    tester.run(crash=Crash("after", "Call"))
    assert tester.crashed
    tester.run()

    assert collected.outcomes() == ["outputs", "outputs"]
    assert carried(tester, "out") == [identity(collected.all[1])]
    assert verify(tester.graph, tester.broker).verdict == "ok"


def test_timer_has_a_span_of_its_own(collected: Collected) -> None:
    def remind(timer: Timer) -> str:
        return timer.key

    def order(n: int, step: Any) -> None:
        step.schedule("k", at=step.time_ms)

    graph = Graph("demo", Source("in"), Processor(order, inputs="in", outputs="out", state={"timers": Timers(remind)}))
    tester = Tester(graph, spans=collected.spans())
    tester.send("in", 1)
    tester.run()

    assert collected.names == ["process in", "timer order"]
    assert tester.values("out") == ["k"]
    assert carried(tester, "out") == [identity(collected.all[1])]


def test_replay_begins_a_trace_that_links_to_the_one_of_its_message(collected: Collected) -> None:
    fixed: list[bool] = []

    def fragile(n: int) -> int:
        if not fixed:
            raise ValueError("broken")
        return n

    graph = Graph("demo", Source("in"), Processor(fragile, inputs="in", outputs="out"), errors="demo.errors")
    tester = Tester(graph, spans=collected.spans(0))
    tester.send("in", Message(1, headers=traceparent()))
    tester.run()
    fixed.append(True)
    with Repairs(graph, tester.broker) as tool:
        assert tool.ask("replay").asked == 1
    [out] = tester.run().messages("out")

    original, replay = collected.all
    assert collected.outcomes() == ["error", "outputs"]
    assert context_of(original).trace_id == int(TRACE, 16)
    assert replay.parent is None
    assert [(one.context.trace_id, one.context.span_id) for one in replay.links] == [(int(TRACE, 16), int(PARENT, 16))]
    assert replay.attributes
    assert replay.attributes["cues_kafka.replay"] == 1
    assert original.attributes
    assert replay.attributes["cues_kafka.hash"] == original.attributes["cues_kafka.hash"]
    assert dict(out.headers)["traceparent"] == identity(replay).encode()


def test_span_does_not_decide_whether_a_message_fits(collected: Collected) -> None:
    """A message that fills its topic to the last byte is sent, without the header."""

    def same(data: bytes) -> bytes:
        return data

    limits = {"max.message.bytes": "65536"}
    for provider in (None, collected.spans()):
        graph = Graph(
            "demo",
            Source("in"),
            Processor(same, inputs="in", outputs="out"),
            errors="demo.errors",
            topics={"out": Topic(config=limits)},
            defaults=Topic(value=Raw(), partitions=1),
        )
        tester = Tester(graph, spans=provider)
        tester.send("in", b"x" * 65_036)
        tester.send("in", b"x" * 65_037)
        tester.run()

        assert [len(value) for value in tester.values("out")] == [65_036]
        assert len(tester.errors()) == 1
        assert carried(tester, "out") == [None]
    assert collected.outcomes() == ["outputs", "error"]
    assert tester.errors()[0].causes == ()


class Raises(SpanProcessor):
    """A processor of spans that fails."""

    def __init__(self, where: str) -> None:
        self.where = where

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self.where == "start":
            raise RuntimeError("out of order")

    def on_end(self, span: Any) -> None:
        if self.where == "end":
            raise RuntimeError("out of order")


@pytest.mark.parametrize("where", ["start", "end"])
def test_exporter_that_raises_changes_no_outcome(where: str, caplog: pytest.LogCaptureFixture) -> None:
    provider = TracerProvider()
    provider.add_span_processor(Raises(where))
    tester = Tester(pipe(), spans=Spans(1, provider=provider))
    for n in (1, 0, -1):
        tester.send("in", n)
    tester.run()

    assert tester.values("out") == [2]
    assert len(tester.errors()) == 1
    assert (tester.totals("double").outputs, tester.totals("double").errors) == (1, 1)
    assert "span left out" in caplog.text


def test_client_sends_within_the_span_of_the_program(collected: Collected) -> None:
    with connect(Memory()) as client:
        topic = client.topic("in", create=True)
        client.send("in", 0)
        with collected.provider.get_tracer("test").start_as_current_span("shop") as span:
            token = context.attach(baggage.set_baggage("who", "me"))
            client.send("in", 1, headers={"own": "x"})
            client.send("in", Message(2, headers=traceparent()))
            with client.transaction() as transaction:
                transaction.append("in", 3)
            context.detach(token)
        mine = identity(span).encode()
        own = traceparent()["traceparent"].encode()
        found = sorted(((one.value, dict(one.headers)) for one in client.messages("in")), key=lambda one: one[0])
        assert topic.name == "in"

    assert found == [
        (0, {}),
        (1, {"own": b"x", "traceparent": mine, "baggage": b"who=me"}),
        (2, {"traceparent": own, "baggage": b"who=me"}),
        (3, {"traceparent": mine, "baggage": b"who=me"}),
    ]


def test_propagator_that_raises_stops_no_message(
    collected: Collected, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes without the headers of the trace, and the log says why."""

    def broken(*_: Any) -> None:
        raise RuntimeError("no context")

    monkeypatch.setattr(type(tracing.EVERYTHING), "inject", broken)
    with connect(Memory()) as client, collected.provider.get_tracer("test").start_as_current_span("shop"):
        client.topic("in", create=True)
        client.send("in", 1, headers={"own": "x"})
        with client.transaction() as transaction:
            transaction.append("in", 2)
        found = [(one.value, dict(one.headers)) for one in client.messages("in")]

    assert sorted(found) == [(1, {"own": b"x"}), (2, {})]
    assert "RuntimeError: no context" in caplog.text


def test_asyncio_client_sends_within_the_span_of_the_program(collected: Collected) -> None:
    """Its sends run on other threads."""

    async def main() -> list[bytes | None]:
        async with aio.connect(Memory()) as client:
            await client.topic("in", create=True)
            with collected.provider.get_tracer("test").start_as_current_span("shop") as span:
                await client.send("in", 1)
            [message] = [one async for one in client.messages("in")]
            return [dict(message.headers)["traceparent"], identity(span).encode()]

    carried_on, expected = asyncio.run(main())
    assert carried_on == expected


def test_graph_that_runs_makes_spans_and_refuses_spark(collected: Collected) -> None:
    spans = collected.spans()
    assert isinstance(spans, RunObserver)
    with start(pipe(), Memory(), observers=[spans]) as running:
        running.send("in", 1)
        running.wait_idle()

    assert collected.names == ["process in"]
    with pytest.raises(ConfigError, match="runs on Spark"):
        spans.began(RunFacts("demo", "", "spark", (), {}))


@pytest.mark.parametrize("sample", [-0.1, 1.1, True, "all", float("nan")])
def test_sample_that_is_no_share_is_refused(sample: Any) -> None:
    with pytest.raises(ConfigError, match="a number from 0 to 1"):
        Spans(sample, provider=TracerProvider())


def test_spans_that_go_nowhere_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_ENDPOINT"):
        Spans()


class Collector(BaseHTTPRequestHandler):
    """Takes spans as collectors do, by OTLP over HTTP."""

    got: ClassVar[list[ExportTraceServiceRequest]] = []

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        data = gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data
        self.got.append(ExportTraceServiceRequest.FromString(data))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def test_program_without_a_provider_exports_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """All spans have been exported when the run has ended, under the name of the graph."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    try:
        with start(pipe(), Memory(), observers=[Spans(1)]) as running:
            running.send_many("in", [1, 2])
            running.wait_idle()
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)

    resources = [one for request in Collector.got for one in request.resource_spans]
    names = [span.name for one in resources for scope in one.scope_spans for span in scope.spans]
    assert names == ["process in", "process in"]
    services = {i.value.string_value for one in resources for i in one.resource.attributes if i.key == "service.name"}
    assert services == {"demo"}


def test_exporter_that_is_not_installed_is_refused_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(ConfigError, match="pip install opentelemetry-exporter-otlp-proto-grpc"):
        start(pipe(), Memory(), observers=[Spans(1)])


def test_missing_package_is_refused_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cues_kafka.observe.tracing")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"pip install 'cues-kafka\[spans\]'"):
        Spans()


def test_draw_chooses_its_share_whatever_the_chunks() -> None:
    assert Draw(1).among(3) == [0, 1, 2]
    assert Draw(0).among(10**9) == []
    draw, found, seen = Draw(0.1), 0, 0
    while seen < 200_000:
        chosen = draw.among(count := 1 + seen % 700)
        assert chosen == sorted(set(chosen))
        assert all(0 <= one < count for one in chosen)
        found, seen = found + len(chosen), seen + count
    assert found / seen == pytest.approx(0.1, abs=0.01)  # 15 standard deviations


@pytest.mark.parametrize(
    ("value", "flag"),
    [
        (b"00-%b-%b-01" % (TRACE.encode(), PARENT.encode()), True),
        (b"00-%b-%b-00" % (TRACE.encode(), PARENT.encode()), False),
        (b"cc-%b-%b-03-more" % (TRACE.encode(), PARENT.encode()), True),
        (b"", None),
        (None, None),
        (b"00-%b-%b-xx" % (TRACE.encode(), PARENT.encode()), None),
    ],
)
def test_flag_of_a_trace_is_read_from_its_header(value: bytes | None, flag: bool | None) -> None:
    assert is_sampled([("other", b"x"), ("traceparent", value)]) is flag
