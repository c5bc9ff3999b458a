"""Filters decide which messages a processor is called with; it is not called with the others, which are nil (O3).

A filter is a function of the received message. The filters here are also data: they can be combined, compared and
written down. They answer from a message's headers alone where that suffices, and then it is never decoded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from cues_kafka.errors import GraphError
from cues_kafka.ports.log import Headers

TYPE_HEADER = "cues-type"
TAGS_HEADER = "cues-tags"


class Filterable(Protocol):
    """The parts of a message that a filter may read."""

    @property
    def value(self) -> Any: ...

    @property
    def headers(self) -> Headers | None: ...


Predicate: TypeAlias = Callable[[Any], bool]
"""Takes a received message, and says whether it passes: any function, or a filter of this module."""


class Filter:
    """The base of filters that are data: `a & b` passes what both pass, `a | b` what one passes, `~a` the others."""

    __slots__ = ()

    def __call__(self, message: Filterable) -> bool:
        """Whether the message passes."""
        raise NotImplementedError

    def by_headers(self, headers: Headers) -> bool | None:
        """What the headers alone decide; None: the value decides."""
        return None

    def __and__(self, other: Predicate) -> AllOf:
        return AllOf(_members(AllOf, self, other, "&"))

    def __rand__(self, other: Predicate) -> AllOf:
        return AllOf(_members(AllOf, other, self, "&"))

    def __or__(self, other: Predicate) -> AnyOf:
        return AnyOf(_members(AnyOf, self, other, "|"))

    def __ror__(self, other: Predicate) -> AnyOf:
        return AnyOf(_members(AnyOf, other, self, "|"))

    def __invert__(self) -> Filter:
        return self.filter if isinstance(self, Not) else Not(self)

    def __bool__(self) -> bool:
        raise GraphError(
            "A filter is neither true nor false by itself, so 'and', 'or' and 'not' do not combine filters. Write "
            "a & b, a | b and ~a."
        )


@dataclass(frozen=True, slots=True)
class HasType(Filter):
    """The filter of `has_type`."""

    types: tuple[type[Any] | str, ...]

    def __call__(self, message: Filterable) -> bool:
        value = message.value
        named = _header(message.headers, TYPE_HEADER) or _field(value, "type")
        record = _record_name(value)
        names = {named, record, record.rpartition(".")[2]}
        return any(isinstance(value, one) if isinstance(one, type) else one in names for one in self.types)

    def by_headers(self, headers: Headers) -> bool | None:
        """It passes by the header's name; by another name the value may still be of the type."""
        return True if _header(headers, TYPE_HEADER) in self.types else None


@dataclass(frozen=True, slots=True)
class HasTag(Filter):
    """The filter of `has_tag`."""

    tags: tuple[str, ...]

    def __call__(self, message: Filterable) -> bool:
        if (decided := self.by_headers(message.headers or [])) is not None:
            return decided
        match found := _field(message.value, "tags"):
            case str():
                return found in self.tags
            case Mapping():
                return any(found.get(tag) for tag in self.tags)
        return isinstance(found, Collection) and any(tag in found for tag in self.tags)

    def by_headers(self, headers: Headers) -> bool | None:
        """The header decides where there is one."""
        header = _header(headers, TAGS_HEADER)
        return None if header is None else not set(self.tags).isdisjoint(header.split(","))


@dataclass(frozen=True, slots=True)
class HasHeader(Filter):
    """The filter of `has_header`."""

    name: str
    value: str | bytes | None = None

    def __call__(self, message: Filterable) -> bool:
        return self.by_headers(message.headers or [])

    def by_headers(self, headers: Headers) -> bool:
        """The headers always decide."""
        wanted = self.value.encode() if isinstance(self.value, str) else self.value
        return any(name == self.name and (wanted is None or value == wanted) for name, value in headers)


@dataclass(frozen=True, slots=True)
class AllOf(Filter):
    """Passes messages that each of these filters passes: `a & b`. The first that refuses one is the last asked."""

    filters: tuple[Predicate, ...]

    def __call__(self, message: Filterable) -> bool:
        return all(one(message) for one in self.filters)

    def by_headers(self, headers: Headers) -> bool | None:
        """False if one is refused, None if one is not decided."""
        decided = [_decided(one, headers) for one in self.filters]
        return False if False in decided else None if None in decided else True


