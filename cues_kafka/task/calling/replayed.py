"""A replay of an error message: the messages of a step that failed, delivered again under their hash (Y1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cues_kafka.core.delivery import REPLAYED, provenance_prefix, show_origin, show_replay
from cues_kafka.core.hashing import delivery_hash
from cues_kafka.core.spec import Spec
from cues_kafka.errors import CuesError
from cues_kafka.ports.log import Coordinates, WireMessage
from cues_kafka.records.requests import ReplayRequest
from cues_kafka.task.calling.fired import Setter


class MessageGone(CuesError):
    """The message of a replay is not in its topic any more, or its key is another task's. It is not called."""


class Restored(Setter):
    """A message that is gone from its topic, as far as its error message has kept it."""

    __slots__ = ("_value",)

    def __init__(self, topic: str, place: Coordinates, key: bytes | None, time_ms: int, value: bytes | None) -> None:
        super().__init__(topic, place, key or b"", time_ms)
        self._key: bytes | None = key  # type: ignore[assignment]  # the key of a timer is never None
        self._value = value

    def value(self) -> bytes | None:  # type: ignore[override]  # as above
        """The payload of the error message."""
        return self._value

    def __len__(self) -> int:
        return len(self._value or b"")


@dataclass(frozen=True)
class Replayed:
    """
    A replay that begins a step.

    Attributes:
        spec: of the task.
        request: what an operator asked for.
        messages: those that the step consumes, in the order of `request.consumed`.
        gone: why they cannot be delivered; empty: they can.
    """

    spec: Spec
    request: ReplayRequest
    messages: tuple[WireMessage, ...]
    gone: str = ""

    @property
    def consumed(self) -> tuple[Coordinates, ...]:
        """The coordinates of the messages."""
        return self.request.consumed

    @property
    def number(self) -> int:
        """Which replay this is: 1 for the first one of a message that failed."""
        return self.request.number

    @cached_property
    def hash(self) -> bytes:
        """The delivery hash of the original (I6)."""
        return delivery_hash(self.spec.graph, self.spec.processor, self.consumed)

    def taken(self, bindings: Sequence[str]) -> tuple[tuple[int, WireMessage], ...]:
        """The messages, by index of binding; what is no binding any more counts as the first one."""
        known = {binding: index for index, binding in enumerate(bindings)}
        rows = zip(self.consumed, self.messages, strict=True)
        return tuple((known.get(place.binding, 0), message) for place, message in rows)

    def step(self, bindings: Sequence[str]) -> Any:
        """What a buffer would give for these messages, see `pairing.Step`."""
        taken = sorted(self.taken(bindings), key=lambda one: one[0])
        match self.spec.pairing:
            case "join":
                return tuple(message for _, message in taken)
            case "alts":
                return taken[0]
            case _:
                return taken[0][1]

    def prefix(self, sequence: int) -> bytes:
        """What the provenance header begins with."""
        return provenance_prefix(self.spec.full_name, sequence, ()).removesuffix(b"- ") + REPLAYED.encode() + b" "

    @property
    def word(self) -> bytes:
        """The last word of the provenance header."""
        return show_replay(self.number, self.request.error, show_origin(self.consumed))

    @property
    def place(self) -> str:
        """For people: ``replay 1 of orders/3 at 17``."""
        rows = zip(self.request.topics, self.consumed, strict=True)
        places = ", ".join(f"{topic}/{one.partition} at {one.offset}" for topic, one in rows)
        return f"replay {self.number} of {places}"
