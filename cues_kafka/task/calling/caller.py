"""Calls the user's function for each step, outside any transaction, and collects its results (P4).

`Caller.run` takes steps in order and adds to an open `Batch`. Each step ends as outputs, one error message, or nil. A
step that must not end yet (retry, interrupt, unhandled) ends the run instead. A plain pipe has a loop of its own
(`_run_plain`), because there each line costs time for every message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import length_hint, methodcaller
from typing import Any, NamedTuple

from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.codecs.framing import in_front
from cues_kafka.codecs.raw import RawCodec, as_is
from cues_kafka.core.delivery import HEADER, provenance_prefix
from cues_kafka.core.events import Halt
from cues_kafka.core.spec import Spec
from cues_kafka.errors import Fenced, HandlerFailed, Interrupt, OutputError, RetriableError, StoreBroken, StoreFull
from cues_kafka.graph.declare import CodecSpec, Raw
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.graph.filters import Filter
from cues_kafka.graph.message import Message, travelling
from cues_kafka.graph.processor import Processor
from cues_kafka.observe.log import LINES
from cues_kafka.ports import UNREADABLE, Coordinates, Sink, TransactionalSink, WireMessage, headers_of_each
from cues_kafka.state.scheduled import Scheduled
from cues_kafka.task.calling.batch import Batch, CallContext, Retrying, Taken
from cues_kafka.task.calling.carried import NOTHING, Carried, Shown
from cues_kafka.task.calling.coroutines import Coroutines, Ended
from cues_kafka.task.calling.failures import UNDECODED, Failure, end_frames, error_message, note, place, show
from cues_kafka.task.calling.fired import Fired
from cues_kafka.task.calling.inheriting import by_text
from cues_kafka.task.calling.metadata import Marks
from cues_kafka.task.calling.outage import Outage
from cues_kafka.task.calling.outputs import (
    HEADER_BYTES,
    OVERHEAD_BYTES,
    PROVENANCE_BYTES,
    Origin,
    Payload,
    Returned,
    Target,
    record,
    size_of,
)
from cues_kafka.task.calling.plain import PLAIN_ROOM, Ahead, Columns, light, second
from cues_kafka.task.calling.replayed import MessageGone, Replayed
from cues_kafka.task.calling.step import Received, Step, unreadable
from cues_kafka.task.calling.turnstile import Mark, Turnstile


class Decoder(NamedTuple):
    """
    What decodes the values of one input.

    Attributes:
        decode: from a message's bytes.
        id_header: the header whose value goes before these bytes, where a message has it; None: none.
        key: decodes the key; None: it is text.
        declared: the codec of the topic.
        marks: `meta=` of the topic; None also where it is an empty set.
    """

    decode: Callable[[bytes | None], Any]
    id_header: str | None = None
    key: Callable[[WireMessage], Any] | None = None
    declared: CodecSpec = Raw()
    marks: Marks = None

    def received(self, message: WireMessage) -> Received:
        """What a function gets of a message whose headers can be read."""
        return Received(message, self.read(message), self.key, self.marks)

    def read(self, message: WireMessage) -> Any:
        """The value of a message whose headers can be read."""
        data = message.value()
        if self.id_header is not None and data is not None:
            data = in_front(message.headers(), self.id_header, data)
        return self.decode(data)


class FailedTogether(BaseException):
    """A step failed in a chunk that is called in one go; what it wrote to a target cannot be told from the others'."""


