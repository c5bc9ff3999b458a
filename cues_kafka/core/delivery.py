"""One delivery: its coordinates, and the provenance header that each of its outcomes carries (O3, O8).

The header is one line of text, so that any Kafka tool shows it::

    1 shop.check/3 17 orders:Zm9vYmFyYmF6cXV4Lg 0/1 4711
    | |            |  |                         |   offset of each consumed message, in the order of bindings
    | |            |  |                         index i of n records of this delivery
    | |            |  binding:topic id of each consumed message; the partition is the task's
    | |            sequence of the batch's attempt
    | task
    version

A row of a staged batch names no message: `1 shop.totals/2 17 - 3/90 -` is row 3 of the 90 of part 2.

What is the same for a whole batch stands first, so that a worker formats it once per batch.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass

from cues_kafka.core.hashing import delivery_hash
from cues_kafka.errors import CodecError
from cues_kafka.ports import Coordinates

HEADER = "cues"
"""Name of the provenance header."""

_VERSION = b"1"


def show_topic_id(topic_id: bytes) -> str:
    """A topic id as Kafka's own tools print it: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def parse_topic_id(text: str) -> bytes:
    """The 16 bytes of what `show_topic_id` printed."""
    return urlsafe_b64decode(text + "==")


def provenance_prefix(task: str, sequence: int, inputs: Iterable[tuple[str, bytes]]) -> bytes:
    """
    The part of the header that all records of a batch share, a blank at its end.

    Args:
        task: `graph.processor/partition`.
        sequence: of the attempt that this batch commits with.
        inputs: (binding, topic id) of each consumed message of a step.
    """
    places = ",".join(f"{binding}:{show_topic_id(topic_id)}" for binding, topic_id in inputs)
    return b"%b %b %d %b " % (_VERSION, task.encode(), sequence, places.encode() or b"-")


@dataclass(frozen=True, slots=True)
class Provenance:
    """A provenance header, parsed.

    Attributes:
        task: `graph.processor/partition`.
        sequence: of the batch's attempt.
        index: this record is number `index` (from 0) ...
        count: ... of `count` records of this delivery.
        consumed: coordinates of the consumed messages.
    """

    task: str
    sequence: int
    index: int
    count: int
    consumed: tuple[Coordinates, ...]

    @property
    def hash(self) -> bytes:
        """The delivery hash."""
        name, _, _ = self.task.rpartition("/")
        graph, _, processor = name.partition(".")
        return delivery_hash(graph, processor, self.consumed)


def parse_provenance(header: bytes) -> Provenance:
    """
    Read a provenance header.

    Raises:
        CodecError: it is not one, or of a version that is not known here.
    """
    try:
        version, task, sequence, places, part, offsets = header.decode().split(" ")
        if version != "1":
            raise CodecError(
                f"provenance header of version {version}; this release reads version 1: upgrade the reader"
            )
        partition = int(task.rpartition("/")[2])
        index, _, count = part.partition("/")
        consumed = (
            ()
            if offsets == "-"
            else tuple(
                Coordinates(binding, parse_topic_id(topic_id), partition, int(offset))
                for (binding, _, topic_id), offset in zip(
                    (place.partition(":") for place in places.split(",")), offsets.split(","), strict=True
                )
            )
        )
        return Provenance(task, int(sequence), int(index), int(count), consumed)
    except ValueError as error:
        raise CodecError(f"not a provenance header: {header[:80]!r} ({error})") from None