@dataclass(frozen=True, slots=True)
class AnyOf(Filter):
    """Passes messages that one of these filters passes: `a | b`. The first that passes one is the last asked."""

    filters: tuple[Predicate, ...]

    def __call__(self, message: Filterable) -> bool:
        return any(one(message) for one in self.filters)

    def by_headers(self, headers: Headers) -> bool | None:
        """True if one passes, None if one is not decided."""
        decided = [_decided(one, headers) for one in self.filters]
        return True if True in decided else None if None in decided else False


@dataclass(frozen=True, slots=True)
class Not(Filter):
    """Passes the messages that this filter refuses: `~a`."""

    filter: Filter

    def __call__(self, message: Filterable) -> bool:
        return not self.filter(message)

    def by_headers(self, headers: Headers) -> bool | None:
        """The contrary of what is decided."""
        decided = self.filter.by_headers(headers)
        return None if decided is None else not decided


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
        given = ", ".join(map(repr, types))
        raise GraphError(f"has_type({given}): takes classes or names. Write has_type(Order) or has_type('order').")
    return HasType(types)


def has_tag(*tags: str) -> HasTag:
    """
    Pass messages with one of these tags in the header ``cues-tags`` (separated by commas), else in the field ``tags``.

    The field may be a list of tags, one tag, or a mapping, in which the value of the tag must be true.

    Raises:
        GraphError: not names.
    """
    if not tags or not all(isinstance(tag, str) for tag in tags):
        raise GraphError(f"has_tag{tags!r}: takes names. Write has_tag('audit').")
    return HasTag(tags)


def has_header(name: str, value: str | bytes | None = None) -> HasHeader:
    """
    Pass messages with a header of this name. They are filtered before they are decoded.

    Args:
        name: of the header.
        value: which one of its headers of this name must have; text is compared as UTF-8. None: any value, or none.

    Raises:
        GraphError: not a name, or not a value.
    """
    if not isinstance(name, str) or not name:
        raise GraphError(f"has_header({name!r}): takes the name of a header. Write has_header('region').")
    if not isinstance(value, str | bytes | None):
        raise GraphError(
            f"has_header({name!r}, {value!r}): a header's value is text or bytes. Write has_header({name!r}, "
            f"{str(value)!r})."
        )
    return HasHeader(name, value)


def check_filter(predicate: object, label: str) -> None:
    """
    Check what is given as `filter=`.

    Raises:
        GraphError: it cannot be called with one message, or its answer would always count as true.
    """
    if predicate is None or isinstance(predicate, Filter):
        return
    name = getattr(predicate, "__name__", None) or repr(predicate)
    if predicate in (has_type, has_tag, has_header) or isinstance(predicate, type) or not callable(predicate):
        raise GraphError(f"{label}: filter={name} is not a filter. Write filter=has_type(...), or a function.")
    if inspect.iscoroutinefunction(predicate):
        raise GraphError(f"{label}: filter={name} is a coroutine function. Write it with def.")
    try:
        inspect.signature(predicate).bind(None)
    except ValueError:  # a builtin that does not tell its parameters
        return
    except TypeError as error:
        raise GraphError(
            f"{label}: filter={name} cannot be called with one message: {error}. Write def {name}(received) -> bool."
        ) from None


def _members(cls: type[AllOf | AnyOf], left: Predicate, right: Predicate, sign: str) -> tuple[Predicate, ...]:
    """The filters of a combination; those of one within another are its own, so that equal ones compare equal."""
    for one in (left, right):
        if not callable(one) or isinstance(one, type):
            raise GraphError(
                f"{sign} combines filters, and {one!r} is none. Write has_type('order') {sign} has_tag('audit'), or "
                "give a function of the received message."
            )
    return tuple(member for one in (left, right) for member in (one.filters if isinstance(one, cls) else (one,)))


def _decided(predicate: Predicate, headers: Headers) -> bool | None:
    return predicate.by_headers(headers) if isinstance(predicate, Filter) else None


def _record_name(value: Any) -> str:
    """The full name of a Protobuf message or an Avro record, else the name of the value's class."""
    described = getattr(type(value), "DESCRIPTOR", None)
    return str(getattr(described, "full_name", None) or getattr(value, "record_name", type(value).__name__))


def _header(headers: Headers | None, name: str) -> str | None:
    for key, value in headers or ():
        if key == name and value is not None:
            return value.decode(errors="replace")
    return None


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
