"""Passes the metadata of messages on: the header of a step's outputs is a function of what the step consumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from cues_kafka.graph.message import travelling
from cues_kafka.graph.meta import META, Place, Travelled, header_in, merge_meta, own_place, read_meta, write_meta
from cues_kafka.ports.log import Headers, WireMessage

Marks: TypeAlias = "frozenset[str] | Literal[False] | None"
"""`meta=` of a message's topic; None also where it is an empty set."""


def what_travels(
    message: WireMessage, headers: Headers | None, marks: frozenset[str] | None, *, timed: bool = True
) -> Travelled:
    """
    What travels from a message, its own place with it.

    Args:
        message: the message.
        headers: its headers.
        marks: `meta=` of its topic.
        timed: whether its timestamp is that of the message in the log.
    """
    found = read_meta(header_in(headers))
    if not marks:
        return found
    time = message.timestamp()[1] if timed else None
    return own_place(found, Place(message.topic(), message.partition(), message.offset(), time), marks)


def passed_on(messages: Sequence[WireMessage], marks: Sequence[Marks] | None, *, timed: bool = True) -> Headers:
    """
    The headers that travel from the messages of a step to its outputs.

    Args:
        messages: the lead's first; `headers_of` was called for them.
        marks: `meta=` of their topics; None: no topic of the processor has it.
        timed: see `what_travels`.
    """
    came = [message.headers() for message in messages]
    if marks is not None:
        came = [None if mark is False else one for one, mark in zip(came, marks, strict=True)]
    travelled = travelling(came)
    if marks is None and (header_in(travelled) is None or sum(header_in(one) is not None for one in came) < 2):
        return travelled  # the header of the only one that has it is right as it is
    inputs = [
        what_travels(message, one, mark or None, timed=timed)
        for message, one, mark in zip(messages, came, marks or [None] * len(came), strict=True)
    ]
    header = write_meta(merge_meta(inputs))
    others = [one for one in travelled if one[0] != META]
    return others if header is None else [*others, (META, header)]
