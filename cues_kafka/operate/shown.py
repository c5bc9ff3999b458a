"""Values of messages as text for people: what `tail`, `errors show` and the browser view print."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final

from cues_kafka.graph.error_message import ErrorMessage
from cues_kafka.task.calling.step import Received
from cues_kafka.words import as_data

TOMBSTONE: Final = "(tombstone)"
"""Stands for the value of a message that has none; null is a value of JSON."""


def value_text(message: Received) -> str:
    """The decoded value of a message on one line, without escapes: bytes as text, all else as JSON."""
    if message.value_bytes is None:
        return TOMBSTONE
    if isinstance(message.value, bytes):
        return message.value.decode(errors="backslashreplace")
    return plain_json(message.value)


def key_text(data: bytes | None) -> str:
    """The bytes of a key as text, without escapes; a hyphen: the message has none."""
    return "-" if data is None else data.decode(errors="backslashreplace")


def plain_json(value: Any) -> str:
    """A value as JSON. What JSON has no form for is text: some numbers, such as ``"NaN"``, and keys of other types."""
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):  # a key of another type, a number without a form
        text = json.dumps(_with_text_keys(value), default=lambda one: _with_text_keys(_plain(one)), ensure_ascii=False)
        return json.dumps(json.loads(text, parse_constant=str), ensure_ascii=False)


def _with_text_keys(value: Any) -> Any:
    """A value whose dictionaries have keys that JSON takes."""
    if isinstance(value, dict):
        return {_as_key(key): _with_text_keys(one) for key, one in value.items()}
    return [*map(_with_text_keys, value)] if isinstance(value, list | tuple) else value


def _as_key(key: Any) -> Any:
    if key is None or isinstance(key, str | int | float):
        return key
    return key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key)


def _plain(value: Any) -> Any:
    """A value that JSON has no form for: an object as its fields, and all else as text."""
    if isinstance(value, ErrorMessage):
        return of_error(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    fields = None if isinstance(value, type) else getattr(value, "__struct_fields__", None)  # of a `msgspec.Struct`
    return str(value) if fields is None else {name: getattr(value, name) for name in fields}


def of_error(error: ErrorMessage) -> dict[str, Any]:
    """An error message with its hash as the log prints it, its messages by topic, and bytes as text or base64."""
    fields: dict[str, Any] = {field.name: getattr(error, field.name) for field in dataclasses.fields(error)}
    topics = error.topics or tuple(one.topic_id.hex() for one in error.consumed)
    consumed = [
        {"binding": one.binding, "topic": topic, "partition": one.partition, "offset": one.offset}
        for topic, one in zip(topics, error.consumed, strict=False)
    ]
    for name in ("key", "payload"):
        if isinstance(data := fields[name], bytes):
            fields |= as_data(name, data)
    return {**fields, "hash": error.hash.hex(), "consumed": consumed}
