"""Requests to replay an error message, and the records that say which ones are settled, as text (Y1, Y2)."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from cues_kafka.core.delivery import SETTLED, ErrorPlace, parse_topic_id, show_topic_id
from cues_kafka.errors import CodecError
from cues_kafka.ports import Coordinates, WireMessage

VERSION = 1
"""The version of both. One of another version is not read."""

Wish: TypeAlias = Literal["replay", "drop"]
"""What an operator asks for: deliver the messages again, or settle the error message without that."""

Outcome: TypeAlias = Literal["output", "error", "nil", "dropped", "unreadable"]
"""What a request came to; `unreadable`: it was no request."""


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
    """Find the records in a backing topic that settle an error message: the key of each, and its value."""
    for message in messages:
        key, value = message.key() or b"", message.value()
        if key.startswith(SETTLED) and value is not None:
            yield key, value


class Settled(NamedTuple):
    """
    That an error message is settled, and how.

    Attributes:
        outcome: what the request came to.
        number: of the replay.
        at_ms: when, in milliseconds since 1970.
    """

    outcome: Outcome
    number: int
    at_ms: int


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
    found: Any = _read(data, "request to replay an error message")
    try:
        rows = found["consumed"]
        wish = found["wish"]
        if wish not in ("replay", "drop") or not rows:
            raise ValueError("it asks for nothing that is known")
        return ReplayRequest(
            error=ErrorPlace.parse(found["error"]),
            errors=str(found["errors"]),
            wish=wish,
            number=int(found["number"]),
            consumed=tuple(Coordinates(b, parse_topic_id(id_), int(p), int(o)) for b, _, id_, p, o in rows),
            topics=tuple(str(topic) for _, topic, *_ in rows),
            payload=_bytes(found["payload"]),
            key=_bytes(found["key"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CodecError(f"not a request to replay an error message: {(data or b'')[:80]!r} ({error})") from None


def encode_settled(settled: Settled) -> bytes:
    """The value of the record."""
    return json.dumps({"version": VERSION, **settled._asdict()}, separators=(",", ":")).encode()


def decode_settled(data: bytes | None) -> Settled:
    """
    Read what `encode_settled` wrote.

    Raises:
        CodecError: it is no such record, or one of another release.
    """
    found: Any = _read(data, "record of a settled error message")
    try:
        return Settled(**{name: found[name] for name in Settled._fields})
    except (KeyError, TypeError) as error:
        raise CodecError(f"not a record of a settled error message: {(data or b'')[:80]!r} ({error})") from None


def _read(data: bytes | None, what: str) -> Any:
    try:
        found: Any = json.loads(data or b"")
        if found["version"] != VERSION:
            raise CodecError(
                f"a {what} has version {found['version']}; this release reads {VERSION}: update cues-kafka"
            )
    except (ValueError, KeyError, TypeError) as error:
        raise CodecError(f"not a {what}: {(data or b'')[:80]!r} ({error})") from None
    return found


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)
