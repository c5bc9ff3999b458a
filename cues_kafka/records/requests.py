"""Requests to replay an error message, and the records that say which ones are settled, as text (Y1, Y2)."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from cues_kafka.core.delivery import SETTLED, ErrorPlace, parse_topic_id, show_topic_id
from cues_kafka.errors import CodecError
from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.ports.log import Coordinates, WireMessage
from cues_kafka.records.provenance import provenance_of
from cues_kafka.records.strangers import (
    LATEST_S,
    LIMIT,
    MOST,
    NAME,
    PARTITIONS,
    TOPIC,
    Fields,
    read_plain,
    read_versioned,
    readable,
)

VERSION = 1
"""The version of both. One of another version is not read."""

Wish: TypeAlias = Literal["replay", "drop"]
"""What an operator asks for: deliver the messages again, or settle the error message without that."""

Outcome: TypeAlias = Literal["output", "error", "nil", "row", "dropped", "unreadable", "refused"]
"""
What a request came to; `row`: its message is a row of a staged batch (Y4); `unreadable`: it was no request; `refused`:
its error message does not prove it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """
    What an operator asks for.

    Attributes:
        error: where the error message stands.
        errors: the topic of the error message.
        wish: what is asked for.
        number: of the replay: one more than that of the replay that left the error message.
        consumed: coordinates of the messages that the failed step consumed.
        topics: their topics, in the same order.
        payload: value of the only one of them, for the case that it is gone; None: not known.
        key: its key.
    """

    error: ErrorPlace
    errors: str
    wish: Wish = "replay"
    number: int = 1
    consumed: tuple[Coordinates, ...]
    topics: tuple[str, ...]
    payload: bytes | None = None
    key: bytes | None = None


def settled_in(messages: Iterable[WireMessage]) -> Iterator[tuple[bytes, bytes]]:
    """
    Find the records in a backing topic that settle an error message: the key of each, and its value.

    A value of another release counts, because its error message is settled all the same. What is no value of any
    release is refused by name.
    """
    for message in messages:
        key, value = message.key() or b"", message.value()
        if key.startswith(SETTLED) and value is not None and readable(message, _settles, "a settled record"):
            yield key, value


def _settles(message: WireMessage) -> bool:
    """
    Whether a release wrote this value.

    Raises:
        CodecError: none did.
    """
    plain, version = read_versioned(message.value(), "record of a settled error message")
    if version == VERSION:
        _settled(plain)
    return True


def request_in(message: WireMessage) -> ReplayRequest:
    """
    Read a request from the replay topic of a processor.

    Raises:
        CodecError: it is no request, is one of another release, or names messages of another task.
    """
    request = decode_request(message.value())
    if other := [one.partition for one in request.consumed if one.partition != message.partition()]:
        raise CodecError(
            f"not a request to replay an error message: it names partition {other[0]}, and it is in partition "
            f"{message.partition()} of the replay topic"
        )
    return request


def refused_key(topic_id: bytes, message: WireMessage) -> bytes:
    """The key of the record that settles a request which is refused: its own place in the replay topic."""
    return SETTLED + b"?" + str(ErrorPlace(topic_id, message.partition(), message.offset())).encode()


class Settled(NamedTuple):
    """
    That an error message is settled, and how.

    Attributes:
        outcome: what the request came to.
        number: of the replay.
        at_ms: when, in milliseconds since 1970.
        by: of a staged processor: where the request stands (Y4); empty: not known.
    """

    outcome: Outcome
    number: int
    at_ms: int
    by: str = ""


def not_paired(pairing: str, bindings: Collection[str], consumed: Sequence[Coordinates]) -> str:
    """
    Why these messages are no step of a processor as it is declared now; empty: they are one.

    Args:
        pairing: of the processor: single, join or alts.
        bindings: of its inputs.
        consumed: coordinates of the messages that the failed step consumed.
    """
    was = [place.binding for place in consumed]
    if sorted(was) == sorted(bindings) if pairing == "join" else len(was) == 1:
        return ""
    a_step = "one message of each input" if pairing == "join" else "one message"
    return (
        f"it consumed a message of {' and of '.join(map(repr, was))}, and a step of the processor is {a_step} now: "
        f"{', '.join(map(repr, bindings))}"
    )


