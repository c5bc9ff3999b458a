"""The bytes of error messages: Avro, at most 16,000 of them; what earlier releases wrote stays readable."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, Final

from cues_kafka.codecs.avro import AvroCodec
from cues_kafka.codecs.avro_schema import fingerprint, parse
from cues_kafka.codecs.framing import SINGLE_OBJECT
from cues_kafka.codecs.schema import Shape
from cues_kafka.errors import CodecError
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.graph.error_message import ERROR_VERSION, ErrorCause, ErrorMessage, ErrorMessages
from cues_kafka.graph.formats import Avro
from cues_kafka.graph.own_schemas import load_schema
from cues_kafka.ports.log import Coordinates

ERROR_LIMIT: Final = 16_000
"""Largest size of an error message in bytes (P4); longer fields are cut and named in `truncated`."""

OLDER: Final = ("error-1",)
"""The schemas of earlier releases, newest first. A schema that changes stays here, in a file beside the new one."""

_CAPS: Final = {"text": 4_000, "exception": 200, "location": 500, "key": 2_000}
"""Bytes that the fields keep in a message above its limit. The payload keeps the rest."""

_CONTEXT_CAP: Final = 4_000
_DECLARATION_CAP: Final = 1_000
_TRACE_CAP: Final = 1_000
_CAUSES_CAP: Final = 2_000
_CAUSE_CAP: Final = 400
"""Bytes of a cause's text."""

_SPARED: Final[Mapping[str, Any]] = {"declaration": {}, "causes": (), "trace": ()}
"""What a message does without, in this order, where the coordinates of many inputs need the room."""

_DEEPEST: Final = 100
"""Values of a declaration inside each other; those of ours are less than ten."""

_FIELDS: Final = tuple(each.name for each in fields(ErrorMessage) if each.name != "topics")


class ErrorMessagesCodec:
    """
    Converts error messages.

    Attributes:
        shape: that of the schema's records, which columns of Spark have; see `as_avro`.
    """

    nullable = False

    def __init__(self) -> None:
        self._codec = AvroCodec(declared_avro())
        self.shape: Shape | None = self._codec.shape

    def encode(self, value: Any) -> bytes:
        """
        At most `ERROR_LIMIT` bytes: longer fields are cut and named in `truncated`.

        Raises:
            CodecError: it is no `ErrorMessage`, or its coordinates alone are too long (dozens of inputs with the
                longest names).
        """
        if not isinstance(value, ErrorMessage):
            raise CodecError(f"The value is {type(value).__name__}, not ErrorMessage. Return one, or declare a codec.")
        data = self._pack(value)
        if len(data) <= ERROR_LIMIT:
            return data
        message = _capped(value)
        data = self._pack(message)
        if (over := len(data) - ERROR_LIMIT) > 0 and message.payload:
            # Naming `payload` in `truncated` costs a few bytes itself.
            kept = message.payload[: max(0, len(message.payload) - over - 16)]
            message = _cut(message, payload=kept)
            data = self._pack(message)
        for name, nothing in _SPARED.items():
            if len(data) > ERROR_LIMIT:
                message = _cut(message, **{name: nothing})
                data = self._pack(message)
        if len(data) > ERROR_LIMIT:
            raise CodecError(
                f"An error message has {len(data)} bytes without its payload, above {ERROR_LIMIT}. Shorten names."
            )
        return data

    def decode(self, data: bytes) -> ErrorMessage:
        """
        Raises:
            CodecError: the bytes are no error message, or one of a version that this program does not know.
        """
        if data[:2] != SINGLE_OBJECT:
            raise CodecError(
                "These bytes are not an error message: another application wrote here. Give it a topic of its own."
            )
        if data[:10] not in known_headers():
            raise CodecError(
                f"This error message has a schema that this program does not know ({data[2:10].hex()}). Update "
                "cues-kafka."
            )
        fields = self._codec.decode(data)
        if fields["version"] != ERROR_VERSION:
            raise CodecError(
                f"An error message has version {fields['version']}; this program knows {ERROR_VERSION}. Update "
                "cues-kafka."
            )
        return _message(fields)

    def _pack(self, message: ErrorMessage) -> bytes:
        try:
            return self._codec.encode(_plain(message))
        except (ValueError, TypeError) as error:  # what a user's function put together itself
            raise CodecError(f"The error message cannot be written: {error}.") from error


@cache
def error_messages() -> ErrorMessagesCodec:
    """The one codec: compiling it takes a while."""
    return ErrorMessagesCodec()


def declared_avro() -> Avro:
    """The schema of error messages, with those of earlier releases."""
    return Avro(load_schema("error"), older=tuple(load_schema(name) for name in OLDER))


def as_avro(declared: CodecSpec) -> CodecSpec:
    """A codec's declaration; of error messages that of their schema, for engines whose columns come from schemas."""
    return declared_avro() if isinstance(declared, ErrorMessages) else declared


