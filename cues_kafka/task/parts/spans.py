"""Spans of chosen steps. Messages that a step sends carry its trace on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from cues_kafka.core.delivery import HEADER
from cues_kafka.graph.message import TRACE
from cues_kafka.observe.spans import Draw, Spans, is_sampled
from cues_kafka.observe.tracing import StepSpan, harmless
from cues_kafka.ports.log import Headers, headers_of_each
from cues_kafka.task.calling.batch import Batch, Retrying, Taken
from cues_kafka.task.calling.columns import PLAIN_ROOM, Columns
from cues_kafka.task.calling.coroutines import value_of
from cues_kafka.task.calling.failures import Delivering, text_of
from cues_kafka.task.calling.outputs import size_of
from cues_kafka.task.parts.participant import StepParticipant

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
        return _place(self.taken)

    def end(self, outcome: Outcome) -> None:
        """The call is over."""
        span, messages, self.span, self.messages = self.span, self.messages, None, 0
        if span is not None:
            harmless(lambda: span.end(outcome, messages))


class Sampling:
    """
    Which steps of one processor have spans. Its tasks share it, and one thread at a time uses it.

    Attributes:
        spans: where they go.
        graph: the name of the graph.
        entering: by input, whether its messages come from outside of the graph. Only those begin traces: a message of
            the graph without a trace comes from a step that was not chosen.
        again: places of steps that were chosen, and put off by a retry.
    """

    def __init__(self, spans: Spans, graph: str, entering: Sequence[bool]) -> None:
        self.spans, self.graph, self.entering = spans, graph, tuple(entering)
        self.again: set[tuple[str, int, int]] = set()
        self._draw, self._draw_timers = Draw(spans.sample), Draw(spans.sample)

    def timer(self) -> bool:
        """Whether the next timer has one."""
        return bool(self._draw_timers.among(1))

    def steps(self, steps: Sequence[Any], take: Callable[[Any], Taken], *, single: bool) -> list[int]:
        """
        The indices of the steps of a chunk that have one.

        Args:
            steps: see `pairing.Step`.
            take: gives the messages of a step.
            single: whether each step is a message.
        """
        rows = None if single else [take(step) for step in steps]
        came = headers_of_each(steps if rows is None else [message for row in rows for _, message in row])
        if rows is None and not any(came):
            return self._draw.among(len(steps)) if self.entering[0] else []
        flags = _flags(came)
        if rows is not None:
            rest = iter(flags)
            flags = [_together([next(rest) for _ in row]) for row in rows]
        drawn = [i for i, flag in enumerate(flags) if flag is None and self._enters(None if rows is None else rows[i])]
        return sorted([
            *(i for i, flag in enumerate(flags) if flag),
            *(drawn[i] for i in self._draw.among(len(drawn))),
        ])  # fmt: skip

    def _enters(self, row: Taken | None) -> bool:
        return any(self.entering[index] for index, _ in row) if row else self.entering[0]


class Tracing(StepParticipant):
    """Has chosen steps of a task called in spans. A chunk without a chosen step is called as ever."""

    def __init__(self, sampling: Sampling, *, is_async: bool) -> None:
        """
        Args:
            sampling: which steps.
            is_async: whether the function is an ``async def``, whose loop would keep what is current here.
        """
        self._sampling, self._is_async = sampling, is_async
        self._hops: dict[int, Hop] = {}  # of the chunk that is called now, by the identity of the lead
        self._firing: Hop | None = None

    # Which steps

    def begin_chunk(self, steps: Sequence[Any], batch: Batch, retrying: Retrying | None, caller: Any) -> None:
        """Choose those that have a span."""
        sampling, take = self._sampling, caller.take
        chosen = sampling.steps(steps, take, single=caller.processor.input_shape == "single")
        if retrying is not None and sampling.again and 0 not in chosen and _place(take(steps[0])) in sampling.again:
            chosen = [0, *chosen]
        hops = [Hop(take(steps[i]), batch) for i in chosen]
        self._hops = {hop.id: hop for hop in hops}

    def end_chunk(self, batch: Batch) -> None:
        """A step that was not called any more has no outcome."""
        hops, self._hops = self._hops, {}
        for hop in hops.values():
            hop.end("none")

    def chosen(self, steps: Sequence[Any]) -> Sequence[int]:
        """In a loop for many messages a chosen one is called by itself, between the others."""
        return [i for i, step in enumerate(steps) if id(step) in self._hops] if self._hops else ()

    def enter_list(self, batch: Batch) -> None:
        """One call for all of them: all spans are open meanwhile, and none is current."""
        for hop in list(self._hops.values()):
            self._begin(hop)

    # The span of one call

    def _hop_of(self, step: Delivering) -> Hop | None:
        return self._firing if step.batch.fired is not None else self._hops.get(id(step.taken[0][1]))

    def _begin(self, hop: Hop, retrying: Retrying | None = None) -> StepSpan | None:
        """Return the span of the present call, and begin it if need be; None if it cannot be made."""
        if hop.span is None:
            hop.span = harmless(lambda: self._span(hop, retrying))
            if hop.span is None:
                self._hops.pop(hop.id, None)
        return hop.span

    def _span(self, hop: Hop, retrying: Retrying | None) -> StepSpan:
        batch, spec = hop.batch, hop.batch.spec
        step = Delivering(hop.taken, batch, None)
        about: dict[str, str | int] = {
            "messaging.consumer.group.name": spec.group,
            "cues_kafka.graph": spec.graph,
            "cues_kafka.task": spec.name,
            "cues_kafka.hash": step.hash(step.consumed).hex(),
            "cues_kafka.attempt": retrying.attempt if retrying else 0,
        }
        if batch.starts:
            about["cues_kafka.starts"] = batch.starts
        if batch.replayed is not None:
            about["cues_kafka.replay"] = batch.replayed.number
        return StepSpan(
            self._sampling.spans.tracer(self._sampling.graph),
            [message for _, message in hop.taken],
            about,
            timer=None if batch.fired is None else spec.processor,
            apart=batch.begun_by is not None,
        )

    def enter_step(self, step: Delivering) -> None:
        """Make its span the current one."""
        if step.batch.fired is not None and self._sampling.timer():
            self._firing = Hop(step.taken, step.batch)
        if (hop := self._hop_of(step)) is None:
            return
        span = self._begin(hop, step.retrying)
        if span is not None and not self._is_async:
            step.keep(self, (span, span.enter()))

    def leave_step(self, step: Delivering) -> None:
        if (entered := step.kept(self)) is not None:
            span, token = entered
            span.leave(token)
        if (hop := self._hop_of(step)) is not None:
            hop.end("none")
        if step.batch.fired is not None:
            self._firing = None

    def wrap(self, made: Any, step: Delivering) -> Any:
        """Make its span the current one of an ``async def``."""
        if not self._is_async or (hop := self._hop_of(step)) is None:
            return made
        span = self._begin(hop, step.retrying)
        return made if span is None else _within(span, made)

    def end_step(self, step: Delivering) -> None:
        """See `StepParticipant`; of one that failed, see `failed`."""
        if step.outcome == "error" or (hop := self._hop_of(step)) is None:
            return
        self._begin(hop)
        hop.messages = step.messages
        hop.end("outputs" if step.messages else "nil")
        self._sampling.again.discard(hop.place)

    def failing(self, error: BaseException, step: Delivering) -> None:
        if (hop := self._hop_of(step)) is not None:
            self._begin(hop, step.retrying)

    def failed(self, error: BaseException, step: Delivering, *, ended: bool) -> None:
        """Behind all else, by which a driver's text has no address any more."""
        if (hop := self._hop_of(step)) is None:
            return
        outcome: Outcome = "error" if ended else "none"
        if ended:
            self._sampling.again.discard(hop.place)
        elif (halt := step.batch.halt) is not None and halt.kind == "retry":
            outcome = "retry"
            self._sampling.again.add(hop.place)
        if (span := hop.span) is not None:
            harmless(lambda: span.failed(error, text_of(error)))
        hop.end(outcome)

    # What outputs carry

    def travel(self, headers: Headers, step: Delivering) -> Headers:
        if (hop := self._hop_of(step)) is None or (span := self._begin(hop)) is None:
            return headers
        return _carrying(headers, span.headers)

    def columns(self, columns: Columns, data: Sequence[bytes | None], batch: Batch) -> Columns:
        if not self._hops:
            return columns
        came = list(columns.came)
        for index, message in enumerate(columns.messages):
            if (hop := self._hops.get(id(message))) is None:
                continue
            if (span := self._begin(hop)) is not None:
                carrying = _carrying(came[index] or [], span.headers)
                came[index] = carrying if size_of(carrying) <= PLAIN_ROOM else came[index]
            hop.messages = int(data[index] is not None)
            hop.end("outputs" if hop.messages else "nil")
        return columns._replace(came=came)


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


def _place(taken: Taken) -> tuple[str, int, int]:
    lead = taken[0][1]
    return lead.topic(), lead.partition(), lead.offset()