def next_number(message: WireMessage) -> int:
    """
    The number of the replay of an error message: one more than that of the replay that left it.

    Raises:
        CodecError: its provenance header makes no sense.
    """
    made = provenance_of(message)
    return 1 + (made.replay[0] if made is not None and made.replay is not None else 0)


def kept_payload(error: ErrorMessage) -> bytes | None:
    """The value of the only message of a step, if its error message has kept all of it."""
    cut = error.redacted or {"payload", "key"} & {*error.truncated} or len(error.consumed) > 1
    return None if cut else error.payload


def encode_request(request: ReplayRequest) -> bytes:
    """The value of a request; its key is the place of the error message."""
    rows = zip(request.consumed, request.topics, strict=True)
    value = {
        "version": VERSION,
        "wish": request.wish,
        "error": str(request.error),
        "errors": request.errors,
        "number": request.number,
        "consumed": [[c.binding, topic, show_topic_id(c.topic_id), c.partition, c.offset] for c, topic in rows],
        "payload": _text(request.payload),
        "key": _text(request.key),
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode_request(data: bytes | None) -> ReplayRequest:
    """
    Read what `encode_request` wrote.

    Raises:
        CodecError: it is no request, or one of another release.
    """
    plain = read_plain(data, "request to replay an error message", VERSION)
    rows = list(plain.rows("consumed", 5))
    if not rows:
        plain.refuse("consumed", [])
    wish = plain.text("wish")
    if wish not in get_args(Wish):
        plain.refuse("wish", wish)
    return ReplayRequest(
        error=_place(plain),
        errors=plain.text("errors", like=TOPIC),
        wish=wish,  # type: ignore[arg-type]  # it is one of them
        number=plain.whole("number", 1, PARTITIONS),
        consumed=tuple(
            Coordinates(row.text("0", like=NAME), _id(row, "2"), row.whole("3", 0, PARTITIONS), row.whole("4"))
            for row in rows
        ),
        topics=tuple(row.text("1", like=TOPIC) for row in rows),
        payload=_bytes(plain, "payload"),
        key=_bytes(plain, "key"),
    )


def encode_settled(settled: Settled) -> bytes:
    """The value of the record."""
    told = {name: value for name, value in settled._asdict().items() if value or name != "by"}
    return json.dumps({"version": VERSION, **told}, separators=(",", ":")).encode()


def decode_settled(data: bytes | None) -> Settled:
    """
    Read what `encode_settled` wrote.

    Raises:
        CodecError: it is no such record, or one of another release.
    """
    return _settled(read_plain(data, "record of a settled error message", VERSION))


def what_settled(value: bytes) -> Settled:
    """How an error message was settled; `unreadable` at 0: a record of another release says it."""
    try:
        return decode_settled(value)
    except CodecError:
        return Settled("unreadable", 0, 0)


def _settled(plain: Fields) -> Settled:
    outcome = plain.text("outcome")
    if outcome not in get_args(Outcome):
        plain.refuse("outcome", outcome)
    return Settled(
        outcome,  # type: ignore[arg-type]  # it is one of them
        plain.whole("number", 0, PARTITIONS),
        plain.whole("at_ms", 0, int(LATEST_S * 1000)),
        plain.text("by", like=_PLACE) if plain.has("by") else "",
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(plain: Fields, name: str) -> bytes | None:
    if not plain.has(name):
        return None
    text = plain.text(name, LIMIT)
    try:
        return b64decode(text, validate=True)
    except ValueError:
        plain.refuse(name, text)


def _id(plain: Fields, name: str) -> bytes:
    """The 16 bytes of a topic's id, from what `show_topic_id` gives."""
    return parse_topic_id(plain.text(name, 22, like=_TOPIC_ID))


def _place(plain: Fields) -> ErrorPlace:
    """Where an error message stands, from what `str` of it gives."""
    topic_id, partition, offset = plain.text("error", like=_PLACE).split("/")
    found = ErrorPlace(parse_topic_id(topic_id), int(partition), int(offset))
    if found.partition > PARTITIONS or found.offset > MOST:
        plain.refuse("error", str(found))
    return found


_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_PLACE: Final = re.compile(r"[A-Za-z0-9_-]{22}/(0|[1-9][0-9]{0,9})/(0|[1-9][0-9]{0,18})")
