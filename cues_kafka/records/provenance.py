"""Reads the provenance header of a message, with the bounds that what is computed from it relies on."""

from __future__ import annotations

from cues_kafka.core.delivery import HEADER, Provenance, parse_provenance
from cues_kafka.errors import CodecError
from cues_kafka.ports.log import UNREADABLE, WireMessage, headers_of
from cues_kafka.records.strangers import MOST, PARTITIONS, shown

LENGTH = 4096
"""The most bytes of the words that name a task, in a header."""


def provenance_of(message: WireMessage) -> Provenance | None:
    """
    The provenance header of a message; None: it has none, or headers that are no text.

    Raises:
        CodecError: the header makes no sense.
    """
    headers = headers_of(message)
    found = () if headers is UNREADABLE else headers or ()
    header = next((value for name, value in found if name == HEADER and value), None)
    return None if header is None else checked(header)


def checked(header: bytes) -> Provenance:
    """
    Read a provenance header.

    Raises:
        CodecError: the text is not a header of ours, or has numbers that ours never have.
    """
    made = parse_provenance(header)
    if why := _unfit(made):
        raise CodecError(f"not a provenance header: {shown(header)} ({why})")
    return made


def _unfit(made: Provenance) -> str:
    """What is wrong with its numbers; empty: nothing."""
    if len(made.task) > LENGTH:
        return "the name of its task is too long"
    if not 0 <= int(made.task.rpartition("/")[2]) <= PARTITIONS:
        return "this task does not exist"
    if not (0 <= made.sequence <= MOST and 0 <= made.index < max(made.count, 1) and made.count <= MOST):
        return "its numbers are out of bounds"
    places = [(one.topic_id, one.partition, one.offset) for one in made.consumed]
    if made.replay is not None:
        number, error = made.replay
        places.append((error.topic_id, error.partition, error.offset))
        if not 0 <= number <= PARTITIONS:
            return "this replay does not exist"
    if made.timer is not None and not -MOST <= made.timer[1] <= MOST:
        return "its timer does not have this time"
    for topic_id, partition, offset in places:
        if len(topic_id) != 16 or not 0 <= partition <= PARTITIONS or not 0 <= offset <= MOST:
            return "it names a place that no topic has"
    return ""
