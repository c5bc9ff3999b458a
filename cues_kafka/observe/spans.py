"""The option that makes spans of OpenTelemetry: which steps have one, and where they go."""

from __future__ import annotations

import importlib.util
import math
import os
import random
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import ConfigError
from cues_kafka.extras import SPANS, Package, missing
from cues_kafka.ports.log import Headers
from cues_kafka.ports.observer import BatchReport, RunFacts

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer, TracerProvider


SAYS_WHERE: Final = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables that say where spans go."""

END_S: Final = 10.0
"""How long the end of a run waits for spans that are not exported yet."""

NAME: Final = "cues_kafka"
"""The name of the tracer."""


@known_arguments(ConfigError)
class Spans:
    """
    Makes spans of OpenTelemetry: ``start(graph, ..., observers=[Spans(sample=0.01)])``.

    A message with a header `traceparent` decides by its flag whether its step has a span. Where a message without one
    enters the graph, the share `sample` of them begins a trace.

    Attributes:
        sample: from 0, none of them, to 1, all of them.
        provider: where spans go; None: the provider of the program, or else one that exports as the variables
            OTEL_* say.

    Raises:
        ConfigError: `sample` is no share, the package is not installed, or nothing says where spans go.
    """

    def __init__(self, sample: float = 0.01, *, provider: TracerProvider | None = None) -> None:
        if isinstance(sample, bool) or not isinstance(sample, int | float) or not 0 <= sample <= 1:
            raise ConfigError(
                f"Spans(sample={sample!r}): takes a number from 0 to 1. 0.01 is one message in a hundred."
            )
        if provider is not None and not callable(getattr(provider, "get_tracer", None)):
            raise ConfigError(f"Spans(provider={provider!r:.80}): takes a TracerProvider of OpenTelemetry.")
        self.sample: float = float(sample)
        self.provider = provider
        self._own: Any = None  # a provider that ends with the run
        self._tracer: Tracer | None = None
        self._lock = threading.Lock()
        if provider is None:
            _check()

    def tracer(self, graph: str) -> Tracer:
        """
        What makes the spans.

        Args:
            graph: the name of the service, where nothing else says it.

        Raises:
            ConfigError: the exporter is not installed.
        """
        with self._lock:
            if self._tracer is None:
                from cues_kafka.observe.tracing import chosen_by_program, is_set_up, provider_of  # noqa: PLC0415 - an extra

                provider = self.provider
                if provider is None:
                    self._own = None if is_set_up() else provider_of(graph)
                    provider = self._own or chosen_by_program()
                self._tracer = provider.get_tracer(NAME)
            return self._tracer

    def began(self, run: RunFacts) -> None:
        """
        Open what exports the spans.

        Raises:
            ConfigError: the run is on Spark, or the exporter is not installed.
        """
        if run.runtime == "spark":
            raise ConfigError(
                f"Spans(...) makes spans in native workers only, and graph {run.graph!r} runs on Spark. Leave it out."
            )
        self.tracer(run.graph)

    def committed(self, task: str, batch: BatchReport) -> None:
        """Nothing: the caller makes the spans."""

    def retried(self, task: str, about: Mapping[str, Any], attempt: int, pause_s: float) -> None:
        """Nothing: each call has a span."""

    def failed(self, task: str, why: str, round_: int) -> None:
        """Nothing: what is called again has another span."""

    def stopped(self, task: str, why: str, remedy: str, about: Mapping[str, Any]) -> None:
        """Nothing: the span of the step has the error."""

    def recovered(self, task: str, after_s: float) -> None:
        """Do nothing: a recovery has no span."""

    def ended(self, failures: Mapping[str, str], *, abandoned: bool) -> None:
        """Wait up to `END_S` until the spans are exported, if this object has made the exporter."""
        with self._lock:
            own, self._own, self._tracer = self._own, None, None
        if own is not None:
            closing = threading.Thread(target=own.shutdown, name="spans", daemon=True)
            closing.start()
            closing.join(END_S)


def _check() -> None:
    try:
        from cues_kafka.observe.tracing import is_set_up  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise missing("Spans(...)", SPANS, error=error) from None
    if is_set_up():
        return
    if not any(os.environ.get(name) for name in SAYS_WHERE):
        raise ConfigError(
            "Spans(...): nothing says where spans go. Set OTEL_EXPORTER_OTLP_ENDPOINT to the address of a collector, "
            "such as http://localhost:4318, or set up a TracerProvider before."
        )
    if importlib.util.find_spec("opentelemetry.sdk") is None:
        raise missing("Spans(...)", Package(SPANS.extra, "opentelemetry-sdk", "opentelemetry.sdk"))


class Draw:
    """Chooses a share at random. What is not chosen costs nothing: the gap to the next one is drawn, not each one."""

    __slots__ = ("_left", "_random", "_share")

    def __init__(self, share: float, random: Callable[[], float] = random.random) -> None:
        """
        Args:
            share: from 0 to 1.
            random: gives numbers in [0, 1).
        """
        self._share, self._random = share, random
        self._left = self._gap()

    def among(self, count: int) -> list[int]:
        """The chosen ones among the next `count`, as indices."""
        found: list[int] = []
        at = self._left
        while at < count:
            found.append(int(at))
            at += 1 + self._gap()
        self._left = at - count
        return found

    def _gap(self) -> float:
        if self._share >= 1:
            return 0
        if self._share <= 0:
            return math.inf
        return math.floor(math.log(1 - self._random()) / math.log1p(-self._share))


def is_sampled(headers: Headers) -> bool | None:
    """
    Return the flag of the `traceparent` header; None if no header has one.

    https://www.w3.org/TR/trace-context/#traceparent-header has the form: ``00-<trace>-<span>-<flags>``.
    """
    for name, value in headers:
        if name == "traceparent":
            try:
                return bool(int((value or b"")[53:55], 16) & 1)
            except ValueError:
                return None
    return None


def current_trace() -> Headers:
    """
    Headers for the span that the program has open here, with its baggage; empty: it uses no OpenTelemetry.

    A propagator that raises stops no message: it goes without them, and the log says so.
    """
    if "opentelemetry.trace" not in sys.modules:
        return []
    from cues_kafka.observe.tracing import EVERYTHING, harmless, written  # noqa: PLC0415 - loaded already, or not at all

    return harmless(lambda: written(EVERYTHING, None)) or []
