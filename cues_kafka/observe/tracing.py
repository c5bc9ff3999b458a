"""Spans of OpenTelemetry: how one is begun, made current, carried by headers and ended.

The names of attributes are those of the conventions for messaging, https://opentelemetry.io/docs/specs/semconv/messaging/.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, TypeVar

from opentelemetry import context, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from cues_kafka.errors import ConfigError
from cues_kafka.observe.log import Sparing, get_logger
from cues_kafka.ports.log import UNREADABLE, Headers, WireMessage

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider as SdkProvider

T = TypeVar("T")

TRACE: Final = TraceContextTextMapPropagator()
EVERYTHING: Final = CompositePropagator([TRACE, W3CBaggagePropagator()])

_sparing: Final = Sparing(get_logger("cues_kafka.spans"))


class _HeaderGetter(Getter[Headers]):
    """Reads the headers of a message."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        found = [(value or b"").decode(errors="replace") for name, value in carrier if name == key]
        return found or None

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


_GETTER: Final = _HeaderGetter()


def written(propagator: TraceContextTextMapPropagator | CompositePropagator, where: context.Context | None) -> Headers:
    """What a context is as headers; None: the current one."""
    carrier: dict[str, str] = {}
    propagator.inject(carrier, where)
    return [(name, value.encode()) for name, value in carrier.items()]


def _came_with(message: WireMessage) -> context.Context:
    headers = message.headers()
    return EVERYTHING.extract([] if headers is UNREADABLE else headers or [], context.Context(), _GETTER)


class StepSpan:
    """
    The span of one call of a step.

    Attributes:
        headers: what the outputs of the step carry, so that the next hop belongs to the trace.
    """

    def __init__(
        self,
        tracer: trace.Tracer,
        messages: Sequence[WireMessage],
        attributes: Mapping[str, str | int],
        *,
        timer: str | None = None,
        apart: bool = False,
    ) -> None:
        """
        Args:
            tracer: makes it.
            messages: what the step consumes, the lead first; `headers_of` was called for them.
            attributes: of the step.
            timer: the processor whose timer begins the step; None: messages do.
            apart: whether the step begins a trace, which is only linked to that of its messages.
        """
        links: list[trace.Link] = []
        self._context = context.Context()
        if timer is not None:
            name, kind = f"timer {timer}", trace.SpanKind.INTERNAL
        else:
            name, kind = f"process {messages[0].topic()}", trace.SpanKind.CONSUMER
            attributes = {**attributes, **_operation(messages[0]), **_place(messages[0])}
            came = [_came_with(message) for message in messages]
            known = [trace.get_current_span(one).get_span_context() for one in came]
            if apart or len(messages) > 1:
                rows = zip(messages, known, strict=True)
                links = [trace.Link(one, _place(message)) for message, one in rows if one.is_valid]
            if not apart:
                sampled = (one for one, seen in zip(came, known, strict=True) if seen.trace_flags.sampled)
                self._context = next(sampled, came[0])
        self._span = tracer.start_span(name, self._context, kind, attributes, links)
        self._context = trace.set_span_in_context(self._span, self._context)
        self.headers = written(TRACE, self._context)

    def enter(self) -> Token[context.Context]:
        """Make it the current span of this thread or coroutine."""
        return context.attach(self._context)

    @staticmethod
    def leave(token: Token[context.Context]) -> None:
        """Make the one before it the current one."""
        context.detach(token)

    def failed(self, error: BaseException, text: str) -> None:
        """The step has raised; `text` is that of the exception."""
        kind = type(error).__qualname__
        # Not `record_exception`, which raises where the exception's own `__str__` does.
        about = {"exception.type": kind, "exception.message": text}
        about["exception.stacktrace"] = "".join(traceback.format_exception(error))
        self._span.add_event("exception", about)
        self._span.set_status(trace.StatusCode.ERROR, f"{kind}: {text}")
        self._span.set_attribute("error.type", kind)

    def end(self, outcome: str, messages: int) -> None:
        """The call is over, with this outcome and `messages` output messages."""
        self._span.set_attributes({"cues_kafka.outcome": outcome, "cues_kafka.output_messages": messages})
        self._span.end()


def harmless(call: Callable[[], T]) -> T | None:
    """The result; None: it raised, as a processor of spans may, which must not become the outcome of a step."""
    try:
        return call()
    except Exception as error:
        about = {"why": f"{type(error).__name__}: {error}"}
        _sparing.warning("span left out", [about], 1, time.monotonic())
        return None


def _operation(message: WireMessage) -> dict[str, str | int]:
    named: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
    }
    return named if message.value() is not None else {**named, "messaging.kafka.message.tombstone": True}


def _place(message: WireMessage) -> dict[str, str | int]:
    return {
        "messaging.destination.name": message.topic(),
        "messaging.destination.partition.id": str(message.partition()),
        "messaging.kafka.offset": message.offset(),
    }


# --- Where spans go


def is_set_up() -> bool:
    """Whether the program has set up a provider of its own."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def chosen_by_program() -> trace.TracerProvider:
    """The provider of the program."""
    return trace.get_tracer_provider()


def provider_of(service: str) -> SdkProvider:
    """
    Make a provider that exports as the variables OTEL_* say.

    Args:
        service: the name of the service, where no variable has one.

    Raises:
        ConfigError: the SDK or the exporter is not installed.
    """
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - the API alone is enough for programs with an SDK
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    resource = Resource.create()
    if str(resource.attributes.get("service.name", "unknown_service")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": service}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporter()))
    return provider


def exporter() -> Any:
    """
    The exporter that OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_PROTOCOL name.

    Raises:
        ConfigError: no package that is installed has it.
    """
    name = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if name == "otlp":
        said = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        name = "otlp_proto_grpc" if said == "grpc" else "otlp_proto_http"
    found = entry_points(group="opentelemetry_traces_exporter", name=name)
    if not found:
        raise ConfigError(
            f"OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_PROTOCOL asks for the exporter {name!r}, which is not "
            f"installed. Run pip install opentelemetry-exporter-{name.replace('_', '-')}, or name another one."
        )
    return next(iter(found)).load()()
