"""Avro schemas that name others, as registries keep them: each in a subject of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from cues_kafka.codecs.registered import Own


def with_references(text: str, known: Mapping[str, str], above: tuple[str, ...]) -> Own:
    """A schema with those of the known ones that it names itself, and so on."""
    if not known:
        return Own(text)
    found = {*_names(json.loads(text), "")}
    named = [(name, one) for name, one in known.items() if name in found and name not in above]
    return Own(text, "AVRO", tuple((name, with_references(one, known, (*above, name))) for name, one in named))


def in_order(references: tuple[tuple[str, Own], ...]) -> list[str]:
    """The texts of these schemas and of those that they name; each once, those that others need first."""
    found: dict[str, str] = {}

    def collect(named: tuple[tuple[str, Own], ...]) -> None:
        for name, own in named:
            if name not in found:
                collect(own.references)
                found[name] = own.text

    collect(references)
    return list(found.values())


def _names(schema: Any, space: str) -> Iterator[str]:
    """The names of types in a schema, as they are written, and as they are in its namespace."""
    if isinstance(schema, str):
        yield schema
        if space and "." not in schema:
            yield f"{space}.{schema}"
    elif isinstance(schema, list):
        for option in schema:
            yield from _names(option, space)
    elif isinstance(schema, dict):
        space = _space(schema, space)
        fields = schema.get("fields", ())
        inner = [one.get("type") for one in fields if isinstance(one, dict)] if isinstance(fields, list) else []
        for one in (schema.get("type"), schema.get("items"), schema.get("values"), *inner):
            yield from _names(one, space)


def _space(schema: dict[str, Any], space: str) -> str:
    """The namespace inside of a named type."""
    name = schema.get("name")
    if isinstance(name, str) and "." in name:
        return name.rpartition(".")[0]
    given = schema.get("namespace")
    return given if isinstance(given, str) else space
