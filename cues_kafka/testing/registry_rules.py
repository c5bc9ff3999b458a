"""Some of a registry's rules for JSON Schema and Protobuf: which texts are schemas, and which may follow which."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from cues_kafka.codecs.avro_compat import problems
from cues_kafka.codecs.avro_schema import parse


def parsed(kind: str, text: str, references: Sequence[tuple[str, str]]) -> Any:
    """
    The schema that a text holds.

    Raises:
        ValueError: it is none, or names a schema that is not given.
    """
    if kind == "AVRO":
        return parse(text, [one for _, one in references])
    if kind == "JSON":
        return json.loads(text)
    return _protobuf(text, {name for name, _ in references})


def _protobuf(text: str, given: set[str]) -> Any:
    from cues_kafka.codecs.protobuf_files import file_of  # noqa: PLC0415  an extra

    if (file := file_of(text)) is None:
        raise ValueError("only serialized descriptions are known here")
    lacking = [name for name in file.dependency if name not in given and not name.startswith("google/protobuf/")]
    if lacking:
        raise ValueError(f"no reference for {', '.join(lacking)}")
    return file


def unfit(kind: str, writer: Any, reader: Any) -> list[str]:
    """What of a writer's messages a reader could not read: for Avro all of it, else only the common mistakes."""
    if kind == "AVRO":
        return problems(writer, reader)
    return list(_json(writer, reader) if kind == "JSON" else _messages(writer, reader))


def _json(writer: Any, reader: Any) -> Iterator[str]:
    was, now = writer.get("properties", {}), reader.get("properties", {})
    for name in reader.get("required", ()):
        if name not in writer.get("required", ()):
            yield f"{name} is required now"
    for name in was.keys() & now.keys():
        if was[name].get("type") != now[name].get("type"):
            yield f"{name} has another type"


def _messages(writer: Any, reader: Any) -> Iterator[str]:
    known = {message.name: message for message in reader.message_type}
    for message in writer.message_type:
        if message.name not in known:
            yield f"{message.name} is gone"
            continue
        fields = {field.number: field for field in known[message.name].field}
        for field in message.field:
            if field.number in fields and fields[field.number].type != field.type:
                yield f"{message.name}.{field.name} has another type"
