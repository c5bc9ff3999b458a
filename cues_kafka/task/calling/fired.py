"""A timer that fires: what stands in the place of the messages of its step (F1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cues_kafka.core.delivery import TIMER, parse_origin, provenance_prefix, show_timer
from cues_kafka.core.hashing import timer_hash
from cues_kafka.core.spec import Spec
from cues_kafka.graph.timers import Timer
from cues_kafka.graph.times import shown_time
from cues_kafka.ports.log import Coordinates, Headers, WireMessage
from cues_kafka.state.scheduled import Set


class Setter:
    """One of the messages whose step set a timer, for what its outputs inherit; its value is not known any more."""

    __slots__ = ("_key", "_offset", "_partition", "_time_ms", "_topic")

    def __init__(self, topic: str, place: Coordinates, key: bytes, time_ms: int) -> None:
        self._topic, self._partition, self._offset = topic, place.partition, place.offset
        self._key, self._time_ms = key, time_ms

    def topic(self) -> str:
        """The topic that it was read from."""
        return self._topic

    def partition(self) -> int:
        """Its partition."""
        return self._partition

    def offset(self) -> int:
        """Its offset."""
        return self._offset

    def key(self) -> bytes:
        """The timer's."""
        return self._key

    def value(self) -> None:
        """None."""

    def headers(self) -> Headers:
        """The list is empty: no header travels."""
        return []

    def set_headers(self, value: Headers) -> None:
        """Does nothing."""

    def timestamp(self) -> tuple[int, int]:
        """The time at which the timer was due, as that of a message."""
        return 1, self._time_ms

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True)
class Fired:
    """
    A timer of a task that begins a step.

    Attributes:
        spec: of the task.
        set: the timer.
    """

    spec: Spec
    set: Set

    @cached_property
    def consumed(self) -> tuple[Coordinates, ...]:
        """The messages whose step set it."""
        return parse_origin(self.set.origin.decode(), self.spec.partition)

    @cached_property
    def hash(self) -> bytes:
        """The name of the step (F1)."""
        spec, key, due_ms = self.spec, self.set.key, self.set.due_ms
        return timer_hash(spec.graph, spec.processor, spec.partition, key, due_ms, self.consumed)

    @property
    def timer(self) -> Timer:
        """The timer that the function gets."""
        return Timer(self.set.key, self.set.due_ms, self.hash.hex())

    def taken(self, bindings: Sequence[str]) -> tuple[tuple[int, WireMessage], ...]:
        """What stands in the place of the step's messages, by index of binding."""
        topics, key = dict(self.spec.inputs), self.set.key.encode()
        return tuple(
            (bindings.index(place.binding), Setter(topics[place.binding], place, key, self.set.due_ms))
            for place in self.consumed
            if place.binding in topics
        )

    def prefix(self, sequence: int) -> bytes:
        """What the provenance headers of all timers of a batch begin with."""
        return provenance_prefix(self.spec.full_name, sequence, ()).removesuffix(b"- ") + TIMER.encode() + b" "

    @property
    def word(self) -> bytes:
        """The last word of the provenance headers of its step."""
        return show_timer(self.set.key, self.set.due_ms, self.set.origin)

    @property
    def due(self) -> str:
        """For people: when it was due."""
        return shown_time(self.set.due_ms, fine=True)

    @property
    def place(self) -> str:
        """For people: ``timer 'k' of 2026-01-01T00:00:00.000Z``."""
        return f"timer {self.set.key!r} of {self.due}"
