"""Twins: what msgspec reads in place of a dataclass that it cannot read by itself.

msgspec reads a dataclass in C, except for aliases, unions of dataclasses that a Literal tells apart, fields with
``init=False`` and constructors written by hand. For such a class it reads a `msgspec.Struct` with the same fields, and
the instance is made from that. Aliases and tags are the Struct's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final, ForwardRef, Literal, TypeAlias, Union

import msgspec

from cues_kafka.codecs.schema import (
    Anything,
    Choice,
    Fixed,
    Items,
    Mapped,
    Null,
    OneOf,
    Ref,
    Scalar,
    Shape,
    Structure,
    classes_of,
    is_struct,
    shape_name,
    tags_of,
    within,
)
from cues_kafka.errors import GraphError

Tag: TypeAlias = tuple[str, str | int]
"""The name of a field, and the one value that it has in the messages of a twin."""

_STRUCTS_ALL_THROUGH: Final = (
    "a msgspec.Struct cannot hold a dataclass with an Alias, with a field that is not passed to it, or one that a "
    "Literal tells apart. Make that a msgspec.Struct, too."
)


def is_native(shape: Shape) -> bool:
    """
    Whether msgspec reads and writes it as it is.

    Raises:
        GraphError: a `msgspec.Struct`, which has no twin, holds a class that needs one.
    """
    inner = [*within(shape)]
    if all(map(_by_itself, inner)):
        return True
    for one in inner:
        if isinstance(one, Structure) and is_struct(one.cls) and not _closed(one):
            raise GraphError(f"{one.cls.__name__}: {_STRUCTS_ALL_THROUGH}")
    return False


def _by_itself(shape: Shape) -> bool:
    match shape:
        case Structure(cls, fields) if not is_struct(cls):
            every = bool(cls.__dataclass_params__.init) and len(dataclasses.fields(cls)) == len(fields)
            return every and not any(each.alias for each in fields)
        case OneOf(options):
            return not _told_apart(options)
    return True


def _closed(struct: Structure) -> bool:
    """Whether all in a Struct, and all that it refers to, needs no twin."""
    inner, own = [*within(struct)], {*classes_of(struct)}
    return all(map(_by_itself, inner)) and all(one.cls in own for one in inner if isinstance(one, Ref))


def _told_apart(options: tuple[Shape, ...]) -> bool:
    records = _records(options)
    return len(records) > 1 and not all(is_struct(one.cls) for one in records)


def _records(options: tuple[Shape, ...]) -> list[Structure]:
    return [one for one in options if isinstance(one, Structure)]


def _left_out() -> Any:
    return ...


class Twins:
    """Makes the twins of one shape that is not native."""

    def __init__(self) -> None:
        self._made: dict[tuple[type[Any], Tag | None], type[msgspec.Struct]] = {}
        self._inside: dict[type[Any], Any] = {}  # what stands for a class inside itself
        self._revive: dict[type[Any], Callable[[Any], Any]] = {
            list: lambda items: [*map(self.revive, items)],
            tuple: lambda items: tuple(map(self.revive, items)),
            dict: lambda items: {key: self.revive(item) for key, item in items.items()},
        }

    def annotation(self, shape: Shape) -> Any:
        """What msgspec reads."""
        made = self._annotation(shape)
        for twin in self._made.values():  # msgspec looks names up in the class
            for other in self._made.values():
                setattr(twin, other.__name__, other)
        return made

    def revive(self, value: Any) -> Any:
        """The value of what msgspec read."""
        made = self._revive.get(type(value))
        return value if made is None else made(value)

    def _annotation(self, shape: Shape) -> Any:
        match shape:
            case Anything():
                return Any
            case Null():
                return None
            case Scalar(cls):
                return cls
            case Choice(values, enum):
                return enum or Literal[values]
            case Items(item, container):
                inner = self._annotation(item)
                return tuple[inner, ...] if container is tuple else list[inner]  # type: ignore[valid-type]
            case Fixed(items):
                return tuple[tuple(map(self._annotation, items))]  # type: ignore[misc]
            case Mapped(value):
                return dict[str, self._annotation(value)]  # type: ignore[misc]
            case OneOf(options):
                return _any_of([each for option in options for each in self._option(option, options)])
            case Structure(cls):
                return cls if is_struct(cls) else self._twins(shape, [None])[0]
            case Ref(cls):
                return self._inside[cls]

    def _option(self, option: Shape, options: tuple[Shape, ...]) -> list[Any]:
        """One option of a union as msgspec reads it; a dataclass with a tag of several values is several."""
        if isinstance(option, Structure) and not is_struct(option.cls) and _told_apart(options):
            name, values = _tags(option, options)
            return self._twins(option, [(name, value) for value in values])
        return [self._annotation(option)]

    def _twins(self, record: Structure, tags: Sequence[Tag | None]) -> list[Any]:
        cls, first = record.cls, len(self._made)
        names = [f"{cls.__name__}_{first + n}" for n in range(len(tags))]
        if (cls, tags[0]) not in self._made:
            self._inside[cls] = _any_of([ForwardRef(name) for name in names])
            for name, tag in zip(names, tags, strict=True):
                twin = self._made[cls, tag] = self._twin(name, record, tag)
                self._revive[twin] = self._maker(record, tag)
        return [self._made[cls, tag] for tag in tags]

    def _twin(self, name: str, record: Structure, tag: Tag | None) -> type[msgspec.Struct]:
        fields = []
        for each in record.fields:
            if tag is None or each.wire_name != tag[0]:
                default = {} if each.default is None else {"default_factory": _left_out}  # a schema takes none
                named = msgspec.field(name=each.wire_name, **default)
                fields.append((each.name, self._annotation(each.shape), named))
        tagged: dict[str, Any] = {"tag_field": tag[0], "tag": tag[1]} if tag else {}
        return msgspec.defstruct(name, fields, kw_only=True, **tagged)

    def _maker(self, record: Structure, tag: Tag | None) -> Callable[[Any], Any]:
        """What makes an instance of the class from a twin."""
        cls, revive = record.cls, self.revive
        fixed = {each.name: tag[1] for each in record.fields if tag and each.wire_name == tag[0]}
        rows = [(each.name, each.default) for each in record.fields if each.name not in fixed]

        def make(twin: Any) -> Any:
            values = {**fixed}
            for name, default in rows:
                value = getattr(twin, name)
                values[name] = default() if value is ... and default is not None else revive(value)
            return cls(**values)

        return make


def _any_of(annotations: list[Any]) -> Any:
    return Union[tuple(annotations)]  # noqa: UP007  made of a list


def _tags(record: Structure, options: tuple[Shape, ...]) -> tuple[str, tuple[Any, ...]]:
    """The field by which all records of a union are told apart, and its values for this one."""
    common = set.intersection(*(set(tags_of(one)) for one in _records(options)))
    for each in record.fields:
        if isinstance(each.shape, Choice) and each.shape.cls is None and each.wire_name in common:
            return each.wire_name, each.shape.values
    raise GraphError(
        f"{' | '.join(map(shape_name, options))}: no field tells all of them apart. Give each a field "
        "of one name, like `kind: Literal['a']`."
    )