@cache
def known_headers() -> frozenset[bytes]:
    """What error messages begin with, of this release and of earlier ones."""
    texts = [json.dumps(load_schema(name)) for name in ("error", *OLDER)]
    return frozenset(SINGLE_OBJECT + fingerprint(parse(text)) for text in texts)


def _plain(message: ErrorMessage) -> dict[str, Any]:
    """The record of the schema."""
    return {name: getattr(message, name) for name in _FIELDS} | {
        "consumed": [
            coordinates._asdict() | {"topic": topic}
            for coordinates, topic in zip(message.consumed, message.topics, strict=True)
        ],
        "kind": message.kind.replace(" ", "_"),
        # The text of an exception may not fit UTF-8; an error message must not fail for that.
        **{name: _text(getattr(message, name)) for name in ("exception", "text", "location")},
        "context": {_text(name): _text(value) for name, value in message.context.items()},
        "declaration": json.dumps(dict(message.declaration), separators=(",", ":")),
        "trace": [_text(frame) for frame in message.trace],
        "causes": [
            {"exception": _text(one.exception), "text": _text(one.text), "trace": [_text(frame) for frame in one.trace]}
            for one in message.causes
        ],
        "truncated": list(message.truncated),
        "redacted": [_text(name) for name in message.redacted],
    }


def _message(fields: Mapping[str, Any]) -> ErrorMessage:
    consumed = fields["consumed"]
    return ErrorMessage(
        **{
            **fields,
            "consumed": tuple(Coordinates(*(each[name] for name in Coordinates._fields)) for each in consumed),
            "topics": tuple(each["topic"] for each in consumed),
            "kind": fields["kind"].replace("_", " "),
            "declaration": _declaration(fields["declaration"]),
            "causes": tuple(ErrorCause(one["exception"], one["text"], tuple(one["trace"])) for one in fields["causes"]),
            **{name: tuple(fields[name]) for name in ("trace", "truncated", "redacted")},
        }
    )


def _declaration(text: str) -> Mapping[str, Any]:
    """
    What the processor was declared as.

    Raises:
        CodecError: it is no object of JSON, or one that is too deep or has numbers that are too long: another program
            wrote the error message.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CodecError(
            f"This error message is not one of ours: its declaration is no JSON ({error!s:.200})."
        ) from None
    if not isinstance(found, dict) or _is_deep(found):
        raise CodecError(
            f"This error message is not one of ours: its declaration is {text[:40]!a}, expected an object of at most "
            f"{_DEEPEST} levels."
        )
    return found


def _is_deep(found: Any) -> bool:
    """Whether values are inside each other more than `_DEEPEST` deep, so that what shows them may fail."""
    level = [found]
    for _ in range(_DEEPEST):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
    return bool(level)


def _text(value: Any) -> str:
    return str(value).encode(errors="replace").decode()


def _cut(message: ErrorMessage, **changed: Any) -> ErrorMessage:
    """The message with shorter fields, and their names."""
    return replace(message, **changed, truncated=tuple(dict.fromkeys((*message.truncated, *changed))))


def _capped(message: ErrorMessage) -> ErrorMessage:
    """Cut the long fields of a message, and name those that were cut."""
    cut: dict[str, Any] = {}
    for name, cap in _CAPS.items():
        value = getattr(message, name)
        data = _text(value).encode() if isinstance(value, str) else value or b""
        if len(data) > cap:
            cut[name] = _begin(value, cap) if isinstance(value, str) else data[:cap]
    context = dict(_while_fitting(message.context.items(), _CONTEXT_CAP))
    causes = tuple(
        ErrorCause(one.exception[:100], _begin(one.text, _CAUSE_CAP), one.trace[-3:]) for one in message.causes
    )
    if len(json.dumps(dict(message.declaration))) > _DECLARATION_CAP:
        cut["declaration"] = {}
    if sum(map(_size, message.causes)) > _CAUSES_CAP:
        cut["causes"] = tuple(_while_fitting(causes, _CAUSES_CAP))
    if sum(map(_size, message.trace)) > _TRACE_CAP:
        cut["trace"] = tuple(_while_fitting(reversed(message.trace), _TRACE_CAP))[::-1]
    if len(context) < len(message.context):
        cut["context"] = context
    return _cut(message, **cut) if cut else message


def _begin(text: str, most: int) -> str:
    return _text(text).encode()[:most].decode(errors="ignore")


def _while_fitting(items: Iterable[Any], room: int) -> Iterable[Any]:
    """The first items, as many as there is room for."""
    for item in items:
        room -= _size(item)
        if room < 0:
            return
        yield item


def _size(item: Any) -> int:
    """About how many bytes an item needs, and a little more."""
    if isinstance(item, ErrorCause):
        return _size(item.exception) + _size(item.text) + sum(map(_size, item.trace))
    if isinstance(item, tuple):
        return sum(map(_size, item))
    return len(_text(item).encode()) + 4
