"""Filters decide which messages a processor is called with; it is not called with the others, which are nil (O3).

A filter is a function of the received message. The two filters here are also data: graphs with them can be compared and
written down.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cues_kafka.errors import GraphError
from cues_kafka.ports import Headers

TYPE_HEADER = "cues-type"
TAGS_HEADER = "cues-tags"


class Filterable(Protocol):
    """The parts of a message that a filter may read."""

    @property
    def value(self) -> Any: ...

    @property
    def headers(self) -> Headers | None: ...


@dataclass(frozen=True, slots=True)
class HasType:
    """The filter of `has_type`."""

    types: tuple[type[Any] | str, ...]

    def __call__(self, message: Filterable) -> bool:
        value = message.value
        named = _header(message, TYPE_HEADER) or _field(value, "type")
        record = _record_name(value)
        names = {named, record, record.rpartition(".")[2]}
        return any(isinstance(value, one) if isinstance(one, type) else one in names for one in self.types)


@dataclass(frozen=True, slots=True)
class HasTag:
    """The filter of `has_tag`."""

    tags: tuple[str, ...]

    def __call__(self, message: Filterable) -> bool:
        header = _header(message, TAGS_HEADER)
        found = header.split(",") if header is not None else _field(message.value, "tags")
        if isinstance(found, str):
            found = (found,)
        return isinstance(found, Collection) and any(tag in found for tag in self.tags)


def has_type(*types: type[Any] | str) -> HasType:
    """
    Pass messages of one of these types.

    Args:
        types: classes of values; or names, which the header ``cues-type`` or else the field ``type`` holds, or which
            name the value's class, Avro record or Protobuf message.

    Raises:
        GraphError: neither classes nor names.
    """
    if not types or not all(isinstance(one, type | str) for one in types):
        raise GraphError(f"has_type{types!r}: takes classes or names. Write has_type(Order) or has_type('order').")
    return HasType(types)


def has_tag(*tags: str) -> HasTag:
    """
    Pass messages with one of these tags in the header ``cues-tags`` (separated by commas), else in the field ``tags``.

    Raises:
        GraphError: not names.
    """
    if not tags or not all(isinstance(tag, str) for tag in tags):
        raise GraphError(f"has_tag{tags!r}: takes names. Write has_tag('audit').")
    return HasTag(tags)


def _record_name(value: Any) -> str:
    """The full name of a Protobuf message or an Avro record, else the name of the value's class."""
    described = getattr(type(value), "DESCRIPTOR", None)
    return str(getattr(described, "full_name", None) or getattr(value, "record_name", type(value).__name__))


def _header(message: Filterable, name: str) -> str | None:
    for key, value in message.headers or ():
        if key == name and value is not None:
            return value.decode(errors="replace")
    return None


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
