"""A processor's function, with what reads its messages and its results: what all ways of calling share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import length_hint, methodcaller
from typing import Any

from cues_kafka.graph.filters import Filter
from cues_kafka.graph.processor import Processor
from cues_kafka.ports.log import UNREADABLE, WireMessage
from cues_kafka.task.calling.batch import Taken
from cues_kafka.task.calling.carried import NOTHING, Carried
from cues_kafka.task.calling.coroutines import Coroutines
from cues_kafka.task.calling.decoding import Decoder
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.outputs import Returned, Target
from cues_kafka.task.calling.step import Received, unreadable


class Progress:
    """
    How far the loop is that calls for a chunk, for another thread.

    A loop adds the results of a chunk together, so its iterator says what it has not taken yet.

    Attributes:
        coming: what the loop takes its steps from; None: it does not say.
        behind: steps of the chunk that are behind those of the loop.
    """

    __slots__ = ("behind", "coming")

    def __init__(self) -> None:
        self.coming: Iterator[Any] | None = None
        self.behind = 0

    def through(self, steps: Sequence[Any]) -> Iterator[Any]:
        """These are called one after the other."""
        found = self.coming = iter(steps)
        return found

    def at(self, steps: int, ended: int) -> int:
        """
        The index of the first step whose call has not ended.

        Args:
            steps: how many the chunk has.
            ended: how many have been added to the batch.
        """
        coming, count = self.coming, max(1, steps - self.behind)
        taken = 0 if coming is None else count - length_hint(coming) - 1
        return max(0, min(max(taken, ended), count - 1))


class Function:
    """
    One processor's function. Its tasks share it, and one thread at a time uses it.

    Attributes:
        processor: the declaration.
        decoders: by input.
        returned: reads what the function returns.
        errors: takes error messages; None: the task stops instead.
        carried: what error messages carry besides the failure.
        key: gives the key of a message.
        bindings: of the inputs.
        output: the only topic that it returns values for; None: it has several, or yields.
        coroutines: runs an ``async def``; None for another function.
        marks: `meta=` of the inputs; None: no topic has it.
        progress: how far its present call is.
    """

    def __init__(
        self,
        processor: Processor,
        *,
        decoders: Sequence[Decoder],
        returned: Returned,
        errors: Target | None,
        carried: Carried = NOTHING,
        key: Callable[[WireMessage], bytes | None] = methodcaller("key"),
    ) -> None:
        self.processor = processor
        self.decoders = tuple(decoders)
        self.returned = returned
        self.errors = errors
        self.carried = carried
        self.key = key
        self.bindings = tuple(binding for binding, _ in processor.inputs)
        call = processor.call
        one = processor.output_shape == "one" and not call.is_generator
        self.output = next(iter(returned.targets.values())) if one else None
        self.coroutines = Coroutines(processor.concurrency) if call.is_async else None
        marks = tuple(decoder.marks for decoder in self.decoders)
        self.marks = None if all(one is None for one in marks) else marks
        self.progress = Progress()
        self._by_headers = processor.filter.by_headers if isinstance(processor.filter, Filter) else None

    @property
    def batch_bytes(self) -> int | None:
        """Bytes of the largest record batch that all output topics take; None: not known."""
        topics = (*self.returned.targets.values(), *([self.errors] if self.errors else []))
        return min((one.batch_bytes for one in topics if one.batch_bytes is not None), default=None)

    @property
    def inherits(self) -> bool:
        """Whether an output has the key and the headers of its message as they are."""
        output = self.output
        return self.marks is None and not (output is not None and (output.bare or output.inherit is not None))

    def take(self, step: Any) -> Taken:
        """The messages of a step, see `pairing.Step`."""
        match self.processor.input_shape:
            case "join":
                return tuple(enumerate(step))
            case "alts":
                return (step,)
            case _:
                return ((0, step),)

    def messages(self, steps: Sequence[Any]) -> list[WireMessage]:
        """All messages of these steps."""
        return [message for step in steps for _, message in self.take(step)]

    def decode(self, step: Delivering) -> dict[str, Received]:
        """The decoded messages by binding, without those that the filter drops, if it can before they are decoded."""
        passes, by_headers = self.processor.filter, self._by_headers
        received: dict[str, Received] = {}
        for index, message in step.taken:
            step.decoding = index, message
            if (headers := message.headers()) is UNREADABLE:
                raise unreadable(message)
            if (decided := None if by_headers is None else by_headers(headers or [])) is False:
                continue
            one = self.decoders[index].received(message)
            if passes is None or decided or passes(one):
                received[self.bindings[index]] = one
        return received

    def result(self, made: Any) -> Any:
        """What a call has given; of an ``async def`` its end is awaited."""
        return made if self.coroutines is None else self.coroutines.result(made)
