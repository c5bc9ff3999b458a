"""A `Caller` that makes spans for chosen steps.

It is made instead of a `Caller` where spans are asked for. A chunk without a chosen step is called as ever. In the hot
loop of a plain pipe a chosen step is called by itself, between the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from cues_kafka.core.delivery import HEADER
from cues_kafka.errors import OutputError
from cues_kafka.graph.message import TRACE
from cues_kafka.observe.spans import Draw, Spans, is_sampled
from cues_kafka.observe.tracing import StepSpan, harmless
from cues_kafka.ports import Headers, WireMessage, headers_of_each
from cues_kafka.task.calling.batch import Batch, Retrying, Taken
from cues_kafka.task.calling.caller import Caller
from cues_kafka.task.calling.coroutines import value_of
from cues_kafka.task.calling.failures import Failure, text_of
from cues_kafka.task.calling.fired import Fired
from cues_kafka.task.calling.outputs import Origin, Payload, size_of
from cues_kafka.task.calling.placed import PlacedCaller
from cues_kafka.task.calling.plain import PLAIN_ROOM, Columns
from cues_kafka.task.calling.step import Received

Outcome: TypeAlias = Literal["outputs", "error", "nil", "retry", "none"]
"""How a call ended; `retry`: the step is called again, `none`: it has no outcome, because it was interrupted."""


@dataclass(slots=True)
class Hop:
    """
    A chosen step, and the span of its present call.

    Attributes:
        taken: what it consumes.
        batch: the batch that it is called in.
        span: None: it is not being called.
        messages: how many output messages it has given.
    """

    taken: Taken
    batch: Batch
    span: StepSpan | None = None
    messages: int = 0

    @property
    def id(self) -> int:
        """The identity of its lead, while the chunk lives."""
        return id(self.taken[0][1])

    @property
    def place(self) -> tuple[str, int, int]:
        """Where its lead stands."""
        lead = self.taken[0][1]
        return lead.topic(), lead.partition(), lead.offset()

    def end(self, outcome: Outcome) -> None:
        """The call is over."""
        span, messages, self.span, self.messages = self.span, self.messages, None, 0
        if span is not None:
            harmless(lambda: span.end(outcome, messages))


class TracedCaller(Caller):
    """Calls a processor's function, in a span where the step is chosen."""

    def __init__(self, processor: Any, *, spans: Spans, graph: str, entering: Sequence[bool], **rest: Any) -> None:
        """
        Args:
            processor: see `Caller`.
            spans: which steps have one, and where they go.
            graph: the name of the graph.
            entering: by input, whether its messages come from outside of the graph. Only those begin traces: a message
                of the graph without a trace comes from a step that was not chosen.
            rest: see `Caller`.
        """
        super().__init__(processor, **rest)
        self._spans, self._graph, self._entering = spans, graph, tuple(entering)
        self._draw, self._draw_timers = Draw(spans.sample), Draw(spans.sample)
        self._hops: dict[int, Hop] = {}  # of the chunk that is called now, by the identity of the lead
        self._firing: Hop | None = None
        self._again: set[tuple[str, int, int]] = set()  # chosen, and put off by a retry
        self._behind = 0  # steps of the chunk behind the part that is called now

    # Which steps

    def run(self, steps: Sequence[Any], batch: Batch, retrying: Retrying | None = None) -> int:
        """The same."""
        self._hops = self._chosen(steps, batch, retrying)
        if not self._hops:
            return super().run(steps, batch, retrying)
        try:
            return super().run(steps, batch, retrying)
        finally:
            self._over(batch)

    def quarantine(self, step: Any, batch: Batch) -> None:
        """The same."""
        self._hops = self._chosen([step], batch, None)
        try:
            super().quarantine(step, batch)
        finally:
            self._over(batch)

    def _over(self, batch: Batch) -> None:
        hops, self._hops, self._behind = self._hops, {}, 0
        for hop in hops.values():
            hop.end("none")

    def _chosen(self, steps: Sequence[Any], batch: Batch, retrying: Retrying | None) -> dict[int, Hop]:
        """The steps of a chunk that have a span."""
        single = self.processor.input_shape == "single"
        rows = None if single else [self._take(step) for step in steps]
        came = headers_of_each(steps if rows is None else [message for row in rows for _, message in row])
        if rows is None and not any(came):
            chosen = self._draw.among(len(steps)) if self._entering[0] else []
        else:
            flags = _flags(came)
            if rows is not None:
                rest = iter(flags)
                flags = [_together([next(rest) for _ in row]) for row in rows]
            drawn = [
                i for i, flag in enumerate(flags) if flag is None and self._enters(None if rows is None else rows[i])
            ]
            chosen = sorted([
                *(i for i, flag in enumerate(flags) if flag),
                *(drawn[i] for i in self._draw.among(len(drawn))),
            ])  # fmt: skip
        if retrying is not None and self._again and 0 not in chosen and self._is_again(steps[0]):
            chosen = [0, *chosen]
        hops = [Hop(self._take(steps[i]), batch) for i in chosen]
        return {hop.id: hop for hop in hops}

    def _enters(self, row: Taken | None) -> bool:
        return any(self._entering[index] for index, _ in row) if row else self._entering[0]

    def _is_again(self, step: Any) -> bool:
        lead = self._take(step)[0][1]
        return (lead.topic(), lead.partition(), lead.offset()) in self._again

    # The span of one call

    def _hop_of(self, taken: Taken, batch: Batch) -> Hop | None:
        return self._firing if batch.fired is not None else self._hops.get(id(taken[0][1]))

    def _begin(self, hop: Hop, retrying: Retrying | None = None) -> StepSpan | None:
        """Return the span of the present call, and begin it if need be; None if it cannot be made."""
        if hop.span is None:
            hop.span = harmless(lambda: self._span(hop, retrying))
            if hop.span is None:
                self._hops.pop(hop.id, None)
        return hop.span

    def _span(self, hop: Hop, retrying: Retrying | None) -> StepSpan:
        batch, spec = hop.batch, hop.batch.spec
        about: dict[str, str | int] = {
            "messaging.consumer.group.name": spec.group,
            "cues_kafka.graph": spec.graph,
            "cues_kafka.task": spec.name,
            "cues_kafka.hash": Failure(hop.taken, batch, None).hash(self.coordinates(hop.taken, batch)).hex(),
            "cues_kafka.attempt": retrying.attempt if retrying else 0,
        }
        if batch.starts:
            about["cues_kafka.starts"] = batch.starts
        if batch.replayed is not None:
            about["cues_kafka.replay"] = batch.replayed.number
        return StepSpan(
            self._spans.tracer(self._graph),
            [message for _, message in hop.taken],
            about,
            timer=None if batch.fired is None else spec.processor,
            apart=batch.begun_by is not None,
        )

    @contextmanager
    def _current(self, hop: Hop, retrying: Retrying | None) -> Iterator[None]:
        span = self._begin(hop, retrying)
        if span is None or self._coroutines is not None:  # their loop would keep it; see `_within`
            yield
            return
        token = span.enter()
        try:
            yield
        finally:
            span.leave(token)

    def _one(self, taken: Taken, batch: Batch, retrying: Retrying | None) -> bool:
        if (hop := self._hop_of(taken, batch)) is None:
            return super()._one(taken, batch, retrying)
        with self._current(hop, retrying):
            ended = super()._one(taken, batch, retrying)
        hop.end("nil")  # where the filter has let no message pass
        return ended

    def _invoke(self, received: Mapping[str, Received], failure: Failure) -> Any:
        made = super()._invoke(received, failure)
        if self._coroutines is None or (hop := self._hop_of(failure.taken, failure.batch)) is None:
            return made
        span = self._begin(hop, failure.retrying)
        return made if span is None else _within(span, made)

    def _settle(self, taken: Taken, batch: Batch, result: Any, failure: Failure) -> bool:
        ended = super()._settle(taken, batch, result, failure)
        if (hop := self._hop_of(taken, batch)) is not None:
            self._begin(hop)
            hop.end("outputs" if hop.messages else "nil")
            self._again.discard(hop.place)
        return ended

    def _fail(self, error: BaseException, failure: Failure) -> bool:
        hop = self._hop_of(failure.taken, failure.batch)
        if hop is None:
            return super()._fail(error, failure)
        span = self._begin(hop, failure.retrying)
        outcome: Outcome = "none"
        try:
            if super()._fail(error, failure):
                outcome = "error"
                self._again.discard(hop.place)
            elif (halt := failure.batch.halt) is not None and halt.kind == "retry":
                outcome = "retry"
                self._again.add(hop.place)
        finally:
            if span is not None:  # behind the above, by which a driver's text has no address any more
                harmless(lambda: span.failed(error, text_of(error)))
            hop.messages = 0
            hop.end(outcome)
        return outcome == "error"

    def _fire_one(self, fired: Fired, batch: Batch, retrying: Retrying | None) -> None:
        if not self._draw_timers.among(1):
            super()._fire_one(fired, batch, retrying)
            return
        hop = self._firing = Hop(fired.taken(self._bindings), batch)
        try:
            with self._current(hop, retrying):
                super()._fire_one(fired, batch, retrying)
            hop.end("outputs" if hop.messages else "nil")
        finally:
            hop.end("none")
            self._firing = None

    # What outputs carry

    def _origin(self, taken: Taken, batch: Batch) -> Origin:
        origin = super()._origin(taken, batch)
        if (hop := self._hop_of(taken, batch)) is not None and (span := self._begin(hop)) is not None:
            origin.travelled = _carrying(origin.travelled, span.headers)
        return origin

    def _add(self, taken: Taken, batch: Batch, payloads: Sequence[Payload], origin: Origin | None = None) -> None:
        hop = self._hop_of(taken, batch)
        if hop is None:
            super()._add(taken, batch, payloads, origin)
            return
        if not self._added(taken, batch, payloads, origin or self._origin(taken, batch)):
            super()._add(taken, batch, payloads, super()._origin(taken, batch))
        hop.messages += len(payloads)

    def _added(self, taken: Taken, batch: Batch, payloads: Sequence[Payload], origin: Origin) -> bool:
        """Whether the payloads fit with the span's headers, which must not decide whether a message can be sent."""
        try:
            super()._add(taken, batch, payloads, origin)
        except OutputError:
            return False
        return True

    # Several steps in one go

    def _run_together(self, steps: Sequence[Any], batch: Batch, retrying: Retrying | None) -> None:
        apart = retrying is None and batch.replayed is None and (self._plain or self._simple)
        if not (self._hops and apart):
            super()._run_together(steps, batch, retrying)
            return
        try:
            self._run_in_parts(steps, batch)
        finally:
            self._behind = 0

    def _run_in_parts(self, steps: Sequence[Any], batch: Batch) -> None:
        start = 0
        for index in (i for i, step in enumerate(steps) if id(step) in self._hops):
            if start < index and not self._part(steps, start, index, batch):
                return
            self._behind, self._coming = len(steps) - index - 1, iter(())
            if not self._one(self._take(steps[index]), batch, None) or batch.closed:
                return
            start = index + 1
        if start < len(steps):
            self._part(steps, start, len(steps), batch)

    def _part(self, steps: Sequence[Any], start: int, end: int, batch: Batch) -> bool:
        """Call for steps that have no span; whether the next one is due."""
        before = batch.begun_by_messages
        self._behind = len(steps) - end
        super()._run_together(steps[start:end], batch, None)
        return batch.begun_by_messages - before == end - start and not batch.closed and batch.halt is None

    def under_way(self, steps: Sequence[Any], ended: int) -> int:
        """The same."""
        return max(0, super().under_way(steps[: max(1, len(steps) - self._behind)], ended))

    def _run_lists(self, steps: Sequence[Any], batch: Batch) -> None:
        self._begin_all()
        super()._run_lists(steps, batch)

    def _run_plain_list(self, messages: Sequence[WireMessage], batch: Batch) -> bool:
        self._begin_all()
        return super()._run_plain_list(messages, batch)

    def _begin_all(self) -> None:
        for hop in list(self._hops.values()):
            self._begin(hop)

    def _emit(self, columns: Columns, data: Sequence[bytes | None], batch: Batch) -> None:
        """Add the results of a list with their spans; in the hot loop of a pipe no step has one."""
        if self._hops and self._lists:
            came = list(columns.came)
            for index, message in enumerate(columns.messages):
                if (hop := self._hops.get(id(message))) is None:
                    continue
                if (span := self._begin(hop)) is not None:
                    carrying = _carrying(came[index] or [], span.headers)
                    came[index] = carrying if size_of(carrying) <= PLAIN_ROOM else came[index]
                hop.messages = int(data[index] is not None)
                hop.end("outputs" if hop.messages else "nil")
            columns = columns._replace(came=came)
        super()._emit(columns, data, batch)


async def _within(span: StepSpan, made: Any) -> Any:
    """What a function gives that is `async`, called in its span."""
    token = span.enter()
    try:
        return await value_of(made)
    finally:
        span.leave(token)


def _flags(came: Sequence[Headers | None]) -> list[bool | None]:
    """Whether the trace of each message is sampled; None: it has none. Most have our own header alone."""
    return [
        is_sampled(headers) if headers and (len(headers) > 1 or headers[0][0] != HEADER) else None for headers in came
    ]


def _together(flags: Sequence[bool | None]) -> bool | None:
    """The same of a join: one message whose trace is sampled is enough."""
    known = [flag for flag in flags if flag is not None]
    return any(known) if known else None


def _carrying(headers: Headers, trace: Headers) -> Headers:
    """Headers with another trace."""
    return [*(one for one in headers if one[0] not in TRACE), *trace]


class TracedPlacedCaller(PlacedCaller, TracedCaller):
    """Looks at keys first, then calls in spans."""