class Caller:
    """
    Calls one processor's function. Its tasks share it, and one thread at a time uses it.

    Attributes:
        error_topics: those of the graph. A request to replay names an error message in one of them (Y1).
        context_of: makes what the calls of one task have besides their messages; called once for each task.
    """

    def __init__(
        self,
        processor: Processor,
        *,
        decoders: Sequence[Decoder],
        returned: Returned,
        errors: Target | None,
        context_of: Callable[[Spec], CallContext],
        release: Callable[[], None] = lambda: None,
        carried: Carried = NOTHING,
        error_topics: Collection[str] = (),
        key: Callable[[WireMessage], bytes | None] = methodcaller("key"),
    ) -> None:
        self.processor = processor
        self.error_topics = error_topics
        self._decoders = tuple(decoders)
        self._returned = returned
        self._errors = errors
        self.context_of = context_of
        self._release = release
        self._carried = carried
        self._key = key
        self._bindings = tuple(binding for binding, _ in processor.inputs)
        self._by_headers = processor.filter.by_headers if isinstance(processor.filter, Filter) else None
        self._retry = processor.retry.classes if processor.retry else ()
        self._timed_fn: Callable[..., Any] = processor.timers[1].fn if processor.timers else _nothing
        call = processor.call
        one = processor.output_shape == "one" and not call.is_generator
        self._target = next(iter(returned.targets.values())) if one else None
        bounds = [one.batch_bytes for one in (*returned.targets.values(), *([errors] if errors else []))]
        self.batch_bytes = min((most for most in bounds if most is not None), default=None)
        """Bytes of the largest record batch that all output topics take; None: not known."""
        self._coroutines = Coroutines(processor.concurrency) if call.is_async else None
        timed = processor.timer_call
        self._fire = (
            None
            if timed is None
            else Returned(processor.output_shape, by_text(returned.targets), generator=timed.is_generator)
        )
        by_itself = processor.imperative
        self._side_by_side = not (processor.batch or processor.state or processor.target or by_itself)
        self._coming: Iterator[Any] | None = None
        self._simple = processor.input_shape == "single" and not (
            processor.batch
            or processor.filter is not None
            or processor.placed
            or processor.calls
            or by_itself
            or call.wants_step
            or call.rest
            or call.is_async
            or timed
        )
        marks = tuple(decoder.marks for decoder in self._decoders)
        self._marks = None if all(one is None for one in marks) else marks
        inherits = self._marks is None and not (
            self._target is not None and (self._target.bare or self._target.inherit is not None)
        )
        self._plain = self._simple and inherits and self._target is not None and self._target.provenance
        self._lists = (
            processor.batch
            and inherits
            and processor.input_shape == "single"
            and (processor.output_shape == "none" or (self._target is not None and self._target.provenance))
            and processor.filter is None
            and not (processor.state or call.wants_step or call.rest or call.is_async or timed or call.is_generator)
        )
        self._bytes_only = (
            self._plain
            and self._target is not None
            and self._target.key_of is None
            and self._decoders[0].decode is as_is
            and getattr(self._target.encode, "__func__", None) is RawCodec.encode
        )

    def close(self) -> None:
        """Release what the calls need besides their messages. No task is left."""
        self._release()

    def run(self, steps: Sequence[Any], batch: Batch, retrying: Retrying | None = None) -> int:
        """
        Call the function for these steps, in order, up to a step that must not end yet.

        Args:
            steps: see `pairing.Step`.
            batch: gets the results. `halt` is set when a step did not end, `closed` when the user asked for a commit.
            retrying: earlier calls of the first step.

        Returns:
            How many steps ended. Timers that fired between them are not counted.
        """
        before = batch.begun_by_messages
        self._coming = None
        if batch.turnstile is not None:
            self._run_through(batch.turnstile, steps, batch)
        elif (target := batch.context.target) is not None:
            try:
                self._run_on_target(target, steps, batch, retrying)
            finally:
                target.rest()
        elif batch.context.sink is not None and batch.context.stores is None:
            self._run_with_sink(batch.context.sink, steps, batch, retrying)
        else:
            self._run_together(steps, batch, retrying)
        return batch.begun_by_messages - before

    def _run_through(self, turnstile: Turnstile, steps: Sequence[Any], batch: Batch) -> None:
        """W2: call step by step, as long as each may start; a list starts as a whole, and is never called again."""
        headers_of_each([message for step in steps for _, message in self._take(step)])
        if self.processor.batch:
            if turnstile.enter(len(steps)):
                self._run_lists(steps, batch)
                turnstile.leave(batch.mark())
        elif self._coroutines is not None and self._side_by_side:
            self._run_side_by_side(self._coroutines, steps, batch, None)
        else:
            self._coming = iter(steps)
            for step in self._coming:
                if not turnstile.enter() or not self._one(self._take(step), batch, None):
                    return
                turnstile.leave(batch.mark())
                if batch.closed:
                    return

    def _run_together(self, steps: Sequence[Any], batch: Batch, retrying: Retrying | None) -> None:
        """Call for a chunk in the way that costs least."""
        if batch.replayed is not None:  # its outcomes name the replay
            self._run_others(steps, batch, None)
        elif retrying is None and self._plain:
            self._run_plain(steps, batch)
        elif retrying is None and self._lists and self._run_plain_list(steps, batch):
            pass
        elif retrying is None and self._simple:
            self._run_simple(steps, batch)
        else:
            self._run_others(steps, batch, retrying)

    def _run_on_target(
        self, target: TransactionalSink, steps: Sequence[Any], batch: Batch, retrying: Retrying | None
    ) -> None:
        """
        E1: call for the chunk in one go; where a step fails, take all of it back, and call step by step.

        A savepoint for each step would cost two round trips for each message. Stores and tailers cannot take back
        several steps, so with them each step has its own.
        """
        context = batch.context
        together = context.stores is None and context.hands is None and not target.alone
        if retrying is None and together and len(steps) > 1:
            before = batch.mark()
            target.mark()
            batch.tentative = True
            try:
                self._run_together(steps, batch, None)
                if not target.check():
                    return
            except FailedTogether:
                pass
            finally:
                batch.tentative = False
            batch.back_to(before)
            batch.closed = False
            target.back()
        headers_of_each([message for step in steps for _, message in self._take(step)])
        self._coming = iter(steps)
        for step in self._coming:
            taken, before = self._take(step), batch.mark()
            target.mark()
            ended = self._one(taken, batch, retrying)
            if ended and (why := target.check()):
                batch.back_to(before)
                ended = self._fail(OutputError(why), Failure(taken, batch, retrying, kind="raised"))
            batch.closed = batch.closed or target.alone
            if not ended or batch.closed:
                return
            retrying = None
            if self._fire is not None and not self.fire(batch, batch.most - batch.deliveries):
                return

    def under_way(self, steps: Sequence[Any], ended: int) -> int:
        """
        The index of the first step of a chunk whose call has not ended, for another thread while `run` works.

        Args:
            steps: the chunk's.
            ended: how many have been added to the batch. A loop adds the results of a chunk together, so its iterator
                says what it has not taken yet.
        """
        coming = self._coming
        taken = 0 if coming is None else len(steps) - length_hint(coming) - 1
        return min(max(taken, ended), len(steps) - 1)

    def place(self, steps: Sequence[Any], index: int) -> str:
        """Where a step of a chunk stands, ``orders/3 at 17``; with `batch=True`, the first and the last of the call."""
        if isinstance(steps[index], Fired):
            return steps[index].place  # type: ignore[no-any-return]
        at = place(self._take(steps[index]))
        return f"{at} to {place(self._take(steps[-1]))}" if self.processor.batch and len(steps) > 1 else at

    def _run_others(self, steps: Sequence[Any], batch: Batch, retrying: Retrying | None) -> None:
        """Call for everything else, which needs the messages of a step one by one."""
        headers_of_each([message for step in steps for _, message in self._take(step)])
        if retrying is None and self.processor.batch:
            self._run_lists(steps, batch)
        elif self._coroutines is not None and self._side_by_side:
            self._run_side_by_side(self._coroutines, steps, batch, retrying)
        else:
            self._coming = iter(steps)
            for step in self._coming:
                if not self._one(self._take(step), batch, retrying) or batch.closed:
                    break
                retrying = None
                if self._fire is not None and not self.fire(batch, batch.most - batch.deliveries):
                    break

    # Timers

    def fire(self, batch: Batch, most: int, retrying: Retrying | None = None) -> bool:
        """
        Call the timers' function for the timers that are due, the one that comes first first (F2).

        Args:
            batch: gets the results, as with `run`. It is `closed` where timers that are due must wait for the next one.
            most: how many may fire.
            retrying: earlier calls for the first one.

        Returns:
            Whether a message may be delivered next.
        """
        timers, target = self._timers_of(batch), batch.context.target
        if timers.clock:
            timers.tell(batch.today() / 1000)
        while not (batch.halt or batch.closed) and (due := timers.due) is not None:
            if most <= 0 or (batch.deliveries and batch.is_full):
                batch.closed = True
                break
            batch.fired = Fired(batch.spec, due)
            try:
                self._fire_one(batch.fired, batch, retrying)
            finally:
                batch.fired = None
                if target is not None:
                    target.rest()
            most, retrying = most - 1, None
        return not (batch.halt or batch.closed)

    def _timers_of(self, batch: Batch) -> Scheduled:
        stores = batch.context.stores
        assert stores is not None
        assert stores.timers is not None
        return stores.timers

    def _fire_one(self, fired: Fired, batch: Batch, retrying: Retrying | None) -> None:
        """F4: the timer is removed with its step, however that ends; only a step that did not end keeps it."""
        stores, timers, call = batch.context.stores, self._timers_of(batch), self.processor.timer_call
        assert stores is not None
        assert call is not None
        assert self._fire is not None
        taken = fired.taken(self._bindings)
        failure = Failure(taken, batch, retrying, kind="raised")
        stores.begin_step()
        if (target := batch.context.target) is not None:
            target.mark()
        if not timers.end(fired.set):
            batch.closed = True  # it is void: the task recovers, or leaves
            return
        given = batch.context.timed
        if call.wants_step:
            failure.step = self._step(taken, {}, batch, retrying)
            given = {**given, "step": failure.step}
        try:
            result = self._timed_fn(fired.timer, **given)
            failure.kind = "raised" if call.is_generator else "output"
            payloads = self._fire.read(result, fired.set.key.encode())
            failure.kind, before = "output", batch.mark()
            if payloads:
                self._add(taken, batch, payloads)
                batch.outputs += 1
            if target is not None and (why := target.check()):
                batch.back_to(before)
                raise OutputError(why)
            batch.deliveries += 1
        except BaseException as error:
            if not self._fail(error, failure):
                return
            timers.end(fired.set)  # the failure has taken back what the step did
        batch.timers += 1
        if (failure.step is not None and failure.step.commit_requested) or (target is not None and target.alone):
            batch.closed = True

    def quarantine_timer(self, batch: Batch) -> None:
        """End the step of the timer that comes first as an error, without calling user code (Q3, F3)."""
        timers, stores = self._timers_of(batch), batch.context.stores
        first = timers.first
        assert stores is not None
        assert first is not None
        batch.fired = Fired(batch.spec, first)
        try:
            stores.begin_step()
            failure = Failure(batch.fired.taken(self._bindings), batch, None, kind="quarantine")
            if self._fail(RuntimeError(f"killed its process at least {batch.starts} times"), failure):
                timers.end(first)
                batch.timers += 1
        finally:
            batch.fired = None

    def _run_with_sink(self, sink: Sink, steps: Sequence[Any], batch: Batch, retrying: Retrying | None) -> None:
        """Call for one step at a time, so that the sink can take back what a failed step wrote."""
        headers_of_each([message for step in steps for _, message in self._take(step)])
        self._coming = iter(steps)
        for step in self._coming:
            errors = batch.errors
            sink.begin_step()
            ended = self._one(self._take(step), batch, retrying)
            if not ended or batch.errors > errors:
                sink.undo_step()
            if not ended or batch.closed:
                return
            retrying = None

    @property
    def least_steps(self) -> int:
        """How many steps are worth a call of `run`: with coroutines several are under way at once."""
        return 1 if self._coroutines is None else 4 * self.processor.concurrency

    # One step, the long way

    def _take(self, step: Any) -> Taken:
        match self.processor.input_shape:
            case "join":
                return tuple(enumerate(step))
            case "alts":
                return (step,)
            case _:
                return ((0, step),)

    def _run_simple(self, messages: Sequence[WireMessage], batch: Batch) -> None:
        """Call for one input whose value alone is passed, with any outputs: a shorter `_one`."""
        decode, call, read = self._decoders[0].read, self._plain_call(batch, messages), self._returned.read
        reading = "raised" if self.processor.call.is_generator else "output"  # a generator runs while it is read
        came = headers_of_each(messages)
        self._coming = iter(messages)
        for message, headers in zip(self._coming, came, strict=True):
            kind = "decode"
            try:
                if headers is UNREADABLE:
                    raise unreadable(message)
                value = decode(message)
                kind = "raised"
                result = call(value)
                kind = reading
                payloads = read(result, self._key(message))
                kind = "output"
                if payloads:
                    self._add(((0, message),), batch, payloads)
                    batch.outputs += 1
                batch.deliveries += 1
            except BaseException as error:
                if not self._fail(error, Failure(((0, message),), batch, None, kind=kind)) or batch.closed:
                    return

    def _one(self, taken: Taken, batch: Batch, retrying: Retrying | None) -> bool:
        """Decode, filter, call and read the result of one step; False: it did not end."""
        failure = Failure(taken, batch, retrying)
        if (hands := batch.context.hands) is not None:
            hands.begin_step(self._key(taken[0][1]))
        try:
            received = self._decode(taken, failure)
            failure.kind = "raised"
            if not received:
                batch.deliveries += 1
                return True
            if self.processor.call.wants_step:
                failure.step = self._step(taken, received, batch, retrying)
            result = self._invoke(received, failure)
            result = result if self._coroutines is None else self._coroutines.result(result)
            return self._settle(taken, batch, self._single(result) if self.processor.batch else result, failure)
        except BaseException as error:
            return self._fail(error, failure)

    def _decode(self, taken: Taken, failure: Failure) -> dict[str, Received]:
        """The decoded messages by binding, without those that the filter drops, if it can before they are decoded."""
        passes, by_headers = self.processor.filter, self._by_headers
        received: dict[str, Received] = {}
        for index, message in taken:
            failure.decoding = index, message
            if (headers := message.headers()) is UNREADABLE:
                raise unreadable(message)
            if (decided := None if by_headers is None else by_headers(headers or [])) is False:
                continue
            one = self._decoders[index].received(message)
            if passes is None or decided or passes(one):
                received[self._bindings[index]] = one
        return received

    def _step(self, taken: Taken, received: Mapping[str, Received], batch: Batch, retrying: Retrying | None) -> Step:
        attempt = retrying.attempt if retrying else 0
        places = self.coordinates(taken, batch)
        stores, fired, replayed = batch.context.stores, batch.fired, batch.replayed
        return Step(
            *(batch.spec.graph, self.processor, places, received),
            attempt=attempt,
            starts=batch.starts,
            timers=None if stores is None else stores.timers,
            timer=None if fired is None else fired.timer,
            replay=None if replayed is None else replayed.number,
        )

    def coordinates(self, taken: Taken, batch: Batch) -> tuple[Coordinates, ...]:
        """The coordinates of consumed messages, in the order of bindings; of a timer, those whose step set it."""
        if (begun_by := batch.begun_by) is not None:
            return begun_by.consumed
        return tuple(
            Coordinates(self._bindings[i], batch.topic_ids[self._bindings[i]], batch.spec.partition, message.offset())
            for i, message in taken
        )

    def _invoke(self, received: Mapping[str, Received], failure: Failure) -> Any:
        batch, step = failure.batch, failure.step
        call, given, listed = self.processor.call, batch.context.values, self.processor.batch
        if (stores := batch.context.stores) is not None:
            stores.begin_step()
            if stores.timed:
                stores.advance(one.timestamp_ms for one in received.values())
        if batch.context.placed is not None:
            batch.context.placed([self._place_of(received, batch)])
        if step is not None:
            given = {**given, "step": [step] if listed else step}
        if (calls := batch.context.calls) is not None:
            consumed = self.coordinates(failure.taken, batch)
            replay = 0 if batch.replayed is None else batch.replayed.number
            failure.delivery = calls.begin(consumed, lambda: failure.hash(consumed).hex(), replay)
            given = {**given, **failure.delivery.values}
        if call.positional is not None:
            value = received[call.positional].value
            return self.processor.fn([value] if listed else value, **given)
        values = {binding: [one.value] if listed else one.value for binding, one in received.items()}
        return self.processor.fn(**values, **given)

    def _place_of(self, received: Mapping[str, Received], batch: Batch) -> Coordinates:
        """Where the message of a processor with one input stands."""
        [(binding, one)] = received.items()
        if batch.replayed is not None:
            return batch.replayed.consumed[0]
        return Coordinates(binding, batch.topic_ids[binding], one.partition, one.offset)

    def _single(self, results: Any) -> Any:
        if results is None:
            return None
        [result] = self._as_many(results, 1)
        if isinstance(result, Exception):
            raise result
        return result

    def _settle(self, taken: Taken, batch: Batch, result: Any, failure: Failure) -> bool:
        """Make records of a result. None is added before all of them are encoded."""
        failure.kind = "raised" if self.processor.call.is_generator else "output"
        payloads = self._returned.read(result, self._key(taken[0][1]))
        failure.kind = "output"
        if (hands := batch.context.hands) is not None:
            payloads = hands.end_step(payloads)
        if payloads:
            self._add(taken, batch, payloads)
            batch.outputs += 1
        self._end_calls(failure)
        batch.deliveries += 1
        if failure.step is not None and failure.step.commit_requested:
            batch.closed = True
        return True

    def _end_calls(self, failure: Failure) -> None:
        """E4: the step has ended, so the answers to its calls are deleted from the journal with it."""
        batch = failure.batch
        if (calls := batch.context.calls) is None:
            return
        _check_calls(failure)
        deleting, size = calls.ended(self.coordinates(failure.taken, batch))
        for row in deleting:
            batch.records.add(*row)
        batch.size += size

    def _add(self, taken: Taken, batch: Batch, payloads: Sequence[Payload], origin: Origin | None = None) -> None:
        """Add payloads as records; if one is too large, none is added."""
        messages = tuple([message for _, message in taken])
        origin = origin or (Origin(messages) if self._marks is None else self._origin(taken, batch))
        if (begun_by := batch.begun_by) is None:
            prefix = batch.prefix(tuple([self._bindings[index] for index, _ in taken]))
            offsets = b",".join([b"%d" % message.offset() for message in messages])
        else:
            prefix, offsets = begun_by.prefix(batch.sequence), begun_by.word
        own, today = batch.spec.partition, batch.today
        rows = (
            record(made, origin, own, b"%b%d/%d %b" % (prefix, index, len(payloads), offsets), today)
            for index, made in enumerate(payloads)
        )
        for row in list(rows):
            batch.records.add(*row)
        batch.size += sum(len(made[1] or b"") + len(made[2] or b"") for made in payloads)
        batch.messages += len(payloads)

    def _origin(self, taken: Taken, batch: Batch) -> Origin:
        """What the outputs of a step inherit."""
        marks = None if self._marks is None else [self._marks[index] for index, _ in taken]
        return Origin(tuple([message for _, message in taken]), marks=marks, timed=batch.fired is None)

    def _add_error(self, errors: Target, failure: Failure, message: ErrorMessage) -> None:
        """
        Add an error message, which always fits: without headers that travel or the record's key, where room lacks.

        Its timestamp is the present, so that retention does not delete it because its input is old.
        """
        origin = self._origin(failure.taken, failure.batch)
        key, value = message.key, error_messages().encode(message)
        if (begun_by := failure.batch.begun_by) is None:
            prefix = failure.batch.prefix(tuple([self._bindings[index] for index, _ in failure.taken]))
            provenance = len(prefix) + OFFSET_BYTES * (len(failure.taken) + 1)
        else:
            provenance = len(begun_by.prefix(failure.batch.sequence)) + len(begun_by.word) + OFFSET_BYTES
        heavy = provenance + len(HEADER) + HEADER_BYTES if provenance > PROVENANCE_BYTES else 0
        room = errors.max_bytes - OVERHEAD_BYTES - len(value) - heavy
        if len(key or b"") > room:
            key = None
        if key is None and errors.compacted:
            key = message.hash
        if len(key or b"") + size_of(origin.travelled) > room:
            origin.travelled = []
        self._add(failure.taken, failure.batch, [(errors, key, value, [], 0, None)], origin)

    # Failures, in the order of docs/errors.md

    def _fail(self, error: BaseException, failure: Failure) -> bool:
        """End the step as one error message, True; or halt the batch before it, False."""
        context, called = failure.batch.context, failure.kind not in UNDECODED
        failure.fn = self.processor.fn if failure.batch.fired is None else self._timed_fn
        _check_calls(failure)
        if called and (context.target is not None or context.stores is not None or context.hands is not None):
            self._end_frames(error)
        if context.target is not None and called:
            if why := context.target.outage(error):
                raise Outage(why, code="TARGET") from error
            if failure.batch.tentative:
                raise FailedTogether from error
            context.target.back()
        if context.stores is not None and called:
            context.stores.undo_step()
        if context.hands is not None and called and failure.batch.fired is None:
            context.hands.undo_step()
            context.hands.check()
        if self._became_error(error, failure):
            return True
        failure.batch.about = note(failure, error, self.coordinates(failure.taken, failure.batch))
        return False

    def _end_frames(self, error: BaseException) -> None:
        """Have what a failed call left open end, before the step is taken back."""
        end_frames(error)
        if self._coroutines is not None:
            self._coroutines.end_generators()

    def _became_error(self, error: BaseException, failure: Failure) -> bool:
        batch = failure.batch
        if isinstance(error, Outage) or (isinstance(error, RetriableError) and failure.kind in ("decode", "output")):
            if batch.turnstile is not None and failure.kind == "decode":
                batch.turnstile.back()
            raise error
        if failure.kind not in UNDECODED and not self._handlers_fit(error, batch):
            return False
        if self._stops(error, batch):
            remedy = REMEDIES.get(type(error), "it was asked for")
            batch.halt, batch.cause = Halt("interrupt", show(error), remedy), error
            return False
        if not isinstance(error, Exception | Interrupt):
            raise failure.mark(error)
        if isinstance(error, OutputError) and failure.kind == "raised":
            failure.kind = "output"  # what a generator yielded, or a list of another length
        if isinstance(error, self._retry) and failure.kind != "decode":
            if batch.replayed is None and self._halts_for_retry(error, failure):
                return False
            failure.kind = "retries exhausted"
        if self._errors is None:
            batch.halt = Halt("unhandled", failure.describe(error), "fix the cause, or declare an errors topic")
            batch.cause = error
            return False
        consumed = self.coordinates(failure.taken, batch)
        message = error_message(failure, error, consumed, self._carried.declaration, self._shown(failure))
        self._add_error(self._errors, failure, message)
        self._end_calls(failure)
        if len(batch.notes) < LINES:
            batch.notes.append(note(failure, error, consumed))
        batch.messages -= 1
        batch.errors += 1
        batch.deliveries += 1
        return True

    @staticmethod
    def _stops(error: BaseException, batch: Batch) -> bool:
        """Whether the task stops: a replay never stops it for what the function wants (Y1), so that is an error."""
        if batch.replayed is not None and not isinstance(error, StoreBroken):
            return isinstance(error, Fenced)
        return isinstance(error, Interrupt | Fenced)

    def _shown(self, failure: Failure) -> Shown:
        """The value that the error message carries: of the input that failed, or of the lead where it is asked for."""
        undecoded = failure.kind in UNDECODED
        if not (undecoded or self._carried.payload):
            return {"payload": None, "redacted": ()}
        index, message = failure.decoding if undecoded and failure.decoding is not None else failure.taken[0]
        decoder = self._decoders[index]
        return self._carried.shown(message.value(), decoder.declared, partial(decoder.read, message))

    def _handlers_fit(self, error: BaseException, batch: Batch) -> bool:
        """
        Whether state handlers are without traces of the step that raised; here only if it is the batch's first one.

        See `task.handling`.
        """
        handlers = batch.context.handlers
        if handlers is None or not isinstance(error, Exception | Interrupt | Fenced):
            return True
        if batch.deliveries:
            batch.spoiled = True
            return False
        try:
            handlers.reset(counts=False)  # its error, or its retry, is bounded without that
        except HandlerFailed as second:
            batch.halt, batch.cause = Halt("unhandled", str(second), FIX_HANDLER), second
            return False
        batch.closed = True  # as an error its commit is its own
        return True

    def drain(self, given: Iterable[Any], batch: Batch) -> None:
        """
        Add what state handlers held back. It names no message (O8), only the attempt.

        Raises:
            OutputError, CodecError: it cannot be sent.
        """
        payloads = [made for one in given for made in self._returned.drained(one)]
        if not payloads:
            return
        prefix = provenance_prefix(batch.spec.full_name, batch.sequence, ())
        origin, own = Origin((), batch.today()), batch.spec.partition
        rows = [
            record(made, origin, own, b"%b%d/%d -" % (prefix, index, len(payloads)), batch.today)
            for index, made in enumerate(payloads)
        ]
        for row in rows:
            batch.records.add(*row)
        batch.drained += len(rows)

    def _halts_for_retry(self, error: Exception, failure: Failure) -> bool:
        """Whether the batch halts: the step is called again later, or its time is over and the task stops."""
        retry = self.processor.retry
        assert retry
        now = failure.batch.now()
        since = failure.retrying.since_s if failure.retrying else now
        batch = failure.batch
        if now - since < retry.for_s:
            batch.halt, batch.cause = Halt("retry", show(error)), error
            return True
        if retry.then == "stop":
            text = f"{failure.describe(error)}, still after {retry.for_s:g} s of retries"
            batch.halt, batch.cause = (
                Halt("unhandled", text, "fix what it depends on; the task is retried"),
                error,
            )
            return True
        return False

    def quarantine(self, step: Any, batch: Batch) -> None:
        """End a step as an error with its bytes undecoded, without calling user code (Q3)."""
        failure = Failure(self._take(step), batch, None, kind="quarantine")
        headers_of_each([message for _, message in failure.taken])
        self._fail(RuntimeError(f"killed its process at least {batch.starts} times"), failure)

    def replay(self, replayed: Replayed) -> Any:
        """The step of a replay, for `run`."""
        return replayed.step(self._bindings)

    def lose(self, replayed: Replayed, batch: Batch) -> None:
        """End a replay as an error because its messages are gone."""
        self._fail(MessageGone(replayed.gone), Failure(replayed.taken(self._bindings), batch, None))

    # async def

    def _run_side_by_side(
        self, coroutines: Coroutines, steps: Sequence[Any], batch: Batch, retrying: Retrying | None
    ) -> None:
        """Call several steps at once. They end in their order; the calls after one that halts are forgotten."""
        rows = [self._take(step) for step in steps]
        failures = [Failure(taken, batch, None if i else retrying) for i, taken in enumerate(rows)]
        came = [self._decode_or_error(*one) for one in zip(rows, failures, strict=True)]

        turnstile = batch.turnstile
        if turnstile is not None and (outage := _outage_of(came)):
            raise outage

        def begin(i: int) -> Any:
            if turnstile is not None and not turnstile.enter():
                raise Interrupt("the task is given up")
            received, failure = came[i], failures[i]
            if isinstance(received, BaseException):
                raise received
            if not received:
                return _nothing()
            failure.kind = "raised"
            if self.processor.call.wants_step:
                failure.step = self._step(rows[i], received, batch, failure.retrying)
            return self._invoke(received, failure)

        def settle(i: int, ended: Ended) -> bool:
            try:
                if ended.error is not None:
                    raise ended.error
                going = self._settle(rows[i], batch, ended.value, failures[i])
                going = going and not (batch.closed and turnstile is None)  # those that were started would be dropped
            except BaseException as error:
                going = self._fail(error, failures[i])
            if turnstile is not None:
                turnstile.leave(batch.mark())
            return going

        coroutines.settle([partial(begin, i) for i in range(len(rows))], settle)

    # batch=True

    def _run_lists(self, steps: Sequence[Any], batch: Batch) -> None:
        """Call once for all steps. If that raises, call for each step, so that one bad message spoils only itself."""
        rows = [self._take(step) for step in steps]
        before = batch.mark()
        failures = [Failure(taken, batch, None) for taken in rows]
        came = [self._decode_or_error(*one) for one in zip(rows, failures, strict=True)]
        if batch.turnstile is not None and (outage := _outage_of(came)):
            batch.turnstile.back(len(rows))
            raise outage
        asked = [i for i, one in enumerate(came) if isinstance(one, dict) and one]
        if self.processor.call.wants_step:
            for i in asked:
                failures[i].step = self._step(rows[i], came[i], batch, None)  # type: ignore[arg-type]
        try:
            results = dict(zip(asked, self._invoke_lists(asked, failures, came, batch), strict=True)) if asked else {}
            failed = None
        except Exception as error:
            failed = error
        except BaseException as error:
            self._fail(error, failures[0])
            return
        if failed is not None:  # behind `except`: what a step raises there would name this exception as its cause
            self._run_alone(rows, batch, before, failed)
        else:
            self._settle_lists(failures, came, results, batch, before)

    def _settle_lists(
        self,
        failures: Sequence[Failure],
        came: Sequence[dict[str, Received] | Exception | Interrupt],
        results: Mapping[int, Any],
        batch: Batch,
        before: Mark,
    ) -> None:
        """Make records of what one call for all steps gave."""
        rows = [failure.taken for failure in failures]
        unclear: Exception | Interrupt | None = None
        for i, (taken, failure) in enumerate(zip(rows, failures, strict=True)):
            one, result = came[i], results.get(i)
            try:
                if isinstance(one, BaseException):
                    raise one
                failure.kind = "raised"
                if isinstance(result, Exception):
                    raise result
                self._settle(taken, batch, result, failure)
            except BaseException as error:
                known = batch.context.stores is None or failure.kind == "decode"
                if not known and isinstance(error, Exception | Interrupt):
                    unclear = error  # which changes of the stores are this step's is not known
                    break
                if not self._fail(error, failure):
                    return
        if unclear is not None:
            self._run_alone(rows, batch, before, unclear)

    def _run_plain_list(self, messages: Sequence[WireMessage], batch: Batch) -> bool:
        """Call once for all messages, column by column; False: one of them is unusual, and nothing was called."""
        kind_of: Any = type(messages[0])
        came, decoder = headers_of_each(messages), self._decoders[0]
        if UNREADABLE in came or (decoder.id_header is not None and any(came)):
            return False
        values = list(map(kind_of.value, messages))
        if decoder.decode is not as_is:
            try:
                values = list(map(decoder.decode, values))
            except (Exception, Interrupt):  # the long way finds it again, and whose it is
                return False
            except BaseException as error:
                raise Failure(self._take(messages[0]), batch, None).mark(error)  # noqa: B904  it is the same
        before, call, given = batch.mark(), self.processor.call, batch.context.values
        try:
            if call.positional is not None:
                results = self.processor.fn(values, **given)
            else:
                results = self.processor.fn(**{self._bindings[0]: values}, **given)
            if results is None:  # nil for each of them: keys and timestamps are not asked for
                batch.deliveries += len(messages)
                return True
            results, failed = self._as_many(results, len(messages)), None
        except Exception as error:
            failed = error
        except BaseException as error:
            self._fail(error, Failure(self._take(messages[0]), batch, None))
            return True
        if failed is not None:  # as in `_run_lists`
            self._run_alone([self._take(message) for message in messages], batch, before, failed)
            return True
        times = list(map(second, map(kind_of.timestamp, messages)))
        columns = Columns(messages, list(map(kind_of.key, messages)), came, times)
        if (data := self._plain_data(results, columns, batch)) is not None:
            self._emit(columns, data, batch)
            return True
        failures = [Failure(self._take(message), batch, None) for message in messages]
        self._settle_lists(failures, [{}] * len(messages), dict(enumerate(results)), batch, before)
        return True

    def _plain_data(self, results: Sequence[Any], columns: Columns, batch: Batch) -> list[bytes | None] | None:
        """The encoded results of a list; None: one of them goes the long way."""
        if (target := self._target) is None:
            return None if any(result is not None for result in results) else [None] * len(results)
        keyless = target.compacted and None in columns.keys
        if (
            target.key_of is not None
            or keyless
            or not target.takes(columns.times, batch.today)
            or not light(columns.keys, columns.came)
        ):
            return None
        if any(isinstance(result, Message | Exception) for result in results):
            return None
        try:
            data = [None if result is None else target.encode(result) for result in results]
        except (Exception, Interrupt):  # as above
            return None
        except BaseException as error:
            raise Failure(self._take(columns.messages[0]), batch, None, kind="output").mark(error)  # noqa: B904
        limit = target.max_bytes - OVERHEAD_BYTES - 2 * PLAIN_ROOM
        return data if max(map(len, filter(None, data)), default=0) <= limit else None

    def _run_alone(self, rows: Sequence[Taken], batch: Batch, before: Mark, error: Exception | Interrupt) -> None:
        """Take back what a call for all steps gave, and call for each of them."""
        if (target := batch.context.target) is not None:
            if why := target.outage(error):
                raise Outage(why, code="TARGET") from error
            raise FailedTogether from error
        if batch.turnstile is not None:  # it was called, and is not called again
            batch.back_to(before)
            for taken in rows:
                if not self._fail(error, Failure(taken, batch, None, kind="raised")):
                    return
            return
        batch.back_to(before)
        if batch.context.stores is not None:
            self._end_frames(error)
            batch.context.stores.undo_step()
        for taken in rows:
            if not self._one(taken, batch, None):
                return

    def _decode_or_error(self, taken: Taken, failure: Failure) -> dict[str, Received] | Exception | Interrupt:
        """The decoded messages, or the error, which becomes the step's error message later, in its turn."""
        try:
            return self._decode(taken, failure)
        except (Exception, Interrupt) as error:
            return error
        except BaseException as error:  # of a codec or a filter
            raise failure.mark(error)  # noqa: B904  it is the same

    def _invoke_lists(
        self, asked: Sequence[int], failures: Sequence[Failure], came: Sequence[Any], batch: Batch
    ) -> Sequence[Any]:
        call, given = self.processor.call, batch.context.values
        if (stores := batch.context.stores) is not None:
            stores.begin_step()
            if stores.timed:
                stores.advance(one.timestamp_ms for i in asked for one in came[i].values())
        if batch.context.placed is not None:
            batch.context.placed([self._place_of(came[i], batch) for i in asked])
        if call.wants_step:
            given = {**given, "step": [failures[i].step for i in asked]}
        values = {binding: [came[i][binding].value for i in asked] for binding in self._bindings}
        if call.positional is not None:
            results = self.processor.fn(values[call.positional], **given)
        else:
            results = self.processor.fn(**values, **given)
        results = results if self._coroutines is None else self._coroutines.result(results)
        return [None] * len(asked) if results is None else self._as_many(results, len(asked))

    def _as_many(self, results: Any, count: int) -> Sequence[Any]:
        found = list(results)
        if len(found) != count:
            raise OutputError(f"batch=True: {len(found)} results for {count} messages. Return one for each, in order.")
        return found

    # The hot loop: a line inside a `for` costs time for every message, the others once for a chunk

    def _run_plain(self, messages: Sequence[WireMessage], batch: Batch) -> None:
        """Call for one input and one output with nothing but the value passed. Unusual messages go the long way."""
        # The unbound methods of the client's class take a fifth of the time of `methodcaller`, a seventh of a loop's.
        kind_of: Any = type(messages[0])
        times = list(map(second, map(kind_of.timestamp, messages)))
        columns = Columns(messages, list(map(kind_of.key, messages)), headers_of_each(messages), times)
        if UNREADABLE in columns.came:
            self._run_simple(messages, batch)
            return
        values = list(map(kind_of.value, messages))
        if (name := self._decoders[0].id_header) is not None and any(columns.came):
            pairs = zip(values, columns.came, strict=True)
            values = [data if data is None else in_front(came, name, data) for data, came in pairs]
        target, call = self._target, self._plain_call(batch, messages, times)
        assert target
        limit = target.max_bytes - OVERHEAD_BYTES - 2 * PLAIN_ROOM
        keyless = target.compacted and None in columns.keys
        if keyless or not target.takes(times, batch.today) or not light(columns.keys, columns.came):
            limit = -1  # each result is looked at the long way
        elif self._bytes_only:
            ahead = Ahead(call)
            self._coming = iter(values)
            look = ahead.all_are_bytes if batch.context.stores is None else ahead.each_is_bytes
            if look(self._coming, limit):
                self._emit(columns, ahead.results, batch)
                return
            call = ahead.again
        self._run_each(columns, values, call, limit, batch)

    def _run_each(
        self, columns: Columns, values: Sequence[Any], call: Callable[[Any], Any], limit: int, batch: Batch
    ) -> None:
        """Decode, call and encode one by one. Results of more than `limit` bytes go the long way."""
        target, (messages, keys, *_) = self._target, columns
        assert target
        decode, encode, key_of, encode_key = self._decoders[0].decode, target.encode, target.key_of, target.encode_key
        data: list[bytes | None] = []
        start = 0  # where the run of usual results begins that `data` holds
        self._coming = iter(values)
        for index, value in enumerate(self._coming):
            kind = "decode"
            try:
                if decode is not as_is:
                    value = decode(value)  # noqa: PLW2901
                kind = "raised"
                result = call(value)
                if result is None:
                    data.append(None)
                    continue
                kind = "output"
                if type(result) is not Message:
                    made = encode(result)
                    if key_of is not None and (given := key_of(result)) is not None:
                        keys[index] = encode_key(given)
                    if len(made) <= limit and (key_of is None or len(keys[index] or b"") <= PLAIN_ROOM):
                        data.append(made)
                        continue
                payloads = self._returned.read(result, self._key(messages[index]))
                self._emit(columns.cut(start, index), data, batch)
                data, start = [], index + 1
                self._add(((0, messages[index]),), batch, payloads)
                batch.outputs += 1
                batch.deliveries += 1
            except BaseException as error:
                self._emit(columns.cut(start, index), data, batch)
                data, start = [], index + 1
                if not self._fail(error, Failure(((0, messages[index]),), batch, None, kind=kind)) or batch.closed:
                    return
        self._emit(columns.cut(start, None), data, batch)

    def _plain_call(
        self, batch: Batch, messages: Sequence[WireMessage], times: Sequence[int] = ()
    ) -> Callable[[Any], Any]:
        fn, context, stores = self.processor.fn, batch.context.values, batch.context.stores
        call = fn
        if self.processor.call.positional is None:
            binding = self._bindings[0]
            call = lambda value: fn(**{binding: value}, **context)  # noqa: E731
        elif context:
            call = lambda value: fn(value, **context)  # noqa: E731
        if stores is None:
            return call
        return stores.following(call, self._time_of_each(messages, times) if stores.timed else None)

    def _time_of_each(self, messages: Sequence[WireMessage], times: Sequence[int]) -> Callable[[], int]:
        """Gives the timestamp of the message whose step is called: the last one that the loop has taken."""
        if times and self._decoders[0].decode is as_is:
            return iter(times).__next__  # none fails before its call
        known, count = times or [one.timestamp()[1] for one in messages], len(messages)
        return lambda: known[count - 1 - length_hint(self._coming)]

    def _emit(self, columns: Columns, data: Sequence[bytes | None], batch: Batch) -> None:
        """Add usual results, column by column; None is nil."""
        target = self._target
        batch.deliveries += len(data)
        values = [made for made in data if made is not None]
        if target is None or not values:
            return
        if len(values) < len(data):
            columns = columns.having(data)
        messages, keys, came, times = columns
        kind_of: Any = type(messages[0])
        shared = batch.prefix(self._bindings) + b"0/1 "
        headers: list[Any] = list(map((shared.replace(b"%", b"%%") + b"%d").__mod__, map(kind_of.offset, messages)))
        if inherits := any(came):
            headers = [
                [(HEADER, header), *travelled] if one and (travelled := travelling((one,))) else header
                for header, one in zip(headers, came, strict=True)
            ]
        keyless = batch.spec.partition % target.partitions
        batch.records.extend(target.topic, keyless, keys, values, headers, times, alone=not inherits)
        batch.outputs += len(values)
        batch.messages += len(values)
        batch.size += sum(map(len, values))


def _outage_of(came: Sequence[object]) -> RetriableError | None:
    """W2: why a message cannot be decoded for now; then no call begins, because none could be made again."""
    return next((one for one in came if isinstance(one, RetriableError)), None)


def _check_calls(failure: Failure) -> None:
    """
    E4: no call of the step is valid from now on.

    Raises:
        Outage: an answer was not kept. The batch is void, whatever the function has made of that.
    """
    if (delivery := failure.delivery) is not None:
        delivery.over = True
        if delivery.outage is not None:
            kept = delivery.outage
            raise Outage(str(kept), code=kept.code, remedy=kept.remedy) from kept


async def _nothing() -> None:
    """Takes the place of a call where the filter lets no message pass."""


FULL = (
    "raise max_bytes= where the room is there, or delete entries; a Store can also keep its entries on the disk with "
    "on_disk=True, or have them end with ttl="
)

FIX_HANDLER = "fix the handler; the task is tried again by itself"

REMEDIES: Mapping[type[BaseException], str] = {
    StoreFull: FULL,
    StoreBroken: "nothing to do: its entries are read from the changelog again",
}

OFFSET_BYTES = 20
"""An offset with its comma in the provenance header, at most."""
