"""Makes records of what steps send, with their provenance (O8), and adds them to a batch: all of a step's, or none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.core.delivery import HEADER, provenance_prefix
from cues_kafka.errors import OutputError
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.task.calling.batch import Batch, Taken
from cues_kafka.task.calling.failures import Delivering
from cues_kafka.task.calling.metadata import Marks
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
from cues_kafka.task.parts.participant import Moments

OFFSET_BYTES: Final = 20
"""An offset with its comma in the provenance header, at most."""


class Adding:
    """
    Adds the records of one function's steps.

    Args:
        bindings: of the inputs.
        marks: `meta=` of the inputs; None: no topic has it.
        returned: reads what the function returns; None: no function is called.
    """

    def __init__(
        self, bindings: Sequence[str], marks: Sequence[Marks] | None, returned: Returned | None = None
    ) -> None:
        self._bindings, self._marks, self._returned = bindings, marks, returned

    def add(self, taken: Taken, batch: Batch, payloads: Sequence[Payload], origin: Origin | None = None) -> None:
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
        for row in list(rows):  # all of them are made before one is added
            batch.records.add(*row)
        batch.size += sum(len(made[1] or b"") + len(made[2] or b"") for made in payloads)
        batch.messages += len(payloads)

    def add_step(self, step: Delivering, payloads: Sequence[Payload]) -> None:
        """The same for a step that is called by itself, with what travels besides."""
        at: Moments = step.batch.context.at
        if at.travel:
            self._add_carrying(step, payloads, self._carrying(step))
        else:
            self.add(step.taken, step.batch, payloads)

    def _add_carrying(self, step: Delivering, payloads: Sequence[Payload], origin: Origin) -> None:
        """What travels besides must not decide whether a message can be sent."""
        try:
            self.add(step.taken, step.batch, payloads, origin)
        except OutputError:
            self.add(step.taken, step.batch, payloads, self._origin(step.taken, step.batch))

    def _carrying(self, step: Delivering) -> Origin:
        at: Moments = step.batch.context.at
        origin = self._origin(step.taken, step.batch)
        for part in at.travel:
            origin.travelled = part.travel(origin.travelled, step)
        return origin

    def _origin(self, taken: Taken, batch: Batch) -> Origin:
        """What the outputs of a step inherit."""
        known = self._marks
        marks = None if known is None else [known[index] for index, _ in taken]
        return Origin(tuple([message for _, message in taken]), marks=marks, timed=batch.fired is None)

    def add_error(self, errors: Target, step: Delivering, message: ErrorMessage) -> None:
        """
        Add an error message, which always fits: without headers that travel or the record's key, where room lacks.

        Its timestamp is the present, so that retention does not delete it because its input is old.
        """
        at: Moments = step.batch.context.at
        origin = self._carrying(step)
        key, value = message.key, error_messages().encode(message)
        if (begun_by := step.batch.begun_by) is None:
            prefix = step.batch.prefix(tuple([self._bindings[index] for index, _ in step.taken]))
            provenance = len(prefix) + OFFSET_BYTES * (len(step.taken) + 1)
        else:
            provenance = len(begun_by.prefix(step.batch.sequence)) + len(begun_by.word) + OFFSET_BYTES
        heavy = provenance + len(HEADER) + HEADER_BYTES if provenance > PROVENANCE_BYTES else 0
        room = errors.max_bytes - OVERHEAD_BYTES - len(value) - heavy
        if len(key or b"") > room:
            key = None
        if key is None and errors.compacted:
            key = message.hash
        if len(key or b"") + size_of(origin.travelled) > room:
            origin.travelled = []
        payloads: list[Payload] = [(errors, key, value, [], 0, None)]
        if at.travel:
            self._add_carrying(step, payloads, origin)
        else:
            self.add(step.taken, step.batch, payloads, origin)

    def drain(self, given: Iterable[Any], batch: Batch) -> None:
        """
        Add what was held back until the end of a batch. It names no message (O8), only the attempt.

        Raises:
            OutputError, CodecError: it cannot be sent.
        """
        assert self._returned is not None
        self.add_drained([made for one in given for made in self._returned.drained(one)], batch)

    @staticmethod
    def add_drained(payloads: Sequence[Payload], batch: Batch) -> None:
        """
        Add records that belong to a batch and to none of its steps.

        Raises:
            OutputError: one is too large, or its timestamp is refused.
        """
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
