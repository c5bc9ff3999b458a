"""One delivery: its coordinates, and the provenance header that each of its outcomes carries (O3, O8).

The header is one line of text, so that any Kafka tool shows it::

    1 shop.check/3 17 orders:Zm9vYmFyYmF6cXV4Lg 0/1 4711
    | |            |  |                         |   offset of each consumed message, in the order of bindings
    | |            |  |                         index i of n records of this delivery
    | |            |  binding:topic id of each consumed message; the partition is the task's
    | |            sequence of the batch's attempt
    | task
    version

A row of a staged batch names no message: `1 shop.totals/2 17 - 3/90 -` is row 3 of the 90 of part 2. What a timer's
step gives names the timer and the messages whose step set it (F1); its key is in base64::

    1 shop.check/3 18 timer 0/1 1767225600000:azE@orders:Zm9vYmFyYmF6cXV4Lg@4711

What a replay gives names its number, the error message that it settles, and the messages that it delivers again (Y1)::

    1 shop.check/3 19 replay 0/1 1:ZXJyb3JzZXJyb3JzZXJyb3/3/17@orders:Zm9vYmFyYmF6cXV4Lg@4711

What is the same for a whole batch stands first, so that a worker formats it once per batch.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from cues_kafka.core.hashing import delivery_hash, timer_hash
from cues_kafka.errors import CodecError
from cues_kafka.ports.log import Coordinates

HEADER = "cues"
"""Name of the provenance header."""

_VERSION = b"1"

TIMER = "timer"
"""Stands in the place of the consumed messages where a timer began the step: no binding is without a colon there."""

REPLAYED = "replay"
"""The same where a request to replay an error message began it."""


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


_BLOCK = 1000
_ENDINGS = [b"%03d" % number for number in range(_BLOCK)]
"""The last three digits of the offsets of a block."""


def with_offsets(shared: bytes, first: int, count: int) -> list[bytes]:
    """
    The headers of steps of one message each whose offsets follow each other without a gap.

    Formatting each of them would take a twentieth of the time that a worker has for a message. So a block of a thousand
    offsets is formatted once, and only the last digits are put behind it.

    Args:
        shared: what stands before the offset.
        first: the first offset.
        count: how many follow, with it.
    """
    end = first + count
    headers = [shared + b"%d" % offset for offset in range(first, min(end, _BLOCK))]  # they have no digits in front
    first = max(first, _BLOCK)
    while first < end:
        block, start = divmod(first, _BLOCK)
        endings = _ENDINGS[start : start + end - first]
        headers += map((shared + b"%d" % block).__add__, endings)
        first += len(endings)
    return headers


def with_sequence(header: bytes, sequence: int) -> bytes:
    """The same header for the records of another attempt: one that publishes what a target holds (E1)."""
    version, task, _, rest = header.split(b" ", 3)
    return b"%b %b %d %b" % (version, task, sequence, rest)


def show_origin(consumed: Iterable[Coordinates]) -> bytes:
    """The messages of a step as one word: `orders:Zm9vYmFyYmF6cXV4Lg@4711`, with commas between those of a join."""
    places = [f"{one.binding}:{show_topic_id(one.topic_id)}@{one.offset}" for one in consumed]
    return ",".join(places).encode()


def parse_origin(origin: str, partition: int) -> tuple[Coordinates, ...]:
    """
    Read what `show_origin` wrote.

    Raises:
        ValueError: it is no such word.
    """
    found = []
    for one in origin.split(","):
        place, _, offset = one.partition("@")
        binding, _, topic_id = place.partition(":")
        found.append(Coordinates(binding, parse_topic_id(topic_id), partition, int(offset)))
    return tuple(found)


def show_timer(key: str, due_ms: int, origin: bytes) -> bytes:
    """The last word of the header of what a timer's step gives."""
    return b"%d:%b@%b" % (due_ms, urlsafe_b64encode(key.encode()).rstrip(b"="), origin)


class ErrorPlace(NamedTuple):
    """Where an error message stands, which no other one ever does."""

    topic_id: bytes
    partition: int
    offset: int

    def __str__(self) -> str:
        """``ZXJyb3JzZXJyb3JzZXJyb3/3/17``, as in headers and keys."""
        return f"{show_topic_id(self.topic_id)}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> ErrorPlace:
        """
        Read what `str` gives.

        Raises:
            ValueError: it is no such text.
        """
        topic_id, partition, offset = text.split("/")
        return cls(parse_topic_id(topic_id), int(partition), int(offset))

    @property
    def key(self) -> bytes:
        """The key of the record in the backing topic that says that it is settled (Y2)."""
        return SETTLED + str(self).encode()


SETTLED = b"r/"
"""The first bytes of the keys of such records."""


def show_replay(number: int, error: ErrorPlace, origin: bytes) -> bytes:
    """The last word of the header of what a replay gives."""
    return b"%d:%b@%b" % (number, str(error).encode(), origin)


@dataclass(frozen=True, slots=True)
class Provenance:
    """A provenance header, parsed.

    Attributes:
        task: `graph.processor/partition`.
        sequence: of the batch's attempt.
        index: this record is number `index` (from 0) ...
        count: ... of `count` records of this delivery.
        consumed: coordinates of the consumed messages; where a timer began the step, of those whose step set it.
        timer: key and due time in milliseconds of the timer that began the step; None: messages did.
        replay: number of the replay that began the step, and the error message that it settles; None: none did.
    """

    task: str
    sequence: int
    index: int
    count: int
    consumed: tuple[Coordinates, ...]
    timer: tuple[str, int] | None = None
    replay: tuple[int, ErrorPlace] | None = None

    @property
    def hash(self) -> bytes:
        """The delivery hash, or the timer's."""
        name, _, partition = self.task.rpartition("/")
        graph, _, processor = name.rpartition(".")
        if self.timer is not None:
            return timer_hash(graph, processor, int(partition), *self.timer, self.consumed)
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
        if places == TIMER:
            return _of_timer(task, int(sequence), int(index), int(count), offsets)
        if places == REPLAYED:
            return _of_replay(task, int(sequence), int(index), int(count), offsets)
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


def _of_timer(task: str, sequence: int, index: int, count: int, word: str) -> Provenance:
    timer, _, origin = word.partition("@")
    due_ms, _, key = timer.partition(":")
    consumed = parse_origin(origin, int(task.rpartition("/")[2]))
    return Provenance(task, sequence, index, count, consumed, (urlsafe_b64decode(key + "==").decode(), int(due_ms)))


def _of_replay(task: str, sequence: int, index: int, count: int, word: str) -> Provenance:
    replay, _, origin = word.partition("@")
    number, _, error = replay.partition(":")
    consumed = parse_origin(origin, int(task.rpartition("/")[2]))
    return Provenance(task, sequence, index, count, consumed, replay=(int(number), ErrorPlace.parse(error)))
